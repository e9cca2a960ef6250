"""Loads a checkpoint: its model on a device, and the builder of its examples."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace

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
from turngraph.data.graph.chain_graph import CutEdges
from turngraph.data.prompt import Prompt
from turngraph.inference.model_options import make_embed
from turngraph.inference.options import LoadOptions
from turngraph.model.checkpoint import Checkpoint, load_checkpoint
from turngraph.model.distributed import place
from turngraph.model.evidence_model import EvidenceModel

logger = logging.getLogger("infer")


def load(
    checkpoint: Checkpoint,
    options: LoadOptions = LoadOptions(),
    cut: CutEdges = "nothing",
) -> tuple[EvidenceModel, ExampleBuilder]:
    """Load a checkpoint's model in evaluation mode, and the builder of its examples.

    Args:
        checkpoint: checkpoint of the model.
        options: options of loading.
        cut: edges that the builder leaves out or draws at random, as a control.

    Raises:
        UserError: base model, tokenizer or device cannot be used.
    """
    device = device_of(options.device)
    trusted = options.trust_remote_code
    logger.info("loading %s", options.base_model or checkpoint.config.model.base_model)
    model = load_checkpoint(checkpoint, options.base_model, options.quantization, trusted)
    try:
        place(model, torch.device(device))
    except RuntimeError as error:
        raise UserError(f"--device {device!r}: {error}") from None
    logger.info("checkpoint %s on %s", checkpoint.folder, device)
    config = replace(checkpoint.config, evidence=options.applied(checkpoint.config.evidence))
    builder = load_builder(config, options.base_model, options.device, trusted, cut)
    # a reader that points at answers reads a question also without the turns before it
    builder.alone = config.model.answers == "nodes" and config.model.layer > 0
    return model, builder


def device_of(device: str | None) -> str:
    """Return the device that was asked for, else ``cuda`` where there is a GPU, else ``cpu``.

    Raises:
        UserError: the device that was asked for is not there.
    """
    if not device:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        parsed = torch.device(device)
        devices = torch.get_device_module(parsed)
    except RuntimeError as error:
        raise UserError(f"--device {device!r}: {error}") from None
    if not devices.is_available() or (parsed.index or 0) >= devices.device_count():
        raise UserError(f"--device {device!r}: this machine or this PyTorch has no such device")
    return device


def load_builder(
    config: Config,
    base_model: str | None = None,
    device: str | None = None,
    trusted: Collection[str] = (),
    cut: CutEdges = "nothing",
    max_passages: int | None = None,
) -> ExampleBuilder:
    """Load tokenizer and sentence encoder of a config as the builder of its examples.

    Args:
        config: config of a run or checkpoint.
        base_model: path or name of the base model, if not the config's.
        device: device of the sentence encoder; None: the process's GPU, else the CPU.
        trusted: names of models whose own Python code may run.
        cut: as in ``load``.
        max_passages: as in ``ExampleBuilder``.

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
    reads_after = config.model.layer > 0
    prompt, size = Prompt(tokenizer, question_first=reads_after), base.get_text_config().vocab_size
    if prompt.largest_id >= size:
        raise UserError(
            f"config field model.base_model: the tokenizer of {name!r} has token ids up to "
            f"{prompt.largest_id}, its model has embeddings of {size} tokens"
        )
    builder = ExampleBuilder(
        prompt,
        config.evidence,
        cut=cut,
        memory_graph=config.memory_graph,
        mentions=config.model.answers == "nodes" or config.model.layer > 0,
        max_passages=max_passages,
    )
    if builder.needs_embed:  # loaded with the first texts
        embedder = config.evidence.embedder
        on_cpu = device_of(device) == "cpu"
        embed = make_embed(embedder, trusted) if on_cpu else None
        builder.embed = cached(embed or sentence_encoder(embedder, device, trusted))
    if builder.corpus is not None:
        corpus = builder.corpus.corpus
        logger.info("corpus %s: %s", corpus.folder, plural(len(corpus), "passage"))
    return builder
