"""Ranks turns for a broad question by who speaks, the thing alone, feedback and cover of sessions.

It is what such a question says and a ranking by closeness does not use: "What has Ann said about
garden over time?" asks for Ann's turns, about the garden, of all sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from turngraph.benchmarks.memory_graph.retrieval_data import Collection
from turngraph.data.embedding import Embed
from turngraph.data.memory_graph.recall.filter_facts import STOPWORDS
from turngraph.data.normalise import words
from turngraph.data.retrieval.bm25 import EvidenceIndex
from turngraph.data.retrieval.reciprocal_ranks import RRF, fuse
from turngraph.data.types import Evidence

ASKING = frozenset("said say says told tell talked talk time over busy mentioned".split())
"""Words of a broad question that name nothing."""
FED_BACK = 5
"""Turns whose mean vector is added to that of the question."""
NUM_TURNS = 60
"""Turns that are chosen, more than fit into the words."""


@dataclass(frozen=True, slots=True)
class Cover:
    """Settings of the ranking.

    Args:
        others: factor of the score of turns of other speakers; 1: all count alike.
        again: factor of the score for each turn of the same session that was chosen before.
        feedback: weight of the closest turns' mean vector; 0: none.
    """

    others: float = 1.0
    again: float = 1.0
    feedback: float = 0.0


PARTS = {
    "RRF, the thing alone": [Cover()],
    "+ speaker": [Cover(others=one) for one in (1.0, 0.7, 0.4, 0.0)],
    "+ cover of sessions": [Cover(again=one) for one in (1.0, 0.95, 0.9, 0.8)],
    "+ feedback": [Cover(feedback=one) for one in (0.0, 0.5, 1.0)],
    "+ all three": [
        Cover(others=one, again=two, feedback=three)
        for one, two, three in product((0.7, 0.4, 0.0), (1.0, 0.95, 0.9, 0.8), (0.0, 0.5, 1.0))
    ],
}
"""Settings of each row; one of them is chosen on the other half of the questions."""


class CoverIndex:
    """The turns of a conversation.

    Args:
        collection: the conversation; its episodes have speakers and sources.
        embed: maps texts to unit vectors.
    """

    def __init__(self, collection: Collection, embed: Embed) -> None:
        texts = [episode.text for episode in collection.episodes]
        self.embed, self.vectors = embed, embed(texts)
        self.words = EvidenceIndex([Evidence(str(i), t, "text") for i, t in enumerate(texts)])
        self._known: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        self.speakers = [episode.speaker or "" for episode in collection.episodes]
        sources = [episode.source or "" for episode in collection.episodes]
        self.sessions = np.unique(np.array(sources), return_inverse=True)[1]

    def rank(self, question: str, settings: Cover) -> list[int]:
        """Return turns, best first, at most ``NUM_TURNS``; only the thing's words are searched."""
        asked = words(question)
        named = {speaker for speaker in self.speakers if set(words(speaker)) & set(asked)}
        left_out = STOPWORDS | ASKING | {word for name in named for word in words(name)}
        thing = " ".join(word for word in asked if word not in left_out) or question
        sparse, vector, order = self._fused(thing)
        if settings.feedback:
            vector = vector + settings.feedback * self.vectors[order[:FED_BACK]].mean(0)
            order = fuse([sparse, np.argsort(-(self.vectors @ vector), kind="stable")], len(sparse))
        scores = np.zeros(len(order))
        scores[order] = (RRF + 1) / (RRF + 1 + np.arange(len(order)))
        if named:
            scores *= [1.0 if speaker in named else settings.others for speaker in self.speakers]
        return self._covering(scores, settings.again)

    def _fused(self, thing: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the ranking by words, the vector, and the fusion with the ranking by vectors."""
        if thing not in self._known:
            sparse = np.argsort(-self.words.scores(thing), kind="stable")
            vector = self.embed([thing])[0]
            dense = np.argsort(-(self.vectors @ vector), kind="stable")
            self._known[thing] = sparse, vector, fuse([sparse, dense], len(sparse))
        return self._known[thing]

    def _covering(self, scores: np.ndarray, again: float) -> list[int]:
        """Choose turns one by one, each of a session that was chosen from counting less."""
        left = scores.copy()
        chosen: list[int] = []
        for _ in range(min(NUM_TURNS, len(scores))):
            chosen.append(int(left.argmax()))
            left[self.sessions == self.sessions[chosen[-1]]] *= again
            left[chosen[-1]] = -1
        return chosen


def covering_orders(
    collection: Collection, embed: Embed, questions: Sequence[str]
) -> dict[str, list[list[list[int]]]]:
    """Return for each row and setting the ranking of every question."""
    index = CoverIndex(collection, embed)
    return {
        row: [[index.rank(question, one) for question in questions] for one in settings]
        for row, settings in PARTS.items()
    }
