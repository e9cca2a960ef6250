"""Record in SQLite: a connection, and the operations that differ from PostgreSQL's."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from turngraph.data.memory_graph.memory_types import EPISODIC, THESIS
from turngraph.data.memory_graph.record.database import Recorded, Values, Words
from turngraph.data.memory_graph.record.facts import INDEXED, index_words
from turngraph.data.memory_graph.record.integrity import make_rules

if TYPE_CHECKING:
    import numpy as np

MAX_TOKEN_BYTES = 32768
"""FTS5 truncates longer words."""
_FUNCTION_NUMBERS = count()
_BEST_NODES = """SELECT n.id, -f.rank FROM fact_words f JOIN nodes n ON n.id = f.rowid / 2
    WHERE fact_words MATCH ? AND f.rowid % 2 = 0 AND n.type = ? ORDER BY f.rank, n.id LIMIT ?"""
_BEST_NAMES = """SELECT a.node FROM name_words w JOIN aliases a ON a.id = w.rowid
    WHERE name_words MATCH ? ORDER BY w.rank, a.id LIMIT ?"""
_SPELLED = f"""
SELECT n.id, n.type FROM fact_words f JOIN nodes n ON n.id = f.rowid >> 1
AND NOT f.rowid & 1 AND n.type IN ({EPISODIC}, {THESIS})
WHERE fact_words MATCH ? AND instr(CAST(n.text AS BLOB), CAST(? AS BLOB))"""


RULES = {
    "missing or invalid number of the last write": (
        "SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM meta WHERE name = 'revision'"
        f" AND typeof(value) = 'integer' AND value < {1 << 62}"
        " AND value >= (SELECT ifnull(max(revision), 0) FROM stamps))"
    ),
    "episodes whose properties are no JSON object": (
        "SELECT node FROM episodes WHERE CASE WHEN json_valid(properties)"
        " THEN json_type(properties) != 'object' ELSE 1 END"
    ),
} | make_rules("length(CAST({} AS BLOB))", "SELECT seq FROM sqlite_sequence WHERE name = '{}'")
"""Query for the ids of the rows that break each rule."""


class SqliteDatabase(sqlite3.Connection):
    """A connection to an SQLite file."""

    duplicate: type[Exception] = sqlite3.IntegrityError
    refused: tuple[type[Exception], ...] = ()

    @property
    def words(self) -> Words:
        """The word indexes, in FTS5."""
        return SqliteWords(self)

    def scan(self, sql: str, parameters: Values = (), /) -> sqlite3.Cursor:
        """Run a query whose many rows are streamed instead of being read at once."""
        return self.execute(sql, parameters)

    def as_json(self, text: str) -> str:
        """Return the text unchanged: SQLite reads all JSON that Python writes."""
        return text

    def rules(self) -> Mapping[str, str]:
        """Return the integrity rules; see ``integrity.make_rules``."""
        return RULES

    def version(self) -> int:
        """Return the schema version."""
        return int(self.execute("PRAGMA user_version").fetchone()[0])

    def last_ids(self) -> dict[str, int]:
        """Return the last id that was assigned in each table."""
        return dict(self.execute("SELECT name, seq FROM sqlite_sequence"))

    def set_last_ids(self, last: Mapping[str, int]) -> None:
        """Do nothing: SQLite itself keeps the last id of each table."""

    def reindex(self) -> None:
        """Rebuild the indexes of the tables."""
        self.execute("REINDEX")

    @contextmanager
    def recording(
        self, columns: Mapping[str, Sequence[str]]
    ) -> Iterator[Callable[[], list[Recorded]]]:
        """Record the changes of rows by temporary triggers; see ``Database.recording``."""
        changes: list[Recorded] = []

        def record(table: str, event: str, *values: Any) -> None:
            half = len(values) // 2
            before = None if event == "INSERT" else values[:half]
            after = None if event == "DELETE" else values[half:]
            changes.append((table, before, after))

        # a new name, as a function cannot be redefined while a statement uses it
        function = f"record_change_{next(_FUNCTION_NUMBERS)}"
        self.create_function(function, -1, record)
        triggers = [(table, event) for table in columns for event in ("INSERT", "UPDATE", "DELETE")]
        for table, event in triggers:
            old = [f"OLD.{name}" if event != "INSERT" else "NULL" for name in columns[table]]
            new = [f"NEW.{name}" if event != "DELETE" else "NULL" for name in columns[table]]
            self.execute(
                f"CREATE TEMP TRIGGER record_{table}_{event} AFTER {event} ON main.{table} BEGIN"
                f" SELECT {function}('{table}', '{event}', {', '.join(old + new)}); END"
            )
        try:
            yield lambda: list(changes)
        finally:
            for table, event in triggers:
                self.execute(f"DROP TRIGGER IF EXISTS record_{table}_{event}")
            changes.clear()  # the connection keeps the function


class SqliteWords:
    """The word indexes in FTS5, without copies of the texts; see ``database.Words``.

    Args:
        db: the record.
    """

    def __init__(self, db: SqliteDatabase) -> None:
        self.db = db

    def add(self, table: str, rows: Sequence[tuple[int, str]]) -> None:
        """Add rows in the order of their ids: FTS5 starts a new segment at each smaller id."""
        self.db.executemany(f"INSERT INTO {table} (rowid, words) VALUES (?, ?)", sorted(rows))

    def remove(self, table: str, rows: Sequence[tuple[int, str]]) -> None:
        """Remove rows by their words."""
        sql = f"INSERT INTO {table} ({table}, rowid, words) VALUES ('delete', ?, ?)"
        self.db.executemany(sql, sorted(rows))

    def clear(self, table: str) -> None:
        """Remove all rows of an index."""
        self.db.execute(f"INSERT INTO {table} ({table}) VALUES ('delete-all')")

    def prepare(self) -> None:
        """Create a temporary table, before a transaction, whose rollback would drop it."""
        self.db.execute(
            "CREATE VIRTUAL TABLE IF NOT EXISTS temp.fact_terms"
            " USING fts5vocab(main, fact_words, row)"
        )

    def facts(self, phrase: str) -> np.ndarray:
        """Return the keys of the facts that contain a phrase, int64."""
        import numpy as np  # slow to import, and not needed by commands that only write

        # a text of a hundred thousand numbers is read three times faster than as many rows
        sql = "SELECT group_concat(rowid) FROM fact_words WHERE fact_words MATCH ?"
        listed = self.db.execute(sql, (quoted(phrase),)).fetchone()[0]
        return np.fromstring(listed or "", dtype=np.int64, sep=",")

    def frequency(self, word: str) -> int:
        """Return the number of facts that contain a word."""
        row = self.db.execute("SELECT doc FROM temp.fact_terms WHERE term = ?", (word,)).fetchone()
        return row[0] if row else 0

    def counts(self) -> tuple[int, int]:
        """Return the number of facts and of words in all facts, from FTS5's averages record."""
        row = self.db.execute("SELECT block FROM fact_words_data WHERE id = 1").fetchone()
        numbers = _varints(row[0]) if row else []
        return (numbers[0], numbers[1]) if len(numbers) > 1 else (0, 0)

    def best_nodes(self, words: Sequence[str], type: int, limit: int) -> list[tuple[int, float]]:
        """Return nodes of a type that contain any of the words, best first, with their BM25."""
        return self.db.execute(_BEST_NODES, (match_any(words) or '""', type, limit)).fetchall()

    def best_names(self, words: Sequence[str], limit: int) -> list[int]:
        """Return the objects of names that contain any of the words, best first by BM25."""
        if not words:
            return []
        rows = self.db.execute(_BEST_NAMES, (match_any(words), limit))
        return [node for (node,) in rows]

    def spelled(self, phrase: str, name: str) -> list[tuple[int, int]]:
        """Return id and type of the theses and episodes that contain a name in this spelling."""
        return self.db.execute(_SPELLED, (quoted(phrase), name)).fetchall()

    def is_right(self, table: str) -> bool:
        """Return whether an index agrees with the record, by hashes of all word positions."""
        self.db.execute(
            f"CREATE VIRTUAL TABLE temp.positions USING fts5vocab (main, {table}, instance)"
        )
        try:
            sql = 'SELECT doc, "offset", CAST(term AS BLOB) FROM temp.positions'
            indexed = sum(map(hash, self.db.execute(sql)))
        finally:
            self.db.execute("DROP TABLE temp.positions")
        return indexed == sum(map(hash, _positions(self.db.execute(INDEXED[table]))))


def _positions(texts: Iterable[tuple[int, str]]) -> Iterator[tuple[int, int, bytes]]:
    for row_id, text in texts:
        for position, word in enumerate(index_words(text).split()):
            yield row_id, position, word.encode()[:MAX_TOKEN_BYTES]


def match_any(terms: Iterable[str]) -> str:
    """Return an FTS5 query for texts that contain any of the words; "" without words."""
    return " OR ".join(quoted(term) for term in dict.fromkeys(terms))


def quoted(text: str) -> str:
    """Quote a text as an FTS5 phrase, so that nothing in it is read as syntax."""
    return '"' + text.replace('"', '""').replace("\0", " ") + '"'


def _varints(block: bytes) -> list[int]:
    """Decode SQLite's variable-length integers: 7 bits a byte, the highest first."""
    numbers: list[int] = []
    value = 0
    for byte in block:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(value)
            value = 0
    return numbers
