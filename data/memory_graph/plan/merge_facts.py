"""Merges what the clue queries of a plan found into one ranking."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from turngraph.data.memory_graph.memory_types import Fact
from turngraph.data.memory_graph.plan.steps import Found, PlanSettings

TEMPERATURE = 0.1
"""Of the softmax over the clue queries of a step: a difference of 0.1 in closeness is one of e."""


def merged(steps: Sequence[Sequence[Found]], settings: PlanSettings) -> tuple[Fact, ...]:
    """Return the facts, or episodes, of steps, each once, best first.

    Every step has the same weight. The clue queries of a step are alternatives, of which most are
    wrong if a reference is filled with several answers: each has a share of the step's weight, by
    softmax over the closeness of its closest fact. Within a ranking an episode counts by the square
    root of its score divided by that of the first, and a fact by 1 / rank. Each keeps its highest
    score.

    Args:
        steps: what the clue queries of each step found.
        settings: settings of planned asking.
    """
    weights: dict[int, float] = defaultdict(float)
    facts: dict[int, Fact] = {}
    for found in steps:
        for each, share in zip(found, _shares(found), strict=True):
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


def _shares(found: Sequence[Found]) -> np.ndarray:
    """Return the share of each clue query in the weight of its step; 0 for fruitless ones."""
    fruitful = np.array([bool(each.facts or each.episodes) for each in found], dtype=bool)
    if not fruitful.any():
        return np.zeros(len(found))
    best = np.array([max((f.score for f in each.facts), default=0.0) for each in found])
    shares = np.exp((best - best[fruitful].max()) / TEMPERATURE) * fruitful
    return np.asarray(shares / shares.sum())
