"""Logs a run to log.jsonl and TensorBoard, and optionally to Weights & Biases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from turngraph.configs.extras import extra


class RunLog:
    """Log of a run, which may resume an earlier one.

    Args:
        output: folder of the run.
        step: from which the run resumes.
        num_lines: of log.jsonl at that step; later lines are removed, their steps are repeated.
        wandb_project: also log to this project of Weights & Biases, if not None.
        config: of the run, for Weights & Biases.

    Raises:
        ValueError: Weights & Biases is configured and not installed.
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
        self.num_lines = _cut(self.path, num_lines)
        self.tensorboard = SummaryWriter(str(output / "tensorboard"), purge_step=step + 1)
        self.wandb = wandb_project and _start_wandb(output, wandb_project, config or {})

    def write(self, step: int, seconds: float, values: dict[str, float]) -> None:
        """Write values of a step; ``seconds`` counts the training time of all starts."""
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


def _cut(path: Path, num_lines: int) -> int:
    """Keep the first lines of a file; return how many there were."""
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
