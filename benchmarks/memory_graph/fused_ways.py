"""Fuses ways of asking a memory graph: episodes, plans and themes, by reciprocal ranks.

A fusion is worth a mode of its own only if it beats the best single way on questions that neither
was chosen on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from turngraph.benchmarks.memory_graph.memory_retrieval import halves
from turngraph.benchmarks.memory_graph.retrieval_data import Collection, Question
from turngraph.data.eigen.eigen_index import EigenIndex
from turngraph.data.embedding import Embed
from turngraph.data.retrieval.reciprocal_ranks import fuse
from turngraph.data.types import Evidence

KEPT = 30
"""Passages of a ranking that are kept, of which the first ten are scored."""


@dataclass
class Row:
    """Results of one way of asking, by question.

    Args:
        passages: origins of the passages, best first.
        milliseconds: duration.
        cpu: time of the processor, in milliseconds, which others' work lengthens less.
        calls, hits, recalls: as in ``PlanTrace``; 0 without a plan.
        steps: number of steps.
        own: for each given sub-question, whether its passage is among the first 5 of the step with
            its number.
    """

    passages: list[list[str]] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    hits: list[int] = field(default_factory=list)
    recalls: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    own: list[list[bool]] = field(default_factory=list)


def recall_at(row: Row, questions: Sequence[Question], depth: int) -> np.ndarray:
    """Return the recall of each question's gold passages, float64 [questions]."""
    pairs = zip(questions, row.passages, strict=True)
    return np.array([len(one.gold.intersection(p[:depth])) / len(one.gold) for one, p in pairs])


def choose(
    tried: Sequence[Row], questions: Sequence[Question], seed: int, depth: int
) -> tuple[Row, list[int]]:
    """Return a row that takes each question from the row that is best on the other half.

    Args:
        tried: rows of one way with different settings, or of different ways.
        questions: the questions.
        seed: random seed of the halves.
        depth: depth at which rows are compared.

    Returns:
        The row, and the index of the one chosen for each half.
    """
    half = halves(len(questions), seed)
    each = [recall_at(row, questions, depth) for row in tried]
    best = [int(np.argmax([values[half == other].mean() for values in each])) for other in (1, 0)]
    row = Row()
    for name in vars(row):
        values = [getattr(one, name) for one in tried]
        if all(values):
            picked = [values[best[part]][i] for i, part in enumerate(half.tolist())]
            setattr(row, name, picked)
    return row, best


def by_themes(collection: Collection, embed: Embed) -> Row:
    """Rank the passages by ``EigenIndex`` without utility questions."""
    pool = [Evidence(one.origin or "", one.text, "text") for one in collection.episodes]
    index = EigenIndex(pool, embed, num_questions=0)
    row = Row()
    for question in collection.questions:
        began, began_cpu = time.perf_counter(), time.process_time()
        order, _ = index.search(question.text)
        row.cpu.append(1000 * (time.process_time() - began_cpu))
        row.milliseconds.append(1000 * (time.perf_counter() - began))
        row.passages.append([pool[int(i)].id for i in index.chunks[order[:KEPT]]])
    return row


def fused(ways: dict[str, Row]) -> dict[str, Row]:
    """Return the fusions of two or more ways, by their names joined with "+".

    Args:
        ways: results of single ways, whose passages are numbers.
    """
    found = {}
    for size in range(2, len(ways) + 1):
        for names in combinations(ways, size):
            found[f"RRF: {' + '.join(names)}"] = _fused([ways[name] for name in names])
    return found


def _fused(rows: Sequence[Row]) -> Row:
    """Fuse rankings question by question; a fusion costs what its parts cost together."""
    row = Row()
    for lists in zip(*(one.passages for one in rows), strict=True):
        ranked = [np.array(list(map(int, ids)), np.int64) for ids in lists]
        count = 1 + max(int(ids.max(initial=0)) for ids in ranked)
        there = set(np.concatenate(ranked).tolist())
        row.passages.append([str(i) for i in fuse(ranked, count).tolist() if i in there][:KEPT])
    for name in ("milliseconds", "cpu", "calls", "hits", "recalls", "steps"):
        parts = [getattr(one, name) for one in rows if getattr(one, name)]
        setattr(row, name, [sum(values) for values in zip(*parts, strict=True)])
    return row
