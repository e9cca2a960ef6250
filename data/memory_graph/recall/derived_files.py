"""Files beside the database that can be made again, each there whole or not at all.

They live in ``<db>.derived/``. Whoever holds its lock writes; all others keep what they lack in
memory.
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
    """What of a record something derived shows.

    Args:
        revision: -1 is nothing yet.
        stamp: tells the revision from that of another record, such as one that was made under the
            name of a deleted one. None: of a time before there were stamps.
    """

    revision: int = -1
    stamp: int | None = None

    @classmethod
    def told_by(cls, manifest: Manifest) -> State:
        """The state that was written down with derived files."""
        return cls(manifest["revision"], manifest.get("stamp"))


def record_state(db: sqlite3.Connection, revision: int | None = None) -> State:
    """The state that the record has, in this read transaction, or had at a revision."""
    if revision is None:
        row = db.execute("SELECT value FROM meta WHERE name = 'revision'").fetchone()
        revision = 0 if row is None else int(row[0])
    row = db.execute("SELECT stamp FROM stamps WHERE revision = ?", (revision,)).fetchone()
    return State(revision, None if row is None else row[0])


def shows(db: sqlite3.Connection, state: State) -> bool:
    """Whether a state is one that this record had or has."""
    return state == record_state(db, state.revision) and state.revision <= record_state(db).revision


@contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[bool]:
    """Whether this process alone may write to a folder, which is made if need be.

    Args:
        folder: what is locked.
        wait: until the process that writes has done so.
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
    """A JSON file that is there whole or not at all, on the disk before it has its name."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """What was named in a folder stays named after a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_arrays(
    folder: Path, name: str, manifest: Manifest, arrays: Mapping[str, np.ndarray]
) -> None:
    """Write arrays as ``<name>-<revision>/`` and drop those of other revisions.

    Call it with the folder's lock held.

    Args:
        folder: ``<db>.derived``.
        name: which arrays they are.
        manifest: ``revision``, and what else a reader has to know.
        arrays: by file name.
    """
    partial, final = folder / f".{name}.partial", folder / f"{name}-{manifest['revision']}"
    shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
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
    """Delete arrays, which are made again when they are asked for; waits for who writes some."""
    with locked(folder, wait=True):
        for path in [*folder.glob(f"{name}-*"), folder / f".{name}.partial"]:
            shutil.rmtree(path, ignore_errors=True)


def read_arrays(folder: Path, name: str) -> tuple[Manifest, dict[str, np.ndarray]] | None:
    """The newest arrays of that name, mapped; a change to them stays in memory.

    None where there are none that can be read, which is no loss: they can be made again.
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
            logger.warning("%s is damaged (%s) and will be made again", path, type(error).__name__)
    return None


def _mapped(path: Path) -> np.ndarray:
    # as a plain array: each access to a memmap costs a microsecond more
    return np.asarray(np.load(path, mmap_mode="c"))
