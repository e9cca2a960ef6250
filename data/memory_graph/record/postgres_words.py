"""Word indexes of a record in PostgreSQL: tables of words, ranked by BM25 as in SQLite's FTS5.

The server's full-text search is not used: its ranking differs from SQLite's, and under row-level
security PostgreSQL uses no index for it, since its operators are not ``LEAKPROOF``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np

from turngraph.data.memory_graph.memory_types import EPISODIC, THESIS
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.record.facts import INDEXED, index_words, indexed_texts

K1, B = 1.2, 0.75
LONGEST = 200
"""Longest word, in characters, that is indexed whole: an index key has at most 2,704 bytes."""
IDS = {"fact_words": "fact", "name_words": "alias"}
_ADD = {
    "fact_words": "INSERT INTO fact_words (word, fact, count, length, type) SELECT * FROM"
    " unnest($1::text[], $2::bigint[], $3::integer[], $4::integer[], $5::smallint[])",
    "name_words": "INSERT INTO name_words (word, alias, count, length) SELECT * FROM"
    " unnest($1::text[], $2::bigint[], $3::integer[], $4::integer[])",
}
_BM25 = f"""sum(i.idf * f.count * {K1 + 1}
    / (f.count + {K1} * ({1 - B} + {B} * f.length / $3::float8)))"""
_WANTED = "unnest($1::text[], $2::float8[]) AS i(word, idf)"
_BEST_NODES = f"""SELECT f.fact / 2, {_BM25} AS score
    FROM {_WANTED} JOIN fact_words f ON f.word = i.word WHERE f.type = $4 AND f.fact % 2 = 0
    GROUP BY f.fact ORDER BY score DESC, f.fact LIMIT $5"""
_BEST_NAMES = f"""SELECT a.node FROM (SELECT f.alias, {_BM25} AS score
    FROM {_WANTED} JOIN name_words f ON f.word = i.word GROUP BY f.alias
    ORDER BY score DESC, f.alias LIMIT $4) AS b JOIN aliases a ON a.id = b.alias
    ORDER BY b.score DESC, b.alias"""
_WITH_ALL = """SELECT fact FROM fact_words WHERE word = ANY($1::text[])
    GROUP BY fact HAVING count(*) = $2"""


class Statements(Database, Protocol):
    """The record's database, which also runs PostgreSQL's own SQL."""

    def run(self, sql: str, values: Sequence[Any]) -> Any:
        """Run a statement of PostgreSQL, with values for $1, $2, ..."""


class PostgresWords:
    """The word indexes as tables; see ``database.Words``.

    Args:
        db: the record.
    """

    def __init__(self, db: Statements) -> None:
        self.db = db

    def add(self, table: str, rows: Sequence[tuple[int, str]]) -> None:
        """Add rows."""
        word_rows = list(counted(rows))
        columns: list[list[object]] = [list(column) for column in zip(*word_rows, strict=True)]
        if table == "fact_words" and word_rows:
            nodes = [row_id // 2 for row_id, _ in rows if row_id % 2 == 0]
            sql = "SELECT id, type FROM nodes WHERE id = ANY($1::bigint[])"
            types = dict(self.db.run(sql, [nodes]))
            columns.append([0 if fact % 2 else types[fact // 2] for _, fact, *_ in word_rows])
        if word_rows:
            self.db.run(_ADD[table], columns)
        self._count(table, len(rows), sum(len(text.split()) for _, text in rows))

    def remove(self, table: str, rows: Sequence[tuple[int, str]]) -> None:
        """Remove rows by their words."""
        pairs = [(word, row_id) for word, row_id, *_ in counted(rows)]
        sql = f"""DELETE FROM {table} f USING unnest($1::text[], $2::bigint[]) AS w(word, id)
            WHERE f.word = w.word AND f.{IDS[table]} = w.id"""
        self.db.run(sql, [[word for word, _ in pairs], [row_id for _, row_id in pairs]])
        self._count(table, -len(rows), -sum(len(text.split()) for _, text in rows))

    def _count(self, table: str, rows: int, words: int) -> None:
        sql = """UPDATE counters c SET value = c.value + k.added
            FROM unnest($1::text[], $2::bigint[]) AS k(name, added) WHERE c.name = k.name"""
        self.db.run(sql, [[f"{table} rows", f"{table} words"], [rows, words]])

    def clear(self, table: str) -> None:
        """Remove all rows of an index."""
        self.db.run(f"DELETE FROM {table}", [])
        sql = "UPDATE counters SET value = 0 WHERE name = ANY($1::text[])"
        self.db.run(sql, [[f"{table} rows", f"{table} words"]])

    def prepare(self) -> None:
        """Do nothing: the tables need no preparation."""

    def facts(self, phrase: str) -> np.ndarray:
        """Return the keys of the facts that contain a phrase, int64."""
        words = [_clipped(word) for word in phrase.split()]
        if len(words) == 1:
            sql = "SELECT array_agg(fact) FROM fact_words WHERE word = $1"
            [[facts]] = self.db.run(sql, words)
            return np.array(facts or [], dtype=np.int64)
        different = list(set(words))
        keys = [key for (key,) in self.db.run(_WITH_ALL, [different, len(different)])]
        texts = indexed_texts(self.db, keys) if keys else ()
        there = (key for key, text in texts if f" {phrase} " in f" {index_words(text)} ")
        return np.fromiter(there, dtype=np.int64)

    def frequency(self, word: str) -> int:
        """Return the number of facts that contain a word."""
        sql = "SELECT count(*) FROM fact_words WHERE word = $1"
        return int(next(iter(self.db.run(sql, [_clipped(word)])))[0])

    def counts(self) -> tuple[int, int]:
        """Return the number of facts, and the number of words in all facts together."""
        return self._sizes("fact_words")

    def _sizes(self, table: str) -> tuple[int, int]:
        counters = dict(self.db.execute("SELECT name, value FROM counters"))
        return counters[f"{table} rows"], counters[f"{table} words"]

    def best_nodes(self, words: Sequence[str], type: int, limit: int) -> list[tuple[int, float]]:
        """Return nodes of a type that contain any of the words, best first, with their BM25."""
        weights = self._weights("fact_words", words)
        if weights is None:
            return []
        return [tuple(row) for row in self.db.run(_BEST_NODES, [*weights, type, limit])]

    def best_names(self, words: Sequence[str], limit: int) -> list[int]:
        """Return the objects of names that contain any of the words, best first by BM25."""
        weights = self._weights("name_words", words)
        if weights is None:
            return []
        return [node for (node,) in self.db.run(_BEST_NAMES, [*weights, limit])]

    def _weights(
        self, table: str, words: Sequence[str]
    ) -> tuple[list[str], list[float], float] | None:
        """Return those words that are indexed, their idf, and the mean length of a text."""
        clipped = [_clipped(word) for word in dict.fromkeys(words)]
        rows, total = self._sizes(table)
        sql = f"SELECT word, count(*) FROM {table} WHERE word = ANY($1::text[]) GROUP BY word"
        counts = dict(self.db.run(sql, [clipped])) if clipped and rows else {}
        if not counts:
            return None
        # as in FTS5, a word in more than half of the texts has hardly any weight
        weights = [max(math.log((rows - n + 0.5) / (n + 0.5)), 1e-6) for n in counts.values()]
        return list(counts), weights, total / rows

    def spelled(self, phrase: str, name: str) -> list[tuple[int, int]]:
        """Return id and type of the theses and episodes that contain a name in this spelling."""
        keys = self.facts(phrase)
        nodes = (keys[keys % 2 == 0] // 2).tolist()
        sql = f"""SELECT id, type FROM nodes WHERE id = ANY($1::bigint[])
            AND type IN ({EPISODIC}, {THESIS}) AND strpos(text, $2) > 0"""
        return [tuple(row) for row in self.db.run(sql, [nodes, name])]

    def is_right(self, table: str) -> bool:
        """Return whether an index agrees with the texts of the record."""
        there = self.db.scan(f"SELECT word, {IDS[table]}, count, length FROM {table}")
        indexed = sum(hash(tuple(row)) for row in there)
        texts = ((row_id, index_words(text)) for row_id, text in self.db.scan(INDEXED[table]))
        rows = words = right = 0
        for row_id, text in texts:
            rows, words = rows + 1, words + len(text.split())
            right += sum(map(hash, counted([(row_id, text)])))
        return indexed == right and self._sizes(table) == (rows, words)


def counted(rows: Sequence[tuple[int, str]]) -> Iterator[tuple[str, int, int, int]]:
    """Yield (word, row id, count of the word, length of the text) for each distinct word."""
    for row_id, text in rows:
        words = text.split()
        for word, num in Counter(map(_clipped, words)).items():
            yield word, row_id, num, len(words)


def _clipped(word: str) -> str:
    """Return a word as it is indexed: a very long one is cut and followed by its hash."""
    if len(word) <= LONGEST:
        return word
    return f"{word[:LONGEST]}{blake2b(word.encode(), digest_size=16).hexdigest()}"
