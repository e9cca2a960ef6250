"""Writes and reads files that are derived from the database and can be rebuilt.

They are in ``<db>.derived/`` and are written atomically. The process that holds the folder's lock
writes; all others keep their new rows in memory.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

logger = logging.getLogger(__name__)

Manifest = dict[str, Any]
FORMAT = 2
MANIFEST = "manifest.json"


class State(NamedTuple):
    """The state of the record that derived files show.

    Args:
        revision: revision of the record; -1: none yet.
        stamp: distinguishes the revision from that of another record, such as one with the name of
            a deleted one; None: the revision is older than stamps.
    """

    revision: int = -1
    stamp: int | None = None

    @classmethod
    def of(cls, manifest: Manifest) -> State:
        """Return the state that was written with derived files."""
        return cls(manifest["revision"], manifest.get("stamp"))


def record_state(db: sqlite3.Connection, revision: int | None = None) -> State:
    """Return the state of the record, in this read transaction or at an earlier revision."""
    if revision is None:
        row = db.execute("SELECT value FROM meta WHERE name = 'revision'").fetchone()
        revision = 0 if row is None else int(row[0])
    row = db.execute("SELECT stamp FROM stamps WHERE revision = ?", (revision,)).fetchone()
    return State(revision, None if row is None else row[0])


def shows(db: sqlite3.Connection, state: State) -> bool:
    """Return whether a state is one that this record has or had."""
    return state == record_state(db, state.revision) and state.revision <= record_state(db).revision


@contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[bool]:
    """Lock a folder for writing, create it if need be, and yield whether this process has the lock.

    Args:
        folder: folder to lock.
        wait: whether to wait until another process releases the lock.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except PermissionError:  # a reader of someone else's database
        yield False
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


def write_json(path: Path, value: Manifest) -> None:
    """Write a JSON file atomically: it is flushed to disk before it gets its name."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk, so that a new name survives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_arrays(
    folder: Path, name: str, manifest: Manifest, arrays: Mapping[str, np.ndarray]
) -> None:
    """Write arrays as ``<name>-<revision>/`` and delete those of other revisions.

    The caller holds the folder's lock.

    Args:
        folder: ``<db>.derived``.
        name: name of the group of arrays.
        manifest: ``revision``, and other values that a reader needs.
        arrays: arrays by file name.
    """
    partial, final = folder / f".{name}.partial", folder / f"{name}-{manifest['revision']}"
    shutil.rmtree(partial, ignore_errors=True)  # left by a process that was killed
    partial.mkdir()
    for file_name, array in arrays.items():
        with (partial / f"{file_name}.npy").open("wb") as file:
            np.save(file, array, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
    write_json(partial / MANIFEST, manifest | {"format": FORMAT})
    shutil.rmtree(final, ignore_errors=True)
    os.rename(partial, final)
    sync_folder(folder)
    for old in folder.glob(f"{name}-*"):
        if old != final:
            shutil.rmtree(old, ignore_errors=True)


def drop_arrays(folder: Path, name: str) -> None:
    """Delete arrays, which the next reader rebuilds; wait for a process that writes some."""
    with locked(folder, wait=True):
        for path in [*folder.glob(f"{name}-*"), folder / f".{name}.partial"]:
            shutil.rmtree(path, ignore_errors=True)


def read_arrays(folder: Path, name: str) -> tuple[Manifest, dict[str, np.ndarray]] | None:
    """Map the newest arrays of a name; changes to them stay in memory.

    Returns:
        The manifest and the arrays; None if none can be read, so that they must be rebuilt.
    """
    found = sorted(folder.glob(f"{name}-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    for path in reversed(found):
        try:
            manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
            if manifest["format"] != FORMAT:
                continue
            files = sorted(path.glob("*.npy"))
            return manifest, {f.stem: _mapped(f) for f in files}
        except FileNotFoundError:  # another process has just replaced them
            continue
        except (ValueError, KeyError, OSError) as error:
            logger.warning("%s is corrupt (%s) and will be rebuilt", path, type(error).__name__)
    return None


def _mapped(path: Path) -> np.ndarray:
    # a plain array: each access to a memmap costs a microsecond more
    return np.asarray(np.load(path, mmap_mode="c"))
