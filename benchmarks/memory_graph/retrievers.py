"""Defines the retrievers that ``memory_retrieval.py`` compares; each ranks episodes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
from tqdm import tqdm

from turngraph.benchmarks.memory_graph.retrieval_data import Collection
from turngraph.data.embedding import Embed
from turngraph.data.memory_graph.extract.rules import RulesExtractor
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.recall.filter_facts import STOPWORDS
from turngraph.data.memory_graph.recall.recall import RecallSettings
from turngraph.data.memory_graph.recall.traverse_settings import PPR, Restart, Traversal
from turngraph.data.normalise import words

RRF = 60
DEPTH = 10
GRID = {"num_facts": (0, 3), "episodes": (0.05, 0.2), "damping": (0.5, 0.7)}
GRID_ADJACENT = {"num_facts": (0, 3), "episodes": (0.2, 1.0), "adjacent": (0.0, 0.3)}


@dataclass
class Ranking:
    """Results of one retriever with one setting, by question.

    Args:
        episodes: origins of the episodes, best first, at most ``DEPTH``.
        milliseconds: duration without embedding the question.
    """

    episodes: list[list[str]] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Measure the duration of a block."""
        began = time.perf_counter()
        yield
        self.milliseconds.append(1000 * (time.perf_counter() - began))


def flat_rankings(
    collections: Sequence[Collection], embed: Embed, dated: bool = False
) -> dict[str, Ranking]:
    """Rank by BM25 (without stop words), dense vectors, and their reciprocal-rank fusion.

    Args:
        collections: texts and questions.
        embed: maps texts to unit vectors.
        dated: whether the texts have their times in front.
    """
    rows = {name: Ranking() for name in ("BM25", "dense", "RRF")}
    for collection in collections:
        texts = [episode.text for episode in collection.episodes]
        texts = list(collection.dated or texts) if dated else texts
        of_questions = embed([question.text for question in collection.questions])
        vectors = embed(texts)
        index = bm25s.BM25()
        index.index([_terms(text) for text in texts], show_progress=False)
        for question, vector in zip(collection.questions, of_questions, strict=True):
            with rows["BM25"].timed():
                known = [term for term in _terms(question.text) if term in index.vocab_dict]
                sparse = _order(index.get_scores(known) if known else np.zeros(len(texts)))
            with rows["dense"].timed():
                dense = _order(vectors @ vector)
            with rows["RRF"].timed():
                fused = np.zeros(len(texts))
                for order in (sparse, dense):
                    fused[order] += 1 / (RRF + 1 + np.arange(len(texts)))
                both = _order(fused)
            rows["RRF"].milliseconds[-1] += sum(rows[n].milliseconds[-1] for n in ("BM25", "dense"))
            for name, order in (("BM25", sparse), ("dense", dense), ("RRF", both)):
                rows[name].episodes.append([str(i) for i in order[:DEPTH]])
    return rows


def _terms(text: str) -> list[str]:
    return [word for word in words(text) if word not in STOPWORDS]


def _order(scores: np.ndarray) -> np.ndarray:
    return np.argsort(-scores, kind="stable")


def fill(collection: Collection, path: Path, embed: Embed) -> MemoryGraph:
    """Fill a new memory graph with a collection by rules, and compute its vectors.

    Args:
        collection: the collection to remember.
        path: path of the database.
        embed: maps texts to unit vectors.
    """
    graph = MemoryGraph.open(path, embed, RulesExtractor())
    graph.remember_many(collection.episodes, progress=True)
    graph.ask(collection.questions[0].text)  # computes the vectors
    return graph


def episodes_ranking(
    graphs: Sequence[MemoryGraph], collections: Sequence[Collection], ppr: PPR
) -> Ranking:
    """Rank episodes by ``ask_episodes`` with one setting; each question is asked of its graph."""
    ranking, settings = Ranking(), RecallSettings(Traversal(ppr=ppr))
    for graph, collection in zip(graphs, collections, strict=True):
        origins = dict(graph.store.db.execute("SELECT node, origin FROM episodes"))
        for question in tqdm(collection.questions, desc="ask_episodes", leave=False, delay=2):
            with ranking.timed():
                facts = graph.ask_episodes(question.text, settings=settings).facts
            ranking.episodes.append([origins[fact.key // 2] for fact in facts][:DEPTH])
    return ranking


def settings_grid(has_sources: bool) -> list[PPR]:
    """Return the settings of ``ask_episodes`` to try; ``adjacent`` needs episodes with sources."""
    grid = GRID_ADJACENT if has_sources else GRID
    found = []
    for values in product(*grid.values()):
        chosen: dict[str, Any] = dict(zip(grid, values, strict=True))
        damping = chosen.pop("damping", 0.5)
        found.append(PPR(top_k=DEPTH, damping=damping, restart=Restart(**chosen)))
    return found


def shuffle(graph: MemoryGraph, seed: int) -> None:
    """Permute the sources of edges and of episodes: the control for what the edges contribute.

    Degrees, texts, vectors and words stay the same. Only the arrays, and the episodes' sources in
    the database, change.

    Args:
        graph: the memory graph to change.
        seed: random seed of the permutations.
    """
    rng = np.random.default_rng(seed)
    rows = graph.store.db.execute("SELECT node, source FROM episodes").fetchall()
    moved = rng.permutation(len(rows))
    with graph.store.writing():
        graph.store.db.executemany(
            "UPDATE episodes SET source = ? WHERE node = ?",
            [(rows[i][1], node) for i, (node, _) in zip(moved, rows, strict=True)],
        )
    recall = graph._recall
    with graph.store.reading():
        recall.adjacency.refresh()
        recall.vectors.refresh()
    edges = recall.adjacency.edges
    indices = np.arange(len(edges["flags"]))
    kinds = 10 * recall.adjacency.types(indices) + recall.adjacency.node_types[edges["source"]]
    for kind in np.unique(kinds):
        of_kind = np.flatnonzero(kinds == kind)
        edges["source"][of_kind] = edges["source"][rng.permutation(of_kind)]
    recall.adjacency.fold()
