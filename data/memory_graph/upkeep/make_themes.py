"""Makes the themes of changed sources, then the themes of themes.

Each source is committed by itself, so the next run continues a run that was stopped or killed. The
themes of a source are written only if the source has not changed during the computation.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from turngraph.configs.progress import progress
from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.eigen.similarity_graph import Neighbours
from turngraph.data.eigen.themes import SourceThemes, source_themes
from turngraph.data.eigen.utility_questions import chunk_spans
from turngraph.data.embedding import Embed
from turngraph.data.memory_graph.memory_types import Span
from turngraph.data.memory_graph.recall.theme_arrays import chunk_vectors
from turngraph.data.memory_graph.recall.vectors import FACTS, QUESTIONS, Vectors, is_same
from turngraph.data.memory_graph.record import theme_rows, write_themes
from turngraph.data.memory_graph.record.meta import read_meta
from turngraph.data.memory_graph.record.store import Store
from turngraph.data.memory_graph.record.theme_rows import ChunkRow, ThemeRow, ThesisRow
from turngraph.data.memory_graph.upkeep.group_themes import complete_arrays, group_themes
from turngraph.data.memory_graph.upkeep.theme_questions import (
    NOBODY,
    Lm,
    ask_lm,
    kept_questions,
)
from turngraph.data.memory_graph.upkeep.theme_quotes import summarised, theme_quotes, theme_row
from turngraph.data.normalise import words

logger = logging.getLogger(__name__)

ATTEMPTS = 10
"""Maximum number of attempts if other processes keep changing the graph."""
MANY_TEXTS = 20_000
"""Number of texts without a vector from which on the expected time is logged."""


@dataclass(frozen=True, slots=True)
class ThemesMade:
    """Result of a run of ``make_themes``.

    Args:
        complete: whether all themes are up to date; False: the run was stopped.
        chunks, sources, blank: numbers of chunks and sources in the record, and of blank episodes,
            which have no words and are in no theme.
        themes: numbers of themes of level 1 and of level 2.
        questions: number of questions in use.
        maker: maker of the questions, "none" without any; after a stopped run, earlier makers, too.
        changed: number of sources whose themes this run made.
        counts: numbers of an LM's replies in this run, by outcome.
        seconds: total time.
    """

    complete: bool
    chunks: int
    sources: int
    blank: int
    themes: tuple[int, int]
    questions: int
    maker: str
    changed: int
    counts: Mapping[str, int]
    seconds: float


def make_themes(
    store: Store,
    embed: Embed,
    lm: Lm | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> ThemesMade:
    """Make the themes of every source that has changed, then the themes of themes.

    Args:
        store: the graph, open for writing.
        embed: sentence encoder; if another one made the existing themes, all themes are made again.
        lm: language model that makes the missing questions; None: no questions are used.
        stop: called between two batches; if it returns true, the run stops with all work saved.

    Raises:
        UserError: a text's vector is zero or not finite; eigenvectors did not converge (older
            themes stay); or the graph cannot be written.
    """
    begun = time.monotonic()
    run = _Run(store, embed, lm, stop)
    run.check_encoder()
    complete = run.make_all()
    run.vectors.save()
    with store.reading():
        counts = {name: _count(store, sql) for name, sql in COUNTED.items()}
        makers = " and ".join(theme_rows.makers_in_use(store.db, run.maker)) or run.maker
        return ThemesMade(
            complete=complete,
            chunks=counts["chunks"],
            sources=counts["sources"],
            blank=theme_rows.count_blank(store.db),
            themes=(counts["level 1"], counts["level 2"]),
            questions=counts["questions"],
            maker=makers,
            changed=len(run.made),
            counts=run.counts,
            seconds=time.monotonic() - begun,
        )


COUNTED = {
    "chunks": "chunks",
    "sources": """(SELECT DISTINCT source FROM episodes) s WHERE EXISTS (SELECT 1
        FROM episodes e JOIN chunks c ON c.episode = e.node WHERE e.source IS s.source)""",
    "level 1": "themes WHERE level = 1",
    "level 2": "themes WHERE level = 2",
    "questions": "questions WHERE kept = 1",
}


def _count(store: Store, sql: str) -> int:
    return int(store.db.execute(f"SELECT count(*) FROM {sql}").fetchone()[0])


@dataclass(frozen=True, slots=True)
class _Source:
    """Input of the themes of a source, at one revision."""

    revision: int
    chunks: list[ChunkRow]
    theses: list[ThesisRow]
    questions: dict[int, list[tuple[int, str]]]

    def is_as(self, other: _Source) -> bool:
        """Return whether two inputs differ in nothing but the revision."""
        return replace(self, revision=0) == replace(other, revision=0)


class _Run:
    """A run over the changed sources."""

    def __init__(self, store: Store, embed: Embed, lm: Lm | None, stop: Callable[[], bool]) -> None:
        self.store, self.db, self.embed = store, store.db, embed
        self.lm, self.stop = lm, stop
        self.maker = NOBODY if lm is None else lm.maker
        on_disk = not (store.read_only or store.in_memory)
        self.vectors = Vectors(store.db, store.derived, embed, on_disk, kinds=(FACTS, QUESTIONS))
        self.counts: Counter[str] = Counter()
        self._told = False
        self.made: dict[str | None, tuple[np.ndarray, Neighbours | None]] = {}

    def check_encoder(self) -> None:
        """Mark all themes as outdated if another encoder made them."""
        with self.store.reading():
            stored = read_meta(self.db, theme_rows.PROBE)
        probe = np.array(stored or [], dtype=np.float32)
        if is_same(probe, self.vectors.probe):
            return
        if stored is not None:
            logger.warning("%s: another encoder made the themes; all are made again", self.store)
        with self.store.writing():
            text = json.dumps([round(float(x), 6) for x in self.vectors.probe])
            write_themes.make_anew(self.db, text)

    def make_all(self) -> bool:
        """Make all outdated themes; return False if the run was stopped."""
        for _ in range(ATTEMPTS):
            with self.store.reading():
                changed = theme_rows.changed_sources(self.db, self.maker)
                grouped = theme_rows.is_grouped(self.db)
            if not changed and grouped:
                if not (self.store.in_memory or self.made):
                    complete_arrays(self.store, self.vectors)
                return True
            if not self._make_sources(changed):
                return False
            if group_themes(self.store, self.vectors, self.maker, self.made):
                return True
        raise UserError(f"{self.store}: other processes keep changing it; run the command again")

    def _make_sources(self, changed: Sequence[str | None]) -> bool:
        if changed:
            with progress(len(changed), "themes", "sources", delay=2) as bar:
                for source in changed:
                    if self.stop() or not self._make_source(source):
                        return False
                    bar.update()
        return not self.stop()

    def _make_source(self, source: str | None) -> bool:
        """Make chunks, questions and themes of a source; return False if the run was stopped."""
        with self.store.writing() as revision:
            write_themes.add_chunks(self.db, source, _spans, revision)
        if self.lm and not ask_lm(self.store, source, self.lm, self.stop, self.counts):
            return False
        with self.store.reading() as revision:
            self._say_how_long()
            self.vectors.refresh()
            material = self._read(source, revision)
            texts = theme_rows.chunk_texts(self.db, material.chunks)
        ids = np.array([chunk.id for chunk in material.chunks], np.int64)
        made, rows, kept = self._themes(source, material, texts, ids)
        with self.store.writing() as revision:
            if self._read(source, revision).is_as(material):  # else the source stays outdated
                write_themes.keep_questions(self.db, material.chunks, kept)
                write_themes.replace_themes(self.db, 1, source, rows, revision)
                write_themes.set_themed(self.db, source, material.revision, self.maker)
        self.made[source] = ids, made.neighbours
        return True

    def _read(self, source: str | None, revision: int) -> _Source:
        chunks = theme_rows.chunks_of(self.db, source)
        questions = theme_rows.questions_of(self.db, chunks, self.maker)
        return _Source(revision, chunks, theme_rows.theses_of(self.db, source), questions)

    def _say_how_long(self) -> None:
        """Log once how long the missing vectors will take, if they are many."""
        if self._told:
            return
        self._told = True
        count = self.vectors.num_missing()
        if count < MANY_TEXTS:
            return
        some = [f"A sentence of some words, number {number}." for number in range(64)]
        begun = time.perf_counter()
        self.embed(some)
        rate = len(some) / (time.perf_counter() - begun)
        minutes = plural(round(count / rate / 60), "minute")
        logger.info("%s without a vector: about %s", plural(count, "text"), minutes)

    def _themes(
        self, source: str | None, material: _Source, texts: Sequence[str], ids: np.ndarray
    ) -> tuple[SourceThemes, list[ThemeRow], list[int]]:
        """Return the themes of a source, their rows, and the ids of the questions in use."""
        episodes = np.array([chunk.episode for chunk in material.chunks], np.int64)
        vectors = chunk_vectors(self.vectors.facts, self.vectors.questions, ids, episodes)
        self._check(vectors, episodes)
        kept = kept_questions(
            material.questions, material.chunks, texts, vectors, self._question_vectors
        )
        num_questions = sum(map(len, material.questions.values()))
        self.counts["did_not_find_its_chunk"] += num_questions - len(kept)
        owners = np.array([number for _, number in kept], np.int64)
        asked = self._question_vectors(np.array([id_ for id_, _ in kept], np.int64))
        self._check(asked, episodes[owners])
        made = source_themes(vectors, asked if kept else None, owners if kept else None)
        rows = [
            theme_row(
                theme,
                1,
                source,
                ids[theme.members].tolist(),
                theme_quotes(
                    theme, material.chunks, texts, material.theses, self.vectors.facts, self.embed
                ),
            )
            for theme in made.themes
        ]
        if self.lm is not None and self.lm.write is not None:
            with self.store.reading():
                before = [t for t in theme_rows.read_themes(self.db, level=1) if t.source == source]
            rows = summarised(self.store, rows, before, self.lm, self.counts)
        return made, rows, [id_ for id_, _ in kept]

    def _question_vectors(self, ids: np.ndarray) -> np.ndarray:
        return self.vectors.questions.vectors(2 * ids)

    def _check(self, vectors: np.ndarray, episodes: np.ndarray) -> None:
        """Check vectors of chunks or questions; an error names the episode.

        Raises:
            UserError: a vector is zero or not finite.
        """
        lengths = np.linalg.norm(vectors, axis=1)
        wrong = np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0)))
        if len(wrong):
            raise UserError(
                f"{self.store}: the encoder's vector for episode #{episodes[wrong[0]]} or a"
                " question of it is zero or not finite"
            )


def _spans(text: str) -> list[Span]:
    """Return the spans of a text's chunks that have words."""
    return [(start, stop) for start, stop in chunk_spans(text) if words(text[start:stop])]
