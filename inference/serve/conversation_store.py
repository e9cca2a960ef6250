"""Keeps the conversations of one user in a SQLite file, turn by turn."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from turngraph.configs.user_error import UserError
from turngraph.data.json_fields import Json, Location
from turngraph.data.jsonlines import dump, parse_evidence, to_json
from turngraph.data.memory_graph.record.database import Database, Unavailable
from turngraph.data.memory_graph.record.sqlite_database import SqliteDatabase
from turngraph.data.memory_graph.times import now
from turngraph.data.types import Retrieved
from turngraph.inference.serve.errors import NotFound

SCHEMA = """
CREATE TABLE IF NOT EXISTS conversations (
    id TEXT PRIMARY KEY, began TEXT NOT NULL, changed TEXT NOT NULL,
    memory_began TEXT, memory_key TEXT, num_remembered INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE IF NOT EXISTS turns (
    conversation TEXT NOT NULL REFERENCES conversations ON DELETE CASCADE,
    turn INTEGER NOT NULL, record TEXT NOT NULL, passages TEXT NOT NULL,
    PRIMARY KEY (conversation, turn)
) STRICT;
"""
FORMAT = 2


class Conflict(UserError):
    """Another server changed a conversation at the same time."""


@dataclass(frozen=True)
class Listed:
    """One conversation in a list.

    Args:
        id: its id.
        title: its first question; "" if none was asked.
        num_turns: number of its turns.
        changed: when the last turn was answered or undone.
    """

    id: str
    title: str
    num_turns: int
    changed: str


class ConversationStore:
    """The conversations of one user.

    Every change is on disk before its call returns.

    Args:
        path: the SQLite file; it is made, for its owner alone, if it is not there.

    Raises:
        Unavailable: the file is no SQLite file of conversations, or cannot be read or written; each
            call may raise it, too.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path)
        if not path.exists():
            path.touch(mode=0o600)
        with closing(self._connect()) as db, self._clear_errors():
            [version] = db.execute("PRAGMA user_version").fetchone()
            if version not in (0, FORMAT):
                raise Unavailable(f"{path}: made by another version of Turngraph")
            db.execute("PRAGMA journal_mode = WAL")
            db.executescript(f"BEGIN IMMEDIATE; {SCHEMA}PRAGMA user_version = {FORMAT}; COMMIT;")

    @contextmanager
    def _open(self) -> Iterator[Database]:
        """Yield a connection in a transaction."""
        with self._clear_errors(), closing(self._connect()) as db:
            db.execute("PRAGMA foreign_keys = ON")
            db.execute("PRAGMA secure_delete = ON")
            db.execute("PRAGMA synchronous = FULL")
            with db:
                yield db

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise Unavailable(f"{self.path}: {error}") from error

    def _connect(self) -> SqliteDatabase:
        return sqlite3.connect(self.path, timeout=30, factory=SqliteDatabase)

    def create(self) -> str:
        """Begin a conversation; return its id."""
        id_ = uuid4().hex
        with self._open() as db:
            values = (id_, now(), now())
            db.execute("INSERT INTO conversations (id, began, changed) VALUES (?, ?, ?)", values)
        return id_

    def listed(self, limit: int, after: str | None = None) -> list[Listed]:
        """Return conversations, the last changed first.

        Args:
            limit: most conversations to return.
            after: id of the last conversation of the page before; None: the first page.

        Raises:
            NotFound: there is no such conversation any more.
        """
        with self._open() as db:
            place = "SELECT changed, id FROM conversations WHERE id = ?"
            last = () if after is None else db.execute(place, (after,)).fetchone()
            if last is None:
                raise NotFound(after)
            older = "WHERE (changed, id) < (?, ?)" if last else ""
            statement = f"""
                SELECT id, coalesce((SELECT record ->> 'question' FROM turns
                                     WHERE conversation = id AND turn = 0), ''),
                       (SELECT count(*) FROM turns WHERE conversation = id), changed
                FROM (SELECT id, changed FROM conversations {older}
                      ORDER BY changed DESC, id DESC LIMIT ?) page
                ORDER BY changed DESC, id DESC
            """  # the inner one first: the texts of one page alone are read
            return [Listed(*row) for row in db.execute(statement, (*last, limit))]

    def state(self, id_: str) -> str | None:
        """Return a value that changes whenever another process changes a conversation.

        None: there is no such conversation. A file has only one process, so that here the value
        never changes.
        """
        with self._open() as db:
            row = db.execute("SELECT 1 FROM conversations WHERE id = ?", (id_,)).fetchone()
        return None if row is None else ""

    def has(self, id_: str) -> bool:
        """Tell whether there is a conversation."""
        return self.state(id_) is not None

    def turns(self, id_: str) -> list[tuple[Json, list[Retrieved]]]:
        """Return the record and the passages of each turn."""
        statement = "SELECT record, passages FROM turns WHERE conversation = ? ORDER BY turn"
        with self._open() as db:
            rows = db.execute(statement, (id_,)).fetchall()
        try:
            return [(json.loads(record), _read(passages, self.name)) for record, passages in rows]
        except ValueError as error:
            raise Unavailable(f"{self.name}: conversation {id_}: {error}") from error

    def add_turn(self, id_: str, turn: int, record: Json, passages: Sequence[Retrieved]) -> None:
        """Keep an answered turn.

        Raises:
            NotFound: the conversation was deleted.
            Conflict: another server has answered in it.
        """
        written = [
            {"evidence": to_json(p.evidence), "score": p.score, "from_turn": p.from_turn}
            for p in passages
        ]
        with self._open() as db:
            self._hold(db, id_, turn)
            texts = dump(record), json.dumps(written, ensure_ascii=False)
            try:
                values = (id_, turn, *map(db.as_json, texts))
                db.execute("INSERT INTO turns VALUES (?, ?, ?, ?)", values)
            except sqlite3.IntegrityError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
                    raise
                raise NotFound(id_) from None
            db.execute("UPDATE conversations SET changed = ? WHERE id = ?", (now(), id_))

    def remove_turn(self, id_: str, turn: int) -> None:
        """Remove the last turn of a conversation."""
        with self._open() as db:
            self._hold(db, id_, turn + 1)
            db.execute("DELETE FROM turns WHERE conversation = ? AND turn >= ?", (id_, turn))
            db.execute("UPDATE conversations SET changed = ? WHERE id = ?", (now(), id_))

    def _hold(self, db: Database, id_: str, num_turns: int) -> None:
        """Do nothing, as one process has the file; ``SharedConversations`` locks the row."""

    def delete(self, id_: str) -> None:
        """Delete a conversation; nothing of its text is left in the file."""
        with self._open() as db:
            db.execute("DELETE FROM conversations WHERE id = ?", (id_,))
        self._purge()

    def _purge(self) -> None:
        with closing(self._connect()) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def memory_of(self, id_: str) -> tuple[str, str] | None:
        """Return the conversation's beginning and key in the memory graph; None: not in it."""
        query = "SELECT memory_began, memory_key FROM conversations WHERE memory_began IS NOT NULL"
        with self._open() as db:
            row = db.execute(f"{query} AND id = ?", (id_,)).fetchone()
        return None if row is None else (str(row[0]), str(row[1]))

    def set_memory(self, id_: str, began: str, key: str) -> None:
        """Keep when a conversation's memory began, and its key, for ``memory_of``."""
        statement = "UPDATE conversations SET memory_began = ?, memory_key = ? WHERE id = ?"
        with self._open() as db:
            db.execute(statement, (began, key, id_))

    def num_remembered(self, id_: str) -> int:
        """Return how many turns of a conversation the memory graph was given, forgotten or not."""
        statement = "SELECT num_remembered FROM conversations WHERE id = ?"
        with self._open() as db:
            row = db.execute(statement, (id_,)).fetchone()
        return 0 if row is None else int(row[0])

    def set_num_remembered(self, id_: str, num: int) -> None:
        """Keep how many turns the memory graph was given, for ``num_remembered``."""
        with self._open() as db:
            statement = "UPDATE conversations SET num_remembered = ? WHERE id = ?"
            db.execute(statement, (num, id_))


def _read(passages: str, name: str) -> list[Retrieved]:
    retrieved = []
    for index, item in enumerate(json.loads(passages)):
        location = Location(name, index)
        evidence = parse_evidence(item["evidence"], location, str(index))
        retrieved.append(Retrieved(evidence, float(item["score"]), int(item["from_turn"])))
    return retrieved
