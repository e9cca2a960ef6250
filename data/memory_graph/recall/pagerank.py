"""Personalised PageRank from the linked objects, over objects, theses and episodes.

HippoRAG (arXiv 2405.14831) ranks passages in this way. A thesis or an episode has the score of its
node. A simple triplet has the score that a separate node between its ends would have: the part, of
the score that flows over the triplet in both directions, that would stay at this node. (With the
mean of its ends' scores, every triplet at a hub would be ranked first.)

A matrix of the whole graph would have to be rebuilt for every revision, moment and set of forbidden
node types. Instead, the rounds of the power iteration start at the linked objects and spread over
the nodes that they reach (the push of Andersen, Chung and Lang 2006, one round at a time, in whole
arrays). With ``threshold`` 0 this is the power iteration; otherwise an amount below the threshold
is not passed on. Times are not walked, as they would join all facts of a year. Score at a node
without outgoing edges returns to the restart distribution: the linked objects, or that of
``restart``.
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

Shares = tuple[np.ndarray, np.ndarray]
"""Nodes, and how much score each gets."""

DECIMALS = 12  # the last bits of a sum depend on the order of the triplets in memory


@dataclass(frozen=True, slots=True)
class Ranked:
    """Facts with their scores, best first, ties by closeness to the question, then by text.

    Args:
        facts: keys, int64.
        scores: scores of the facts, float64.
        num_walked: number of times that score flowed over a triplet, summed over all rounds.
    """

    facts: np.ndarray
    scores: np.ndarray
    num_walked: int


@dataclass(frozen=True, slots=True)
class Spread:
    """The distribution of score after all rounds: arrays by node id, float64.

    Args:
        scores: score of every node; they add up to 1 if there is a linked object.
        passed: score that each node passed on, summed over all rounds.
        num_walked: as in ``Ranked``.
    """

    scores: np.ndarray
    passed: np.ndarray
    num_walked: int


def ppr(view: View, settings: PPR | None = None) -> Ranked:
    """Return the facts with the highest scores; none without a linked object.

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
    ranks = _ranks(-scores, -rounded(view.closeness(facts)))
    best = best_first(ranks, lambda tied: [view.fact_text(int(facts[i])) for i in tied])
    chosen = list(islice(best, settings.top_k))
    return Ranked(facts[chosen], scores[chosen], flow.num_walked)


def _ranks(costs: np.ndarray, then: np.ndarray) -> np.ndarray:
    """Return the rank of each pair of two columns; equal pairs have the same rank."""
    order = np.lexsort((then, costs))
    changes = (np.diff(costs[order]) != 0) | (np.diff(then[order]) != 0)
    ranks = np.zeros(len(costs), np.int64)
    ranks[order[1:]] = changes.cumsum()
    return ranks


def rank_episodes(view: View, settings: PPR) -> tuple[np.ndarray, np.ndarray]:
    """Return the episodes with the highest scores, best first, int64, and their scores.

    Ties are broken by text.

    Args:
        view: the graph as the question sees it.
        settings: settings; at most ``top_k`` episodes are returned.
    """
    scores = np.round(spread(view, settings).scores, DECIMALS)
    episodes = np.flatnonzero((scores > 0) & (view.node_types == EPISODIC))
    best = best_first(-scores[episodes], lambda tied: view.names(episodes[tied].tolist()))
    chosen = episodes[list(islice(best, settings.top_k))]
    return chosen, scores[chosen]


def spread(view: View, settings: PPR) -> Spread:
    """Return the personalised PageRank of every node."""
    scores, passed, waiting = (np.zeros(len(view.node_types)) for _ in range(3))
    starts = _starts(view, settings)
    reached, shares = starts
    num_walked = 0
    waiting[reached] = shares
    for _ in range(settings.num_rounds):
        active = reached[waiting[reached] >= max(settings.threshold, np.finfo(float).tiny)]
        if not len(active):
            break
        amounts = waiting[active]
        waiting[active] = 0
        scores[active] += (1 - settings.damping) * amounts
        passed[active] += settings.damping * amounts
        others, parts = _pass_on(view, active, settings.damping * amounts, starts)
        np.add.at(waiting, others, parts)
        reached, _ = distinct(others)
        num_walked += len(others)
    return Spread(scores + waiting, passed, num_walked)


def _starts(view: View, settings: PPR) -> Shares:
    """Return the restart distribution, which also gets the score of nodes without exit."""
    if settings.restart is not None:
        return restart_distribution(view, settings.restart)
    nodes = np.sort(view.question_nodes)
    return nodes, np.full(len(nodes), 1 / max(len(nodes), 1))


def _pass_on(view: View, active: np.ndarray, amounts: np.ndarray, starts: Shares) -> Shares:
    """Return the nodes, with repeats, to which sorted active nodes pass score, and the amounts."""
    _, rows, others, shares = _shares(view, active)
    stuck = np.bincount(rows, minlength=len(active)) == 0
    if not stuck.any():
        return others, amounts[rows] * shares
    nodes, parts = starts
    back = amounts[stuck].sum() * parts
    return np.concatenate([others, nodes]), np.concatenate([amounts[rows] * shares, back])


def _shares(view: View, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the triplets at sorted nodes: id, index of the node, other end, share of its score."""
    triplets, here, others = view.around_all(nodes)
    walked = np.flatnonzero(view.node_types[others] != TIME)
    triplets, here, others = triplets[walked], here[walked], others[walked]
    rows = np.searchsorted(nodes, here)
    return triplets, rows, others, 1 / np.bincount(rows, minlength=len(nodes))[rows]


def _scored(view: View, flow: Spread, settings: PPR) -> tuple[np.ndarray, np.ndarray]:
    """Return the facts that score reached, and their scores."""
    nodes = np.flatnonzero(flow.scores)
    types = view.node_types[nodes]
    texts = nodes[(types == THESIS) | (types == EPISODIC)]
    nodes = np.flatnonzero(flow.passed)
    triplets, rows, _, shares = _shares(view, nodes)
    simple = np.flatnonzero(view.types(triplets) == SIMPLE)
    each, which = distinct(triplets[simple])
    amounts = (flow.passed[nodes][rows] * shares)[simple]
    stays = (1 - settings.damping) * np.bincount(which, amounts, len(each))
    scores = np.concatenate([flow.scores[texts], stays])
    return np.concatenate([2 * texts, 2 * each + 1]), np.round(scores, DECIMALS)
