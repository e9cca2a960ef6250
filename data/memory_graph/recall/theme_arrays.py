"""Derived arrays of themes: nearest chunks of each chunk, and the vectors of themes.

The arrays are in ``<db>.derived/eigen-REVISION/`` and are made with the themes. Ids are never
reused, so arrays of an older revision remain valid for all chunks and themes that still exist.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from turngraph.data.eigen.similarity_graph import (
    Neighbours,
    nearest_neighbours,
    own_and_asked,
    unit_vectors,
)
from turngraph.data.eigen.themes import MAX_EXACT, MIN_CHUNKS, MIN_NEIGHBOURS, NUM_NEIGHBOURS
from turngraph.data.embedding import Embed
from turngraph.data.memory_graph.recall.derived_files import (
    THEMES,
    State,
    locked,
    read_arrays,
    record_state,
    shows,
    write_arrays,
)
from turngraph.data.memory_graph.recall.vector_matrix import VectorMatrix
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.record.theme_rows import (
    ThemeRow,
    chunks_of,
    kept_questions,
)

logger = logging.getLogger(__name__)

Graphs = Mapping[str | None, tuple[np.ndarray, Neighbours | None]]
"""By source: ids of its chunks, and the graph over their indices; None: too few or too many
chunks."""

COLUMNS = {"chunks": "i8", "starts": "i8", "others": "i8", "weights": "f4", "themes": "i8"}
"""Names and types of the arrays beside ``theme_vectors``."""


@dataclass(frozen=True, slots=True, eq=False)
class ThemeArrays:
    """Edges between chunks, as compressed rows, and vectors of themes.

    Args:
        chunks: [n] int64 ids of chunks, rising.
        starts: [n + 1] where each chunk's row begins.
        others: [e] ids of the chunks in each row.
        weights: [e] float32 similarities.
        themes: [t] int64 ids of themes, rising.
        theme_vectors: [t, d] float32 unit vectors.
    """

    chunks: np.ndarray
    starts: np.ndarray
    others: np.ndarray
    weights: np.ndarray
    themes: np.ndarray
    theme_vectors: np.ndarray

    def vectors_of(self, themes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the vectors of themes, [k, d], and whether each is present, bool [k]."""
        rows = np.searchsorted(self.themes, themes)
        rows[rows == len(self.themes)] = 0
        known = self.themes[rows] == themes if len(self.themes) else np.zeros(len(themes), bool)
        vectors = np.zeros((len(themes), self.theme_vectors.shape[1]), np.float32)
        vectors[known] = self.theme_vectors[rows[known]]
        return vectors, known


def arrays_of(columns: Mapping[str, np.ndarray]) -> ThemeArrays:
    """Return arrays by their names."""
    return ThemeArrays(
        chunks=columns["chunks"],
        starts=columns["starts"],
        others=columns["others"],
        weights=columns["weights"],
        themes=columns["themes"],
        theme_vectors=columns["theme_vectors"],
    )


NONE = arrays_of(
    {name: np.zeros(1 if name == "starts" else 0, kind) for name, kind in COLUMNS.items()}
    | {"theme_vectors": np.zeros((0, 0), np.float32)}
)
"""No arrays."""


def read_theme_arrays(db: Database, folder: Path) -> ThemeArrays:
    """Return the arrays of this record; ``NONE`` if none can be read."""
    stored = read_arrays(folder, THEMES)
    if stored is None or not stored[1].keys() >= {*COLUMNS, "theme_vectors"}:
        return NONE
    manifest, arrays = stored
    if not shows(db, State.of(manifest)):
        return NONE
    return arrays_of(arrays)


def write_theme_arrays(db: Database, folder: Path, arrays: ThemeArrays) -> None:
    """Write arrays of the record's present state, unless another process is writing."""
    columns = {name: getattr(arrays, name) for name in (*COLUMNS, "theme_vectors")}
    with locked(folder) as is_mine:
        if is_mine:
            try:
                write_arrays(folder, THEMES, record_state(db)._asdict(), columns)
            except OSError as error:  # such as a full disk; the arrays can be made again
                logger.warning("%s: arrays of themes cannot be written: %s", folder, error.strerror)


def join_rows(
    old: ThemeArrays, made: Iterable[tuple[np.ndarray, Neighbours | None]], there: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the edges of all chunks: new ones for some sources, old ones for the others.

    Args:
        old: arrays so far.
        made: by source, the ids of its chunks, and the graph over their indices or None.
        there: ids of all chunks that the record has, rising.

    Returns:
        Chunks, starts, others and weights, as in ``ThemeArrays``.
    """
    made = list(made)
    new = np.concatenate([np.zeros(0, np.int64), *(ids for ids, _ in made)])
    lengths = np.diff(old.starts)
    owners = np.repeat(old.chunks, lengths)
    gone = old.chunks[~np.isin(old.chunks, there)]
    kept = np.repeat(~np.isin(old.chunks, np.concatenate([gone, new])), lengths)
    if len(gone):
        kept &= ~np.isin(old.others, gone)
    parts = [(owners[kept], old.others[kept], old.weights[kept])]
    for ids, graph in made:
        if graph is not None:
            own = np.repeat(ids, np.diff(graph.starts))
            parts.append((own, ids[graph.chunks], graph.weights.astype(np.float32)))
    rows, others, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(rows, kind="stable")
    known = there[np.isin(there, np.concatenate([old.chunks, new]))]
    starts = np.searchsorted(rows[order], np.append(known, np.iinfo(np.int64).max))
    return known, starts.astype(np.int64), others[order], weights[order]


def graphs_of(
    db: Database,
    facts: VectorMatrix,
    questions: VectorMatrix,
    chunks: np.ndarray,
    known: Iterable[str | None] = (),
) -> Graphs:
    """Compute the graphs of the sources that some chunks belong to.

    Args:
        db: the record, in a read transaction.
        facts, questions: vectors at the record's revision.
        chunks: ids of the chunks.
        known: sources that are left out.
    """
    sql = """SELECT DISTINCT e.source FROM json_each(?) k JOIN chunks c ON c.id = k.value
        JOIN episodes e ON e.node = c.episode"""
    sources = {source for (source,) in db.execute(sql, (json.dumps(chunks.tolist()),))}
    graphs: dict[str | None, tuple[np.ndarray, Neighbours | None]] = {}
    for source in sources.difference(known):
        rows = chunks_of(db, source)
        ids = np.array([row.id for row in rows], np.int64)
        graphs[source] = ids, None
        if MIN_CHUNKS <= len(ids) <= MAX_EXACT:
            episodes = np.array([row.episode for row in rows], np.int64)
            own = unit_vectors(chunk_vectors(facts, questions, ids, episodes), "chunk")
            kept = kept_questions(db, rows)
            number = {row.id: index for index, row in enumerate(rows)}
            owners = np.array([number[chunk] for _, chunk in kept], np.int64)
            asked = questions.vectors(np.array([2 * id_ for id_, _ in kept], np.int64))
            both = own_and_asked(own, asked if kept else None, owners if kept else None)
            near = min(NUM_NEIGHBOURS, max(len(ids) // 8, MIN_NEIGHBOURS))
            graphs[source] = ids, nearest_neighbours(own, both, near)
    return graphs


def chunk_vectors(
    facts: VectorMatrix, questions: VectorMatrix, chunks: np.ndarray, episodes: np.ndarray
) -> np.ndarray:
    """Return the vectors of chunks, float32 [n, d]: an episode's vector, or that of a part of it.

    Args:
        facts, questions: vectors of facts, and of questions and parts.
        chunks: [n] int64 ids.
        episodes: [n] int64 node ids of their episodes.
    """
    vectors = facts.vectors(2 * episodes)
    rows = questions.rows(2 * chunks + 1)
    if (rows >= 0).any():
        vectors[rows >= 0] = questions.gather(rows[rows >= 0])
    return vectors


def put_summaries(
    vectors: np.ndarray, themes: Sequence[ThemeRow], rows: Iterable[int], embed: Embed
) -> None:
    """Replace the vectors of themes that have a language model's summary by those of the summaries.

    The vector of a summary is the mean of its own and of those of its utility questions, as a
    chunk's is in the similarity graph.

    Args:
        vectors: vectors of the themes; are changed.
        themes: the theme of every row.
        rows: indices of the themes whose vectors are new.
        embed: returns unit vectors of texts.
    """
    texts = {row: text.split("\n") for row in rows if (text := themes[row].summary) is not None}
    if not texts:
        return
    embedded = iter(embed([line for lines in texts.values() for line in lines]))
    means = [np.mean([next(embedded) for _ in lines], axis=0) for lines in texts.values()]
    vectors[list(texts)] = unit_vectors(np.stack(means), "summary")
