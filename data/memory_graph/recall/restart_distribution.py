"""Computes the restart distribution of ``ppr``: named objects, objects of close facts, episodes.

HippoRAG (arXiv 2405.14831) restarts at the objects that the question names. HippoRAG 2 (arXiv
2502.14802) also restarts at the ends of the facts closest to the question and, with less weight, at
every passage by its closeness. Here closeness combines dense and BM25, and only the closest
episodes are used. Each episode passes a part of its share to the adjacent episodes of its source:
in a conversation, an answer seldom repeats the words of the question before it.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from turngraph.data.memory_graph.memory_types import EPISODIC, OBJECT
from turngraph.data.memory_graph.recall.traverse_settings import Restart
from turngraph.data.memory_graph.recall.view import View


def restart_distribution(view: View, settings: Restart) -> tuple[np.ndarray, np.ndarray]:
    """Return the restart nodes, int64, sorted, and their shares, which add up to 1.

    Args:
        view: the graph as the question sees it.
        settings: the weights of objects, facts and episodes.
    """
    shares: dict[int, float] = defaultdict(float)
    for node in _named_objects(view):
        shares[node] += settings.objects
    for node, share in _objects_of_facts(view, settings.num_facts).items():
        shares[node] += settings.facts * share
    objects = np.array(sorted(shares), dtype=np.int64)
    amounts = np.array([shares[node] for node in objects.tolist()])
    amounts = amounts / _num_episodes(view, objects)
    episodes, episode_shares = _episodes(view, settings)
    nodes = np.concatenate([objects, episodes])
    amounts = np.concatenate([amounts, settings.episodes * episode_shares])
    order = np.argsort(nodes)
    return nodes[order], amounts[order] / max(amounts.sum(), np.finfo(float).tiny)


def _named_objects(view: View) -> list[int]:
    """Return the linked objects of proper names; of all names if the question has no proper one."""
    proper = [e.node for e in view.entities if not e.name.islower()]
    return list(dict.fromkeys(proper)) or view.question_nodes.tolist()


def _objects_of_facts(view: View, num_facts: int) -> dict[int, float]:
    """Return the objects of the closest facts, each with the mean share of its facts.

    The share of a fact is its closeness divided by that of the closest fact.
    """
    if not num_facts:
        return {}
    facts = view.nearest_of(num_facts, episodes=False)
    cosines = np.maximum(view.closeness(facts), 0)
    highest = max(float(cosines.max(initial=0)), 1e-9)
    shares: dict[int, list[float]] = defaultdict(list)
    for key, cosine in zip(facts.tolist(), cosines.tolist(), strict=True):
        if key % 2:
            objects = view.ends(np.array([key // 2]))[0]
        else:
            _, others = view.around(key // 2)
            objects = others[view.node_types[others] == OBJECT]
        for node in np.unique(objects).tolist():
            shares[node].append(cosine / highest)
    return {node: sum(each) / len(each) for node, each in shares.items()}


def _num_episodes(view: View, objects: np.ndarray) -> np.ndarray:
    """Return the number of episodes that mention each object, at least 1, to divide by."""
    _, here, others = view.around_all(objects)
    seen = here[view.node_types[others] == EPISODIC]
    index = np.searchsorted(objects, seen)
    return np.maximum(np.bincount(index, minlength=len(objects)), 1)


def _episodes(view: View, settings: Restart) -> tuple[np.ndarray, np.ndarray]:
    """Return the closest episodes and those adjacent to them, each once, and their shares."""
    k = settings.num_episodes
    near = view.nearest_of(k, episodes=True) // 2
    worded, bm25 = view.nearest_by_words(k, EPISODIC)
    episodes = np.union1d(near, worded)
    dense = np.maximum(view.closeness(2 * episodes), 0).astype(np.float64)
    sparse = np.zeros(len(episodes))
    sparse[np.searchsorted(episodes, worded)] = bm25
    closeness = _by_best(dense) + settings.words * _by_best(sparse)
    shares = _by_best(closeness) ** settings.sharpness
    if not settings.adjacent:
        return episodes, shares
    ones, others = view.adjacent(episodes)
    passed = settings.adjacent * shares[np.searchsorted(episodes, ones)]
    both, which = np.unique(np.concatenate([episodes, others]), return_inverse=True)
    return both, np.bincount(which, np.concatenate([shares, passed]), len(both))


def _by_best(values: np.ndarray) -> np.ndarray:
    """Scale values so that the highest is 1."""
    return np.asarray(values / max(float(values.max(initial=0)), 1e-9))
