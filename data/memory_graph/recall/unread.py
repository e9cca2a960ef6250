"""Finds episodes without extracted facts by similarity, as no traversal reaches them."""

from __future__ import annotations

import numpy as np

from turngraph.data.memory_graph.recall.question_view import QuestionView
from turngraph.data.memory_graph.recall.ranking import largest
from turngraph.data.memory_graph.record.database import Database

UNREAD = """SELECT 2 * e.node, json_extract(e.properties, '$.kind') IS NULL
    AND NOT EXISTS (SELECT 1 FROM provenance p WHERE p.episode = e.node)
    FROM episodes e WHERE e.node > ? ORDER BY e.node"""
"""Selects the keys of episodes after a node, and whether each has no extracted fact."""
NUM_UNREAD = 15
"""Largest number of returned episodes."""


class UnreadEpisodes:
    """Episodes without extracted facts (in another language, say), which no traversal reaches.

    The record is read incrementally: each episode once.

    Args:
        db: the record.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._last = 0  # node of the last episode that was read from the record
        self._keys: np.ndarray = np.empty(0, dtype=np.int64)

    def near(self, view: QuestionView, min_similarity: float) -> np.ndarray:
        """Return the keys of the unread episodes closest to a question, int64.

        Args:
            view: the graph as the question sees it.
            min_similarity: smallest cosine.
        """
        if rows := self._db.execute(UNREAD, (self._last,)).fetchall():
            new = np.array([key for key, is_unread in rows if is_unread], dtype=np.int64)
            self._keys = np.concatenate([self._keys, new])
            self._last = rows[-1][0] // 2
        keys = view.holding(self._keys)
        similarity = view.closeness(keys)
        best = largest(similarity, keys, NUM_UNREAD)
        similar: np.ndarray = keys[best[similarity[best] >= min_similarity]]
        return similar
