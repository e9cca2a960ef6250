"""Evidence memory M_t: passages of earlier turns, reranked at each turn (paper, section 4.2)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Literal, Protocol

import numpy as np

from turngraph.configs.memory_schema import MemoryGraphConfig
from turngraph.data.embedding import Embed
from turngraph.data.types import Interaction, Query, Retrieved

MemoryMode = Literal["none", "rerank", "random"]


class TurnMemory(Protocol):
    """Interface of a conversation's memory graph, which ``data.memory_graph`` implements."""

    @property
    def config(self) -> MemoryGraphConfig:
        """Settings of the graph."""

    @property
    def embed(self) -> Embed | None:
        """Sentence encoder of the graph; None if it has none."""

    def note(self, turn: int, retrieved: Sequence[Retrieved]) -> None:
        """Record what was retrieved for a turn."""

    def remember(self, interaction: Interaction) -> None:
        """Remember the turns that were finished since the last call."""

    def recall(self, question: str, interaction: Interaction, turn: int) -> list[Retrieved]:
        """Return what the graph recalls for a turn's question, best first."""

    def state(self) -> Any:
        """Return the state that ``restore`` takes."""

    def restore(self, state: Any) -> None:
        """Return to an earlier state and forget the turns since then."""

    def close(self) -> None:
        """Close the graph."""


class EvidenceMemory:
    """Evidence memory of one conversation.

    Equation 2: M_t is what was retrieved at turns 1 to t-1 (in the paper, by BM25). The best
    passages of M_t replace the lowest-ranked ones of E_t. They are ranked by the cosine similarity
    of their vectors to Q_t's.

    Args:
        mode: ``none`` leaves E_t unchanged; ``rerank`` is the paper's method; ``random`` samples
            from M_t independently of the question, the paper's control.
        share: fraction of E_t, lowest-ranked, that is replaced, rounded down to whole passages.
        embed: the sentence encoder, ``cached``; needed for ``rerank`` only.
        seed: random seed for ``random``.
        graph: the conversation's memory graph, if it has one.
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
        """Add what was retrieved at a turn; a passage that is already in memory keeps its turn.

        A passage is identified by its text, as the pools of two turns may use the same id.
        """
        if self.graph is not None and retrieved:
            self.graph.note(retrieved[0].from_turn, retrieved)
        for item in retrieved:
            self._passages.setdefault(item.evidence.text, item)

    def state(self) -> Any:
        """Return the state that ``restore`` takes."""
        graph = None if self.graph is None else self.graph.state()
        draws = self._random.getstate() if self.mode == "random" else None  # 22 kB
        return len(self._passages), draws, graph

    def restore(self, state: Any) -> None:
        """Return to an earlier state; the memory graph forgets the turns since then.

        Raises:
            UserError: the memory graph cannot be written.
        """
        num_passages, draws, graph = state
        if self.graph is not None:
            self.graph.restore(graph)
        self._passages = dict(islice(self._passages.items(), num_passages))
        if draws is not None:
            self._random.setstate(draws)

    def merge(
        self, retrieved: Sequence[Retrieved], query: Query, fits: Callable[[list[Retrieved]], bool]
    ) -> list[Retrieved]:
        """Return E_t with its lowest-ranked passages replaced by the best of M_t.

        Args:
            retrieved: E_t, best first.
            query: Q_t, or its turns with their weights.
            fits: tells whether a list of passages is within the node budget. If a passage of M_t
                does not fit, the next best is tried; slots that M_t cannot fill keep their
                passages of E_t.

        Returns:
            At most as many passages as ``retrieved``, none twice.
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

    def _order(self, candidates: list[Retrieved], query: Query) -> list[Retrieved]:
        if self.mode == "random":
            return self._random.sample(candidates, len(candidates))
        if not candidates:
            return []
        assert self.embed is not None, "checked in __init__"
        texts = [query] if isinstance(query, str) else [text for text, _ in query]
        weights = [1.0] if isinstance(query, str) else [weight for _, weight in query]
        vectors = self.embed([*texts, *(c.evidence.text for c in candidates)])
        q_t = np.array(weights, dtype=vectors.dtype) @ vectors[: len(texts)]
        scores = vectors[len(texts) :] @ (q_t / max(float(np.linalg.norm(q_t)), 1e-9))
        order = np.argsort(-scores, kind="stable")
        return [
            Retrieved(candidates[i].evidence, float(scores[i]), candidates[i].from_turn)
            for i in order
        ]
