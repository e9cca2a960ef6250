"""Measures questions to a synthetic memory graph, and walks to neighbours."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from turngraph.benchmarks.memory_graph.synthetic_graph import (
    WIDTH,
    Clusters,
    Question,
    Shape,
    make_graph,
    make_questions,
    make_vectors,
)
from turngraph.data.memory_graph.extract.rules import RulesExtractor
from turngraph.data.memory_graph.memory_types import Episode
from turngraph.data.memory_graph.recall.adjacency import Adjacency, Moment
from turngraph.data.memory_graph.recall.recall import Recall, RecallSettings
from turngraph.data.memory_graph.recall.traverse_settings import Traversal
from turngraph.data.memory_graph.recall.vectors import PROBE
from turngraph.data.memory_graph.record.ingest import remember_many
from turngraph.data.memory_graph.record.store import Store

Json = dict[str, Any]
NOW = int(time.time())
PERCENTILES = (50, 95)


class Given(RulesExtractor):
    """Embedder and extractor with precomputed results, so that their cost is not measured.

    Args:
        shape: shape of the graph; an unknown text is near a topic drawn from its length.
    """

    name = "given"

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.clusters, self.shape = Clusters(shape), shape
        self.vectors: dict[str, np.ndarray] = {}
        self.names: dict[str, tuple[str, ...]] = {}

    def know(self, questions: Sequence[Question]) -> None:
        """Add the vectors and names of questions."""
        for question in questions:
            self.vectors |= question.vectors
            self.names[question.text] = question.names

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return a unit vector for each text."""
        unknown = [text for text in texts if text not in self.vectors]
        topics = np.array([len(text) % self.shape.num_topics for text in unknown], dtype=np.int64)
        drawn = dict(zip(unknown, self.clusters.draw(topics), strict=True))
        known = self.vectors
        return np.stack([known[text] if text in known else drawn[text] for text in texts])

    def entities(self, question: str) -> list[str]:
        """Return the names that a question mentions."""
        return list(self.names[question])


def probe() -> np.ndarray:
    """Return the vector of ``Given`` for the text that identifies an embedder."""
    vector: np.ndarray = np.eye(1, WIDTH, dtype=np.float32)[0]
    return vector


def make(path: Path, shape: Shape, index: bool = False) -> Json:
    """Write a graph, its vectors and its adjacency; return the seconds of each."""
    seconds: Json = {}
    began = time.perf_counter()
    make_graph(path, shape)
    seconds["graph"] = time.perf_counter() - began
    with Store(path) as store:
        began = time.perf_counter()
        make_vectors(store, shape, probe(), index)
        seconds["vectors"] = time.perf_counter() - began
        began = time.perf_counter()
        Adjacency(store.db, store.derived).refresh()
        seconds["adjacency"] = time.perf_counter() - began
    return seconds


def measure(
    path: Path, shape: Shape, *, count: int, misspelt: float, hub: float, mixture: str
) -> Json:
    """Measure opening, asking, asking while remembering, walking and resident memory."""
    given = Given(shape)
    given.vectors[PROBE] = probe()
    with Store(path) as store:
        questions = make_questions(store.db, shape, count=count, misspelt=misspelt, hub=hub)
        given.know(questions)
    settings = RecallSettings(traversal=Traversal(mixture=mixture))
    with Store(path) as store:
        began = time.perf_counter()
        recall = Recall(store, given.embed, given)
        recall.refresh()
        found: Json = {"opening_s": time.perf_counter() - began}
        recall.ask(questions[0].text, settings=settings)
        timed = [_timed(recall, q, settings) for q in tqdm(questions, desc="asking")]
        found["asking"] = percentiles([total for total, _ in timed])
        found["stages_ms"] = _stages([stages for _, stages in timed])
        found["facts"] = float(np.mean([stages["facts"] for _, stages in timed]))
        found["resident_mb"] = resident_mb()
        moment = Moment(NOW)
        walk = lambda nodes: recall.adjacency.around_all(nodes, moment)[2]  # noqa: E731
        found |= hops(walk, questions[:50])
        late = _remembering(store, recall, questions, settings)
        found["remembering"] = percentiles(late)
        found["resident_late_mb"] = resident_mb()
    return found


def _timed(
    recall: Recall, question: Question, settings: RecallSettings
) -> tuple[float, dict[str, float]]:
    began = time.perf_counter()
    answer = recall.ask(question.text, settings=settings)
    total = 1000 * (time.perf_counter() - began)
    return total, answer.milliseconds | {"facts": len(answer.facts)}


def _stages(timed: Sequence[dict[str, float]]) -> dict[str, list[float]]:
    return {
        name: percentiles([stages[name] for stages in timed])
        for name in timed[0]
        if name != "facts"
    }


def percentiles(milliseconds: Sequence[float]) -> list[float]:
    """Return p50 and p95."""
    return [float(value) for value in np.percentile(milliseconds, PERCENTILES)]


def resident_mb() -> float:
    """Return this process's resident memory in MB, with mapped pages."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise OSError("/proc/self/status has no VmRSS")


def hops(walk: Callable[[np.ndarray], np.ndarray], questions: Sequence[Question]) -> Json:
    """Measure the milliseconds of walks of one and two hops from a question's objects."""
    one, two = [], []
    for question in tqdm(questions, desc="hops"):
        began = time.perf_counter()
        near = np.unique(walk(np.array(sorted(set(question.nodes)))))
        one.append(1000 * (time.perf_counter() - began))
        walk(near)
        two.append(1000 * (time.perf_counter() - began))
    return {"one_hop": percentiles(one), "two_hops": percentiles(two)}


def _remembering(
    store: Store, recall: Recall, questions: Sequence[Question], settings: RecallSettings
) -> list[float]:
    """Return the milliseconds of each question after something was remembered."""
    extractor, found = RulesExtractor(), []
    for index, question in enumerate(tqdm(questions, desc="remembering, asking")):
        name = question.names[0]
        text = f"{name} met Visitor {index}. {name} likes blue cars. Visitor {index} left."
        remember_many(store, extractor, [Episode(text, time="2024-05-01")])
        found.append(_timed(recall, question, settings)[0])
    return found
