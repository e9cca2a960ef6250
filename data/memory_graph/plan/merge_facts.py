"""Merges the facts from all clue queries of a plan into one ranking."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from turngraph.data.memory_graph.memory_types import Fact
from turngraph.data.memory_graph.plan.steps import ClueRecall, PlanSettings

TEMPERATURE = 0.1
"""Temperature of the softmax over a step's clue queries: 0.1 more closeness is a factor of e."""


def merged(steps: Sequence[Sequence[ClueRecall]], settings: PlanSettings) -> tuple[Fact, ...]:
    """Return the facts, or episodes, of steps, each once, best first.

    Every step has the same weight. The clue queries of a step are alternatives, most of which are
    wrong if a reference is filled with several answers. Each query gets a share of the step's
    weight, by softmax over the closeness of its closest fact. Within the ranking of a query, a fact
    counts by 1 / rank, and an episode by the square root of its score divided by the highest score.
    The weights of a fact are added, and it keeps its highest score.

    Args:
        steps: for each step, its clue queries with their facts.
        settings: settings of planned asking.
    """
    weights: dict[int, float] = defaultdict(float)
    facts: dict[int, Fact] = {}
    for step in steps:
        for each, share in zip(step, _shares(step), strict=True):
            ranked = each.facts if settings.over == "facts" else each.episodes
            highest = max((fact.score for fact in ranked), default=0.0)
            for rank, fact in enumerate(ranked):
                if fact.key not in facts or facts[fact.key].score < fact.score:
                    facts[fact.key] = fact
                weights[fact.key] += share * _value(fact, highest, rank, settings)
    order = sorted(facts, key=lambda key: (-round(weights[key], 9), facts[key].text))
    return tuple(facts[key] for key in order)


def _value(fact: Fact, highest: float, rank: int, settings: PlanSettings) -> float:
    if settings.over == "facts":
        return 1 / (1 + rank)
    return math.sqrt(max(fact.score, 0.0) / (highest or 1.0))


def _shares(step: Sequence[ClueRecall]) -> np.ndarray:
    """Return the share of each clue query in its step's weight; 0 for queries without facts."""
    fruitful = np.array([bool(each.facts or each.episodes) for each in step], dtype=bool)
    if not fruitful.any():
        return np.zeros(len(step))
    best = np.array([max((f.score for f in each.facts), default=0.0) for each in step])
    shares = np.exp((best - best[fruitful].max()) / TEMPERATURE) * fruitful
    return np.asarray(shares / shares.sum())
