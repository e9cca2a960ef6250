"""Why a conversation's answers are what they are: the record that ``--explain`` makes a page of.

Plain dataclasses of texts and numbers; ``dataclasses.asdict`` of an ``Explanation`` is its JSON.
Passages are named by their place in ``ExplainedTurn.passages``, from 0.
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
    """Where a passage mentions an entity.

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
    """A passage that the model was given, and its part in the answer.

    Args:
        id, source: as in the evidence pool.
        text: as the model read it.
        score: BM25; of a passage from memory its cosine similarity where memory is reranked, else
            the BM25 of the turn that retrieved it; of one from the memory graph, the graph's.
        from_turn: number of the turn that retrieved it, from 0.
        origin: ``new`` was retrieved for this turn's question; ``memory`` was retrieved at an
            earlier turn and brought back by the evidence memory; ``remembered`` comes from the
            memory graph.
        share: how much of the answer hangs on it, 0 to 1: the size of gradient x input, summed over
            its tokens. The shares of a turn's passages sum to 1.
        signed: gradient x input with its sign, in units of log-probability: above 0 the passage
            speaks for the answer, below 0 against it; what its tokens say for and against cancels.
        attention: its part in the attention that crosses between passages in the graph encoder, 0
            to 1, summing to 1 over the passages (all 0 where no entity joins any); None without
            encoder.
        spans: the entities marked in its text, in order of their start.
    """

    id: str
    source: Source
    text: str
    score: float
    from_turn: int
    origin: Origin
    share: float
    signed: float
    attention: float | None
    spans: tuple[MarkedSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class PassageEdge:
    """What joins two passages in the graph: one entity, by all its edges between them, both ways.

    Args:
        first, second: places of the two passages in ``ExplainedTurn.passages``, ``first < second``.
        entity, label: id and name of the entity.
        share: how much of the answer hangs on it among all such edges, 0 to 1: the size of the
            gradient of a factor on its attention weights. They sum to 1 over a turn's edges.
        signed: that gradient, in units of log-probability: above 0 the edge speaks for the answer.
        attention: mean attention weight over heads, layers and its edges, 0 to 1.
    """

    first: int
    second: int
    entity: str
    label: str
    share: float
    signed: float
    attention: float


@dataclass(frozen=True, slots=True)
class DroppedPassage:
    """A passage that was retrieved for a turn but not given to the model.

    Args:
        id, source, text, score: as in ``ExplainedPassage``.
        reason: ``budget``: it did not fit into the prompt; ``memory``: it gave way to a passage
            from memory.
    """

    id: str
    source: Source
    text: str
    score: float
    reason: Reason


@dataclass(frozen=True, slots=True)
class ExplainedTurn:
    """One question, its answer, and what the answer owes to the evidence.

    Args:
        id: of the turn.
        number: of the turn in its conversation, from 0.
        question: as asked.
        answer: what the model wrote, "" where it wrote nothing.
        gold: labels of the gold answers; empty where they are not known.
        logprob: of the answer and the end of the turn, given the prompt; natural logarithm.
        passages: the evidence in the order of the prompt, best retrieved first.
        edges: the entities that join passages; empty without encoder.
        dropped: what was retrieved and not given, best first.
    """

    id: str
    number: int
    question: str
    answer: str
    gold: tuple[str, ...]
    logprob: float
    passages: tuple[ExplainedPassage, ...]
    edges: tuple[PassageEdge, ...]
    dropped: tuple[DroppedPassage, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A conversation with the reasons of its answers.

    Args:
        conversation: its id.
        domain: its domain, "" where it has none.
        checkpoint: the folder's name, as the page may show it.
        evidence: how the model reads evidence, ``graph`` or ``text``.
        history: which answers stand in the prompts of later turns, ``gold`` or ``predicted``.
        memory: how the evidence memory brings passages back.
        turns: those that were answered, in order.
    """

    conversation: str
    domain: str
    checkpoint: str
    evidence: Literal["graph", "text"]
    history: Literal["gold", "predicted"]
    memory: MemoryMode
    turns: tuple[ExplainedTurn, ...]


def origin(item: Retrieved, turn: int) -> Origin:
    """Where a passage that a turn was given comes from."""
    if item.evidence.source == "memory":
        return "remembered"
    return "new" if item.from_turn == turn else "memory"


def origin_words(origin: Origin, from_turn: int) -> str:
    """An origin as people read it."""
    return f"from turn {from_turn + 1}" if origin == "memory" else origin


def shares(sizes: Sequence[float]) -> list[float]:
    """Sizes, none below zero, as shares that sum to 1; all 0 where all sizes are."""
    total = sum(sizes)
    return [size / total if total else 0.0 for size in sizes]
