"""Makes utility questions, which a chunk of text answers, by rules or by a language model.

After GEM-RAG (arXiv 2409.15566), which asks GPT-3.5 for five questions a chunk. By rules, every
question comes from one statement, cell or entity of its chunk, so that nothing is invented.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from turngraph.configs.user_error import UserError
from turngraph.data.eigen.question_wording import (
    ask_about,
    ask_cell,
    ask_object,
    ask_subject,
    ask_time,
)
from turngraph.data.embedding import Embed
from turngraph.data.linearise import sentence_spans
from turngraph.data.normalise import fold, words
from turngraph.data.retrieval.bm25 import EvidenceIndex
from turngraph.data.retrieval.reciprocal_ranks import fuse
from turngraph.data.table_structure import row_cells
from turngraph.data.types import Evidence

Kind = Literal["text", "table", "infobox"]
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
class Stated:
    """A statement of a chunk: a simple triplet, or a cell of a row ("X", "capital", "Y").

    Args:
        subject, relation, object: as in a simple triplet; relations are read in English.
        time: ISO time at which the statement begins to hold; None: undated.
        span: part of the chunk that makes the statement.
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
        statements: statements of the text, in its order.
        entities: names in the text, in its order.
        kind: ``table`` or ``infobox`` for linearised rows, whose cells become questions.
    """

    text: str
    statements: tuple[Stated, ...] = ()
    entities: tuple[str, ...] = ()
    kind: Kind = "text"


@dataclass(frozen=True, slots=True)
class UtilityQuestion:
    """A question that a chunk answers.

    Args:
        chunk: number of the chunk among those given.
        text: the question, which ends in "?".
        maker: ``rules`` or the name of the language model.
        span: part of the chunk that the question is about; the whole chunk if unknown.
    """

    chunk: int
    text: str
    maker: str
    span: Span


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


def questions_by_rules(
    chunks: Sequence[Chunk], num_questions: int = NUM_QUESTIONS
) -> list[UtilityQuestion]:
    """Make questions from statements, cells and entities, in the order of the chunks.

    In a chunk, statements and cells come before "What is said of X?", and rare names before
    frequent ones. Every fact gives one question; of questions that are equal when folded, one is
    made.

    Args:
        chunks: all chunks of one source; how rare a name is is counted in them.
        num_questions: most questions of a chunk.
    """
    frequency = Counter(
        name for chunk in chunks for name in {fold(n) for n in (*chunk.entities, *_ends(chunk))}
    )
    made = []
    for number, chunk in enumerate(chunks):
        facts, others = [], []
        for statement in _statements(chunk):
            names = [fold(statement.subject), fold(statement.object)]
            rarity = min(frequency[name] for name in names)
            facts.append((rarity, _worded(statement, chunk, frequency), statement.span))
        for entity in chunk.entities:
            others.append((frequency[fold(entity)], ask_about(entity), (0, len(chunk.text))))
        seen: set[str] = set()
        ranked = [*sorted(facts, key=lambda f: f[0]), *sorted(others, key=lambda f: f[0])]
        for _, question, span in ranked:
            if len(seen) < num_questions and fold(question) not in seen:
                seen.add(fold(question))
                made.append(UtilityQuestion(number, question, "rules", span))
    return made


def _statements(chunk: Chunk) -> Iterator[Stated]:
    """Yield a chunk's statements, of rows and infoboxes their cells."""
    yield from chunk.statements
    parts, end = chunk.text.split(", "), len(chunk.text)
    if chunk.kind == "infobox" and len(parts) >= 3:
        yield Stated(parts[0], parts[1], ", ".join(parts[2:]), span=(0, end))
    if chunk.kind == "table":
        cells = row_cells(chunk.text)
        row = chunk.text[cells[0].cell : cells[0].end] if cells else ""
        for cell in cells[1:] or cells:
            value = chunk.text[cell.cell : cell.end]
            yield Stated(
                row if cell != cells[0] else "", cell.header, value, span=(cell.start, cell.end)
            )


def _ends(chunk: Chunk) -> Iterator[str]:
    for statement in _statements(chunk):
        yield from (statement.subject, statement.object)


def _worded(statement: Stated, chunk: Chunk, frequency: Mapping[str, int]) -> str:
    """Return the question that names the rarer end of a statement."""
    subject, relation, answer = statement.subject, statement.relation, statement.object
    if chunk.kind == "infobox" and statement not in chunk.statements:
        return ask_cell(relation, subject, "")
    if chunk.kind == "table" and statement not in chunk.statements:
        return ask_cell(relation, subject, chunk.text.partition(", ")[0])
    question = None
    if frequency[fold(subject)] <= frequency[fold(answer)]:
        question = ask_object(subject, relation, answer)
    elif statement.time is not None:
        question = ask_time(subject, relation, answer)
    return question or ask_subject(relation, answer, subject)


def question_prompts(texts: Sequence[str]) -> list[str]:
    """Return the user message that asks a language model for a chunk's questions, one a chunk."""
    example, questions = EXAMPLE
    listed = json.dumps(list(questions))
    return [
        PROMPT.format(number=NUM_QUESTIONS, example=example, examples=listed, text=text)
        for text in texts
    ]


def questions_by_lm(
    texts: Sequence[str],
    generate: Generate,
    maker: str = "lm",
    counts: Counter[str] | None = None,
) -> list[UtilityQuestion]:
    """Make questions by a language model, one prompt a chunk, and drop unsuitable ones.

    A question is kept if it ends in "?", shares a content word with its chunk and does not copy the
    prompt's example. ``keep_found`` filters further.

    Args:
        texts: the chunks.
        generate: the language model.
        maker: name of the language model, recorded with every question.
        counts: receives ``made``, ``cut_off``, ``no_question``, ``no_shared_word`` and ``copied``.

    Raises:
        UserError: a complete reply breaks the schema: the decoding is not constrained.
    """
    counts = Counter() if counts is None else counts
    schema = {**SCHEMA, "properties": {"questions": {**_LIST, "maxItems": NUM_QUESTIONS}}}
    replies = generate(question_prompts(texts), schema)
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
                kept.append(UtilityQuestion(number, question, maker, (0, len(text))))
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
