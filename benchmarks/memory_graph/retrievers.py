"""Defines the retrievers that ``memory_retrieval.py`` compares; each ranks episodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import bm25s
import numpy as np
from tqdm import tqdm

from turngraph.benchmarks.memory_graph.retrieval_data import Collection
from turngraph.data.embedding import Embed
from turngraph.data.memory_graph.extract.given import GivenExtractor
from turngraph.data.memory_graph.extract.rules import RulesExtractor
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Fact
from turngraph.data.memory_graph.recall.filter_facts import STOPWORDS
from turngraph.data.memory_graph.recall.recall import RecallSettings
from turngraph.data.memory_graph.recall.traverse_settings import PPR, Restart, Traversal
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.normalise import words

Filling = Literal["rules", "given", "given + rules"]
RRF = 60
DEPTH = 10
MIXTURES = (
    "flat",
    "ppr",
    "BeamSearch",
    "A*",
    "WaterCircles",
    "BeamSearch + WaterCircles",
    "BeamSearch + WaterCircles + flat",
)
GRID = {"num_facts": (0, 3), "episodes": (0.05, 0.2), "damping": (0.5, 0.7)}
GRID_ADJACENT = {"num_facts": (0, 3), "episodes": (0.2, 1.0), "adjacent": (0.0, 0.3)}


@dataclass
class Ranking:
    """Results of one retriever with one setting, by question.

    Args:
        episodes: origins of the episodes, best first, at most ``DEPTH``.
        milliseconds: duration without embedding the question.
        closeness: similarity of the closest fact found; 0 if none was found or it is unknown.
    """

    episodes: list[list[str]] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)
    closeness: list[float] = field(default_factory=list)

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


def fill(collection: Collection, filling: Filling, path: str | Path, embed: Embed) -> MemoryGraph:
    """Fill a new memory graph with a collection, and compute its vectors.

    Args:
        collection: the collection to remember.
        filling: extraction by rules, as given, or as given with the theses of the rules.
        path: path of the database, or URL of a tenant.
        embed: maps texts to unit vectors.
    """
    rules = RulesExtractor()
    if filling == "rules":
        graph = MemoryGraph.open(path, embed, rules)
        graph.remember_many(collection.episodes, progress=True)
    else:
        given = GivenExtractor()
        graph = MemoryGraph.open(path, embed, given)
        theirs = collection.given or ()
        if filling == "given + rules":
            ours = rules.extract(collection.episodes)
            pairs = zip(theirs, ours, strict=True)
            theirs = [replace(one, theses=(*one.theses, *own.theses)) for one, own in pairs]
        held = zip(collection.episodes, theirs, strict=True)
        graph.remember_many([given.hold(*pair) for pair in held], progress=True)
    graph.ask(collection.questions[0].text)  # computes the vectors
    return graph


def mixture_ranking(
    graphs: Sequence[MemoryGraph], collections: Sequence[Collection], mixture: str, embed: Embed
) -> Ranking:
    """Rank episodes by the facts of ``ask`` with one mixture, in the order of the facts."""
    settings = RecallSettings(Traversal(mixture))

    def find(graph: MemoryGraph, question: str) -> tuple[list[int], Sequence[Fact]]:
        facts = graph.ask(question, settings=settings).facts
        return [source.episode for fact in facts for source in fact.provenance], facts

    return _ranking(graphs, collections, mixture, find, embed)


def episodes_ranking(
    graphs: Sequence[MemoryGraph], collections: Sequence[Collection], ppr: PPR
) -> Ranking:
    """Rank episodes by ``ask_episodes`` with one setting."""
    settings = RecallSettings(Traversal(ppr=ppr))

    def find(graph: MemoryGraph, question: str) -> tuple[list[int], Sequence[Fact]]:
        facts = graph.ask_episodes(question, settings=settings).facts
        return [fact.key // 2 for fact in facts], ()

    return _ranking(graphs, collections, "episodes", find)


Find = Callable[[MemoryGraph, str], tuple[list[int], Sequence[Fact]]]


def _ranking(
    graphs: Sequence[MemoryGraph],
    collections: Sequence[Collection],
    name: str,
    find: Find,
    embed: Embed | None = None,
) -> Ranking:
    """Ask every question of its collection's graph."""
    ranking = Ranking()
    questions = [(g, q.text) for g, c in zip(graphs, collections, strict=True) for q in c.questions]
    origins = {id(graph): _origins(graph.store.db) for graph in graphs}
    for graph, question in tqdm(questions, desc=name, leave=False, delay=2):
        with ranking.timed():
            nodes, facts = find(graph, question)
        origin = origins[id(graph)]
        ranking.episodes.append([origin[node] for node in dict.fromkeys(nodes)][:DEPTH])
        if embed is not None and facts:
            vectors = embed([question, *(fact.text for fact in facts)])
            ranking.closeness.append(float((vectors[1:] @ vectors[0]).max()))
        else:
            ranking.closeness.append(0.0)
    return ranking


def _origins(db: Database) -> dict[int, str]:
    return dict(db.execute("SELECT node, origin FROM episodes"))


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
