"""Keeps the conversations of one user in PostgreSQL, where several servers share them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.record.postgres_database import PostgresDatabase
from turngraph.data.memory_graph.record.postgres_store import PostgresStore
from turngraph.inference.serve.conversation_store import Conflict, ConversationStore


class SharedConversations(ConversationStore):
    """The conversations of one user, a tenant of a database; see ``ConversationStore``.

    Args:
        url: of the tenant, who is made if need be.

    Raises:
        ValueError: as ``PostgresStore``.
    """

    def __init__(self, url: str) -> None:
        self._record = PostgresStore(url)
        self.name = str(self._record)

    @contextmanager
    def _open(self) -> Iterator[Database]:
        """Yield the tenant's rows in a transaction, for any thread."""
        record = self._record
        db = PostgresDatabase(record.postgres.pool, record.postgres.role, record.wait)
        with record.clear_errors():
            try:
                db.begin("plain")
                yield db
                db.commit()
            except db.duplicate:
                raise Conflict("another server answers in this conversation; ask again") from None
            finally:
                db.roll_back()

    def state(self, id_: str) -> str | None:
        """Return what changes whenever a conversation does; None: there is no such conversation."""
        with self._open() as db:
            # the number of the transaction that wrote the row, which every change does
            sql = "SELECT CAST(xmin AS text) FROM conversations WHERE id = ?"
            row = db.execute(sql, (id_,)).fetchone()
        return None if row is None else str(row[0])

    def _purge(self) -> None:
        """Do nothing: the server overwrites deleted rows when it needs their place."""
