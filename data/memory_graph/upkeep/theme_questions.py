"""Has a language model make the utility questions of a source's chunks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from turngraph.configs.progress import progress
from turngraph.data.eigen.summaries import Write
from turngraph.data.eigen.utility_questions import (
    Generate,
    UtilityQuestion,
    keep_found,
    questions_by_lm,
)
from turngraph.data.memory_graph.record import theme_rows
from turngraph.data.memory_graph.record.store import Store
from turngraph.data.memory_graph.record.theme_rows import ChunkRow
from turngraph.data.memory_graph.record.write_themes import put_questions

NOBODY = "none"
"""Maker of the questions where there are none; a language model is ``lm:`` and its name."""
LM_BATCH = 8
"""Number of chunks whose questions an LM makes in one batch and one commit."""


@dataclass(frozen=True, slots=True)
class Lm:
    """A language model that makes questions, and perhaps summaries.

    Args:
        name: name of the model, which is stored with its questions and summaries.
        generate: returns JSON of a schema for each prompt.
        write: returns a text for each prompt, to make summaries; None: no summaries are made.
    """

    name: str
    generate: Generate
    write: Write | None = None

    @property
    def maker(self) -> str:
        """Name of the model as a maker in the record."""
        return f"lm:{self.name}"


def ask_lm(
    store: Store,
    source: str | None,
    lm: Lm,
    stop: Callable[[], bool],
    counts: Counter[str],
) -> bool:
    """Have an LM make the questions that a source lacks, and commit them batch by batch.

    Args:
        store: the graph.
        source: source whose chunks need questions.
        lm: the language model.
        stop: called before each batch; if it returns true, the function stops.
        counts: receives the numbers of replies by outcome.

    Returns:
        Whether all questions are made; False: stopped.
    """
    with store.reading():
        rows = theme_rows.chunks_of(store.db, source)
        known = theme_rows.questions_of(store.db, rows, lm.maker)
        new = [row for row in rows if row.id not in known]
        texts = theme_rows.chunk_texts(store.db, new)
    if not new:
        return True
    with progress(len(new), "questions", "chunks", delay=2) as bar:
        for begin in range(0, len(new), LM_BATCH):
            if stop():
                return False
            batch = new[begin : begin + LM_BATCH]
            made: dict[int, list[str]] = {row.id: [] for row in batch}
            asked = texts[begin : begin + LM_BATCH]
            for question in questions_by_lm(asked, lm.generate, counts):
                made[batch[question.chunk].id].append(question.text)
            with store.writing() as revision:
                put_questions(store.db, made, lm.maker, revision)
            bar.update(len(batch))
    return True


def kept_questions(
    questions: Mapping[int, Sequence[tuple[int, str]]],
    chunks: Sequence[ChunkRow],
    texts: Sequence[str],
    vectors: np.ndarray,
    vectors_of: Callable[[np.ndarray], np.ndarray],
) -> list[tuple[int, int]]:
    """Return (id, chunk index) of the questions to use: those by which retrieval finds their chunk.

    Args:
        questions: ids and texts of the questions, by chunk id.
        chunks: chunks of the source.
        texts, vectors: texts and vectors of the chunks.
        vectors_of: returns the vectors of questions by id.
    """
    every = [
        (number, id_, text)
        for number, chunk in enumerate(chunks)
        for id_, text in questions.get(chunk.id, ())
    ]
    if not every:
        return []
    embedded = vectors_of(np.array([id_ for _, id_, _ in every], np.int64))
    rows = {text: row for row, (_, _, text) in enumerate(every)}
    asked = [UtilityQuestion(number, text) for number, _, text in every]
    best = keep_found(asked, texts, vectors, lambda some: embedded[[rows[text] for text in some]])
    chosen = {(question.chunk, question.text) for question in best}
    return [(id_, number) for number, id_, text in every if (number, text) in chosen]
