"""FSDP2: every process holds a part of every weight and gathers a layer while it computes it.

Who starts the processes chooses it, so that a run's config and checkpoints are the same with it and
without: ``accelerate launch --config_file configs/accelerate/fsdp2.yaml``, or the variables that it
sets. Which weights travel together is decided here, for GPUs and for CPUs alike.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from accelerate import PartialState
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

from turngraph.model.base_model import decoder_layers
from turngraph.model.graph_lm import GraphLM

logger = logging.getLogger(__name__)
REFUSED = {
    "FSDP_OFFLOAD_PARAMS": "offloading to CPU is not supported",
    "FSDP_ACTIVATION_CHECKPOINTING": "the config field is model.gradient_checkpointing",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "every process reads the base model itself",
}
"""accelerate's settings that have no effect here, and what has."""


def whole(tensor: Tensor) -> Tensor:
    """A tensor on CPU; one that is sharded over processes is gathered, by all of them."""
    full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return full.detach().cpu().contiguous()


def placed_like(value: Tensor, other: Tensor) -> Tensor:
    """A whole tensor where another one is: on its device, or sharded as it is."""
    if isinstance(other, DTensor):
        return distribute_tensor(
            value.to(other.device_mesh.device_type), other.device_mesh, other.placements
        )
    return value.to(other.device)


def sharding_wanted() -> bool:
    """Whether the launcher asks for FSDP: ``distributed_type: FSDP`` in accelerate's config.

    Raises:
        ValueError: for its first version, with a setting that would be ignored here, or without
            other processes to share with.
    """
    if not _is_true("ACCELERATE_USE_FSDP"):
        return False
    version = os.environ.get("FSDP_VERSION", "1")
    if version != "2":
        raise ValueError(_not_so("FSDP_VERSION", version, "must be 2"))
    for name, reason in REFUSED.items():
        if _is_true(name):
            raise ValueError(_not_so(name, "true", f"must be false: {reason}"))
    if not distributed.is_initialized():
        raise ValueError("ACCELERATE_USE_FSDP: set for one process; start with accelerate launch")
    return True


def _not_so(name: str, value: str, must: str) -> str:
    return f"accelerate config field fsdp_config.{name.lower()}: {value} given, {must}"


def _is_true(variable: str) -> bool:
    return os.environ.get(variable, "false").lower() in ("true", "1")


def place(model: GraphLM, device: torch.device) -> GraphLM:
    """A model on its device, whole, or a part of it in each process if the launcher asks for it.

    Raises:
        ValueError: of ``sharding_wanted`` and ``shard``.
    """
    return shard(model, device) if sharding_wanted() else model.to(device)


def shard(model: GraphLM, device: torch.device) -> GraphLM:
    """Spread a model over all processes, in place: decoder layer by layer, encoder, and the rest.

    Before it the weights must be the same in all processes. Make the optimizer after it: it must
    hold the shards. ``forward`` and ``generate`` then need all processes at the same time. Shards
    move to the device one by one, so that no device ever holds the whole model.

    Raises:
        ValueError: the base model is quantized, or its layers are not known.
    """
    if model.config.quantization != "none":
        raise ValueError(
            f"config field model.quantization: {model.config.quantization!r} given, must be none "
            "under FSDP; data parallelism without shards takes it"
        )
    num_processes = distributed.get_world_size()
    mesh = init_device_mesh(device.type, (num_processes,))
    layers = decoder_layers(model.lm) if model.lm is not None else ()
    parts = (*layers, model.encoder, model.scorer, model)
    parts = [part for part in parts if part is not None]
    for part in parts:
        fully_shard(part, mesh=mesh, reshard_after_forward=True)
    for method in ("generate", "entity_logprobs"):
        register_fsdp_forward_method(model, method)
    logger.info("sharded over %d processes, in %d parts", num_processes, len(parts))
    return model


def is_sharded(model: nn.Module) -> bool:
    """Whether ``shard`` was called on a model."""
    return isinstance(model, FSDPModule)


@contextmanager
def process_group_ended() -> Iterator[None]:
    """End the process group behind what all processes leave together, be it by an exit code.

    Its threads must not outlive the interpreter: a process could abort with another code.
    """
    try:
        yield
    except SystemExit:
        PartialState().destroy_process_group()
        raise
    PartialState().destroy_process_group()
