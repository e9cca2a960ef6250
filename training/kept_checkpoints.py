"""Rotates a run's checkpoints: keeps the newest, removes old and partial ones."""

from __future__ import annotations

import logging
import os
import re
import shutil
from pathlib import Path

from turngraph.configs.user_error import UserError
from turngraph.data.json_fields import Json
from turngraph.model.checkpoint import (
    MANIFEST,
    OLD,
    PARTIAL,
    check_manifest,
    is_replaceable,
    replace_folder,
)
from turngraph.training.trainer_state import read_progress

logger = logging.getLogger(__name__)
GONE = "-gone"
"""Suffix of a folder that is being removed."""
KEPT = 2
"""Number of checkpoints to resume from, the one to be written included."""
NAMES = ("best", "last", "step_*")
"""Names of a run's checkpoints."""
LEFT = re.compile(rf"\.(best|last|step_\d+)(?:({OLD})|{GONE}|-\w+{re.escape(PARTIAL)})")
"""Names of folders that a killed save leaves. The first group is the checkpoint's name, the second
is there if the folder is the checkpoint itself, which was being replaced."""


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
    """Undo a save that was interrupted: restore renamed folders, remove partial ones."""
    for left in output.glob(".*"):
        name = LEFT.fullmatch(left.name)
        if name is None or not left.is_dir() or left.is_symlink():
            continue
        if name[2] and not (output / name[1]).exists():
            os.rename(left, output / name[1])
        else:
            shutil.rmtree(left)


def keep_newest(output: Path, step: int) -> None:
    """Make room for a new ``last``: rename the current one by its step, remove the oldest.

    A ``last`` of the same step, or one that is damaged, is not renamed; the new one replaces it.

    Args:
        output: the run's folder.
        step: step of the checkpoint to be written.
    """
    try:
        before = _intact_progress(output / "last") if (output / "last").exists() else None
    except UserError:
        before = None  # the run has resumed from an older one, which stays
    if before is not None and before["step"] != step:
        replace_folder(output / "last", output / f"step_{before['step']:08d}")
    for folder in our_checkpoints(output, "step_*")[::-1][KEPT - 1 :]:
        gone = folder.with_name(f".{folder.name}{GONE}")
        os.rename(folder, gone)
        shutil.rmtree(gone)


def _intact_progress(folder: Path) -> Json | None:
    """Return the progress of a checkpoint; None if it is none to resume from.

    Raises:
        UserError: it is damaged.
    """
    check_manifest(folder)
    return read_progress(folder)


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
                progress = _intact_progress(folder)
            except UserError as error:
                damage.append(str(error))
                continue
            if progress is not None:
                intact.append((progress["step"], name == "last", folder))
    if damage and not intact:
        best = output / "best"
        such = f", such as {best}" if best.is_dir() else ""
        raise UserError(
            f"{'; '.join(damage)}. No checkpoint to resume from is intact, and nothing has been "
            "changed: --fresh starts over; --training.start_from CHECKPOINT with another "
            f"training.output starts from the weights of a checkpoint{such}"
        )
    for message in damage:
        logger.warning("a damaged checkpoint is skipped, the run resumes from another: %s", message)
    return max(intact)[2] if intact else None
