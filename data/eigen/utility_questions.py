"""Makes utility questions: what a chunk of text answers, by rules or by a language model.

After GEM-RAG (arXiv 2409.15566), which asks GPT-3.5 for five questions a chunk. By rules, every
question comes from one statement, cell or entity of its chunk, so that nothing is invented.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from turngraph.data.embedding import Embed

Span = tuple[int, int]
"""Begin and end in a chunk's text, in characters."""
Generate = Callable[[Sequence[str], Mapping[str, Any]], Sequence[tuple[str, bool]]]
"""Returns JSON of a schema for each user message, and whether the LM ended it by itself, as
``model.constrained.ConstrainedLM.generate`` does."""

NUM_QUESTIONS = 3
"""Questions of a chunk, m in the paper, whose ablation is flat from 3 on."""
MAX_WORDS, CHUNK_WORDS = 120, 100
"""A longer text is split into spans of about ``CHUNK_WORDS`` words; the paper's have 100 tokens."""
ROUND_TRIP_DEPTH = 10
"""A question is kept if its own chunk is among that many, by BM25 and vectors together."""
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "questions": {
            "type": "array",
            "items": {"type": "string", "minLength": 8, "maxLength": 120},
            "minItems": 1,
            "maxItems": NUM_QUESTIONS,
        }
    },
    "required": ["questions"],
    "additionalProperties": False,
}
"""Of a language model's reply."""


@dataclass(frozen=True, slots=True)
class Stated:
    """A statement of a chunk: a simple triplet, or a cell of a row ("X", "capital", "Y").

    Args:
        subject, relation, object: as in a simple triplet; relations are read in English.
        time: when it began, ISO; None: undated.
        span: where the chunk says it.
    """

    subject: str
    relation: str
    object: str
    time: str | None = None
    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A text that questions are made for.

    Args:
        text: the chunk's text.
        statements: what it says, in its order.
        entities: names that it mentions, in its order.
        kind: ``table`` or ``infobox`` for linearised rows, whose cells become questions.
    """

    text: str
    statements: tuple[Stated, ...] = ()
    entities: tuple[str, ...] = ()
    kind: Literal["text", "table", "infobox"] = "text"


@dataclass(frozen=True, slots=True)
class UtilityQuestion:
    """A question that a chunk answers.

    Args:
        chunk: number of the chunk among those given.
        text: the question, which ends in "?".
        maker: ``rules`` or the name of the language model.
        span: what of the chunk it is about; all of it if unknown.
    """

    chunk: int
    text: str
    maker: str
    span: Span


def chunk_spans(text: str) -> list[Span]:
    """Return the spans of a text's chunks: all of it, or about 100 words each, at sentence ends.

    A sentence of more than ``MAX_WORDS`` words is a chunk of its own. A blank text has none.
    """
    raise NotImplementedError


def questions_by_rules(
    chunks: Sequence[Chunk], num_questions: int = NUM_QUESTIONS
) -> list[UtilityQuestion]:
    """Make questions from statements, cells and entities, in the order of the chunks.

    Statements and cells come before "What is said of X?"; those with the rarest names come first,
    one for every fact; questions that are equal when folded are made once a chunk.

    Args:
        chunks: of one source: rarity is counted over these alone.
        num_questions: most questions of a chunk.
    """
    raise NotImplementedError


def question_prompts(texts: Sequence[str], num_questions: int = NUM_QUESTIONS) -> list[str]:
    """Return the user message that asks a language model for a chunk's questions, one a chunk."""
    raise NotImplementedError


def questions_by_lm(
    texts: Sequence[str],
    generate: Generate,
    num_questions: int = NUM_QUESTIONS,
    maker: str = "lm",
    counts: Counter[str] | None = None,
) -> list[UtilityQuestion]:
    """Make questions by a language model, one prompt a chunk, and drop what is no question of it.

    Kept is what ends in "?", shares a content word with its chunk and does not copy the prompt's
    example. ``keep_found`` filters further.

    Args:
        texts: the chunks.
        generate: the language model.
        num_questions: most questions of a chunk.
        maker: name of the language model, recorded with every question.
        counts: receives ``made``, ``cut_off``, ``no_question``, ``no_shared_word`` and ``copied``.

    Raises:
        ValueError: a complete reply breaks the schema: the decoding is not constrained.
    """
    raise NotImplementedError


def keep_found(
    questions: Sequence[UtilityQuestion],
    texts: Sequence[str],
    vectors: np.ndarray,
    embed: Embed,
    depth: int = ROUND_TRIP_DEPTH,
) -> list[UtilityQuestion]:
    """Return the questions that find their own chunk: the round-trip filter.

    Args:
        questions: in any order, which is kept.
        texts: the chunks, among which each question is asked by RRF of BM25 and vectors.
        vectors: unit vectors of the chunks, [n, width].
        embed: makes vectors of the questions.
        depth: how many of the best chunks may hold the own one.
    """
    raise NotImplementedError
