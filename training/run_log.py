"""Logs a run to log.jsonl and TensorBoard, and optionally to Weights & Biases."""

from __future__ import annotations

import json
import logging
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turngraph.configs.extras import extra
from turngraph.configs.user_error import UserError
from turngraph.data.json_fields import Location, raw_lines
from turngraph.data.outputs import writing

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

logger = logging.getLogger(__name__)
LOG = "log.jsonl"
FIRST = b'{"step": '
"""Beginning of each line of log.jsonl."""


class RunLog:
    """Log of a run: ``log.jsonl``, TensorBoard if installed, Weights & Biases if configured.

    Args:
        output: folder of the run.
        step: number of steps taken before; a resumed run continues after it.
        num_lines: lines of log.jsonl at that step; later ones are removed, as their steps are
            repeated.
        wandb_project: project of Weights & Biases to log to; None: do not.
        config: config of the run, for Weights & Biases.

    Raises:
        UserError: log.jsonl cannot be read or written, or is no log of a run; or Weights & Biases
            is configured and not installed.
    """

    def __init__(
        self,
        output: Path,
        step: int,
        num_lines: int,
        wandb_project: str | None,
        config: dict[str, Any],
    ) -> None:
        self.path = output / LOG
        with writing(self.path):
            output.mkdir(parents=True, exist_ok=True)
        self.num_lines = _truncate(self.path, num_lines)
        self.tensorboard = _tensorboard(output, step)
        self.wandb = wandb_project and _start_wandb(output, wandb_project, config)

    def write(self, step: int, seconds: float, values: dict[str, float]) -> None:
        """Write the values of a step; null for a value that is not finite.

        Args:
            step: number of steps taken.
            seconds: training time so far, including that before the run was resumed.
            values: values by name.

        Raises:
            UserError: log.jsonl cannot be written.
        """
        if self.tensorboard:
            for name, value in values.items():
                self.tensorboard.add_scalar(name, value, step)
            self.tensorboard.flush()
        finite = {name: value if math.isfinite(value) else None for name, value in values.items()}
        with writing(self.path), open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "seconds": seconds} | finite) + "\n")
        self.num_lines += 1
        if self.wandb:
            self.wandb.log(values, step=step)


def _tensorboard(output: Path, step: int) -> SummaryWriter | None:
    """Return a writer for TensorBoard; None, and a line in the log, if it is not installed."""
    try:
        with extra("tensorboard", f"curves beside {LOG} need"):
            from torch.utils.tensorboard import SummaryWriter
    except UserError as error:
        logger.info("%s", error)
        return None
    return SummaryWriter(str(output / "tensorboard"), purge_step=step + 1)


def check_log(path: Path) -> None:
    """Check that a file, if it exists, is the log of a run, so that a run may cut or remove it.

    Raises:
        UserError: it is something else.
    """
    if not os.path.lexists(path):
        return
    for location, raw in raw_lines(path):
        if not raw.startswith(FIRST[: len(raw)]):  # a killed run may have written a part of it
            raise location.error("not the log of a run; move the file, or train elsewhere")
        return


def _truncate(path: Path, num_lines: int) -> int:
    """Truncate a log to its first ``num_lines`` lines; return its new number of lines."""
    check_log(path)
    lines = list(raw_lines(path)) if path.exists() else []
    kept, lost = lines[:num_lines], lines[num_lines:]
    if steps := [step for step in map(_step, lost) if step]:
        logger.warning(
            "%s: step %d had been taken when the run ended without a checkpoint of it; the steps "
            "from %d on, which are lost, are taken again",
            *(path, max(steps), min(steps)),
        )
    # in place: what stays is the file's beginning, so that a kill leaves the old or the cut log
    with writing(path), open(path, "ab") as file:
        if lost:
            file.truncate(sum(len(raw) for _, raw in kept))
    return len(kept)


def _step(line: tuple[Location, bytes]) -> int:
    """Return the step of a line of the log; 0 if a killed run wrote only a part of the line."""
    digits = line[1].removeprefix(FIRST).partition(b",")[0]
    return int(digits) if digits.isdigit() else 0


def _start_wandb(output: Path, project: str, config: dict[str, Any]) -> Any:
    with extra("wandb", f"config field training.wandb_project: {project!r} needs"):
        import wandb
    name = str(output.resolve()).replace("/", "-").strip("-")
    return wandb.init(
        project=project, dir=str(output), id=name[-64:], name=name, config=config, resume="allow"
    )


def postfix(values: dict[str, float]) -> dict[str, str]:
    """Return the values of a step that the progress bar shows, formatted."""
    return {
        "loss": f"{values['loss']:.3f}",
        "tokens_s": f"{values['tokens_per_second']:.0f}",
        "memory": f"{values['memory_gib']:.1f}GiB",
        "peak": f"{values['peak_memory_gib']:.1f}GiB",
    }
