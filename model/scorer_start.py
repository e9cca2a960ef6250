"""Starts a scorer from that of a checkpoint that answers from nodes."""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from turngraph.model.checkpoint import GRAPH_FILES, check_base, read_checkpoint
from turngraph.model.distributed import placed_like
from turngraph.model.graph_lm import GraphLM
from turngraph.model.tensor_files import read_tensors

logger = logging.getLogger("train")


@torch.no_grad()
def start_scorer(model: GraphLM, folder: str | Path) -> None:
    """Copy the scorer of a checkpoint into a model with ``answers: choice``.

    Args:
        model: the model, sharded or not.
        folder: a checkpoint with ``answers: nodes``.

    Raises:
        ValueError: it is no such checkpoint, was trained on another base model, or its scorer has
            other tensors than the model's.
    """
    assert model.scorer is not None, "answers: text has no scorer"
    name = f"config field model.scorer.init: {folder}"
    try:
        checkpoint = read_checkpoint(folder)
        if (answers := checkpoint.config.model.answers) != "nodes":
            raise ValueError(f"its model.answers is {answers}, must be nodes")
        check_base(model, checkpoint.folder)
        own = model.scorer.saved_state()
        own = {k: v for k, v in own.items() if not k.startswith(("up.", "deep."))}
        state = read_tensors(checkpoint.folder / GRAPH_FILES["scorer"], own)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    for tensor_name, tensor in own.items():
        tensor.copy_(placed_like(state[tensor_name], tensor))
    logger.info("the scorer starts from %s", folder)
