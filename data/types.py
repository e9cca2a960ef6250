"""The words of the project as dataclasses: conversation, turn, answer, evidence, entity.

Everything that reads a benchmark produces these, everything downstream consumes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Source = Literal["kb", "text", "table", "infobox", "memory"]
SOURCES: tuple[str, ...] = get_args(Source)

MAX_LISTED_ANSWERS = 5
LIST_SEPARATOR = "; "


@dataclass(frozen=True, slots=True)
class Entity:
    """What a passage mentions.

    Args:
        id: equal ids are the same entity, whichever passage they stand in.
        label: its canonical name, the form that an answer takes.
        mentions: other spellings under which the passage's text may name it.
    """

    id: str
    label: str
    mentions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """One linearised statement with its source and its entities.

    Args:
        id: unique within its evidence pool.
        text: what the language model reads.
        source: where it came from.
        entities: what it mentions; without duplicates by id.
    """

    id: str
    text: str
    source: Source
    entities: tuple[Entity, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """A gold answer: its label, and its id where the benchmark has one."""

    label: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One question with its gold answers.

    Args:
        id: unique within its conversation.
        question: as the user asked it.
        answers: all gold answers; more than one means that the answer is a list. Empty at
            inference time.
        source: where the benchmark says the answer comes from, if it says so.
        evidence: a pool of this turn's own, read beside the conversation's.
    """

    id: str
    question: str
    answers: tuple[Answer, ...] = ()
    source: str | None = None
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class Conversation:
    """A dialogue over one evidence pool.

    Args:
        id: unique within its file.
        domain: the benchmark's domain ("books"), "" where it has none.
        turns: in the order in which they were asked.
        evidence: the pool that every turn may draw on. Conversations over the same page share
            one tuple, so that the page is indexed once.
    """

    id: str
    domain: str
    turns: tuple[Turn, ...]
    evidence: tuple[Evidence, ...] = ()


Interaction = Sequence[tuple[str, str]]
"""The finished turns before the current one: (question, answer text) pairs."""


def interaction_answer(answers: Sequence[Answer]) -> str:
    """The text of an answer inside the interaction: the first five labels and "and N more"."""
    labels = [answer.label for answer in answers]
    text = LIST_SEPARATOR.join(labels[:MAX_LISTED_ANSWERS])
    rest = len(labels) - MAX_LISTED_ANSWERS
    return f"{text} and {rest} more" if rest > 0 else text


def target_answer(answers: Sequence[Answer]) -> str:
    """The text that the model learns to write: all labels, joined by "; "."""
    return LIST_SEPARATOR.join(answer.label for answer in answers)


def gold_interaction(conversation: Conversation, turn: int) -> list[tuple[str, str]]:
    """The interaction before turn number ``turn`` (from 0), filled with gold answers."""
    return [(t.question, interaction_answer(t.answers)) for t in conversation.turns[:turn]]


def query(interaction: Interaction, question: str) -> str:
    """Q_t = q_1 a_1 ... q_t (paper, section 4.1), one text with single spaces between."""
    parts = [part for pair in interaction for part in pair] + [question]
    return " ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Retrieved:
    """A passage with why it was chosen.

    Args:
        evidence: the passage.
        score: BM25 score, or cosine similarity where it came from an evidence memory that reranks.
        from_turn: the turn (from 0) whose retrieval found it; an earlier one means memory.
    """

    evidence: Evidence
    score: float
    from_turn: int
