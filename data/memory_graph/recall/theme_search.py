"""Best-first search over the chunks and themes of a memory graph (GEM-RAG)."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from turngraph.configs.user_error import UserError
from turngraph.data.eigen.search import SEARCH, SearchSettings, best_first
from turngraph.data.embedding import Embed
from turngraph.data.memory_graph.memory_types import EPISODIC
from turngraph.data.memory_graph.recall.derived_files import State, record_state
from turngraph.data.memory_graph.recall.question_view import QuestionView
from turngraph.data.memory_graph.recall.ranking import largest, rounded
from turngraph.data.memory_graph.recall.theme_arrays import (
    NONE,
    ThemeArrays,
    chunk_vectors,
    graphs_of,
    join_rows,
    put_summaries,
    read_theme_arrays,
)
from turngraph.data.memory_graph.recall.vectors import QUESTIONS, Vectors
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.record.theme_rows import ThemeRow, changed_sources, read_themes
from turngraph.data.retrieval.reciprocal_ranks import fuse

logger = logging.getLogger(__name__)

MAX_LOST = 20_000
"""Largest number of chunks without arrays whose neighbours are computed during a question."""
RANKED = 50
"""Length of each ranking from which the search starts."""


@dataclass(frozen=True, slots=True)
class AskThemes:
    """Settings of asking by themes.

    Args:
        num_themes: maximum number of themes whose statements are compared with the question.
        max_words: maximum number of words of all returned statements together.
        max_facts: maximum number of returned statements.
        min_similarity: statements with a smaller cosine to the question are left out.
        others: if the question names a speaker, factor of the reciprocal rank of other speakers'
            statements; 1: all speakers count alike.
        search: settings of the search along the graph of chunks and themes.
    """

    num_themes: int = 100
    max_words: int = 400
    max_facts: int = 100
    min_similarity: float = 0.0
    others: float = 0.4
    search: SearchSettings = SEARCH

    def __post_init__(self) -> None:
        for name in ("num_themes", "max_words", "max_facts"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}: {getattr(self, name)!r} given, must be at least 1")
        if not -1 <= self.min_similarity <= 1:
            must = "must lie between -1 and 1: a cosine"
            raise UserError(f"min_similarity: {self.min_similarity!r} given, {must}")
        if not 0 <= self.others <= 1:
            raise UserError(f"others: {self.others!r} given, must lie between 0 and 1: a factor")


class ThemeIndex:
    """The chunks, questions and themes of a memory graph at one revision.

    Args:
        db: the record.
        folder: ``<db>.derived``.
        vectors: vectors of the facts.
        embed: returns unit vectors of texts.
        writable: whether to write new vectors to files; otherwise they stay in memory.

    Attributes:
        themes: all themes.
        behind: sources that changed after their themes were made; () without themes.
    """

    def __init__(
        self,
        db: Database,
        folder: Path,
        vectors: Vectors,
        embed: Embed,
        writable: bool = True,
    ) -> None:
        self._db, self._folder, self._facts = db, folder, vectors.facts
        self.vectors = Vectors(db, folder, embed, writable, kinds=(QUESTIONS,))
        self._state = State()
        self.themes: list[ThemeRow] = []
        self.behind: tuple[str | None, ...] = ()

    def refresh(self) -> None:
        """Bring the index to the record's revision, inside the caller's read transaction."""
        self.vectors.refresh()
        state = record_state(self._db)
        if state != self._state:
            self._load()
            self._state = state

    def _load(self) -> None:
        self.themes = read_themes(self._db)
        self.behind = tuple(changed_sources(self._db)) if self.themes else ()
        rows = self._db.execute("SELECT id, episode, start, stop FROM chunks ORDER BY id")
        table = np.array(rows.fetchall(), dtype=np.int64).reshape(-1, 4)
        self.chunks, self.episodes, self.begins, self.ends = table.T
        self._order = np.argsort(self.episodes, kind="stable")
        self._ordered = self.episodes[self._order]
        sql = "SELECT id, chunk FROM questions WHERE kept = 1 ORDER BY id"
        asked = np.array(self._db.execute(sql).fetchall(), dtype=np.int64).reshape(-1, 2)
        self._questions, self._owners = asked[:, 0], np.searchsorted(self.chunks, asked[:, 1])
        self._arrays = self._read_arrays() if self.themes else NONE
        self._number_edges()
        number = {theme.id: i for i, theme in enumerate(self.themes)}
        self.members: list[np.ndarray] = []
        self._weights: list[np.ndarray] = []
        for theme in self.themes:
            ids = np.array([member for member, _ in theme.members], dtype=np.int64)
            if theme.level == 1:
                members = np.searchsorted(self.chunks, ids)
            else:
                members = np.array([number[i] for i in ids.tolist()]) + len(self.chunks)
            self.members.append(members)
            self._weights.append(np.array([weight for _, weight in theme.members]))
        self._above: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for i, (members, weights) in enumerate(zip(self.members, self._weights, strict=True)):
            for node, weight in zip(members.tolist(), weights.tolist(), strict=True):
                self._above[node].append((len(self.chunks) + i, weight))
        self._theme_vectors = self._means()
        self._quoted = [self._chunks_quoted(theme) for theme in self.themes]

    def _read_arrays(self) -> ThemeArrays:
        """Read the arrays, and compute the rows of up to ``MAX_LOST`` chunks that they lack."""
        arrays = read_theme_arrays(self._db, self._folder)
        lost = np.setdiff1d(self.chunks, arrays.chunks)
        if not len(lost):
            return arrays
        if len(lost) > MAX_LOST:
            logger.warning("%s: arrays of themes are missing; make the themes again", self._folder)
            return arrays
        graphs = graphs_of(self._db, self._facts, self.vectors.questions, lost)
        rows = join_rows(arrays, graphs.values(), self.chunks)
        return ThemeArrays(*rows, arrays.themes, arrays.theme_vectors)

    def _number_edges(self) -> None:
        """Convert the edges between chunks from ids to indices."""
        arrays = self._arrays
        owners = np.repeat(arrays.chunks, np.diff(arrays.starts))
        there = np.isin(owners, self.chunks) & np.isin(arrays.others, self.chunks)
        rows = np.searchsorted(self.chunks, owners[there])  # rising, as the owners are
        self._starts = np.searchsorted(rows, np.arange(len(self.chunks) + 1))
        self._others = np.searchsorted(self.chunks, arrays.others[there])
        self._similarities = arrays.weights[there].astype(float)

    def _means(self) -> np.ndarray:
        """Return each theme's vector: its summary's, else the weighted mean of its members'."""
        ids = np.array([theme.id for theme in self.themes], dtype=np.int64)
        means, known = self._arrays.vectors_of(ids)
        width = self._facts.width
        if means.shape[1] != width:
            means, known = np.zeros((len(ids), width), np.float32), np.zeros(len(ids), bool)
        levels = np.array([theme.level for theme in self.themes])
        for level in (1, 2):
            new = np.flatnonzero(~known & (levels == level)).tolist()
            for i in new:
                members = self.members[i]
                below = members - len(self.chunks)
                member_vectors = self._chunk_vectors(members) if level == 1 else means[below]
                mean = self._weights[i] @ member_vectors
                means[i] = mean / (np.linalg.norm(mean) or 1.0)
            put_summaries(means, self.themes, new, self.vectors.embed)
        return means

    def _chunk_vectors(self, numbers: np.ndarray) -> np.ndarray:
        return chunk_vectors(
            self._facts, self.vectors.questions, self.chunks[numbers], self.episodes[numbers]
        )

    def _chunks_quoted(self, theme: ThemeRow) -> list[int]:
        numbers = (self.chunk_at(quote.episode, quote.start) for quote in theme.quotes)
        return sorted({number for number in numbers if number >= 0})

    def chunk_at(self, episode: int, start: int) -> int:
        """Return the index of the chunk that contains a character of an episode; -1: none."""
        chunks = self._of_episode(episode).tolist()
        inside = [i for i in chunks if self.begins[i] <= start < self.ends[i]]
        return inside[0] if inside else -1

    def _of_episode(self, episode: int) -> np.ndarray:
        first, last = np.searchsorted(self._ordered, [episode, episode + 1])
        return self._order[first:last]

    def themes_of(self, chunk: int) -> list[int]:
        """Return the indices of the themes that contain a chunk, given by its index."""
        return [node - len(self.chunks) for node, _ in self._above.get(chunk, [])]

    def of(self, node: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the neighbours of a chunk or a theme, and the weights of the edges."""
        above = self._above.get(node, [])
        up = np.array([i for i, _ in above], dtype=np.int64), np.array([w for _, w in above])
        count = len(self.chunks)
        if node >= count:
            nodes, weights = self.members[node - count], self._weights[node - count]
        else:
            nodes, weights = self._near(node)
        return np.concatenate([nodes, up[0]]), np.concatenate([weights, up[1]])

    def _near(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices of the chunks close to a chunk, and their similarities."""
        part = slice(int(self._starts[number]), int(self._starts[number + 1]))
        return self._others[part], self._similarities[part]

    def search(
        self, view: QuestionView, settings: SearchSettings
    ) -> tuple[np.ndarray, list[tuple[int, float]]]:
        """Return each theme's cosine to the question, and the visited nodes with scores, best
        first.

        A node below the number of chunks is a chunk's index; the others are themes, counted on.

        Args:
            view: the graph as the question sees it.
            settings: settings of the search.
        """
        query = view.vector.astype(np.float16)
        text, asked = self._cosines(query)
        themes = rounded(self._theme_vectors @ view.vector)
        cosines = np.concatenate([np.maximum(text, asked), themes])
        numbers = np.arange(len(cosines))
        count = len(self.chunks)
        by_questions = largest(asked, numbers[:count], RANKED)
        rankings = [
            self._by_words(view),
            largest(text, numbers[:count], RANKED),
            by_questions[asked[by_questions] > -1],
            largest(themes, numbers[: len(themes)], RANKED) + count,
        ]
        starts = fuse(rankings, len(cosines))[: settings.num_starts].tolist()
        hits = best_first(cosines, starts, self, settings, self._quoted)
        return themes, [(hit.node, hit.score) for hit in hits]

    def _cosines(self, query: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the cosine of each chunk's text, and of its closest question (-1: it has none)."""
        parts = self.vectors.questions.rows(2 * self.chunks + 1)
        text = np.zeros(len(self.chunks))
        rows = self._facts.rows(2 * self.episodes)
        whole = (parts < 0) & (rows >= 0)
        text[whole] = rounded(self._facts.dot(rows[whole], query))
        text[parts >= 0] = rounded(self.vectors.questions.dot(parts[parts >= 0], query))
        asked = np.full(len(self.chunks), -1.0)
        rows = self.vectors.questions.rows(2 * self._questions)
        cosines = rounded(self.vectors.questions.dot(rows[rows >= 0], query))
        np.maximum.at(asked, self._owners[rows >= 0], cosines)
        return text, asked

    def _by_words(self, view: QuestionView) -> np.ndarray:
        episodes, _ = view.nearest_by_words(RANKED, EPISODIC)
        chunks = [self._of_episode(episode) for episode in episodes.tolist()]
        return np.concatenate([np.zeros(0, np.int64), *chunks])

    def chunks_of(self, theme: int) -> np.ndarray:
        """Return the indices of a theme's chunks, heaviest first; for level 2, those below it."""
        members = self.members[theme]
        if self.themes[theme].level == 1:
            return members
        below = [self.members[node] for node in (members - len(self.chunks)).tolist()]
        longest = max(map(len, below))  # the heaviest chunk of each theme, then the second, ...
        return np.array([part[i] for i in range(longest) for part in below if i < len(part)])


def best_themes(
    index: ThemeIndex, cosines: np.ndarray, hits: Sequence[tuple[int, float]], num_themes: int
) -> list[int]:
    """Return the indices of the best themes, by fused rankings of cosines and of search scores.

    Args:
        index: the themes.
        cosines: cosine of every theme to the question.
        hits: nodes and scores, as ``ThemeIndex.search`` returns them.
        num_themes: maximum number of themes.
    """
    count, numbers = len(index.chunks), np.arange(len(cosines))
    sums = np.zeros(len(cosines))
    for node, score in hits:
        if node >= count:
            sums[node - count] += score
        else:
            for theme in index.themes_of(node):
                sums[theme] += score
    ranked = largest(sums, numbers, RANKED)
    rankings = [largest(cosines, numbers, RANKED), ranked[sums[ranked] > 0]]
    best: list[int] = fuse(rankings, len(cosines))[:num_themes].tolist()
    return best
