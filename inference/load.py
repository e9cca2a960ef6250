"""From a checkpoint to a model on a device and the builder of its examples."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

import torch
from transformers import AutoConfig, AutoTokenizer

from turngraph.configs.models import (
    code_hint,
    find_on_hub,
    resolve_model,
    sentence_encoder,
    where_looked,
)
from turngraph.configs.schema import Config
from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.embedding import cached
from turngraph.data.examples import ExampleBuilder
from turngraph.data.prompt import Prompt
from turngraph.data.types import Conversation
from turngraph.inference.options import LoadOptions
from turngraph.inference.passage_chooser import Loaded, PassageChooser
from turngraph.model.checkpoint import NODES, Checkpoint, load_checkpoint, read_checkpoint
from turngraph.model.distributed import place, sharding_wanted
from turngraph.model.graph_lm import GraphLM

logger = logging.getLogger("infer")


def load(
    checkpoint: Checkpoint, options: LoadOptions = LoadOptions(), beside: GraphLM | None = None
) -> tuple[GraphLM, ExampleBuilder]:
    """Load a checkpoint's model in evaluation mode, and the builder of its examples.

    Args:
        checkpoint: of the model.
        options: how it is loaded.
        beside: a loaded model, whose frozen weights nodes use where they have the same; they read
            them from its memory.

    Raises:
        UserError: base model, tokenizer or device cannot be used.
    """
    device = device_of(options.device)
    trusted = options.trust_remote_code
    logger.info("loading %s", options.base_model or checkpoint.config.model.base_model)
    model = load_checkpoint(checkpoint, options.base_model, options.quantization, trusted)
    reader = None if model.scorer is None else model.scorer.reader
    if reader and beside and model.base_fingerprint == beside.base_fingerprint:
        reader.share_weights(beside.causal_lm)
    try:
        place(model, torch.device(device))
    except RuntimeError as error:
        raise UserError(f"--device {device!r}: {error}") from None
    logger.info("checkpoint %s on %s", checkpoint.folder, device)
    config = replace(checkpoint.config, evidence=options.applied(checkpoint.config.evidence))
    builder = load_builder(config, options.base_model, options.device, trusted)
    if config.proposer is not None:
        builder.chooser = own_chooser(checkpoint, options, model)
    return model, builder


def own_chooser(checkpoint: Checkpoint, options: LoadOptions, lm: GraphLM) -> PassageChooser:
    """Load the nodes of an LM's checkpoint, which choose its passages.

    Layers that the nodes read are the LM's own in memory, unless their types differ.

    Args:
        checkpoint: of the LM.
        options: how it is loaded.
        lm: the LM.

    Raises:
        UserError: they cannot be loaded.
    """
    if sharding_wanted():
        raise UserError(f"{checkpoint.folder}: nodes that choose are not possible under FSDP")
    nodes = read_checkpoint(checkpoint.folder / NODES)
    its, own = nodes.config.model, checkpoint.config.model
    moved = options.base_model if its.base_model == own.base_model else None
    types = (its.dtype, its.quantization), (own.dtype, lm.config.quantization)
    beside = lm if types[0] == types[1] else None
    options = replace(options, base_model=moved, quantization=None)
    chooser = chooser_of([nodes], options, beside=beside)
    chooser.loaded(0)
    return chooser


def chooser_of(
    checkpoints: Sequence[Checkpoint],
    options: LoadOptions | None = None,
    part: Callable[[Conversation], int] = lambda conversation: 0,
    state_folder: str | None = None,
    beside: GraphLM | None = None,
) -> PassageChooser:
    """Make a chooser of the nodes in checkpoints, which it loads when they are needed.

    Args:
        checkpoints: of nodes.
        options: how they are loaded; None: as they were trained.
        part: returns the index of the checkpoint for a conversation.
        state_folder: as in the training config.
        beside: as in ``load``.
    """

    def loaded(checkpoint: Checkpoint) -> Loaded:
        model, builder = load(checkpoint, options or LoadOptions(), beside)
        model.keep_states(state_folder)
        return model, builder

    known = " ".join(checkpoint.hash for checkpoint in checkpoints)
    config = checkpoints[0].config
    make = partial(load_builder, config, trusted=config.model.trust_remote_code)
    return PassageChooser([partial(loaded, one) for one in checkpoints], known, part, make)


def device_of(device: str | None) -> str:
    """Return the device that was asked for, else ``cuda`` where there is a GPU, else ``cpu``.

    Raises:
        UserError: the device that was asked for is not there.
    """
    if not device:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.device(device)
        devices = torch.get_device_module(found)
    except RuntimeError as error:
        raise UserError(f"--device {device!r}: {error}") from None
    if not devices.is_available() or (found.index or 0) >= devices.device_count():
        raise UserError(f"--device {device!r}: this machine or this PyTorch has none")
    return device


def load_builder(
    config: Config,
    base_model: str | None = None,
    device: str | None = None,
    trusted: Collection[str] = (),
) -> ExampleBuilder:
    """Load tokenizer and sentence encoder of a config as the builder of its examples.

    Args:
        config: of a run or checkpoint.
        base_model: where its base model is now, if not where the config says.
        device: of the sentence encoder; None: the process's GPU, else the CPU.
        trusted: names of models whose own Python code may run.

    Raises:
        UserError: the tokenizer cannot be found, needs Python code that is not trusted, or has
            tokens that its model does not embed.
    """
    name = base_model or config.model.base_model
    path = resolve_model(name)
    find_on_hub(name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=name in trusted)
        base = AutoConfig.from_pretrained(path, trust_remote_code=name in trusted)
    except (OSError, ValueError) as error:
        reason = f"{error}{code_hint(name, error)}"
        raise UserError(f"tokenizer of {name!r}: {where_looked(name)}: {reason}") from error
    prompt, size = Prompt(tokenizer), base.get_text_config().vocab_size
    if prompt.largest_id >= size:
        raise UserError(
            f"config field model.base_model: the tokenizer of {name!r} has token ids up to "
            f"{prompt.largest_id}, its model has embeddings of {size} tokens"
        )
    builder = ExampleBuilder(
        prompt,
        config.evidence,
        memory_graph=config.memory_graph,
        mentions=config.model.answers == "nodes",
    )
    if builder.needs_embed:  # loaded with the first texts
        builder.embed = cached(sentence_encoder(config.evidence.embedder, device, trusted))
    if builder.corpus is not None:
        corpus = builder.corpus.corpus
        logger.info("corpus %s: %s", corpus.folder, plural(len(corpus), "passage"))
    return builder
