"""Writes and reads files that are derived from the database and can be rebuilt.

The files are in ``<db>.derived/`` and are written atomically. Only the process that holds the
folder's lock writes; other processes keep their new rows in memory.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple

import numpy as np

from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.record.meta import read_meta
from turngraph.data.memory_graph.record.patience import Patience
from turngraph.data.outputs import to_disk

logger = logging.getLogger(__name__)

Manifest = dict[str, Any]
FORMAT = 2
MANIFEST = "manifest.json"
LOCK = "lock"
REVISION = re.compile(r"[a-z]+-\d{1,18}")
"""Pattern of the name of a folder of arrays: group and revision."""
THEMES = "eigen"
"""Name of the group of arrays of themes."""
NO_HEADER = (SyntaxError, TokenError, MemoryError, RecursionError)
"""Errors, besides ValueError, that NumPy raises for a corrupt header of an array's file."""
ATTEMPTS = 10
"""Attempts to read arrays that another process replaces again and again."""


class State(NamedTuple):
    """State of the record from which derived files were made.

    Args:
        revision: revision of the record; -1: none yet.
        stamp: distinguishes the revision from the same revision of another record, such as a new
            file with the name of a deleted one; None: the record has no stamp of the revision, as
            before its first write.
    """

    revision: int = -1
    stamp: int | None = None

    @classmethod
    def of(cls, manifest: Manifest) -> State:
        """Return the state that was written with derived files."""
        revision, stamp = manifest["revision"], manifest.get("stamp")
        if not isinstance(revision, int) or not isinstance(stamp, int | None):
            raise UserError("its revision or stamp is not an integer")
        return cls(revision, stamp)


def record_state(db: Database, revision: int | None = None) -> State:
    """Return the state of the record, in this read transaction or at an earlier revision."""
    if revision is None:
        revision = int(read_meta(db, "revision"))
    row = db.execute("SELECT stamp FROM stamps WHERE revision = ?", (revision,)).fetchone()
    return State(revision, None if row is None else row[0])


def shows(db: Database, state: State) -> bool:
    """Return whether this record is or was in a state."""
    return state == record_state(db, state.revision) and state.revision <= record_state(db).revision


@contextmanager
def locked(folder: Path, wait: float = 0.0, name: str = LOCK) -> Iterator[bool]:
    """Lock a folder for writing, create it if need be, and yield whether this process has the lock.

    Args:
        folder: folder to lock.
        wait: seconds to wait until another process releases the lock.
        name: name of the lock.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        yield False  # the database is another user's, and this process only reads it
        return
    try:
        yield _acquired(handle, Patience(wait, f"{folder}: another process is writing to it"))
    finally:
        os.close(handle)


def _acquired(handle: int, patience: Patience) -> bool:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if not patience.pause():
                return False


def write_json(path: Path, value: Manifest) -> None:
    """Write a JSON file atomically: it is flushed to disk before it gets its name."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    to_disk(path.parent)


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
    forms = {file_name: _form(array) for file_name, array in arrays.items()}
    write_json(partial / MANIFEST, manifest | {"format": FORMAT, "arrays": forms})
    shutil.rmtree(final, ignore_errors=True)
    os.rename(partial, final)
    to_disk(folder)
    for old in folder.glob(f"{name}-*"):
        if old != final:
            shutil.rmtree(old, ignore_errors=True)


def drop_arrays(folder: Path, name: str, wait: float) -> None:
    """Delete arrays, which the next reader rebuilds, once no other process writes to the folder.

    Args:
        folder: ``<db>.derived``.
        name: name of the group of arrays.
        wait: seconds to wait for another process that writes.

    Raises:
        UserError: another process still writes after ``wait`` seconds, or the folder may not be
            written.
    """
    with locked(folder, wait) as is_mine:
        if not is_mine:
            raise UserError(f"{folder}: no permission to write, or another process is writing")
        for path in [*folder.glob(f"{name}-*"), folder / f".{name}.partial"]:
            shutil.rmtree(path, ignore_errors=True)


def read_arrays(folder: Path, name: str) -> tuple[Manifest, dict[str, np.ndarray]] | None:
    """Map the newest arrays of a name; changes to them stay in memory.

    Returns:
        The manifest and the arrays; None if none can be read, so that they must be rebuilt.
    """
    for _ in range(ATTEMPTS):
        folders = _folders(folder, name)
        for path in folders:
            if (contents := _read_folder(path)) is not None:
                return contents
        if _folders(folder, name) == folders:
            break  # else another process has just replaced them
    return None


def _folders(folder: Path, name: str) -> list[Path]:
    """Return the folders of a name, the newest revision first."""
    folders = [path for path in folder.glob(f"{name}-*") if REVISION.fullmatch(path.name)]
    return sorted(folders, key=lambda path: int(path.name.rpartition("-")[2]), reverse=True)


def _read_folder(path: Path) -> tuple[Manifest, dict[str, np.ndarray]] | None:
    """Read one folder; None if it is of another format, torn, or just being deleted."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT:
            return None
        State.of(manifest)
        forms = manifest["arrays"]
        arrays = {name: _mapped(path / f"{name}.npy") for name in forms}
        if any(form != _form(arrays[name]) for name, form in forms.items()):
            raise UserError("an array has another type or shape than the manifest says")
        return manifest, arrays
    except FileNotFoundError:  # another process has just replaced them
        return None
    except (ValueError, KeyError, TypeError, EOFError, OSError, *NO_HEADER) as error:
        logger.warning(
            "%s is corrupt (%s) and will be rebuilt", path, str(error) or type(error).__name__
        )
        return None


def _form(array: np.ndarray) -> list[str | int]:
    """Return the type and shape of an array, in the form of a manifest."""
    return [array.dtype.str, *array.shape]


def _mapped(path: Path) -> np.ndarray:
    # a plain array: each access to a memmap costs a microsecond more
    return np.asarray(np.load(path, mmap_mode="c"))
