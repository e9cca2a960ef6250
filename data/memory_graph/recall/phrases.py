"""Which facts have the words of a name, kept from one question to the next."""

from __future__ import annotations

import sqlite3

import numpy as np

from data.memory_graph.recall.adjacency import record_revision
from data.memory_graph.recall.link import quoted

MIN_KEPT, MAX_KEPT = 1000, 16
"""So many facts of a name are worth keeping; of so many names they are kept."""


class Phrases:
    """Facts with some words one after the other, as the record has them.

    Args:
        db: the record.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db, self._revision = db, -1
        self._kept: dict[str, np.ndarray] = {}

    def facts(self, phrase: str) -> np.ndarray:
        """Keys of the facts that have a phrase, int64, rising; none for one without words."""
        revision = record_revision(self.db)
        if revision != self._revision:
            self._kept, self._revision = {}, revision
        if phrase in self._kept:
            return self._kept[phrase]
        found = self._read(phrase)
        if len(found) >= MIN_KEPT:
            if len(self._kept) == MAX_KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[phrase] = found
        return found

    def _read(self, phrase: str) -> np.ndarray:
        if not phrase:
            return np.empty(0, dtype=np.int64)
        # one text of a hundred thousand numbers is three times faster to read than as many rows
        sql = "SELECT group_concat(rowid) FROM fact_words WHERE fact_words MATCH ?"
        listed = self.db.execute(sql, (quoted(phrase),)).fetchone()[0]
        return np.fromstring(listed or "", dtype=np.int64, sep=",")
