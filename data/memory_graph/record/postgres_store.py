"""Record of a memory graph in PostgreSQL: the rows of one tenant of a database."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from turngraph.configs.extras import extra
from turngraph.configs.models import cache_folder
from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.names import printable
from turngraph.data.memory_graph.record import postgres_schema
from turngraph.data.memory_graph.record.database import Unavailable
from turngraph.data.memory_graph.record.place import parse_query, shown
from turngraph.data.memory_graph.record.postgres_database import (
    POOL_SIZE,
    PostgresDatabase,
    connect,
    is_pooled,
    pool_of,
    with_settings,
)
from turngraph.data.memory_graph.record.store import WAIT_SECONDS, Store, TenantGone, Undone

with extra("postgres", "memory graphs in PostgreSQL need"):
    import psycopg
    from psycopg import Connection
    from psycopg_pool import PoolTimeout

LOST = "the connection to the server was lost"
OWNER = (
    "the schema's owner makes it, drops tenants, and grants a role everything else by"
    " `turngraph memory schema --grant ROLE`"
)
REASONS: Mapping[str, str] = {
    "55P03": "another process is writing to it",
    "57014": "a statement took longer than the server's statement_timeout allows",
    "25P03": "a transaction did nothing for too long, and the server ended it",
    "53100": "the server's disk is full",
    "53200": "the server has no memory left",
    "53300": "the server has no connections left",
    "42704": "the server has no such role",
    "25006": "the server, or the role, may not be written",
    "54000": "a name, a relation, a source or an origin is too long: an index of PostgreSQL has"
    " 2,704 bytes",
    "22023": "the tenant was deleted",  # of its role, which each transaction takes
    "22P05": "JSON in it has a NUL character, which PostgreSQL cannot read",
}
"""Errors of the server, by SQLSTATE."""
AGAIN = {"40001": "two writes conflicted", "40P01": "two writes waited for each other"}
"""Errors after which the same transaction may be tried again."""


class PostgresStore(Store):
    """Open record of a tenant in PostgreSQL.

    Readers see the last commit while others write. A tenant has one writer at a time, and other
    writers wait. Derived files are in the user's cache folder; another machine or user has its own.

    Args:
        url: ``postgresql://user:password@host/database?tenant=anna``, and optionally parameters of
            libpq, and ``pool_size``, the maximum number of connections of this process.
        read_only: allow no write; the tenant must exist.
        wait: seconds to wait for another writer of the tenant, and for a connection.

    Raises:
        UserError: the URL is invalid, the server does not reply or refuses, its schema has another
            version, or there is no such tenant (``read_only``).
    """

    is_file = False

    def __init__(self, url: str, read_only: bool = False, wait: float = WAIT_SECONDS) -> None:
        self.shown, self.read_only, self.wait = shown(url), read_only, wait
        self.in_memory = False
        conninfo, own = parse(url)
        self.tenant = own["tenant"]
        with self.clear_errors():
            size = int(own.get("pool_size", POOL_SIZE))
            role = self._known_role(conninfo, size) or self._role(conninfo)
            pool = pool_of(conninfo, size)
            self.postgres = self.db = PostgresDatabase(pool, role, wait, read_only)
        place = hashlib.sha256(f"{_address(conninfo)}\0{role}".encode()).hexdigest()[:32]
        self.derived = cache_folder() / "memories" / place

    def _known_role(self, conninfo: str, size: int) -> str | None:
        """Return the role of the tenant by a connection of an open pool; None if there is none."""
        if not is_pooled(conninfo, size):
            return None
        pool = pool_of(conninfo, size)
        try:
            with pool.connection(self.wait) as db:
                return postgres_schema.find_current(db, self.tenant)
        except psycopg.Error as error:  # the new connection that follows reports it
            if isinstance(error, PoolTimeout) and pool.get_stats()["pool_size"] >= size:
                raise  # all are in use
        return None

    def _role(self, conninfo: str) -> str:
        """Return the role of the tenant; make the schema and the tenant if they are missing."""
        with _connected(conninfo, str(self)) as db:
            if postgres_schema.found_version(db) == 0 and not self.read_only:
                postgres_schema.make(db)
            require_version(db, str(self))
            role = postgres_schema.find_tenant(db, self.tenant)
            if role is None and self.read_only:
                raise UserError(f"{self}: no such memory graph")
            return role or postgres_schema.make_tenant(db, self.tenant)

    def __str__(self) -> str:
        """Return the graph's name in messages, without a password."""
        return self.shown

    @property
    def title(self) -> str:
        """Name of the tenant."""
        return self.tenant

    def files(self) -> list[Path]:
        """Return nothing: the files are the server's."""
        return []

    def release(self) -> None:
        """Do nothing: between transactions the store holds no connection."""

    def _begin(self, writing: bool) -> None:
        self.postgres.begin("write" if writing else "read")

    def _commit(self) -> None:
        try:
            self.postgres.commit()
        except psycopg.OperationalError as error:
            if error.sqlstate is None or error.sqlstate.startswith("57P"):  # it shuts down
                raise Unavailable(
                    f"{self}: {LOST} during a commit; the write may be committed or not"
                ) from None
            raise

    def _roll_back(self) -> None:
        self.postgres.roll_back()

    def _refuse_replaced(self) -> None:
        """Do nothing: a database is not replaced like a file."""

    def damages(self) -> list[str]:
        """Return nothing: the server checks its files."""
        return []

    @contextmanager
    def clear_errors(self) -> Iterator[None]:
        """Turn errors of the server into a UserError of one line, without texts and passwords."""
        try:
            yield
        except psycopg.Error as error:
            state = error.sqlstate
            if state in AGAIN:
                raise Undone(f"{self}: {AGAIN[state]}, and the server undid one") from None
            if (reason := _reason(error)) is None:
                raise
            is_late = state == "55P03" or isinstance(error, PoolTimeout)
            waited = f"; waited {self.wait:g} s" if is_late else ""
            is_value = state == "54000" or isinstance(error, psycopg.DataError)
            kind = UserError if is_value else Unavailable
            kind = TenantGone if state == "22023" else kind
            raise kind(f"{self}: {reason}{waited}") from None


def require_version(db: Connection, name: str) -> None:
    """Refuse a database whose schema has another version than this program's, or none."""
    version = postgres_schema.found_version(db)
    if version != postgres_schema.VERSION:
        raise Unavailable(
            f"{name}: its schema has version {version}, this program needs"
            f" {postgres_schema.VERSION}"
            + ("" if version else "; `turngraph memory schema` makes the schema")
        )


def _reason(error: psycopg.Error) -> str | None:
    """Return an error's meaning for the user; None: it is a mistake of this program.

    The server's own message is shown only if it cannot contain a remembered value.
    """
    state = error.sqlstate or ""
    if state in REASONS:
        return REASONS[state]
    if state == "42501":  # the message names the refused object, never a value
        return f"the server refuses: {printable(error.diag.message_primary or '')}; {OWNER}"
    if state == "2BP01":  # the message names a role
        said = printable(error.diag.message_primary or "")
        return f"the server refuses: {said}; revoke what it was granted, or `DROP OWNED BY` it"
    if state in AGAIN:
        return f"{AGAIN[state]}, and the server undid one"
    if isinstance(error, psycopg.DataError) and "NUL" in str(error):
        return "a text has a NUL character, which PostgreSQL cannot store"
    if isinstance(error, PoolTimeout):
        return "no connection to the server was free, or could be made"
    if isinstance(error, psycopg.DataError | psycopg.IntegrityError):
        return f"the server refuses a value (SQLSTATE {printable(state)})"
    return LOST if isinstance(error, psycopg.OperationalError) else None


def _connected(conninfo: str, name: str) -> Connection:
    """Connect, or raise an error with the server's reason: libpq's own may quote a password."""
    try:
        return connect(conninfo)
    except psycopg.OperationalError as error:
        _, fatal, said = str(error).partition("FATAL:")
        reason = f"the server refuses: {printable(said)}" if fatal else "no server answers there"
        raise Unavailable(f"{name}: {reason}") from None


def parse(url: str) -> tuple[str, dict[str, str]]:
    """Return the connection string of a URL, and its parameters ``tenant`` and ``pool_size``.

    Raises:
        UserError: it is not a URL of PostgreSQL, or ``pool_size`` is not a number above 0.
    """
    base, values = parse_query(url)
    own = {name: value for name, value in values if name in ("tenant", "pool_size")}
    rest = urlencode([pair for pair in values if pair[0] not in own], quote_via=quote)
    try:
        parameters = psycopg.conninfo.conninfo_to_dict(f"{base}?{rest}" if rest else base)
    except psycopg.Error:
        raise UserError(f"{shown(url)}: not a URL of PostgreSQL") from None
    if not own.get("pool_size", "1").isdecimal() or int(own.get("pool_size", "1")) < 1:
        raise UserError(f"{shown(url)}: pool_size {own['pool_size']!r} given, must be 1 or more")
    return with_settings(parameters), own


def _address(conninfo: str) -> str:
    """Return host, port and database."""
    parameters: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(conninfo)
    return "\0".join(str(parameters.get(name)) for name in ("host", "port", "dbname"))


@contextmanager
def administering(url: str) -> Iterator[Connection]:
    """Open a connection for changing the schema and the tenants.

    Raises:
        UserError: the server does not reply or refuses.
    """
    conninfo, _ = parse(url)
    try:
        with _connected(conninfo, shown(url)) as db:
            db.execute("SET statement_timeout = 0")  # deleting a large tenant takes long
            yield db
    except psycopg.Error as error:
        reason = _reason(error)
        if reason is None:
            raise
        raise UserError(f"{shown(url)}: {reason}") from None
