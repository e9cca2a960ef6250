"""WaterCircles: searches for facts where the circles around the linked objects meet.

After PersonalAI (arXiv 2506.17001), section 3, "WaterCircles". Choices that the paper leaves open:

- Circles grow over nodes of every type that is not forbidden. Circle 0 is a linked object; circle
  r + 1 is the nodes next to circle r that are in no earlier circle. A triplet is walked in the
  circle after the first of its ends. Simple triplets form the two lists; all others are read as
  their thesis or episode.
- The circles of two objects i and j meet in a walked triplet if one end is no farther from i than
  the other end is, and the other end is no farther from j than the first: both reach the triplet
  from opposite sides, so it is on a path from i to j that uses it once. The circles do not meet in
  a triplet that both walk in the same direction, behind the point where they met.
- A simple triplet names the objects that it joins, regardless of its words. A triplet walked by the
  circle of an object names another entity if it joins a different linked object.
- A thesis or an episode mentions an entity if it contains the words of the entity's name, as the
  question or as the graph writes it. Its count is the number of entities that it mentions, without
  the entity whose circle walked it; if several circles walked it, the highest count.
- Theses and episodes are ranked by this count, then by closeness to the question; triplets by
  closeness alone. Ties are broken by text. The secondary triplets of circle r are those that circle
  r of some linked object walks and that no smaller circle of any linked object walks. Triplets that
  the strict filter removes from the primary list are not secondary.
- A circle of more than ``max_width`` nodes is continued only from the nodes that the closest
  triplets led to, ties broken by name; the others are counted as ``held_back``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np

from turngraph.data.memory_graph.memory_types import EPISODIC, OBJECT, THESIS
from turngraph.data.memory_graph.recall.ranking import best_first, least, rounded
from turngraph.data.memory_graph.recall.traverse_settings import WaterCircles
from turngraph.data.memory_graph.recall.view import View, apart

FAR = 255
"""Hops of a node that a linked object's circles do not reach."""
SAMPLED = 64
"""One in so many rows of a hub is read to find the most frequent number of hops."""
MARGIN = 0.01
"""Twice the largest error of a hub's approximate cosines: facts within this margin of the last one
chosen are compared again exactly."""


@dataclass(frozen=True, slots=True)
class Circles:
    """The facts that the circles found: keys, int64, each list best first.

    Args:
        theses, episodes: texts next to the circles.
        primary: simple triplets in which circles meet, or that name another entity.
        secondary: the other simple triplets, the first circle's before the next one's.
        held_back: number of nodes from which too wide circles were not continued.
    """

    theses: np.ndarray
    episodes: np.ndarray
    primary: np.ndarray
    secondary: np.ndarray
    held_back: int

    @property
    def facts(self) -> np.ndarray:
        """All four lists, one after the other."""
        return np.concatenate([self.theses, self.episodes, self.primary, self.secondary])


@dataclass(frozen=True, slots=True)
class _Water:
    """The circles around one linked object.

    Args:
        hops: number of hops to every node by id, uint8; ``FAR`` if the circles do not reach the
            node.
        sources: the same, but also ``FAR`` at nodes from which the circles were not continued.
        held_back: as in ``Circles``.
    """

    hops: np.ndarray
    sources: np.ndarray
    held_back: int


@dataclass(frozen=True)
class _Walked:
    """The rows that all circles walked; a fact may be in several rows, a triplet in two.

    Args:
        keys: keys of the facts, int64 [k].
        cosines: cosines of the facts, as ``View.facts_around`` returns them, [k].
        ends: ends of the triplets, in either order, two int64 [k].
        circle: for each linked object, the circle from which it first walked each row, uint8
            [objects, k]; ``FAR`` if none.
    """

    keys: np.ndarray
    cosines: np.ndarray
    ends: Sequence[np.ndarray]
    circle: np.ndarray

    @cached_property
    def simple(self) -> np.ndarray:
        """Return whether each fact is a simple triplet, bool [k]."""
        return (self.keys & 1).astype(bool)


def water_circles(view: View, settings: WaterCircles | None = None) -> Circles:
    """Find the theses, episodes and triplets around all linked objects together.

    Args:
        view: the graph as the question sees it.
        settings: numbers of circles and of facts of each kind; None: the defaults.
    """
    settings = settings or WaterCircles()
    waters = [_spread(view, node, settings) for node in view.question_nodes.tolist()]
    if not waters:
        none = np.empty(0, np.int64)
        return Circles(theses=none, episodes=none, primary=none, secondary=none, held_back=0)
    walked = _walk(view, waters, settings)
    theses, episodes = _texts(view, walked, settings)
    primary, secondary = _chains(view, waters, walked, settings)
    held_back = sum(water.held_back for water in waters)
    return Circles(theses, episodes, primary, secondary, held_back)


def _spread(view: View, start: int, settings: WaterCircles) -> _Water:
    """Grow the circles around one linked object."""
    hops = np.full(len(view.node_types), FAR, np.uint8)
    sources = hops.copy()
    hops[start] = 0
    front, held_back = np.array([start]), 0
    for circle in range(1, settings.max_circles + 1):
        sources[front] = circle - 1
        if circle == settings.max_circles:
            for nodes in apart(view, front):
                others = view.around_all(nodes)[2]
                hops[others] = np.minimum(hops[others], circle)
            break
        walked, ends, others = view.around_all(front)
        new = np.flatnonzero(hops[others] == FAR)
        hops[others[new]] = circle
        front = np.flatnonzero(hops == circle)
        if len(front) > settings.max_width:
            held_back += len(front) - settings.max_width
            keys, cosines = view.facts_around(walked, ends)
            front = _first(
                view,
                ids=others[new],
                keys=keys[new],
                cosines=cosines[new],
                num=settings.max_width,
                contents=view.names,
            )
            front.sort()
    return _Water(hops, sources, held_back)


def _walk(view: View, waters: list[_Water], settings: WaterCircles) -> _Walked:
    """Collect the rows that all circles walked."""
    nodes = np.flatnonzero(np.min([water.sources for water in waters], axis=0) < FAR)
    linked = set(view.question_nodes.tolist())
    parts = []
    for group in apart(view, nodes):
        triplets, ends, others = view.around_all(group)
        keys, cosines = view.facts_around(triplets, ends)
        if len(group) == 1 and view.is_hub(group)[0] and int(group[0]) not in linked:
            may = _may_be_chosen(view, waters, settings, keys, cosines, others)
            keys, cosines, ends, others = keys[may], cosines[may], ends[may], others[may]
        circle = [np.minimum(water.sources[ends], water.sources[others]) for water in waters]
        parts.append([keys, cosines, ends, others, *circle])
    keys, cosines, ends, others, *circle = map(np.concatenate, zip(*parts, strict=True))
    return _Walked(keys, cosines, (ends, others), np.array(circle))


def _may_be_chosen(
    view: View,
    waters: list[_Water],
    settings: WaterCircles,
    keys: np.ndarray,
    cosines: np.ndarray,
    others: np.ndarray,
) -> np.ndarray:
    """Return the indices of those rows of a hub that may enter a list.

    Rows differ only in closeness if they mention no entity, and if the circles of each linked
    object reach all their other ends at the same distance and are continued from none of them. Of
    each kind of such rows only the closest can enter a list.

    Args:
        keys, cosines, others: each row's fact, the fact's approximate cosine, and the other end.
    """
    usual = np.ones(len(view.node_types), bool)
    for water in waters:
        hops = np.bincount(water.hops[others[::SAMPLED]]).argmax()
        usual &= (water.hops == hops) & (water.sources == FAR)
    alike = usual[others]
    texts = np.flatnonzero(~(keys & 1).astype(bool))
    for _, spelling in _spellings(view):
        alike[texts] &= ~view.mentions(keys[texts], spelling)
    kinds = np.full(len(keys), OBJECT, np.int8)
    kinds[texts] = view.node_types[keys[texts] >> 1]
    budgets = {
        THESIS: settings.hyper_num,
        EPISODIC: settings.episodic_num,
        OBJECT: max(settings.chain_triplets_num, settings.other_triplets_num),
    }
    kept = ~alike
    for kind, budget in budgets.items():
        rows = np.flatnonzero(alike & (kinds == kind))
        near = rows[least(-cosines[rows], max(4 * budget, 1))]
        if len(np.unique(keys[near])) >= budget:
            rows = rows[cosines[rows] >= cosines[near].min(initial=1) - MARGIN]
        kept[rows] = True
    return np.flatnonzero(kept)


def _texts(view: View, walked: _Walked, settings: WaterCircles) -> tuple[np.ndarray, np.ndarray]:
    """Return the best theses and the best episodes."""
    texts = np.flatnonzero(~walked.simple)
    keys, bonus = walked.keys[texts], np.zeros(len(texts))
    if len(walked.circle) > 1:
        # two cosines differ by at most 2, so that 4 for each entity decides first
        bonus = 4.0 * _others_mentioned(view, keys, walked.circle[:, texts] < FAR)
    types = view.node_types[keys >> 1]
    theses, episodes = (np.flatnonzero(types == kind) for kind in (THESIS, EPISODIC))
    return (
        _closest(view, walked, texts[theses], settings.hyper_num, bonus=bonus[theses]),
        _closest(view, walked, texts[episodes], settings.episodic_num, bonus=bonus[episodes]),
    )


def _others_mentioned(view: View, keys: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Count the entities that each text mentions, except the one whose circle walked it.

    If several circles walked a text, the highest count is returned, [k].

    Args:
        keys: keys of the texts, int64 [k].
        by: whether each entity's circle walked it, bool [entities, k].
    """
    mentioned = np.zeros(by.shape, bool)
    for i, spelling in _spellings(view):
        mentioned[i] |= view.mentions(keys, spelling)
    return np.asarray(((mentioned.sum(0, np.uint16) - mentioned) * by).max(0))


def _spellings(view: View) -> list[tuple[int, str]]:
    """Return (index of a linked object, name), with the names in the graph and the question."""
    nodes = view.question_nodes.tolist()
    names = list(enumerate(view.names(nodes)))
    in_question = [(nodes.index(entity.node), entity.name) for entity in view.entities]
    return list(dict.fromkeys(names + in_question))


def _chains(
    view: View, waters: list[_Water], walked: _Walked, settings: WaterCircles
) -> tuple[np.ndarray, np.ndarray]:
    """Return the primary and the secondary list of simple triplets."""
    primary, twice = (walked.simple & rows for rows in _names_another(view, walked))
    primary |= walked.simple & _met(waters, walked.ends)
    first = primary & twice if settings.strict_filter and (primary & twice).any() else primary
    chosen = _closest(view, walked, np.flatnonzero(first), settings.chain_triplets_num)
    circle, rest, others = walked.circle.min(0), walked.simple & ~primary, []
    for before in range(settings.max_circles):
        rows = np.flatnonzero(rest & (circle == before))
        others.append(_closest(view, walked, rows, settings.other_triplets_num))
    return chosen, np.concatenate(others)


def _names_another(view: View, walked: _Walked) -> tuple[np.ndarray, np.ndarray]:
    """Return which triplets name another entity than their circle's, and which name two."""
    nodes = view.question_nodes[:, None]
    names = (walked.ends[0] == nodes) | (walked.ends[1] == nodes)
    named = names.sum(0, np.uint16)
    return ((walked.circle < FAR) & (named > names)).any(0), named > 1


def _met(waters: list[_Water], ends: Sequence[np.ndarray]) -> np.ndarray:
    """Return in which triplets the circles of two linked objects meet."""
    num_out, num_back, num_both = np.zeros((3, len(ends[0])), np.int32)
    for water in waters:
        one, other = water.hops[ends[0]], water.hops[ends[1]]
        out, back = (one <= other) & (one < FAR), (other <= one) & (other < FAR)
        num_out += out
        num_back += back
        num_both += out & back
    return num_out * num_back > num_both  # pairs of two objects, not of one with itself


def _closest(
    view: View, walked: _Walked, rows: np.ndarray, num: int, bonus: np.ndarray | None = None
) -> np.ndarray:
    """Return the keys of at most ``num`` facts of some rows, closest first, ties by text."""
    keys = walked.keys[rows]
    return _first(
        view,
        ids=keys,
        keys=keys,
        cosines=walked.cosines[rows],
        num=num,
        contents=lambda tied: [view.fact_text(key) for key in tied],
        bonus=bonus,
    )


def _first(
    view: View,
    *,
    ids: np.ndarray,
    keys: np.ndarray,
    cosines: np.ndarray,
    num: int,
    contents: Callable[[list[int]], list[str]],
    bonus: np.ndarray | None = None,
) -> np.ndarray:
    """Return the first ``num`` distinct ids, each by its closest row, ties by contents.

    Args:
        view: gives the exact closeness of the rows that may be among the first.
        ids, keys, cosines: each row's id, its fact, and the fact's approximate cosine.
        num: maximum number of ids.
        contents: the contents of ids, which break ties.
        bonus: number to add to each row's closeness; None: 0.
    """
    if not num or not len(ids):
        return ids[:0]
    bonus = np.zeros(len(ids)) if bonus is None else bonus
    costs = -cosines - bonus
    near, size = least(costs, 4 * num), 4 * num
    # no row beyond the ``size`` smallest costs can be among the first
    while len(near) < len(ids) and len(np.unique(ids[near])) < num:
        size *= 4
        near = least(costs, size)
    near = near[np.argsort(costs[near], kind="stable")]
    last = np.sort(costs[near[np.unique(ids[near], return_index=True)[1]]])[:num][-1]
    near = np.flatnonzero(costs <= last + MARGIN)
    costs = -rounded(view.closeness(keys[near])) - bonus[near]
    by_cost = np.argsort(costs, kind="stable")
    first = by_cost[np.unique(ids[near[by_cost]], return_index=True)[1]]
    costs, ids = costs[first], ids[near[first]]
    order = best_first(costs, lambda tied: contents(ids[tied].tolist()), num)
    return ids[list(islice(order, num))]
