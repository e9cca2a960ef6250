"""The words of all facts: ``fact_words`` of the record, and what was read of it before."""

from __future__ import annotations

import sqlite3

import numpy as np

from turngraph.data.memory_graph.recall.link_entities import quoted

MIN_KEPT, MAX_KEPT = 1000, 16
"""So many facts of a phrase are worth keeping; of so many phrases they are kept."""
MAX_FREQUENCIES = 10_000
"""So many document frequencies are kept."""


class WordIndex:
    """The index of words at one revision; what was read of another one is forgotten.

    Args:
        db: the record; inside one read transaction between two calls of ``show``.
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
        """Answer for this revision, which is the record's."""
        if revision != self._revision:
            self._revision, self._phrases, self._frequencies = revision, {}, {}

    def facts(self, phrase: str) -> np.ndarray:
        """Keys of the facts that have words one after the other, int64, rising.

        Args:
            phrase: the words, normalised, with spaces between; none where there are none.
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
        """Whether each fact has a phrase; bool [k]."""
        facts = self.facts(phrase)
        size = int(max(facts.max(initial=0), keys.max(initial=0))) + 1
        if size > len(self._table):
            self._table = np.zeros(size + size // 10, dtype=bool)
        self._table[facts] = True
        found = self._table[keys]
        self._table[facts] = False
        return found

    def _read(self, phrase: str) -> np.ndarray:
        if not phrase:
            return np.empty(0, dtype=np.int64)
        # one text of a hundred thousand numbers is three times faster to read than as many rows
        sql = "SELECT group_concat(rowid) FROM fact_words WHERE fact_words MATCH ?"
        listed = self.db.execute(sql, (quoted(phrase),)).fetchone()[0]
        return np.fromstring(listed or "", dtype=np.int64, sep=",")

    def frequency(self, word: str) -> int:
        """How many facts have a word; of one that is in a hub's facts it takes a millisecond."""
        if word not in self._frequencies:
            if len(self._frequencies) == MAX_FREQUENCIES:
                self._frequencies.clear()
            sql = "SELECT doc FROM temp.fact_terms WHERE term = ?"
            row = self.db.execute(sql, (word,)).fetchone()
            self._frequencies[word] = row[0] if row else 0
        return self._frequencies[word]

    def counts(self) -> tuple[int, int]:
        """How many facts there are, and how many words they have together."""
        row = self.db.execute("SELECT block FROM fact_words_data WHERE id = 1").fetchone()
        numbers = list(_varints(row[0])) if row else []
        return (numbers[0], numbers[1]) if len(numbers) > 1 else (0, 0)


def _varints(block: bytes) -> list[int]:
    """SQLite's variable-length integers: 7 bits a byte, the highest first."""
    numbers, value = [], 0
    for byte in block:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(value)
            value = 0
    return numbers
