"""Reads and caches the record's full-text index over the words of all facts."""

from __future__ import annotations

import sqlite3

import numpy as np

from turngraph.data.memory_graph.recall.link_entities import quoted

MIN_KEPT, MAX_KEPT = 1000, 16
"""Smallest number of a phrase's facts that are cached; largest number of cached phrases."""
MAX_FREQUENCIES = 10_000
"""Largest number of cached document frequencies."""


class WordIndex:
    """Reader of the record's ``fact_words`` at one revision; a new revision clears the cache.

    Args:
        db: the record; one read transaction spans the calls between two calls of ``show``.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db, self._revision = db, -1
        self._phrases: dict[str, np.ndarray] = {}
        self._frequencies: dict[str, int] = {}
        self._table = np.zeros(0, dtype=bool)  # by fact key, false between two calls
        db.execute(
            "CREATE VIRTUAL TABLE IF NOT EXISTS temp.fact_terms"
            " USING fts5vocab(main, fact_words, row)"
        )

    def show(self, revision: int) -> None:
        """Set the revision to read, which must be the record's current one."""
        if revision != self._revision:
            self._revision, self._phrases, self._frequencies = revision, {}, {}

    def facts(self, phrase: str) -> np.ndarray:
        """Return the keys of the facts that contain a phrase, int64, sorted.

        Args:
            phrase: normalised words with spaces between; "" is in no fact.
        """
        if phrase in self._phrases:
            return self._phrases[phrase]
        found = self._read(phrase)
        if len(found) >= MIN_KEPT:
            if len(self._phrases) == MAX_KEPT:
                self._phrases.pop(next(iter(self._phrases)))
            self._phrases[phrase] = found
        return found

    def mention(self, phrase: str, keys: np.ndarray) -> np.ndarray:
        """Return whether each fact contains a phrase; bool [k]."""
        facts = self.facts(phrase)
        size = int(max(facts.max(initial=0), keys.max(initial=0))) + 1
        if size > len(self._table):
            self._table = np.zeros(size + size // 10, dtype=bool)
        self._table[facts] = True
        found = np.asarray(self._table[keys])
        self._table[facts] = False
        return found

    def _read(self, phrase: str) -> np.ndarray:
        if not phrase:
            return np.empty(0, dtype=np.int64)
        # a text of a hundred thousand numbers is read three times faster than as many rows
        sql = "SELECT group_concat(rowid) FROM fact_words WHERE fact_words MATCH ?"
        listed = self.db.execute(sql, (quoted(phrase),)).fetchone()[0]
        return np.fromstring(listed or "", dtype=np.int64, sep=",")

    def frequency(self, word: str) -> int:
        """Return the number of facts that contain a word."""
        if word not in self._frequencies:
            if len(self._frequencies) == MAX_FREQUENCIES:
                self._frequencies.clear()
            sql = "SELECT doc FROM temp.fact_terms WHERE term = ?"
            row = self.db.execute(sql, (word,)).fetchone()
            self._frequencies[word] = row[0] if row else 0
        return self._frequencies[word]

    def counts(self) -> tuple[int, int]:
        """Return the number of facts and of all their words, as FTS5's averages record has them."""
        row = self.db.execute("SELECT block FROM fact_words_data WHERE id = 1").fetchone()
        numbers = _varints(row[0]) if row else []
        return (numbers[0], numbers[1]) if len(numbers) > 1 else (0, 0)


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
