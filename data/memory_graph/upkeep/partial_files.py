"""Notes of partial output files, so that what a killed process leaves is removed.

A partial copy of a graph is a hidden file beside its output. While it is written, a note in
``<db>.derived`` says where it is, and the process that writes it holds a lock of the note. The next
opening for writing removes each partial file whose note nobody holds.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from turngraph.data.outputs import Noting, unnoted

if TYPE_CHECKING:
    from turngraph.data.memory_graph.record.store import Store

NOTE = re.compile(r"partial-([0-9a-f]{8})")
"""Name of a note, which has the name of the partial file; the note itself holds its folder only, so
that it can name no other file."""
PARTIAL = re.compile(r"\.([0-9a-f]{8})\.partial")
ENDINGS = ("", "-journal", "-wal", "-shm")
"""A partial database, and what SQLite keeps beside it."""


def noting(store: Store) -> Noting:
    """Return what keeps a note of a partial file while it is written from a graph."""
    return unnoted if store.in_memory else functools.partial(noted, store.derived)


@contextmanager
def noted(derived: Path, partial: Path) -> Iterator[None]:
    """Keep a note of a partial file, which this process writes and removes inside.

    A folder that may not be written, as of someone else's graph, gets none.

    Args:
        derived: ``<db>.derived``.
        partial: the file, as ``outputs.partial_of`` names it.
    """
    found = PARTIAL.fullmatch(partial.name)
    assert found is not None, partial.name
    note = derived / f"partial-{found[1]}"
    handle = _write(note, os.path.abspath(partial.parent))
    try:
        yield
    finally:
        if handle is not None:
            with suppress(OSError):
                note.unlink()
            os.close(handle)


def _write(note: Path, folder: str) -> int | None:
    """Write a note and return the handle that holds its lock."""
    try:
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        while True:
            handle = os.open(note, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(handle, fcntl.LOCK_EX)
            if os.fstat(handle).st_nlink:
                break
            os.close(handle)  # an opening has just removed it, as it was not locked yet
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        return None
    os.write(handle, os.fsencode(folder))
    os.fsync(handle)
    return handle


def remove_left(derived: Path) -> None:
    """Remove the partial files of killed processes; those that are being written stay."""
    with suppress(OSError):
        for note in sorted(derived.iterdir()):
            if NOTE.fullmatch(note.name):
                with suppress(OSError):  # not ours, or another opening has just removed it
                    _remove(note)


def _remove(note: Path) -> None:
    handle = os.open(note, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        folder = Path(os.fsdecode(os.read(handle, 65536)))
        if folder.is_absolute():  # else a note without text, whose file was not begun
            if not folder.exists():
                return  # on a disk that is not there now
            if folder.is_dir():
                remove_partial(folder / f".{note.name.removeprefix('partial-')}.partial")
        note.unlink()
    finally:
        os.close(handle)


def remove_partial(partial: Path) -> None:
    """Remove a partial file and what SQLite keeps beside it."""
    for ending in ENDINGS:
        Path(f"{partial}{ending}").unlink(missing_ok=True)
