"""Shards a model over processes with FSDP2, and gathers sharded tensors.

Every process holds a shard of every weight, and gathers a layer's weights to compute it. The
launcher switches it on, so that a run's config and checkpoints are the same with and without:
``accelerate launch --config_file configs/accelerate/fsdp2.yaml``, or the variables that it sets.
The weights are grouped here and not by accelerate, on GPUs and CPUs alike.
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

from turngraph.configs.user_error import UserError
from turngraph.model.base_model import decoder_layers, has_bfloat16
from turngraph.model.evidence_model import EvidenceModel
from turngraph.model.graph_at_layer import GraphAtLayer

logger = logging.getLogger(__name__)
REFUSED = {
    "FSDP_OFFLOAD_PARAMS": "offloading to CPU is not supported",
    "FSDP_ACTIVATION_CHECKPOINTING": "the config field is model.gradient_checkpointing",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "every process reads the base model itself",
}
"""accelerate's settings that have no effect here, and the alternative."""


def gather(tensor: Tensor) -> Tensor:
    """Copy a tensor to the CPU; if it is sharded, every process must call this to gather it."""
    return full(tensor).detach().cpu().contiguous()


def full(tensor: Tensor) -> Tensor:
    """Return a tensor as it is, or gathered if it is sharded; every process must call this."""
    gathered: Tensor = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return gathered


def placed_like(value: Tensor, other: Tensor) -> Tensor:
    """Move a full tensor to another one's device, or shard it like the other one."""
    if isinstance(other, DTensor):
        return distribute_tensor(
            value.to(other.device_mesh.device_type), other.device_mesh, other.placements
        )
    return value.to(other.device)


def sharding_wanted() -> bool:
    """Tell whether the launcher asks for FSDP: ``distributed_type: FSDP`` in accelerate's config.

    Raises:
        UserError: it asks for FSDP's first version, sets an option of ``REFUSED``, or started a
            single process without a process group.
    """
    if not _is_true("ACCELERATE_USE_FSDP"):
        return False
    version = os.environ.get("FSDP_VERSION", "1")
    if version != "2":
        raise UserError(_wrong_setting("FSDP_VERSION", version, "must be 2"))
    for name, reason in REFUSED.items():
        if _is_true(name):
            raise UserError(_wrong_setting(name, "true", f"must be false: {reason}"))
    if not distributed.is_initialized():
        raise UserError(
            "ACCELERATE_USE_FSDP: set, but there is no process group; start with accelerate launch"
        )
    return True


def _wrong_setting(name: str, value: str, must: str) -> str:
    return f"accelerate config field fsdp_config.{name.lower()}: {value} given, {must}"


def _is_true(variable: str) -> bool:
    return os.environ.get(variable, "false").lower() in ("true", "1")


def place(model: EvidenceModel, device: torch.device) -> EvidenceModel:
    """Move a model to its device; shard it over the processes if the launcher asks for it.

    On a CPU without bfloat16 a bfloat16 model computes in float32, and a log line says so.

    Raises:
        UserError: as ``sharding_wanted`` and ``shard``.
    """
    if model.config.dtype == "bfloat16" and not has_bfloat16(device):
        logger.info("this CPU has no bfloat16 instructions: computing in float32, much faster here")
        model.compute_in_float32()
    return shard(model, device) if sharding_wanted() else model.to(device)


def shard(model: EvidenceModel, device: torch.device) -> EvidenceModel:
    """Shard a model over all processes, in place: each decoder layer, the encoder, the rest.

    All processes must start from equal weights. Make the optimizer afterwards, because it must
    hold the shards. Every process must then call ``forward`` and ``generate`` at the same time.
    Parts are moved to the device one by one, so that no device ever holds the full model.

    Raises:
        UserError: the base model is quantized, or its decoder layers are not found.
    """
    if model.config.quantization != "none":
        raise UserError(
            f"config field model.quantization: {model.config.quantization!r} given, must be none "
            "under FSDP; use data parallelism without sharding"
        )
    num_processes = distributed.get_world_size()
    mesh = init_device_mesh(device.type, (num_processes,))
    layers = decoder_layers(model.causal_lm) if model.lm is not None else []
    graphs = [  # modules whose ``forward`` runs: of a reader's graph, only the scorer's does
        part.scorer if isinstance(part, GraphAtLayer) else part
        for part in model.graph_parts.values()
    ]
    parts = [*layers, *graphs, model]
    for part in parts:
        fully_shard(part, mesh=mesh, reshard_after_forward=True)
    for method in ("generate", "answer_logprobs", "node_scores", "read"):
        if hasattr(model, method):
            register_fsdp_forward_method(model, method)
    logger.info("sharded over %d processes, in %d parts", num_processes, len(parts))
    return model


def is_sharded(model: nn.Module) -> bool:
    """Tell whether ``shard`` was called on a model."""
    return isinstance(model, FSDPModule)


@contextmanager
def process_group_ended() -> Iterator[None]:
    """Destroy the process group at the end of the context, also on ``SystemExit``.

    All processes must leave the context together. The group's threads must not outlive the
    interpreter, because the process could then abort and lose its exit code.
    """
    try:
        yield
    except SystemExit:
        PartialState().destroy_process_group()
        raise
    PartialState().destroy_process_group()
