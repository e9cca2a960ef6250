"""Rotates a run's checkpoints: keeps the newest, removes old and partial ones."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

from turngraph.configs.user_error import UserError
from turngraph.model.checkpoint import MANIFEST, OLD, check_manifest, is_replaceable, replace_folder
from turngraph.training.trainer_state import read_progress

logger = logging.getLogger(__name__)
GONE = "-gone"
"""Suffix of a folder that is being removed."""
KEPT = 2
"""Number of checkpoints to resume from, the one to be written included."""
NAMES = ("best", "last", "step_*")
"""Names of a run's checkpoints."""


def check_ours(output: Path) -> None:
    """Check that ``best`` and ``last`` are checkpoints, or missing, so that a run may replace them.

    Raises:
        UserError: one of them is something else.
    """
    for name in ("best", "last"):
        if not is_replaceable(output / name):
            raise UserError(
                f"{output / name}: no checkpoint of a run, and a run's checkpoints need this name;"
                " move it, or set another training.output"
            )


def our_checkpoints(output: Path, name: str) -> list[Path]:
    """Return the checkpoints of a name such as ``step_*``, oldest first; other folders stay."""
    folders = (path for path in output.glob(name) if not path.is_symlink())
    return sorted(path for path in folders if (path / MANIFEST).is_file())


def undo_killed_save(output: Path) -> None:
    """Undo a save that was interrupted: remove partial folders, restore renamed ones."""
    for old in output.glob(f".*{OLD}"):
        folder = output / old.name.removeprefix(".").removesuffix(OLD)
        if not folder.exists():
            os.rename(old, folder)
    for name in NAMES:
        for left in output.glob(f".{name}-*"):
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left)


def keep_newest(output: Path, step: int) -> None:
    """Make room for a new ``last``: rename the current one by its step, remove the oldest.

    A ``last`` of the same step is not renamed; the new one replaces it.

    Args:
        output: the run's folder.
        step: step of the checkpoint to be written.
    """
    before = read_progress(output / "last")
    if before is not None and before["step"] != step:
        replace_folder(output / "last", output / f"step_{before['step']:08d}")
    for folder in our_checkpoints(output, "step_*")[::-1][KEPT - 1 :]:
        gone = folder.with_name(f".{folder.name}{GONE}")
        os.rename(folder, gone)
        shutil.rmtree(gone)


def newest_checkpoint(output: Path) -> Path | None:
    """Return the resumable checkpoint with the most steps; None if there is none.

    A damaged checkpoint is skipped, with a warning, if another one is intact.

    Raises:
        UserError: all are damaged. A run that started at step 0 would replace what is left of
            them.
    """
    intact, damage = list[tuple[int, bool, Path]](), list[str]()
    for name in ("last", "step_*"):
        for folder in our_checkpoints(output, name):
            try:
                check_manifest(folder)
                progress = read_progress(folder)
            except UserError as error:
                damage.append(str(error))
                continue
            if progress is not None:
                intact.append((progress["step"], name == "last", folder))
    if damage and not intact:
        raise UserError(
            f"{'; '.join(damage)}. No checkpoint to resume from is intact, and nothing has been "
            "changed: --fresh starts over; --training.start_from CHECKPOINT with another "
            f"training.output starts from the weights of a checkpoint, such as {output / 'best'}"
        )
    for message in damage:
        logger.warning("a damaged checkpoint is skipped, the run resumes from another: %s", message)
    return max(intact)[2] if intact else None
