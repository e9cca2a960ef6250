"""Has a language model make utility questions, which a chunk of text answers.

After GEM-RAG (arXiv 2409.15566), which asks GPT-3.5 for five questions a chunk.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from turngraph.configs.user_error import UserError
from turngraph.data.embedding import Embed
from turngraph.data.linearise import sentence_spans
from turngraph.data.normalise import fold, words
from turngraph.data.retrieval.bm25 import EvidenceIndex
from turngraph.data.retrieval.reciprocal_ranks import fuse
from turngraph.data.types import Evidence

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
"""A question is kept if its own chunk is among this many best chunks, by BM25 and vectors."""
_LIST: dict[str, Any] = {
    "type": "array",
    "items": {"type": "string", "minLength": 8, "maxLength": 120},
    "minItems": 1,
    "maxItems": NUM_QUESTIONS,
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"questions": _LIST},
    "required": ["questions"],
    "additionalProperties": False,
}
"""JSON schema of a language model's reply."""
EXAMPLE = (
    "Mira moved to Oslo in 2015 and has taught chemistry there ever since.",
    ("Where did Mira move in 2015?", "What subject does Mira teach in Oslo?"),
)
"""Text and questions of the prompt's example. A question with a name of the example counts as
copied, unless the chunk has the name, too."""
PROMPT = """Write up to {number} questions that the text answers.
Name who or what each question is about. Reply in JSON.

Text: {example}
{{"questions": {examples}}}

Text: {text}"""
_EXAMPLE_NAMES = {"mira", "oslo"}
FUNCTION_WORDS = frozenset(
    "a an the of in on at to for from by with and or is are was were be been do does did has have "
    "had what who whom whose which when where why how that this these those it its he she they his "
    "her their you your i my we our as about not no can will would said".split()
)


@dataclass(frozen=True, slots=True)
class UtilityQuestion:
    """A question that a chunk answers.

    Args:
        chunk: number of the chunk among those given.
        text: the question, which ends in "?".
    """

    chunk: int
    text: str


def chunk_spans(text: str) -> list[Span]:
    """Return the spans of a text's chunks, of about 100 words each, split at sentence ends.

    A sentence of more than ``MAX_WORDS`` words is a chunk of its own. A blank text has none.
    """
    if not text.strip():
        return []
    if len(text.split()) <= MAX_WORDS:
        return [(0, len(text))]
    starts, count = [0], 0
    for start, stop in sentence_spans(text):
        size = len(text[start:stop].split())
        if count and count + size > CHUNK_WORDS:
            starts.append(start)
            count = 0
        count += size
    return list(pairwise([*starts, len(text)]))


def question_prompts(texts: Sequence[str]) -> list[str]:
    """Return the user message that asks a language model for a chunk's questions, one a chunk."""
    example, questions = EXAMPLE
    listed = json.dumps(list(questions))
    return [
        PROMPT.format(number=NUM_QUESTIONS, example=example, examples=listed, text=text)
        for text in texts
    ]


def questions_by_lm(
    texts: Sequence[str], generate: Generate, counts: Counter[str] | None = None
) -> list[UtilityQuestion]:
    """Make questions by a language model, one prompt a chunk, and drop unsuitable ones.

    A question is kept if it ends in "?", shares a content word with its chunk and does not copy the
    prompt's example. ``keep_found`` filters further.

    Args:
        texts: the chunks.
        generate: the language model.
        counts: receives ``made``, ``cut_off``, ``no_question``, ``no_shared_word`` and ``copied``.

    Raises:
        UserError: a complete reply breaks the schema: the decoding is not constrained.
    """
    counts = Counter() if counts is None else counts
    replies = generate(question_prompts(texts), SCHEMA)
    kept = []
    for number, (text, (reply, is_complete)) in enumerate(zip(texts, replies, strict=True)):
        counts["cut_off"] += not is_complete
        seen: set[str] = set()
        for question in _read(reply, is_complete, number)[:NUM_QUESTIONS]:
            counts["made"] += 1
            wrong = _fault(question, text)
            if wrong:
                counts[wrong] += 1
            elif fold(question) not in seen:
                seen.add(fold(question))
                kept.append(UtilityQuestion(number, question))
    return kept


def _read(reply: str, is_complete: bool, number: int) -> list[str]:
    """Return the questions of a reply; none of one that was cut off."""
    try:
        questions = json.loads(reply)["questions"]
        return [" ".join(question.split()) for question in questions]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if is_complete:
            hint = "decoding must obey the schema"
            raise UserError(
                f"chunk {number}: the LM's reply breaks the prompt's schema; {hint}"
            ) from error
        return []


def _fault(question: str, text: str) -> str | None:
    """Return why a language model's question is dropped; None if it is kept."""
    if not question.endswith("?"):
        return "no_question"
    content = set(words(question)) - FUNCTION_WORDS
    if content & _EXAMPLE_NAMES - set(words(text)):
        return "copied"
    return None if content & set(words(text)) else "no_shared_word"


def keep_found(
    questions: Sequence[UtilityQuestion],
    texts: Sequence[str],
    vectors: np.ndarray,
    embed: Embed,
    depth: int = ROUND_TRIP_DEPTH,
) -> list[UtilityQuestion]:
    """Return the questions that find their own chunk: the round-trip filter.

    Args:
        questions: in any order; the result has the same order.
        texts: the chunks, which each question ranks by RRF of BM25 and vectors.
        vectors: unit vectors of the chunks, [n, width].
        embed: makes vectors of the questions.
        depth: number of best chunks among which a question's own chunk must be.
    """
    if not questions:
        return []
    index = EvidenceIndex([Evidence(str(i), text, "text") for i, text in enumerate(texts)])
    asked = embed([question.text for question in questions])
    kept = []
    for question, vector in zip(questions, asked, strict=True):
        by_words = np.argsort(-index.scores(question.text), kind="stable")
        by_vectors = np.argsort(-np.round(vectors @ vector, 6), kind="stable")
        if question.chunk in fuse([by_words, by_vectors], len(texts))[:depth]:
            kept.append(question)
    return kept
