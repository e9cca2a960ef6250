"""Defines the core dataclasses: conversation, turn, answer, evidence, entity.

The readers of ``data/sources/`` produce them, and everything else works on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Source = Literal["kb", "text", "table", "infobox", "memory"]
SOURCES: tuple[Source, ...] = get_args(Source)

MAX_LISTED_ANSWERS = 5
LIST_SEPARATOR = "; "
NOT_IN_EVIDENCE = "not in the evidence"
"""Answer to a question that the evidence does not answer, and what a withheld answer becomes."""
COMPUTED_ID = "memory computed"
"""Id of the passage that states what was computed from a memory graph; it comes first in E_t."""


@dataclass(frozen=True, slots=True)
class Entity:
    """Entity that a passage mentions.

    Args:
        id: identifier; equal ids are the same entity in all passages.
        label: canonical name, as it is given in an answer.
        mentions: other spellings that the passage's text may use.
    """

    id: str
    label: str
    mentions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """Passage: one linearised statement with its source and its entities.

    Args:
        id: unique within its evidence pool.
        text: the linearised text, which the language model reads.
        source: kind of data that it comes from.
        entities: entities that it mentions, distinct by id.
    """

    id: str
    text: str
    source: Source
    entities: tuple[Entity, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """Gold answer: its label, and its id if the benchmark has one."""

    label: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One question with its gold answers.

    Args:
        id: unique within its conversation.
        question: the question, as the user typed it.
        answers: all gold answers; several if the answer is a list, none if it is unknown.
        source: source of the answer according to the benchmark, if it names one.
        evidence: pool of the turn, which is joined with the conversation's.
    """

    id: str
    question: str
    answers: tuple[Answer, ...] = ()
    source: str | None = None
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class Conversation:
    """Dialogue over one evidence pool.

    Args:
        id: unique within its file.
        domain: the benchmark's domain ("books"), or "".
        turns: turns in the order of the dialogue.
        evidence: evidence pool for every turn. Conversations over the same page share one tuple,
            so that the page is indexed once.
    """

    id: str
    domain: str
    turns: tuple[Turn, ...]
    evidence: tuple[Evidence, ...] = ()


Interaction = Sequence[tuple[str, str]]
"""The finished turns before the current one: (question, answer text) pairs."""


def interaction_answer(answers: Sequence[Answer]) -> str:
    """Return an answer's text for the interaction: the first five labels and "and N more"."""
    labels = [answer.label for answer in answers]
    text = LIST_SEPARATOR.join(labels[:MAX_LISTED_ANSWERS])
    num_more = len(labels) - MAX_LISTED_ANSWERS
    return f"{text} and {num_more} more" if num_more > 0 else text


def target_answer(answers: Sequence[Answer]) -> str:
    """Return the text that the model learns to generate: all labels, joined by "; "."""
    return LIST_SEPARATOR.join(answer.label for answer in answers)


def gold_interaction(conversation: Conversation, turn: int) -> list[tuple[str, str]]:
    """Return the interaction before the turn at index ``turn``, with gold answers."""
    return [(t.question, interaction_answer(t.answers)) for t in conversation.turns[:turn]]


Query = str | Sequence[tuple[str, float]]
"""Q_t as one text, or its turns with their weights."""


LEAST_WEIGHT = 1e-10
"""Least weight of a turn: scores are below a thousand and rounded to six decimals, so that turns of
less weight would add nothing."""


def query(interaction: Interaction, question: str) -> str:
    """Return Q_t = q_1 a_1 ... q_t (paper, section 4.1), joined by single spaces."""
    return " ".join(text for text, _ in weighted_query(interaction, question, 1.0))


def weighted_query(
    interaction: Interaction, question: str, history_weight: float
) -> list[tuple[str, float]]:
    """Return the turns of Q_t with their weights, oldest first; the current question has weight 1.

    Turns of less than ``LEAST_WEIGHT`` are left out, so that a long interaction takes no longer.

    Args:
        interaction: the finished turns.
        question: the current question.
        history_weight: w in the weight w^k of a turn k turns back.
    """
    turns = [" ".join(filter(None, pair)) for pair in interaction]
    ages = range(len(turns), -1, -1)
    weighted = [
        (text, history_weight**age) for text, age in zip([*turns, question], ages, strict=True)
    ]
    return [(text, weight) for text, weight in weighted if text and weight >= LEAST_WEIGHT]


@dataclass(frozen=True, slots=True)
class Retrieved:
    """Passage with its retrieval score and turn.

    Args:
        evidence: the passage.
        score: the retriever's score, or cosine similarity if an evidence memory with ``rerank``
            added it.
        from_turn: index of the turn that retrieved it; less than the current turn's if it comes
            from memory.
    """

    evidence: Evidence
    score: float
    from_turn: int
