"""Computes the loss on tune, compares evaluations, and formats them for the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from turngraph.configs.progress import track
from turngraph.configs.words import plural
from turngraph.data.batches.collate import collate
from turngraph.data.json_fields import Json
from turngraph.data.scoring.score import bootstrap
from turngraph.model.distributed import is_sharded
from turngraph.training.run import Run


def evaluation_key(metrics: dict[str, float]) -> tuple[float, float, float]:
    """Return the sort key of an evaluation; the best evaluation has the largest key."""
    return metrics["hit_at_1"], metrics["hit_at_5"], -metrics.get("loss", 0.0)


@torch.no_grad()
def tune_loss(run: Run, after_batch: Callable[[], None]) -> float:
    """Return the mean loss per answer token of the tuning questions, shared among processes.

    All processes call ``after_batch`` after every batch.
    """
    accelerator, size = run.accelerator, run.config.training.eval_batch_size
    batches = [run.tune[start : start + size] for start in range(0, len(run.tune), size)]
    total = torch.zeros((), device=accelerator.device)
    starts = range(0, len(batches), accelerator.num_processes)
    shown = accelerator.is_local_main_process
    for start in track(starts, "loss on tune", "batches", shown=shown, delay=2, leave=False):
        share = batches[start : start + accelerator.num_processes]
        # a sharded model needs all processes in every batch: idle ones repeat the first
        index = accelerator.process_index if accelerator.process_index < len(share) else None
        if index is not None or is_sharded(run.model):
            batch = collate(share[index or 0], "right", True).to(accelerator.device)
            loss = run.model(batch).total  # not run.wrapped: DDP would wait for the others
            total += loss if index is not None else 0
        after_batch()
    num_tokens = sum(len(example.target_ids) for example in run.tune)
    return float(accelerator.reduce(total, "sum")) / num_tokens


def tune_line(records: Sequence[Json], loss: float | None) -> str:
    """Format an evaluation for the log: hits with 95 % bootstrap intervals, and the loss if any."""
    names = {"hit_at_1": "H@1", "hit_at_5": "H@5"}
    values = np.array([[float(record[name]) for name in names] for record in records])
    estimates = bootstrap(values, [record["conversation"] for record in records])
    parts = [
        f"{label} {estimate.mean:.3f} (95 % interval {estimate.low:.3f} to {estimate.high:.3f})"
        for label, estimate in zip(names.values(), estimates, strict=True)
    ]
    parts += [] if loss is None else [f"loss {loss:.3f}"]
    return f"{', '.join(parts)}, {plural(len(records), 'question')}"
