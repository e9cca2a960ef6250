"""Atomic backup of a memory graph while it is in use."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

if TYPE_CHECKING:
    from turngraph.data.memory_graph.record.store import Store

STEP_PAGES = 4096
"""Pages between two updates of the progress bar: 16 MiB at SQLite's usual page size."""


def backup(store: Store, path: str | Path) -> None:
    """Copy the last committed state to a new file with SQLite's online backup.

    Other processes may read and write meanwhile. The file gets its name only when all of it is on
    disk. It needs no other file, as derived data are rebuilt.

    Args:
        store: the open graph.
        path: of the new file; must not exist, so that no graph in use is overwritten.

    Raises:
        ValueError: ``path`` exists or cannot be written, or the disk is full.
    """
    path = Path(path)
    if os.path.lexists(path):
        raise ValueError(f"{path}: already there; a backup overwrites nothing")
    partial = path.with_name(f".{path.name}.partial{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _copy(store, partial)
        shutil.copymode(store.path, partial)
        _to_disk(partial)
        os.replace(partial, path)
        _to_disk(path.parent)
    except (OSError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"{path}: the backup cannot be written: {reason}") from None
    finally:
        for name in (partial, Path(f"{partial}-journal"), Path(f"{partial}-wal")):
            name.unlink(missing_ok=True)


def _copy(store: Store, target: Path) -> None:
    """Copy in one read transaction, which writes of other processes do not restart."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with (
        store.reading(),
        closing(sqlite3.connect(target, isolation_level=None)) as copy,
        tqdm(desc="backup", unit="page", delay=2, leave=False) as bar,
    ):

        def show(_: int, remaining: int, total: int) -> None:
            bar.total = total
            bar.update(total - remaining - bar.n)

        store.db.backup(copy, pages=STEP_PAGES, progress=show)
        copy.execute("PRAGMA journal_mode = DELETE")  # no -wal beside it until it is opened


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
