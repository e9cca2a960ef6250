"""Keeps the conversations of one user in PostgreSQL, where several servers share them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.record.postgres_database import PostgresDatabase
from turngraph.data.memory_graph.record.postgres_store import PostgresStore
from turngraph.data.memory_graph.record.store import TenantGone
from turngraph.inference.serve.conversation_store import Conflict, ConversationStore


class SharedConversations(ConversationStore):
    """The conversations of one user, a tenant of a database; see ``ConversationStore``.

    Args:
        url: URL of the tenant, which is created if it does not exist.

    Raises:
        UserError: as ``PostgresStore``.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._record = PostgresStore(url)
        self.name = str(self._record)

    @contextmanager
    def _open(self) -> Iterator[Database]:
        """Yield the tenant's rows in a transaction, for any thread."""
        try:
            db = self._begun()
        except TenantGone:  # begin again as for a new user
            self._record = PostgresStore(self.url)
            db = self._begun()
        with self._record.clear_errors():
            try:
                yield db
                db.commit()
            finally:
                db.roll_back()

    def _begun(self) -> PostgresDatabase:
        record = self._record
        db = PostgresDatabase(record.postgres.pool, record.postgres.role, record.wait)
        with record.clear_errors():
            db.begin("plain")
        return db

    def _hold(self, db: Database, id_: str, num_turns: int) -> None:
        """Keep others from changing a conversation until the transaction ends.

        Raises:
            Conflict: another server deleted it, or changed its number of turns.
        """
        sql = "SELECT 1 FROM conversations WHERE id = ? FOR UPDATE"
        if db.execute(sql, (id_,)).fetchone() is None:
            raise Conflict("another server has deleted this conversation")
        sql = "SELECT count(*) FROM turns WHERE conversation = ?"
        if db.execute(sql, (id_,)).fetchone()[0] != num_turns:
            raise Conflict("another server went on with this conversation; ask again")

    def state(self, id_: str) -> str | None:
        """Return a value that changes whenever a conversation does; None: there is none."""
        with self._open() as db:
            # the number of the transaction that wrote the row, which every change does
            sql = "SELECT CAST(xmin AS text) FROM conversations WHERE id = ?"
            row = db.execute(sql, (id_,)).fetchone()
        return None if row is None else str(row[0])

    def _purge(self) -> None:
        """Do nothing: the server overwrites deleted rows when it needs their place."""
