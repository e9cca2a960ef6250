"""Logs a run to log.jsonl and TensorBoard, and optionally to Weights & Biases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from turngraph.configs.extras import extra


class RunLog:
    """Log of a run: ``log.jsonl``, TensorBoard, and Weights & Biases if configured.

    Args:
        output: folder of the run.
        step: number of steps taken before; a resumed run continues after it.
        num_lines: lines of log.jsonl at that step; later ones are removed, as their steps are
            repeated.
        wandb_project: project of Weights & Biases to log to; None: do not.
        config: config of the run, for Weights & Biases.

    Raises:
        ValueError: Weights & Biases is configured but not installed.
    """

    def __init__(
        self,
        output: Path,
        step: int = 0,
        num_lines: int = 0,
        wandb_project: str | None = None,
        config: dict[str, Any] | None = None,
    ) -> None:
        output.mkdir(parents=True, exist_ok=True)
        self.path = output / "log.jsonl"
        self.num_lines = _truncate(self.path, num_lines)
        self.tensorboard = SummaryWriter(str(output / "tensorboard"), purge_step=step + 1)
        self.wandb = wandb_project and _start_wandb(output, wandb_project, config or {})

    def write(self, step: int, seconds: float, values: dict[str, float]) -> None:
        """Write the values of a step.

        Args:
            step: number of steps taken.
            seconds: training time so far, including that before the run was resumed.
            values: values by name.
        """
        for name, value in values.items():
            self.tensorboard.add_scalar(name, value, step)
        self.tensorboard.flush()
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "seconds": seconds} | values) + "\n")
        self.num_lines += 1
        if self.wandb:
            self.wandb.log(values, step=step)

    def close(self) -> None:
        """Flush and close the writers."""
        self.tensorboard.close()
        if self.wandb:
            self.wandb.finish()


def _truncate(path: Path, num_lines: int) -> int:
    """Truncate a file to its first ``num_lines`` lines; return how many it has then."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    kept = text.splitlines(keepends=True)[:num_lines]
    path.write_text("".join(kept), encoding="utf-8")
    return len(kept)


def _start_wandb(output: Path, project: str, config: dict[str, Any]) -> Any:
    with extra("wandb", f"config field training.wandb_project: {project!r} needs"):
        import wandb
    name = str(output.resolve()).replace("/", "-").strip("-")
    return wandb.init(
        project=project, dir=str(output), id=name[-64:], name=name, config=config, resume="allow"
    )
