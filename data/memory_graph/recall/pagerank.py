"""Personalised PageRank from the linked objects, over objects, theses and episodes.

As HippoRAG (arXiv 2405.14831) ranks passages. A thesis or an episode scores as its node. A simple
triplet scores by its ends, as a node of its own between them would: the part that stays of what
flows over it in both directions. (By the mean of its ends, whatever is at a hub would be above all
else.)

Instead of a matrix of the whole graph, which every revision, moment and restriction would make
again, the rounds of the power iteration start at the linked objects and spread over what they reach
(the push of Andersen, Chung and Lang 2006, a round at a time, in whole arrays). With ``threshold``
0 this is the power iteration; above it, what is too little to pass on stays where it is. Times are
not walked, they would join everything of a year. What comes to a node that nothing leads away from
goes back to where score starts: the linked objects, or what ``restart`` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import numpy as np

from turngraph.data.memory_graph.memory_types import EPISODIC, SIMPLE, THESIS, TIME
from turngraph.data.memory_graph.recall.ranking import best_first, distinct, rounded
from turngraph.data.memory_graph.recall.restart_distribution import restart_distribution
from turngraph.data.memory_graph.recall.traverse_settings import PPR
from turngraph.data.memory_graph.recall.view import View

Starts = tuple[np.ndarray, np.ndarray]
"""Nodes, and how much of the score each is given."""

DECIMALS = 12  # a sum depends in its last bits on the order in which triplets lie


@dataclass(frozen=True, slots=True)
class Ranked:
    """Facts with their scores, best first, ties by closeness to the question, then by text.

    Args:
        facts: keys, int64.
        scores: of the facts, float64.
        num_walked: how often score flowed over a triplet, in all rounds together.
    """

    facts: np.ndarray
    scores: np.ndarray
    num_walked: int


@dataclass(frozen=True, slots=True)
class Spread:
    """Where the score has gone: arrays by node id, float64.

    Args:
        scores: of every node; they add up to 1 where there is a linked object.
        passed: what each node passed on, in all rounds together.
        num_walked: as of ``Ranked``.
    """

    scores: np.ndarray
    passed: np.ndarray
    num_walked: int


def ppr(view: View, settings: PPR | None = None) -> Ranked:
    """The facts with the highest scores; none without a linked object.

    Args:
        view: the graph as the question sees it.
        settings: damping, rounds and bounds; None: HippoRAG's.
    """
    settings = settings or PPR()
    flow = spread(view, settings)
    facts, scores = _scored(view, flow, settings)
    if len(facts) > settings.top_k:
        possible = np.flatnonzero(scores >= np.partition(scores, -settings.top_k)[-settings.top_k])
        facts, scores = facts[possible], scores[possible]
    places = _places(-scores, -rounded(view.closeness(facts)))
    best = best_first(places, lambda some: [view.fact_text(int(facts[i])) for i in some])
    chosen = list(islice(best, settings.top_k))
    return Ranked(facts[chosen], scores[chosen], flow.num_walked)


def _places(costs: np.ndarray, then: np.ndarray) -> np.ndarray:
    """Places in the order of two columns; equal pairs have the same."""
    order = np.lexsort((then, costs))
    changes = (np.diff(costs[order]) != 0) | (np.diff(then[order]) != 0)
    places = np.zeros(len(costs), np.int64)
    places[order[1:]] = changes.cumsum()
    return places


def rank_episodes(view: View, settings: PPR) -> tuple[np.ndarray, np.ndarray]:
    """The episodes with the highest scores, best first, int64, and their scores; ties by text.

    Args:
        view: the graph as the question sees it.
        settings: with ``top_k`` episodes at most.
    """
    scores = np.round(spread(view, settings).scores, DECIMALS)
    nodes = np.flatnonzero((scores > 0) & (view.node_types == EPISODIC))
    best = best_first(-scores[nodes], lambda some: view.names(nodes[some].tolist()))
    chosen = nodes[list(islice(best, settings.top_k))]
    return chosen, scores[chosen]


def spread(view: View, settings: PPR) -> Spread:
    """Personalised PageRank of every node, from the linked objects or as ``restart`` says."""
    scores, passed, waiting = (np.zeros(len(view.node_types)) for _ in range(3))
    starts = _starts(view, settings)
    (reached, shares), num_walked = starts, 0
    waiting[reached] = shares
    for _ in range(settings.num_rounds):
        active = reached[waiting[reached] >= max(settings.threshold, np.finfo(float).tiny)]
        amounts = waiting[active]
        waiting[active] = 0
        scores[active] += (1 - settings.damping) * amounts
        passed[active] += settings.damping * amounts
        others, parts = _pass_on(view, active, settings.damping * amounts, starts, settings)
        np.add.at(waiting, others, parts)
        reached, _ = distinct(others)
        num_walked += len(others)
    return Spread(scores + waiting, passed, num_walked)


def _starts(view: View, settings: PPR) -> Starts:
    """Where score starts, and goes back to from where nothing leads away."""
    if settings.restart is not None:
        return restart_distribution(view, settings.restart)
    nodes = np.sort(view.question_nodes)
    return nodes, np.full(len(nodes), 1 / max(len(nodes), 1))


def _pass_on(
    view: View, active: np.ndarray, amounts: np.ndarray, starts: Starts, settings: PPR
) -> Starts:
    """Who gets how much from the active nodes (sorted), repeated where from several."""
    _, rows, others, shares = _shares(view, active, settings)
    stuck = np.bincount(rows, minlength=len(active)) == 0
    if not stuck.any():
        return others, amounts[rows] * shares
    nodes, parts = starts
    back = amounts[stuck].sum() * parts
    return np.concatenate([others, nodes]), np.concatenate([amounts[rows] * shares, back])


def _shares(
    view: View, nodes: np.ndarray, settings: PPR
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The triplets at sorted nodes: ids, at which of the nodes, to where, with what part of it."""
    triplets, here, others = view.around_all(nodes)
    walked = np.flatnonzero(view.node_types[others] != TIME)
    triplets, here, others = triplets[walked], here[walked], others[walked]
    rows = np.searchsorted(nodes, here)
    weights = np.ones(len(triplets))
    if settings.weights == "similarity":
        weights = np.maximum((1 + rounded(view.similarity(triplets))) / 2, 1e-6)
    return triplets, rows, others, weights / np.bincount(rows, weights, len(nodes))[rows]


def _scored(view: View, flow: Spread, settings: PPR) -> tuple[np.ndarray, np.ndarray]:
    """The facts that score reached, and how much of it."""
    nodes = np.flatnonzero(flow.scores)
    types = view.node_types[nodes]
    texts = nodes[(types == THESIS) | (types == EPISODIC)]
    nodes = np.flatnonzero(flow.passed)
    triplets, rows, _, shares = _shares(view, nodes, settings)
    simple = np.flatnonzero(view.types(triplets) == SIMPLE)
    each, which = distinct(triplets[simple])
    flows = (flow.passed[nodes][rows] * shares)[simple]
    stays = (1 - settings.damping) * np.bincount(which, flows, len(each))
    scores = np.concatenate([flow.scores[texts], stays])
    return np.concatenate([2 * texts, 2 * each + 1]), np.round(scores, DECIMALS)
