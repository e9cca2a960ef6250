"""Reads and caches the record's full-text index over the words of all facts."""

from __future__ import annotations

import numpy as np

from turngraph.data.memory_graph.record.database import Database

MIN_KEPT, MAX_KEPT = 1000, 16
"""A phrase is cached if at least ``MIN_KEPT`` facts contain it; at most ``MAX_KEPT`` are cached."""
MAX_FREQUENCIES = 10_000
"""Largest number of cached document frequencies."""


class WordIndex:
    """Reader of the record's ``fact_words`` at one revision; a new revision clears the cache.

    Args:
        db: the record; all calls after a call of ``show`` are in one read transaction.
    """

    def __init__(self, db: Database) -> None:
        self._revision = -1
        self._phrases: dict[str, np.ndarray] = {}
        self._frequencies: dict[str, int] = {}
        self._table = np.zeros(0, dtype=bool)  # by fact key, false between two calls
        self._words = db.words
        self._words.prepare()

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
        keys = self._words.facts(phrase) if phrase else np.empty(0, dtype=np.int64)
        if len(keys) >= MIN_KEPT:
            if len(self._phrases) == MAX_KEPT:
                self._phrases.pop(next(iter(self._phrases)))
            self._phrases[phrase] = keys
        return keys

    def mention(self, phrase: str, keys: np.ndarray) -> np.ndarray:
        """Return whether each fact contains a phrase; bool [k]."""
        facts = self.facts(phrase)
        size = int(max(facts.max(initial=0), keys.max(initial=0))) + 1
        if size > len(self._table):
            self._table = np.zeros(size + size // 10, dtype=bool)
        self._table[facts] = True
        mentioned = np.asarray(self._table[keys])
        self._table[facts] = False
        return mentioned

    def frequency(self, word: str) -> int:
        """Return the number of facts that contain a word."""
        if word not in self._frequencies:
            if len(self._frequencies) == MAX_FREQUENCIES:
                self._frequencies.clear()
            self._frequencies[word] = self._words.frequency(word)
        return self._frequencies[word]

    def counts(self) -> tuple[int, int]:
        """Return the number of facts, and the number of words in all facts together."""
        return self._words.counts()
