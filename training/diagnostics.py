"""Reports memory by use, advises when memory runs out, and describes non-finite steps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from turngraph.configs.user_error import UserError
from turngraph.model.device_memory import device_memory, is_out_of_memory, peak_memory
from turngraph.model.distributed import gather
from turngraph.model.evidence_model import BatchLike, EvidenceModel


def memory_lines(model: EvidenceModel, optimizer: Optimizer, before: int) -> list[str]:
    """Return lines of text that report this process's measured memory, by use.

    Args:
        model: the model, after some training steps.
        optimizer: optimizer of the model.
        before: ``peak_memory`` after the model was loaded, before the first step.
    """
    peak, total = peak_memory(model.device), device_memory(model.device)
    trained = [p for p in model.parameters() if p.requires_grad]
    frozen = [p for p in model.parameters() if not p.requires_grad]
    state = [t for values in optimizer.state.values() for t in values.values()]
    parts = {
        "frozen": _bytes(frozen),
        "trainable": _bytes(trained),
        "gradients": _bytes(trained),
        "optimizer": _bytes([t for t in state if isinstance(t, Tensor)]),
    }
    other = peak - sum(parts.values())
    fits = "fits" if peak <= total else "does not fit"
    return [
        f"parameters    {sum(p.numel() for p in trained)} trainable, "
        f"{sum(p.numel() for p in frozen)} frozen",
        "memory        " + ", ".join(f"{n} {_gib(b)}" for n, b in parts.items()),
        f"              activations and other {_gib(other)} (peak before the first step: "
        f"{_gib(before)})",
        f"              peak {_gib(peak)} of {_gib(total)}: {fits}",
    ]


def _bytes(tensors: Iterable[Tensor]) -> int:
    local = (t.to_local() if isinstance(t, DTensor) else t for t in tensors)
    return sum(t.numel() * t.element_size() for t in local)


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.2f} GiB"


@contextmanager
def memory_advice(batch: BatchLike, largest: int) -> Iterator[None]:
    """Turn an out-of-memory error into one that names settings to change.

    Args:
        batch: the batch that is computed inside the context.
        largest: tokens, padding included, of the largest batch that fitted so far; 0 if none.

    Raises:
        UserError: memory ran out.
    """
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        rows, length = batch.input_ids.shape
        if batch.attention_mask is None:  # packed: count its examples
            rows = int((batch.position_ids == 0).sum())
            length = -(-length // rows)
        reason = str(error).strip().split("\n")[0]
        raise UserError(f"out of memory: {_advice(rows, length, largest)} ({reason})") from error


def _advice(rows: int, length: int, largest: int) -> str:
    size = f"a batch of {rows} x {length} tokens did not fit"
    known = (f", a batch of {largest} tokens did" if largest else "") + "; try"
    budget = largest if 0 < largest < rows * length else rows * length // 2
    if rows > 1:
        smaller = f"training.batch_tokens {budget} with training.batch_size null, or a smaller"
        return f"{size}{known} {smaller} training.batch_size, or model.gradient_checkpointing true"
    return f"{size}{known} model.gradient_checkpointing true, or a smaller evidence.max_nodes"


@torch.no_grad()
def not_finite_report(
    model: EvidenceModel, batches: Sequence[BatchLike], keys: Sequence[Sequence[Any]]
) -> dict[str, Any]:
    """Return statistics of a step whose loss or gradient is not finite.

    Args:
        model: the model, with its weights before the step.
        batches: the batches of the step.
        keys: keys of the examples in each batch: conversation and turn.
    """
    losses = [float(model(batch).total) for batch in batches]
    gradients = {name: gather(p.grad) for name, p in model.named_parameters() if p.grad is not None}
    weights = {name: gather(p) for name, p in model.named_parameters() if p.requires_grad}
    return {
        "batches": [
            {"questions": list(map(list, k)), "loss": loss, "shape": list(batch.input_ids.shape)}
            for k, loss, batch in zip(keys, losses, batches, strict=True)
        ],
        "gradient_norms": {name: float(g.norm()) for name, g in gradients.items()},
        "not_finite_gradients": _not_finite(gradients),
        "not_finite_weights": _not_finite(weights),
    }


def _not_finite(tensors: dict[str, Tensor]) -> list[str]:
    return [name for name, tensor in tensors.items() if not torch.isfinite(tensor).all()]


def write_report(report: dict[str, Any], path: Path) -> None:
    """Write a report as JSON; infinities and NaN, which JSON lacks, become strings."""
    path.write_text(json.dumps(_without_nonfinite(report), indent=1), encoding="utf-8")


def _without_nonfinite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nonfinite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_without_nonfinite(inner) for inner in value]
    return str(value) if isinstance(value, float) and not abs(value) < float("inf") else value
