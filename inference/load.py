"""From the options of a command to a model and its example builder."""

from __future__ import annotations

import argparse
import logging

import torch
from transformers import AutoTokenizer

from turngraph.configs.models import resolve_model, sentence_encoder, where_looked
from turngraph.configs.schema import Config
from turngraph.data.embedding import cached
from turngraph.data.examples import ExampleBuilder
from turngraph.data.prompt import Prompt
from turngraph.model.checkpoint import checkpoint_config, load_checkpoint
from turngraph.model.distributed import place
from turngraph.model.graph_lm import GraphLM

logger = logging.getLogger("infer")


def load(args: argparse.Namespace) -> tuple[GraphLM, ExampleBuilder]:
    """Model and example builder of a checkpoint."""
    device = device_of(args)
    model = load_checkpoint(args.checkpoint, args.base_model, args.quantization)
    try:
        place(model, torch.device(device))
    except RuntimeError as error:
        raise ValueError(f"--device {device!r}: {error}") from None
    logger.info("checkpoint %s on %s", args.checkpoint, device)
    config = checkpoint_config(args.checkpoint)
    return model, load_builder(config, args.base_model, args.device)


def check_writes(checkpoint: str) -> None:
    """Whether a checkpoint's LM writes its answers.

    Raises:
        ValueError: it does not.
    """
    if checkpoint_config(checkpoint).model.answers == "nodes":
        raise ValueError(
            f"{checkpoint}: model.answers is nodes, so that no text is generated; infer.py answer"
            " takes it (without --explain), and answer and chat as --proposals of an LM"
        )


def device_of(args: argparse.Namespace) -> str:
    """The device that was asked for, or the first GPU, or the CPU.

    Raises:
        ValueError: the device that was asked for is not there.
    """
    if not args.device:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(args.device)
        devices = torch.get_device_module(device)
    except RuntimeError as error:
        raise ValueError(f"--device {args.device!r}: {error}") from None
    if not devices.is_available() or (device.index or 0) >= devices.device_count():
        raise ValueError(f"--device {args.device!r}: this machine or this PyTorch has none")
    return args.device


def load_builder(
    config: Config, base_model: str | None = None, device: str | None = None
) -> ExampleBuilder:
    """The example builder of a config, with tokenizer and sentence encoder.

    Args:
        config: of a run or checkpoint.
        base_model: where its base model is now, if not where the config says.
        device: of the sentence encoder; None: the process's GPU, else the CPU.

    Raises:
        ValueError: the tokenizer cannot be found.
    """
    name = base_model or config.model.base_model
    path = resolve_model(name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"tokenizer of {name!r}: {where_looked(name)}: {error}") from error
    builder = ExampleBuilder(
        Prompt(tokenizer),
        config.evidence,
        memory_graph=config.memory_graph,
        mentions=config.model.answers == "nodes",
    )
    if builder.needs_embed:  # loaded with the first texts
        builder.embed = cached(sentence_encoder(config.evidence.embedder, device))
    return builder
