"""Atomic backup of a memory graph while it is in use, and its restoration."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from turngraph.configs.progress import progress
from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.record.place import is_url, shown
from turngraph.data.memory_graph.record.schema import APPLICATION_ID
from turngraph.data.outputs import partial_of, to_disk

if TYPE_CHECKING:
    from turngraph.data.memory_graph.record.store import Store

logger = logging.getLogger(__name__)

STEP_PAGES = 4096
"""Pages between two updates of the progress bar: 16 MiB at SQLite's usual page size."""
ENDINGS = ("-wal", "-shm")
UNREADABLE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def backup(store: Store, path: str | Path) -> None:
    """Copy the last committed state to a new file with SQLite's online backup.

    Other processes may read and write meanwhile. The file gets its name only after all of its bytes
    are on disk. No other file needs a backup, as derived data are rebuilt.

    Args:
        store: the open graph.
        path: path of the new file; must not exist, so that no graph in use is overwritten.

    Raises:
        UserError: ``path`` exists or cannot be written, or the disk is full.
    """
    if not store.is_file:
        raise UserError(
            f"{store}: PostgreSQL backs up whole databases (pg_dump); `export --jsonl` writes one"
            " memory graph"
        )
    path = Path(path)
    if os.path.lexists(path):
        raise UserError(f"{path}: already there; a backup overwrites nothing")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _partial(path) as partial:
            _copy(store, partial)
            shutil.copymode(store.path, partial)
            to_disk(partial)
            os.replace(partial, path)
            to_disk(path.parent)
    except (OSError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: the backup cannot be written: {reason}") from None


@contextmanager
def _partial(path: Path) -> Iterator[Path]:
    """Yield the path of a partial file, and remove the file and those of SQLite beside it."""
    partial = partial_of(path)
    try:
        yield partial
    finally:
        for ending in ("", "-journal", *ENDINGS):
            Path(f"{partial}{ending}").unlink(missing_ok=True)


def _copy(store: Store, target: Path) -> None:
    """Copy in one read transaction, so that writes of other processes do not restart the copy."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with (
        store.reading(),
        closing(sqlite3.connect(target, isolation_level=None)) as copy,
        progress(None, "backup", "pages", delay=2, leave=False) as bar,
    ):

        def show(_: int, remaining: int, total: int) -> None:
            bar.total = total
            bar.update(total - remaining - bar.n)

        store.sqlite.backup(copy, pages=STEP_PAGES, progress=show)
        copy.execute("PRAGMA journal_mode = DELETE")  # a backup has no -wal until it is opened


def restore(backup: str | Path, path: str | Path) -> None:
    """Replace a memory graph by a backup, or create it.

    The backup is copied, and the copy is checked, before anything is replaced. If the process is
    killed, either the old graph or the new one exists, complete.

    Args:
        backup: path of the backup, which is not changed.
        path: path of the graph.

    Raises:
        UserError: the backup is missing, damaged, not a memory graph or of another schema version;
            another process has the graph open; or the graph cannot be written.
    """
    for place in (backup, path):
        if is_url(place):
            raise UserError(f"{shown(place)}: only files are restored; `import` reads an export")
    source, named = Path(backup), Path(path)
    path = Path(os.path.realpath(named))  # a link stays; SQLite puts -wal beside its target
    derived = named.with_name(f"{named.name}.derived")
    try:
        _refuse(source, path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with _partial(path) as partial:
            _copy_checked(source, partial)
            if path.exists() and path.stat().st_size:  # an empty file gets the mode of a new graph
                shutil.copymode(path, partial)
            to_disk(partial)
            _replace(path, partial)
        shutil.rmtree(derived, ignore_errors=True)
    except (OSError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot be restored: {reason}") from None


def _refuse(source: Path, path: Path) -> None:
    if source.is_dir():
        raise UserError(f"{source}: a folder, not a backup")
    if not source.is_file():
        raise UserError(f"{source}: no such backup")
    if path.is_dir():
        raise UserError(f"{path}: a folder, not a memory graph")
    if path.exists() and not path.is_file():
        raise UserError(f"{path}: not a file, so it cannot be replaced")
    if path.exists() and source.samefile(path):
        raise UserError(f"{source}: the graph itself, not a backup of it")


def _replace(path: Path, partial: Path) -> None:
    """Replace a graph that no other process has open.

    The files that SQLite keeps beside the old graph are deleted: they would be read as the new
    graph's.
    """
    with _alone(path):
        for ending in ("-journal", *ENDINGS):
            Path(f"{path}{ending}").unlink(missing_ok=True)
        to_disk(path.parent)
        os.replace(partial, path)
        to_disk(path.parent)


def _copy_checked(source: Path, target: Path) -> None:
    """Copy a backup and check the copy."""
    from turngraph.data.memory_graph.record.store import Store
    from turngraph.data.memory_graph.upkeep.check import check

    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    uri = f"{source.resolve().as_uri()}?mode=ro"
    try:
        with (
            closing(sqlite3.connect(uri, uri=True)) as old,
            closing(sqlite3.connect(target, isolation_level=None)) as copy,
        ):
            old.backup(copy)
            if copy.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
                raise UserError(f"{source}: not a memory graph")  # Store would fill an empty file
        with Store(target) as store:
            problems = check(store)
            store.db.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in UNREADABLE:
            raise
        raise UserError(f"{source}: damaged, or not a memory graph") from None
    except UserError as error:
        raise UserError(str(error).replace(str(target), str(source))) from None
    if damages := [problem for problem in problems if problem.damage]:
        more = f" and {len(damages) - 1} more" if len(damages) > 1 else ""
        raise UserError(f"{source}: damaged: {damages[0]}{more}; nothing was restored")
    for problem in problems:  # the backed up graph had these problems already
        logger.warning("%s: %s", source, problem)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Lock a graph's file exclusively, with its -wal merged.

    Raises:
        UserError: another process has the graph open.
    """
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as db:
        try:
            db.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
            db.execute("BEGIN EXCLUSIVE")
            db.execute("COMMIT")
            # merge the -wal: a kill before the replacement then loses nothing of the old graph, and
            # closing the old file after the replacement does not delete the new graph's -wal
            db.execute("PRAGMA journal_mode = DELETE").fetchall()
            db.execute("BEGIN EXCLUSIVE")
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise UserError(f"{path}: open in another process; close it there") from None
            if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
                raise  # the -wal is not merged
            # a damaged graph may be replaced
        yield
