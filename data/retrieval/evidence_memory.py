"""M_t: the evidence that earlier turns retrieved, reranked at every turn (paper, section 4.2)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import numpy as np

from turngraph.data.embedding import Embed
from turngraph.data.types import Retrieved

MemoryMode = Literal["none", "rerank", "random"]


class TurnMemory(Protocol):
    """What an evidence memory tells of its turns: a conversation's memory graph."""

    def note(self, turn: int, retrieved: Sequence[Retrieved]) -> None:
        """Take note of what was retrieved for a turn."""

    def state(self) -> Any:
        """Return what ``restore`` needs to come back here."""

    def restore(self, state: Any) -> None:
        """Take back all turns since a state."""

    def close(self) -> None:
        """Close the graph."""


class EvidenceMemory:
    """The memory of one conversation.

    Equation 2: M_t is what BM25 gave at turns 1 to t-1. The lowest part of E_t gives way to the
    best of M_t, where best is the cosine similarity to Q_t under a sentence encoder.

    Args:
        mode: ``none`` leaves E_t as it is; ``rerank`` is the paper's; ``random`` draws from M_t
            without looking at the question, the paper's control.
        share: the part of E_t that gives way, rounded down to whole passages.
        embed: the sentence encoder, ``cached``; needed for ``rerank`` only.
        seed: for ``random``.
        graph: the conversation's memory graph, where it has one.
    """

    def __init__(
        self,
        mode: MemoryMode,
        share: float = 1 / 3,
        embed: Embed | None = None,
        seed: int | str = 0,
        graph: TurnMemory | None = None,
    ) -> None:
        if mode == "rerank" and embed is None:
            raise ValueError("memory 'rerank' needs an embedder")
        self.mode, self.share, self.embed, self.graph = mode, share, embed, graph
        self._random = random.Random(f"evidence memory {seed}")
        self._passages: dict[str, Retrieved] = {}

    def __len__(self) -> int:
        return len(self._passages)

    def add(self, retrieved: Sequence[Retrieved]) -> None:
        """Remember what BM25 gave at a turn; a passage that is known keeps its first turn.

        A passage is known by its text: ids may repeat from one turn's pool to the next's.
        """
        if self.graph is not None and retrieved:
            self.graph.note(retrieved[0].from_turn, retrieved)
        for item in retrieved:
            self._passages.setdefault(item.evidence.text, item)

    def state(self) -> Any:
        """What ``restore`` needs to come back here."""
        graph = None if self.graph is None else self.graph.state()
        return dict(self._passages), self._random.getstate(), graph

    def restore(self, state: Any) -> None:
        """Take back all that came since a state; the memory graph forgets the turns since.

        Raises:
            ValueError: the memory graph cannot be written.
        """
        passages, draws, graph = state
        if self.graph is not None:
            self.graph.restore(graph)
        self._passages = dict(passages)
        self._random.setstate(draws)

    def merge(
        self, retrieved: Sequence[Retrieved], query: str, fits: Callable[[list[Retrieved]], bool]
    ) -> list[Retrieved]:
        """E_t with its lowest part replaced by the best of M_t.

        Args:
            retrieved: E_t, best first.
            query: Q_t.
            fits: whether a list of passages stays within the node budget. A remembered passage that
                does not fit is passed over for the next best; slots that M_t cannot fill go back
                to the passages of E_t that held them.

        Returns:
            As many passages as ``retrieved`` at most, none twice.
        """
        num_slots = int(len(retrieved) * self.share + 1e-9)
        if self.mode == "none" or not num_slots or not self._passages:
            return list(retrieved)
        kept = list(retrieved[: len(retrieved) - num_slots])
        known = {item.evidence.text for item in kept}
        candidates = [item for text, item in self._passages.items() if text not in known]
        for item in [*self._order(candidates, query), *retrieved[len(kept) :]]:
            if len(kept) == len(retrieved):
                break
            if item.evidence.text not in known and fits([*kept, item]):
                kept.append(item)
                known.add(item.evidence.text)
        return kept

    def _order(self, candidates: list[Retrieved], query: str) -> list[Retrieved]:
        if self.mode == "random":
            return self._random.sample(candidates, len(candidates))
        if not candidates:
            return []
        vectors = self.embed([query, *(c.evidence.text for c in candidates)])
        scores = vectors[1:] @ vectors[0]
        order = np.argsort(-scores, kind="stable")
        return [
            Retrieved(candidates[i].evidence, float(scores[i]), candidates[i].from_turn)
            for i in order
        ]
