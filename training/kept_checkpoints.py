"""Rotates a run's checkpoints: keeps the newest, removes old and partial ones."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

from turngraph.model.checkpoint import MANIFEST, OLD, check_manifest, replace_folder
from turngraph.training.trainer_state import read_progress

logger = logging.getLogger(__name__)
GONE = "-gone"
"""Suffix of a folder that is being removed."""


def undo_killed_save(output: Path) -> None:
    """Undo a save that was interrupted: remove partial folders, restore renamed ones."""
    for old in output.glob(f".*{OLD}"):
        folder = output / old.name.removeprefix(".").removesuffix(OLD)
        if not folder.exists():
            os.rename(old, folder)
    for name in ("best", "last", "step_*"):
        for partial in output.glob(f".{name}-*"):
            shutil.rmtree(partial)


def keep_newest(output: Path, last: str, num: int, step: int) -> None:
    """Make room for a new ``last``: rename the current one by its step, remove the oldest.

    A ``last`` of the same step is not renamed; the new one replaces it.

    Args:
        output: the run's folder.
        last: name of the newest checkpoint.
        num: number of checkpoints to keep, including the one to be written.
        step: step of the checkpoint to be written.
    """
    before = read_progress(output / last)
    if num > 1 and before is not None and before["step"] != step:
        replace_folder(output / last, output / f"step_{before['step']:08d}")
    for folder in sorted(output.glob("step_*"), reverse=True)[num - 1 :]:
        gone = folder.with_name(f".{folder.name}{GONE}")
        os.rename(folder, gone)
        shutil.rmtree(gone)


def newest_checkpoint(output: Path) -> Path | None:
    """Return the resumable checkpoint with the most steps; warn about corrupt ones."""
    found = []
    for path in output.glob(f"*/{MANIFEST}"):
        try:
            check_manifest(path.parent)
            progress = read_progress(path.parent)
        except ValueError as error:
            logger.warning("skipped: %s", error)
            continue
        if progress is not None:
            found.append((progress["step"], path.parent.name == "last", path.parent))
    return max(found)[2] if found else None
