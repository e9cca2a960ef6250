"""The one record of a memory graph: an SQLite database with one writer and many readers."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from turngraph.data.memory_graph.memory_types import Fact
from turngraph.data.memory_graph.names import alias
from turngraph.data.memory_graph.record import schema
from turngraph.data.memory_graph.record.facts import load_facts

WAIT_SECONDS = 30.0
CACHE_KIB = 160 * 1024
"""Of SQLite's pages in memory: where the random reads of a graph with a million names land, beside
the 20,000 pages (80 MiB) that a batch of remembering changes in it."""
CHECKPOINT_PAGES = 4096
"""Committed pages in the -wal before they go to the database: 16 MiB, so that a page that many
batches change is written back once."""
OUTSIDE = {
    sqlite3.SQLITE_BUSY: "another process is writing to it",
    sqlite3.SQLITE_NOTADB: "not a memory graph: no SQLite database",
    sqlite3.SQLITE_CORRUPT: "damaged; `check` says what can be saved",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "may not be written",
    sqlite3.SQLITE_IOERR: "the disk cannot be read or written",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened",
    sqlite3.SQLITE_TOOBIG: "a text is too long (a database holds up to 1 GB each)",
}
"""What is wrong with the file or the machine, not with the program."""


class Store:
    """A memory graph's database, opened.

    WAL: readers see the last commit while another process writes. Each commit is on the disk when
    it returns, and what is deleted is overwritten. Pages are read into SQLite's own cache and not
    mapped into memory: a file that is cut short under a map kills the process.

    Args:
        path: of the database; a new one is made, readable by its owner only. ":memory:" is one
            that no file holds.
        read_only: nothing can be written, and it must be there.
        wait: seconds to wait for another process's write.

    Raises:
        ValueError: it is missing (``read_only``), damaged, not a memory graph, of a newer schema,
            or may not be read.
    """

    def __init__(
        self, path: str | Path, read_only: bool = False, wait: float = WAIT_SECONDS
    ) -> None:
        self.path = Path(path)
        self.derived = self.path.with_name(self.path.name + ".derived")
        self.read_only, self.wait = read_only, wait
        self.in_memory = str(path) == ":memory:"
        if not self.in_memory:
            _prepare_file(self.path, read_only)
        with self.clear_errors():
            self.db = self._connect()
            try:
                self._check_schema()
            except BaseException:
                self.db.close()
                raise

    def _connect(self) -> sqlite3.Connection:
        uri = f"{self.path.resolve().as_uri()}?mode={'ro' if self.read_only else 'rw'}"
        uri = "file::memory:" if self.in_memory else uri
        db = sqlite3.connect(uri, uri=True, timeout=self.wait, isolation_level=None)
        for pragma in (f"cache_size = -{CACHE_KIB}", "mmap_size = 0", "synchronous = FULL",
                       "secure_delete = ON", f"wal_autocheckpoint = {CHECKPOINT_PAGES}",
                       f"journal_size_limit = {4 * CHECKPOINT_PAGES * 4096}"):  # fmt: skip
            db.execute(f"PRAGMA {pragma}").fetchall()
        return db

    def _check_schema(self) -> None:
        self.db.execute("BEGIN")  # another process may just be making it
        try:
            application = self.db.execute("PRAGMA application_id").fetchone()[0]
            tables = self.db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
            version = schema.version(self.db)
        finally:
            self.db.execute("ROLLBACK")
        if application != schema.APPLICATION_ID and (tables or application):
            raise ValueError(f"{self.path}: not a memory graph: a database of something else")
        found = version if tables else None
        if found is not None and found > schema.SCHEMA_VERSION:
            raise ValueError(
                f"{self.path}: has schema version {found}, made by a newer version of this"
                f" program; this one reads up to {schema.SCHEMA_VERSION}"
            )
        if not self.read_only:
            self._use_wal()
        if found != schema.SCHEMA_VERSION:
            self._make_or_migrate()

    def _use_wal(self) -> None:
        """Have a -wal, which a new graph and a backup come without; SQLite itself does not wait."""
        until = time.monotonic() + self.wait
        while True:
            try:
                self.db.execute("PRAGMA journal_mode = WAL").fetchall()
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
            time.sleep(0.01)

    def _make_or_migrate(self) -> None:
        if self.read_only:
            raise ValueError(f"{self.path}: empty or of an older version; open it for writing once")
        self.db.execute("BEGIN IMMEDIATE")
        try:
            if self.db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
                schema.migrate(self.db, schema.MIGRATIONS, schema.SCHEMA_VERSION)
            else:
                schema.create(self.db)
            self.db.execute("COMMIT")
        except ValueError as error:
            raise ValueError(f"{self.path}: {error}") from None
        finally:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")

    def close(self) -> None:
        """Close the database; the last one to close it folds its -wal into it."""
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
        """The number of the last write that can be seen."""
        return self.db.execute("SELECT value FROM meta WHERE name = 'revision'").fetchone()[0]

    @contextmanager
    def writing(self) -> Iterator[int]:
        """One transaction, all of it or nothing, which gives the revision that it makes.

        One process writes at a time; others wait for ``wait`` seconds.

        Raises:
            ValueError: the graph is read-only, another process did not end its write in time, the
                disk is full, or the file is damaged.
        """
        if self.read_only:
            raise ValueError(f"{self.path}: opened for reading only")
        assert not self.db.in_transaction, "a write inside of another"
        with self.clear_errors():
            self.db.execute("BEGIN IMMEDIATE")
            try:
                revision = self.revision + 1
                yield revision
                self.db.execute("UPDATE meta SET value = ? WHERE name = 'revision'", (revision,))
                self.db.execute("INSERT INTO stamps VALUES (?, random())", (revision,))
                self.db.execute("COMMIT")
            finally:
                if self.db.in_transaction:  # not committed
                    self.db.execute("ROLLBACK")

    @contextmanager
    def reading(self) -> Iterator[int]:
        """Several reads of one revision, which it gives; inside a transaction that is its own."""
        with self.clear_errors():
            if self.db.in_transaction:
                yield self.revision
                return
            self.db.execute("BEGIN")
            try:
                yield self.revision
            finally:
                self.db.execute("ROLLBACK")

    @contextmanager
    def clear_errors(self) -> Iterator[None]:
        """Tell a user what is wrong with the file or the machine, in one line."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code not in OUTSIDE:
                raise
            waited = f"; waited {self.wait:g} s" if code == sqlite3.SQLITE_BUSY else ""
            raise ValueError(f"{self.path}: {OUTSIDE[code]}{waited}") from error

    def facts(self, keys: Iterable[int]) -> list[Fact]:
        """The facts of these keys, in their order.

        Raises:
            KeyError: there is no such fact.
        """
        with self.reading():
            return load_facts(self.db, keys)

    def objects(self, name: str) -> list[int]:
        """Ids of the objects that have a name, in any spelling of it, oldest first."""
        sql = "SELECT DISTINCT node FROM aliases WHERE alias = ? ORDER BY node"
        with self.clear_errors():
            return [node for (node,) in self.db.execute(sql, (alias(name),))]


def _prepare_file(path: Path, read_only: bool) -> None:
    """SQLite gives the files beside a database its permissions; a memory is its owner's."""
    if path.is_dir():
        raise ValueError(f"{path}: a folder, not a memory graph")
    if path.exists():
        return
    if read_only:
        raise ValueError(f"{path}: no such memory graph")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    except OSError as error:
        raise ValueError(f"{path}: cannot be made: {error.strerror}") from None
