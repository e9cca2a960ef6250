"""Traverses the graph by one algorithm or a mixture of them.

A mixture is the union of the facts that its algorithms find (PersonalAI, arXiv 2506.17001, section
3, "Mixed algorithm").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from turngraph.data.memory_graph.recall.a_star import a_star
from turngraph.data.memory_graph.recall.beam_search import beam_search
from turngraph.data.memory_graph.recall.flat import flat
from turngraph.data.memory_graph.recall.pagerank import ppr
from turngraph.data.memory_graph.recall.traverse_settings import Traversal, parse_mixture
from turngraph.data.memory_graph.recall.view import View
from turngraph.data.memory_graph.recall.water_circles import water_circles


@dataclass(frozen=True, slots=True)
class TraversalResult:
    """Result of a traversal.

    Args:
        facts: keys of the facts, each once, int64; those of the first algorithm come first, in its
            order.
        by: keys that each algorithm found, best first.
        counts: statistics of each algorithm (paths dropped, nodes expanded, ...).
    """

    facts: np.ndarray
    by: Mapping[str, np.ndarray]
    counts: Mapping[str, Mapping[str, int]]


def traverse(view: View, settings: Traversal | None = None) -> TraversalResult:
    """Find facts from the linked objects by a mixture of algorithms.

    Args:
        view: the graph as the question sees it.
        settings: the algorithms with their settings; None: BeamSearch + WaterCircles.
    """
    settings = settings or Traversal()
    by, counts = {}, {}
    for algorithm in parse_mixture(settings.mixture):
        facts, counts[algorithm] = _run(algorithm, view, settings)
        by[algorithm] = _each_once(facts)
    return TraversalResult(_each_once(np.concatenate(list(by.values()))), by, counts)


def _run(algorithm: str, view: View, settings: Traversal) -> tuple[np.ndarray, dict[str, int]]:
    """Return the facts that one algorithm finds, best first, and its statistics."""
    if algorithm == "BeamSearch":
        beams = beam_search(view, settings.beam_search)
        return view.fact_keys(beams.triplets), asdict(beams.counts)
    if algorithm == "A*":
        paths = a_star(view, settings.a_star)
        counts = {"pairs": paths.num_pairs, "joined": len(paths.routes)}
        return view.fact_keys(paths.triplets), counts | {"expanded": paths.num_expanded}
    if algorithm == "WaterCircles":
        circles = water_circles(view, settings.water_circles)
        return circles.facts, {"held_back": circles.held_back}
    if algorithm == "ppr":
        ranked = ppr(view, settings.ppr)
        return ranked.facts, {"walked": ranked.num_walked}
    if algorithm == "eigen":
        return view.by_themes(settings.eigen), {}
    assert algorithm == "flat", algorithm
    return flat(view, settings.flat), {}


def _each_once(keys: np.ndarray) -> np.ndarray:
    """Return keys without repeats, in the order of their first occurrence."""
    return keys[np.sort(np.unique(keys, return_index=True)[1])]
