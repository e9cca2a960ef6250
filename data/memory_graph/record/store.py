"""Record of a memory graph: an SQLite database with one writer and many readers."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from operator import methodcaller
from pathlib import Path
from secrets import randbits
from types import TracebackType
from typing import ParamSpec, TypeVar

from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.memory_types import Fact
from turngraph.data.memory_graph.names import alias, printable
from turngraph.data.memory_graph.record import schema
from turngraph.data.memory_graph.record.database import (
    RECOVER,
    Damaged,
    Database,
    Unavailable,
)
from turngraph.data.memory_graph.record.facts import load_facts
from turngraph.data.memory_graph.record.meta import read_meta, write_meta
from turngraph.data.memory_graph.record.sqlite_database import SqliteDatabase

WAIT_SECONDS = 30.0
MAX_LISTED = 20
"""Maximum number of damages that SQLite's own check lists."""
CACHE_KIB = 160 * 1024
"""Size of SQLite's page cache: room for the 20,000 pages (80 MiB) that a batch changes in a graph
of a million names, and for the pages that the batch reads."""
CHECKPOINT_PAGES = 4096
"""Number of pages (16 MiB) in the -wal file before a checkpoint, so that a page changed by many
batches is written back once."""
OUTSIDE = {
    sqlite3.SQLITE_BUSY: "another process is writing to it",
    sqlite3.SQLITE_NOTADB: "not a memory graph: no SQLite database",
    sqlite3.SQLITE_CORRUPT: RECOVER,
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "may not be written",
    sqlite3.SQLITE_IOERR: "the disk cannot be read or written",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened",
    sqlite3.SQLITE_TOOBIG: "a text is too long (a database holds up to 1 GB each)",
}
"""Messages for errors of the file or the machine, by SQLite's error code."""


ATTEMPTS = 5
"""Number of attempts at a write that the server undoes."""
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Undone(Unavailable):
    """The server undid a write that conflicted with another; the write can be tried again."""


class TenantGone(Unavailable):
    """The tenant was deleted while it was open."""


def tried_again(write: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a function that is one write: it is called again if the server undoes the write."""

    @wraps(write)
    def attempts(*args: Parameters.args, **named: Parameters.kwargs) -> Result:
        for _ in range(ATTEMPTS - 1):
            with suppress(Undone):
                return write(*args, **named)
        return write(*args, **named)

    return attempts


class Store:
    """Open database of a memory graph.

    In WAL mode readers see the last commit while another process writes. A commit is on the disk
    when it returns, and deleted rows are overwritten. Pages are read into SQLite's cache and not
    mapped into memory: truncating a mapped file kills the process.

    Args:
        path: path of the database; a missing file is created, readable by its owner only.
            ":memory:" keeps the database in memory.
        read_only: allow no write; the file must exist.
        wait: seconds to wait while another process writes.

    Raises:
        UserError: the file is missing (``read_only``), damaged, not a memory graph, of another
            schema version, or not readable.
    """

    db: Database
    sqlite: SqliteDatabase
    """The connection ``db``, if the record is in SQLite."""
    path: Path
    derived: Path
    """Folder of the derived files."""
    is_file = True
    """Whether the record is in SQLite (a file or memory), where deleted rows must be purged."""

    def __init__(
        self, path: str | Path, read_only: bool = False, wait: float = WAIT_SECONDS
    ) -> None:
        self.path = Path(path)
        self.read_only, self.wait = read_only, wait
        self.in_memory = str(path) == ":memory:"
        if not self.in_memory:
            _prepare_file(self.path, read_only)
        self.derived = self.path.with_name(self.path.name + ".derived")  # of "." there is none
        self.absolute = self.path.resolve()
        with self.clear_errors():
            while not self._opened():
                pass

    def __str__(self) -> str:
        """Return the graph's name in messages."""
        return str(self.path)

    @property
    def title(self) -> str:
        """Name of the graph, for pages and for the derived folder."""
        return self.path.name

    def files(self) -> list[Path]:
        """Return the files of the record; some may not exist."""
        return [self.path, *(self.path.with_name(f"{self.path.name}{e}") for e in ("-wal", "-shm"))]

    def _opened(self) -> bool:
        """Open the file; return False if ``restore`` replaced it while this process waited."""
        self._file = None if self.in_memory else os.stat(self.absolute)
        self.sqlite = self.db = self._connect()
        try:
            self._set_pragmas()
            self.db.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # waits
            if self._is_replaced():
                self.db.close()
                return False
            self._check_schema()
        except BaseException:
            self.db.close()
            raise
        return True

    def _is_replaced(self) -> bool:
        """Return whether the path now leads to another file than the opened one, or to none."""
        try:
            there = self._file is None or os.path.samestat(self._file, os.stat(self.absolute))
        except FileNotFoundError:
            return True
        return not there

    def _refuse_replaced(self) -> None:
        """Raise an error if the file was replaced: SQLite would read the new file's -wal.

        An idle reader of a graph that is not in WAL mode, as after a restoration, holds no lock
        that would prevent the replacement.
        """
        if self._is_replaced():
            raise Unavailable(
                f"{self.path}: was replaced or moved while it was open; open it again"
            )

    def _connect(self) -> SqliteDatabase:
        uri = f"{self.absolute.as_uri()}?mode={'ro' if self.read_only else 'rw'}"
        uri = "file::memory:" if self.in_memory else uri
        db = sqlite3.connect(
            uri, uri=True, timeout=self.wait, isolation_level=None, factory=SqliteDatabase
        )
        db.text_factory = methodcaller("decode")  # unlike str, its error shows no text
        return db

    def _set_pragmas(self) -> None:
        for pragma in (f"cache_size = -{CACHE_KIB}", "mmap_size = 0", "synchronous = FULL",
                       "secure_delete = ON", f"wal_autocheckpoint = {CHECKPOINT_PAGES}",
                       f"journal_size_limit = {4 * CHECKPOINT_PAGES * 4096}"):  # fmt: skip
            self.db.execute(f"PRAGMA {pragma}").fetchall()

    def _check_schema(self) -> None:
        self.db.execute("BEGIN")  # another process may be creating it
        try:
            application = self.db.execute("PRAGMA application_id").fetchone()[0]
            tables = self.db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
            version = self.db.version()
        finally:
            self.db.execute("ROLLBACK")
        if application != schema.APPLICATION_ID and (tables or application):
            raise Unavailable(f"{self.path}: not a memory graph: another program's database")
        existing = version if tables else None
        if existing not in (None, schema.SCHEMA_VERSION):
            raise Unavailable(
                f"{self.path}: has schema version {existing}, made by another version of this"
                f" program; this version reads {schema.SCHEMA_VERSION}"
            )
        if not self.read_only:
            self._use_wal()
        if existing is None:
            self._make()

    def _use_wal(self) -> None:
        """Switch a new graph or a backup to WAL mode, and wait for a lock, as SQLite does not."""
        until = time.monotonic() + self.wait
        while True:
            try:
                self.db.execute("PRAGMA journal_mode = WAL").fetchall()
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
            time.sleep(0.01)

    def _make(self) -> None:
        if self.read_only:
            raise UserError(
                f"{self.path}: empty; open it for writing once, as `check --rebuild` does"
            )
        self.db.execute("BEGIN IMMEDIATE")
        try:
            if not self.db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
                schema.create(self.sqlite)  # else another process made it meanwhile
            self.db.execute("COMMIT")
        finally:
            self._roll_back()

    def _roll_back(self) -> None:
        if self.db.in_transaction:  # not committed
            self.db.execute("ROLLBACK")

    def release(self) -> None:
        """Free the page cache."""
        self.db.execute("PRAGMA shrink_memory")

    def close(self) -> None:
        """Close the database; the last process to do so merges SQLite's -wal file into it."""
        self.db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()

    @property
    def revision(self) -> int:
        """Number of the last visible write."""
        revision = read_meta(self.db, "revision")
        if not isinstance(revision, int):
            raise Damaged(f"{self}: {RECOVER}")
        return revision

    @contextmanager
    def writing(self) -> Iterator[int]:
        """Run one transaction and yield the revision that it creates.

        One process writes at a time; others wait up to ``wait`` seconds.

        Raises:
            UserError: the graph is read-only, another process writes too long, the disk is full,
                or the file is damaged.
        """
        if self.read_only:
            raise UserError(f"{self}: opened for reading only")
        assert not self.db.in_transaction, "a write inside of another"
        with self.clear_errors():
            self._begin(writing=True)
            try:
                revision = self.revision + 1
                self._refuse_replaced()
                yield revision
                write_meta(self.db, "revision", revision)
                sql = "INSERT INTO stamps (revision, stamp) VALUES (?, ?)"
                self.db.execute(sql, (revision, randbits(63)))
                self._commit()
            finally:
                self._roll_back()

    @contextmanager
    def reading(self) -> Iterator[int]:
        """Run a read transaction, or join the open one, and yield the revision that it reads."""
        with self.clear_errors():
            if self.db.in_transaction:
                yield self.revision
                return
            self._begin(writing=False)
            try:
                revision = self.revision
                self._refuse_replaced()  # from here on the file is locked
                yield revision
            finally:
                self._roll_back()

    def _begin(self, writing: bool) -> None:
        self._refuse_replaced()
        self.db.execute("BEGIN IMMEDIATE" if writing else "BEGIN")

    def _commit(self) -> None:
        self.db.execute("COMMIT")

    @contextmanager
    def clear_errors(self) -> Iterator[None]:
        """Turn errors of the file or the machine into a UserError of one line, without texts."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code not in OUTSIDE:
                raise
            waited = f"; waited {self.wait:g} s" if code == sqlite3.SQLITE_BUSY else ""
            kinds = {sqlite3.SQLITE_CORRUPT: Damaged, sqlite3.SQLITE_TOOBIG: UserError}
            kind = kinds.get(code, Unavailable)
            raise kind(f"{self.path}: {OUTSIDE[code]}{waited}") from error
        except UnicodeDecodeError:
            raise Damaged(f"{self.path}: {RECOVER}") from None

    def damages(self) -> list[str]:
        """Return the damages that SQLite finds in the file, in a read transaction."""
        rows = [row for (row,) in self.db.execute(f"PRAGMA integrity_check({MAX_LISTED})")]
        return [] if rows == ["ok"] else [f"damaged file: {printable(row)}" for row in rows]

    def facts(self, keys: Iterable[int]) -> list[Fact]:
        """Return the facts with these keys, in order.

        Raises:
            KeyError: a fact is missing.
        """
        with self.reading():
            return load_facts(self.db, keys)

    def objects(self, name: str) -> list[int]:
        """Return ids of the objects with a name, in any spelling, oldest first."""
        sql = "SELECT DISTINCT node FROM aliases WHERE alias = ? ORDER BY node"
        with self.clear_errors():
            return [node for (node,) in self.db.execute(sql, (alias(name),))]


def _prepare_file(path: Path, read_only: bool) -> None:
    """Create a missing or empty file for its owner only.

    SQLite copies the file's permissions to -wal and -shm.
    """
    if path.is_dir():
        raise Unavailable(f"{path}: a folder, not a memory graph")
    try:
        if path.exists():
            if path.is_file() and not path.stat().st_size and not read_only:
                path.chmod(0o600)
            return
        if read_only:
            raise UserError(f"{path}: no such memory graph")
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    except OSError as error:
        raise Unavailable(f"{path}: cannot be made: {error.strerror}") from None
