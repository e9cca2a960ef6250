"""WaterCircles: what lies where the circles around the linked objects meet.

After PersonalAI (arXiv 2506.17001), section 3, "WaterCircles". Where the paper leaves it open:

- Circles grow over nodes of every type that is not forbidden: circle 0 is a linked object, circle
  r + 1 the nodes next to circle r that are in none before. A triplet is walked in the circle after
  the first of its ends. Simple triplets make the two lists, all others are read as their thesis or
  episode.
- Two circles, of objects i and j, meet in a walked triplet if one end is no farther from i than the
  other is, and the other no farther from j than the one: the water of both runs into it from
  opposite sides, so that it lies on a way from i to j that uses it once. What both run over in the
  same direction, behind the place where they met, is no meeting.
- A simple triplet names the objects that it joins, whatever its words are. It names another entity
  if the circle that walked it is around a different object than one that it joins.
- A thesis or an episode mentions an entity if it has the words of its name, as the question or as
  the graph writes it. What counts are the entities that it mentions other than the one whose circle
  walked it; the most, where several did.
- Theses and episodes are ranked by that count, then like all else by closeness to the question,
  ties by text. The secondary triplets of a circle are those that it, around any linked object,
  was the first to walk. What the strict filter takes out of the primary list is not secondary.
- From a circle of more than ``max_width`` nodes only the nodes that the closest triplets led to are
  gone on from, ties by name; the others are counted as ``held_back``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, permutations

import numpy as np

from turngraph.data.memory_graph.memory_types import EPISODIC, OBJECT, THESIS
from turngraph.data.memory_graph.recall.ranking import best_first, least, rounded
from turngraph.data.memory_graph.recall.traverse_settings import WaterCircles
from turngraph.data.memory_graph.recall.view import View, apart

FAR = 255
"""Hops of a node that a linked object's circles do not reach."""
SAMPLED = 64
"""Every so many of a hub's rows are looked at to see what most are like."""
MARGIN = 0.01
"""Cosines of a hub's facts are less than half of this off: so much farther than the last one that
counts, facts are compared again."""


@dataclass(frozen=True, slots=True)
class Circles:
    """Fact keys, int64, each list best first.

    Args:
        theses, episodes: next to the circles.
        primary: simple triplets in which circles meet, or that name another entity.
        secondary: the other simple triplets, the first circle's before the next one's.
        held_back: nodes that a circle was too wide to go on from.
    """

    theses: np.ndarray
    episodes: np.ndarray
    primary: np.ndarray
    secondary: np.ndarray
    held_back: int

    @property
    def facts(self) -> np.ndarray:
        """All four lists."""
        return np.concatenate([self.theses, self.episodes, self.primary, self.secondary])


@dataclass(frozen=True, slots=True)
class _Water:
    """The circles around one linked object.

    Args:
        hops: of every node by id, uint8; ``FAR`` where they do not reach.
        sources: the same, but ``FAR`` as well where they were not gone on from.
        held_back: as of ``Circles``.
    """

    hops: np.ndarray
    sources: np.ndarray
    held_back: int


@dataclass(frozen=True)
class _Walked:
    """What all circles walked; the same fact may stand in several rows, a triplet in two.

    Args:
        keys: of the facts, int64 [k].
        cosines: of the facts, as ``View.facts_around`` gives them, [k].
        ends: of the triplets, in either order, two int64 [k].
        circle: from which each water first walked it, [waters, k]; ``FAR`` where it did not.
    """

    keys: np.ndarray
    cosines: np.ndarray
    ends: Sequence[np.ndarray]
    circle: np.ndarray

    @cached_property
    def simple(self) -> np.ndarray:
        """Which facts are simple triplets."""
        return (self.keys & 1).astype(bool)


def water_circles(view: View, settings: WaterCircles | None = None) -> Circles:
    """The theses, episodes and triplets around all linked objects together.

    Args:
        view: the graph as the question sees it.
        settings: how far, and how much of each kind; None: the paper's.
    """
    settings = settings or WaterCircles()
    waters = [_spread(view, node, settings) for node in view.question_nodes.tolist()]
    if not waters:
        return Circles(*[np.empty(0, np.int64)] * 4, held_back=0)
    walked = _together(view, waters, settings)
    texts = _texts(view, walked, settings)
    chains = _chains(view, waters, walked, settings)
    return Circles(*texts, *chains, held_back=sum(water.held_back for water in waters))


def _spread(view: View, start: int, settings: WaterCircles) -> _Water:
    """The circles around one linked object."""
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
            keys, cosines = (column[new] for column in view.facts_around(walked, ends))
            width = settings.max_width
            front = np.sort(_first(view, others[new], keys, cosines, width, view.names))
    return _Water(hops, sources, held_back)


def _together(view: View, waters: list[_Water], settings: WaterCircles) -> _Walked:
    nodes = np.flatnonzero(np.min([water.sources for water in waters], axis=0) < FAR)
    linked = set(view.question_nodes.tolist())
    parts = []
    for some in apart(view, nodes):
        triplets, *ends = view.around_all(some)
        rows = [*view.facts_around(triplets, ends[0]), *ends]
        if len(some) == 1 and view.is_hub(some)[0] and int(some[0]) not in linked:
            keys, cosines, _, others = rows
            may = _may_be_chosen(view, waters, settings, keys, cosines, others)
            rows = [column[may] for column in rows]
        circle = [np.minimum(water.sources[rows[2]], water.sources[rows[3]]) for water in waters]
        parts.append([*rows, *circle])
    keys, cosines, one, other, *circle = map(np.concatenate, zip(*parts, strict=True))
    return _Walked(keys, cosines, (one, other), np.array(circle))


def _may_be_chosen(
    view: View,
    waters: list[_Water],
    settings: WaterCircles,
    keys: np.ndarray,
    cosines: np.ndarray,
    others: np.ndarray,
) -> np.ndarray:
    """Of a hub's rows, those that any list may have; as many of the rest would come before others.

    Rows are alike for all that decides beside closeness if every water has come to their other ends
    in the same circle and gone on from none of them, and if they mention no entity: of each kind
    of these the closest are enough.

    Args:
        keys, cosines, others: of each row its fact, about how close that is, its other end.
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
    """The best theses and the best episodes."""
    texts = np.flatnonzero(~walked.simple)
    keys, bonus = walked.keys[texts], np.zeros(len(texts))
    if len(walked.circle) > 1:
        # a cosine is at most 2 apart from another, so that 4 for each entity decides first
        bonus = 4.0 * _others_mentioned(view, keys, walked.circle[:, texts] < FAR)
    types = view.node_types[keys >> 1]
    theses, episodes = (np.flatnonzero(types == kind) for kind in (THESIS, EPISODIC))
    return (
        _closest(view, walked, texts[theses], settings.hyper_num, bonus[theses]),
        _closest(view, walked, texts[episodes], settings.episodic_num, bonus[episodes]),
    )


def _others_mentioned(view: View, keys: np.ndarray, by: np.ndarray) -> np.ndarray:
    """How many entities each text mentions beside the one whose circle walked it, at most.

    Args:
        keys: of the texts, int64 [k].
        by: whether each entity's circle walked it, bool [entities, k].
    """
    mentioned = np.zeros(by.shape, bool)
    for i, spelling in _spellings(view):
        mentioned[i] |= view.mentions(keys, spelling)
    return ((mentioned.sum(0, np.uint16) - mentioned) * by).max(0)


def _spellings(view: View) -> list[tuple[int, str]]:
    """The place of each linked object, and how the question or the graph writes its name."""
    nodes = view.question_nodes.tolist()
    names = list(enumerate(view.names(nodes)))
    asked = [(nodes.index(entity.node), entity.name) for entity in view.entities]
    return list(dict.fromkeys(names + asked))


def _chains(
    view: View, waters: list[_Water], walked: _Walked, settings: WaterCircles
) -> tuple[np.ndarray, np.ndarray]:
    """The primary and the secondary list of simple triplets."""
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
    """Which triplets name an entity that another one's circle walked to, and which name two."""
    nodes = view.question_nodes[:, None]
    names = (walked.ends[0] == nodes) | (walked.ends[1] == nodes)
    named = names.sum(0, np.uint16)
    return ((walked.circle < FAR) & (named > names)).any(0), named > 1


def _met(waters: list[_Water], ends: Sequence[np.ndarray]) -> np.ndarray:
    """In which triplets the circles of two linked objects run into each other."""
    hops = [(water.hops[ends[0]], water.hops[ends[1]]) for water in waters]
    met = np.zeros(len(ends[0]), bool)
    for (i_one, i_other), (j_one, j_other) in permutations(hops, 2):  # both directions
        outwards = (i_one <= i_other) & (j_other <= j_one)
        met |= outwards & (i_one < FAR) & (j_other < FAR)
    return met


def _closest(
    view: View, walked: _Walked, rows: np.ndarray, budget: int, bonus: np.ndarray | None = None
) -> np.ndarray:
    """Keys of at most ``budget`` facts of some rows, closest first, ties by text."""
    keys = walked.keys[rows]
    texts = lambda some: [view.fact_text(key) for key in some]  # noqa: E731
    return _first(view, keys, keys, walked.cosines[rows], budget, texts, bonus)


def _first(
    view: View,
    ids: np.ndarray,
    keys: np.ndarray,
    cosines: np.ndarray,
    budget: int,
    contents: Callable[[list[int]], list[str]],
    bonus: np.ndarray | None = None,
) -> np.ndarray:
    """The first different ids, closest first, each by its closest row, ties by contents.

    Args:
        view: says how close those that may be among the first really are.
        ids, keys, cosines: of each row: what is meant, its fact, about how close that is.
        budget: how many ids at most.
        contents: of ids.
        bonus: of each row, what goes before closeness: more comes first.
    """
    if not budget or not len(ids):
        return ids[:0]
    bonus = np.zeros(len(ids)) if bonus is None else bonus
    costs = -cosines - bonus
    near, size = least(costs, 4 * budget), 4 * budget
    # nothing beyond the smallest so many costs can be among the first
    while len(near) < len(ids) and len(np.unique(ids[near])) < budget:
        size *= 4
        near = least(costs, size)
    near = near[np.argsort(costs[near], kind="stable")]
    last = np.sort(costs[near[np.unique(ids[near], return_index=True)[1]]])[:budget][-1]
    near = np.flatnonzero(costs <= last + MARGIN)
    costs = -rounded(view.closeness(keys[near])) - bonus[near]
    by_cost = np.argsort(costs, kind="stable")
    first = by_cost[np.unique(ids[near[by_cost]], return_index=True)[1]]
    costs, ids = costs[first], ids[near[first]]
    order = best_first(costs, lambda some: contents(ids[some].tolist()), budget)
    return ids[list(islice(order, budget))]
