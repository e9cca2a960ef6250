"""Record of one tenant in PostgreSQL, over a pool of connections."""

from __future__ import annotations

import atexit
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from threading import Lock
from typing import Any, Literal

from turngraph.configs.extras import extra
from turngraph.data.memory_graph.record.database import Recorded, Rows, Values, Words
from turngraph.data.memory_graph.record.integrity import make_rules
from turngraph.data.memory_graph.record.postgres_schema import SCHEMA, WITH_IDS
from turngraph.data.memory_graph.record.postgres_sql import translate, values_of
from turngraph.data.memory_graph.record.postgres_words import PostgresWords

with extra("postgres", "memory graphs in PostgreSQL need"):
    import psycopg
    from psycopg import Connection, Cursor, RawCursor, RawServerCursor
    from psycopg.adapt import Dumper
    from psycopg.types.numeric import FloatLoader
    from psycopg.types.string import TextLoader
    from psycopg_pool import ConnectionPool

POOL_SIZE = 16
"""Maximum number of connections of a process to one database."""
STATEMENT_TIMEOUT = "120s"
"""Time limit of a statement, unless the URL's ``options`` set another."""
IDLE_TIMEOUT = "600s"
"""Time after which the server ends a write transaction whose process sends nothing."""
SCANNED = 5000
"""Rows that a scan reads at a time."""
Kind = Literal["read", "write", "plain"]
"""Kind of transaction. read: reads one revision; write: writes the next revision; plain: each
statement reads the last commit."""
READ = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL ROLE {role};"
    " SET LOCAL idle_in_transaction_session_timeout = 0"
)
"""No idle timeout: a reader may embed all texts of a large tenant between two statements."""
WRITE = (
    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL ROLE {role};"
    " SET LOCAL lock_timeout = {wait};"
    " SELECT 1 FROM meta WHERE name = 'revision' FOR UPDATE"
)
"""A writer first locks the row of the tenant's revision. So a tenant has one writer at a time, and
no other process changes what the writer reads."""
KEPT = ("SELECT value FROM meta", "SELECT stamp FROM stamps", "SELECT name, value FROM counters")
"""Begins of frequent queries whose rows a "read" transaction caches."""
PLAIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ {access}; SET LOCAL ROLE {role}"
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""Matches NUL in JSON, which a JSON column accepts but no operator can read."""
_BEGIN: Mapping[Kind, str] = {"read": READ, "write": WRITE, "plain": PLAIN}
_RULES = make_rules("octet_length({})", "SELECT value FROM counters WHERE name = '{}'")


class _Integer(Dumper):
    oid = psycopg.adapters.types["int8"].oid

    def dump(self, obj: Any) -> bytes:
        """Return the text of a number; every number is sent as a bigint."""
        return str(int(obj)).encode()

    def quote(self, obj: Any) -> bytes:
        """Return a number as a part of a statement."""
        return self.dump(obj)


class _Flag(Dumper):
    oid = psycopg.adapters.types["int2"].oid

    def dump(self, obj: Any) -> bytes:
        """Return 1 or 0, the form of flags in the record."""
        return b"1" if obj else b"0"


def connect(conninfo: str) -> Connection:
    """Open a connection outside of the pool, in autocommit, with the type conversions of the
    record.

    Raises:
        psycopg.Error: the server does not reply, or refuses.
    """
    db = Connection.connect(conninfo, autocommit=True, cursor_factory=RawCursor)
    _configure(db)
    return db


def _configure(db: Connection) -> None:
    db.adapters.register_dumper(int, _Integer)
    db.adapters.register_dumper(bool, _Flag)
    db.adapters.register_loader("json", TextLoader)
    db.adapters.register_loader("numeric", FloatLoader)


_pools: dict[tuple[str, int, int], ConnectionPool] = {}
_pools_lock = Lock()


def pool_of(conninfo: str, size: int = POOL_SIZE) -> ConnectionPool:
    """Return this process's pool of connections to a database; it opens connections when needed."""
    key = conninfo, size, os.getpid()
    with _pools_lock:
        if key not in _pools:
            _pools[key] = ConnectionPool(
                conninfo,
                kwargs={"autocommit": True, "cursor_factory": RawCursor},
                configure=_configure,
                min_size=0,
                max_size=size,
                max_idle=60.0,
                name="turngraph",
                open=True,
            )
        return _pools[key]


def is_pooled(conninfo: str, size: int) -> bool:
    """Return whether this process has a pool of connections to a database."""
    return (conninfo, size, os.getpid()) in _pools


@atexit.register
def close_pools() -> None:
    """Close the connections of this process."""
    with _pools_lock:
        for (_, _, process), pool in _pools.items():
            if process == os.getpid():
                pool.close(timeout=1.0)
        _pools.clear()


class Kept:
    """Cached rows of an earlier query; see ``database.Rows``."""

    rowcount = 0
    description = None

    def __init__(self, rows: Sequence[Any]) -> None:
        self._left = iter(rows)

    def __iter__(self) -> Iterator[Any]:
        return self._left

    def __next__(self) -> Any:
        """Return the next row."""
        return next(self._left)

    def fetchone(self) -> Any:
        """Return the next row; None after the last."""
        return next(self._left, None)

    def fetchall(self) -> list[Any]:
        """Return the rows that are left."""
        return list(self._left)

    def fetchmany(self, size: int = 1, /) -> list[Any]:
        """Return the next rows."""
        return list(islice(self._left, size))


class PostgresDatabase:
    """Database that contains the rows of one tenant; it holds no connection between transactions.

    Args:
        pool: pool of connections.
        role: role of the tenant, which each transaction takes.
        wait: seconds to wait for a connection, and for another writer of the tenant.
        read_only: whether single statements only read, as on a standby server.
    """

    duplicate: type[Exception] = psycopg.errors.UniqueViolation
    refused: tuple[type[Exception], ...] = (psycopg.DataError,)

    def __init__(
        self, pool: ConnectionPool, role: str, wait: float, read_only: bool = False
    ) -> None:
        self.pool, self.role, self.wait = pool, role, wait
        self._access = "ONLY" if read_only else "WRITE"
        self._connection: Connection | None = None
        self._scans: list[RawServerCursor[Any]] = []
        self._last: dict[str, int] = {}
        self._kind: Kind | None = None
        self._kept: dict[tuple[Any, ...], list[Any]] = {}

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun."""
        return self._connection is not None

    @property
    def connection(self) -> Connection:
        """The connection of the transaction."""
        assert self._connection is not None, "no transaction"
        return self._connection

    @property
    def words(self) -> Words:
        """The word indexes."""
        return PostgresWords(self)

    # Transactions

    def begin(self, kind: Kind) -> None:
        """Begin a transaction on a connection of the pool.

        A connection that was lost since its last use is replaced.
        """
        wait = max(1, int(1000 * self.wait))
        begin = _BEGIN[kind].format(role=self.role, wait=wait, access=self._access)
        for _ in range(self.pool.max_size + 1):
            connection = self.pool.getconn(timeout=self.wait)
            try:
                connection.execute(begin)
                self._connection, self._kind = connection, kind
                return
            except BaseException as error:
                lost = connection.broken
                with suppress(psycopg.Error):
                    connection.execute("ROLLBACK")
                self.pool.putconn(connection)
                if not (lost and isinstance(error, psycopg.OperationalError)):
                    raise
        raise psycopg.OperationalError("every connection was lost")

    def commit(self) -> None:
        """Commit the transaction; it is on the server's disk when this returns."""
        self._close_scans()
        self.connection.execute("COMMIT")
        self._release()

    def roll_back(self) -> None:
        """End the transaction, if there is one, without its changes."""
        if self._connection is None:
            return
        self._scans.clear()
        with suppress(psycopg.Error):  # a lost connection
            self._connection.execute("ROLLBACK")
        self._release()

    def _release(self) -> None:
        connection, self._connection = self._connection, None
        self._last, self._kind = {}, None
        self._kept.clear()
        if connection is not None:
            self.pool.putconn(connection)

    def _close_scans(self) -> None:
        for scan in self._scans:
            scan.close()
        self._scans.clear()

    def close(self) -> None:
        """End the transaction, if there is one; the pool keeps its connections."""
        self.roll_back()

    # Statements

    def execute(self, sql: str, parameters: Values = (), /) -> Rows:
        """Run a statement of the record, in SQLite's SQL."""
        statement = translate(sql)
        values = values_of(statement, parameters)
        if self._kind == "read" and statement.sql.startswith(KEPT):
            return self._kept_rows(statement.sql, values)
        return self.run(statement.sql, values)

    def _kept_rows(self, sql: str, values: Sequence[Any]) -> Kept:
        """Return the rows of a frequent query, cached until the transaction ends."""
        key = sql, *values
        if key not in self._kept:
            self._kept[key] = self.run(sql, values).fetchall()
        return Kept(self._kept[key])

    def run(self, sql: str, values: Sequence[Any]) -> Cursor[Any]:
        """Run a statement in PostgreSQL's SQL; outside of a transaction, in one of its own."""
        if self.in_transaction:
            return self.connection.execute(sql, values or None)
        self.begin("plain")
        try:
            cursor = self.connection.execute(sql, values or None)
            self.commit()
        finally:
            self.roll_back()
        return cursor

    def executemany(self, sql: str, parameters: Iterable[Values], /) -> Cursor[Any] | None:
        """Run a statement for each of many values, without waiting for each."""
        statement = translate(sql)
        rows = [values_of(statement, values) for values in parameters]
        if not rows:
            return None
        cursor = self.connection.cursor()
        cursor.executemany(statement.sql, rows)
        return cursor

    def scan(self, sql: str, parameters: Values = (), /) -> Any:
        """Run a query whose many rows are streamed instead of being read at once."""
        if self._connection is None:
            return self.execute(sql, parameters)
        statement = translate(sql)
        cursor: RawServerCursor[Any] = RawServerCursor(self._connection, f"scan_{len(self._scans)}")
        cursor.itersize = SCANNED
        self._scans.append(cursor)
        cursor.execute(statement.sql, values_of(statement, parameters) or None)
        return cursor

    # Operations that differ between the databases

    def as_json(self, text: str) -> str:
        """Return a JSON text as it is written to a column; raise DataError if it contains NUL."""
        if _NUL.search(text):
            raise psycopg.DataError("JSON with NUL")
        return text

    def rules(self) -> Mapping[str, str]:
        """Return the integrity rules; types of columns need none, as PostgreSQL enforces them."""
        return _RULES

    def version(self) -> int:
        """Return the schema version."""
        [[version]] = self.execute("SELECT max(version) FROM versions")
        return int(version)

    def last_ids(self) -> dict[str, int]:
        """Return the last id that was assigned in each table."""
        counters = dict(self.run("SELECT name, value FROM counters", []).fetchall())
        self._last = {table: counters[table] for table in WITH_IDS}
        return dict(self._last)

    def set_last_ids(self, last: Mapping[str, int]) -> None:
        """Set the last assigned ids, after rows with explicit ids were written."""
        new = {table: id_ for table, id_ in last.items() if id_ != self._last.get(table)}
        if new:
            sql = """UPDATE counters c SET value = k.last
                FROM unnest($1::text[], $2::bigint[]) AS k(name, last)
                WHERE c.name = k.name AND c.value < k.last"""
            self.run(sql, [list(new), list(new.values())])
            self._last.update(new)

    def reindex(self) -> None:
        """Do nothing: the server's indexes do not differ from its tables."""

    @contextmanager
    def recording(
        self, columns: Mapping[str, Sequence[str]]
    ) -> Iterator[Callable[[], list[Recorded]]]:
        """Record the changes of rows by the schema's triggers; see ``Database.recording``."""

        def row(table: str, text: str | None) -> tuple[Any, ...] | None:
            values = None if text is None else json.loads(text)
            return None if values is None else tuple(values[name] for name in columns[table])

        def changes() -> list[Recorded]:
            rows = self.run("SELECT name, before, after FROM changes ORDER BY place", [])
            return [(name, row(name, before), row(name, after)) for name, before, after in rows]

        switch = "SELECT set_config('turngraph.recording', $1, true)"
        self.run(switch, ["on"])
        yield changes
        self.run(switch, ["off"])
        self.run("DELETE FROM changes", [])


def with_settings(parameters: Mapping[str, Any]) -> str:
    """Return a connection string, with the session settings that the record needs."""
    given = str(parameters.get("options") or "")
    options = [f"-c search_path={SCHEMA},pg_catalog,pg_temp"]
    if "statement_timeout" not in given:
        options.append(f"-c statement_timeout={STATEMENT_TIMEOUT}")
    options.append(f"-c idle_in_transaction_session_timeout={IDLE_TIMEOUT} -c jit=off")
    return psycopg.conninfo.make_conninfo(
        **{**parameters, "options": " ".join([*options, given]).strip(),
           "application_name": parameters.get("application_name") or "turngraph"}
    )  # fmt: skip
