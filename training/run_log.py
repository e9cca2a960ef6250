"""What a run writes while it trains: log.jsonl and TensorBoard, or Weights & Biases beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from turngraph.configs.extras import extra


class RunLog:
    """The log of a run that may go on from an earlier start.

    Args:
        output: folder of the run.
        step: that the run goes on from.
        num_lines: that log.jsonl had there; what stands behind them happens again.
        wandb_project: also log to this project of Weights & Biases, where it is not None.
        config: of the run, for Weights & Biases.

    Raises:
        ValueError: Weights & Biases is asked for and not installed.
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
        """Values of a step; seconds since the run's first start."""
        for name, value in values.items():
            self.tensorboard.add_scalar(name, value, step)
        self.tensorboard.flush()
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "seconds": seconds} | values) + "\n")
        self.num_lines += 1
        if self.wandb:
            self.wandb.log(values, step=step)

    def close(self) -> None:
        """Write what is still held back."""
        self.tensorboard.close()
        if self.wandb:
            self.wandb.finish()


def _cut(path: Path, num_lines: int) -> int:
    """Keep the first lines of a file; how many there were."""
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
