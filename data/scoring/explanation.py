"""Record of what a conversation's answers are based on; ``--explain`` writes it as a page.

Plain dataclasses of texts and numbers; ``dataclasses.asdict`` of an ``Explanation`` is its JSON.
Passages are referred to by their index in ``ExplainedTurn.passages``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from turngraph.data.retrieval.evidence_memory import MemoryMode
from turngraph.data.types import Retrieved, Source

Origin = Literal["new", "memory", "remembered"]
Reason = Literal["budget", "memory"]


@dataclass(frozen=True, slots=True)
class MarkedSpan:
    """Span of a passage that mentions an entity.

    Args:
        start, end: characters of the passage's text, ``end`` exclusive; spans do not overlap.
        entity: the entity's id; equal ids are the same entity in all passages of a turn.
        label: its canonical name.
    """

    start: int
    end: int
    entity: str
    label: str


@dataclass(frozen=True, slots=True)
class ExplainedPassage:
    """Passage that the model was given, with its share in the answer.

    Args:
        id, source: as in the evidence pool.
        text: as the model read it.
        score: the retriever's score; for a passage from memory its cosine similarity if memory is
            reranked, else its score at the turn that retrieved it; for one from the memory graph,
            the graph's score.
        from_turn: index of the turn that retrieved it.
        origin: ``new`` was retrieved for this turn's question; ``memory`` was retrieved at an
            earlier turn and brought back by the evidence memory; ``remembered`` comes from the
            memory graph.
        share: its influence on the answer, 0 to 1: the absolute gradient x input, summed over
            its tokens. The shares of a turn's passages sum to 1. They have no sign, because the
            signed sum does not say "for" or "against": it is often below 0 for a passage that holds
            the right answer.
        attention: its share of the attention between passages in the graph, 0 to 1, summing to
            1 over the passages (all 0 if no entity joins any); None where they are read as text.
        spans: the entities marked in its text, in order of their start.
    """

    id: str
    source: Source
    text: str
    score: float
    from_turn: int
    origin: Origin
    share: float
    attention: float | None
    spans: tuple[MarkedSpan, ...]


@dataclass(frozen=True, slots=True)
class PassageEdge:
    """All edges of one entity between two passages, in both directions.

    Args:
        first, second: indices of the passages in ``ExplainedTurn.passages``, ``first < second``.
        entity, label: id and name of the entity.
        share: its influence on the answer among all such edges, 0 to 1: the absolute gradient of
            a factor on its attention weights. The shares of a turn's edges sum to 1.
        attention: mean attention weight over heads, layers and its edges, 0 to 1.
    """

    first: int
    second: int
    entity: str
    label: str
    share: float
    attention: float


@dataclass(frozen=True, slots=True)
class DroppedPassage:
    """Passage that was retrieved for a turn but not given to the model.

    Args:
        id, source, text, score: as in ``ExplainedPassage``.
        reason: ``budget``: it did not fit into the prompt; ``memory``: a passage from memory
            replaced it.
    """

    id: str
    source: Source
    text: str
    score: float
    reason: Reason


@dataclass(frozen=True, slots=True)
class ExplainedTurn:
    """One question, its answer, and the influence of the evidence.

    Args:
        id: the turn's id.
        index: index of the turn in its conversation.
        question: the user's text.
        answer: the model's answer, possibly "".
        gold: labels of the gold answers; empty if unknown.
        logprob: log-probability of the answer and the end of the turn, given the prompt; natural
            logarithm. None: the graph ranks answers, and no passage has this one.
        passages: the evidence in the order that the model read it, best retrieved first.
        edges: the entities that join passages; empty where they are read as text.
        dropped: passages that were retrieved and not given to the model, best first.
        withheld: whether the model was not sure enough, so that "not in the evidence" was given.
    """

    id: str
    index: int
    question: str
    answer: str
    gold: tuple[str, ...]
    logprob: float | None
    passages: tuple[ExplainedPassage, ...]
    edges: tuple[PassageEdge, ...]
    dropped: tuple[DroppedPassage, ...]
    withheld: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    """A conversation with its answers explained.

    Args:
        conversation: its id.
        domain: its domain, or "".
        checkpoint: name of the checkpoint's folder, shown on the page.
        evidence: how the model reads evidence, ``graph`` or ``text``.
        history: which answers the prompts of later turns hold, ``gold`` or ``predicted``.
        memory: mode of the evidence memory.
        turns: the answered turns, in order.
    """

    conversation: str
    domain: str
    checkpoint: str
    evidence: Literal["graph", "text"]
    history: Literal["gold", "predicted"]
    memory: MemoryMode
    turns: tuple[ExplainedTurn, ...]


def origin(retrieved: Retrieved, turn: int) -> Origin:
    """Return the origin of a passage that the model was given at a turn."""
    if retrieved.evidence.source == "memory":
        return "remembered"
    return "new" if retrieved.from_turn == turn else "memory"


def origin_words(origin: Origin, from_turn: int) -> str:
    """Return an origin as text for the page."""
    return f"from turn {from_turn + 1}" if origin == "memory" else origin


def shares(sizes: Sequence[float]) -> list[float]:
    """Divide non-negative sizes by their sum; all shares are 0 if all sizes are."""
    total = sum(sizes)
    return [size / total if total else 0.0 for size in sizes]
