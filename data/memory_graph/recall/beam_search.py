"""BeamSearch: the paths from each linked object that lie closest to the question.

After PersonalAI (arXiv 2506.17001), section 3, "BeamSearch". Where the paper leaves it open:

- The extensions of one depth are taken best first until ``max_paths`` have survived. One that meets
  a node or triplet which a better extension of this depth took falls away; all that come after the
  last survivor are dropped by the beam, whether they would have met anything or not.
- A path that nothing allowed leads on from has ended, and so has one whose every extension fell
  away. A path whose extensions were dropped is no result: better ones took its place.
- Only live paths hold their nodes and triplets; those of ended and dropped ones are free again.
- Ties go by what the paths read as, hop by hop: the triplet, then the name of the node behind it.
  Only paths that read alike in every word go by id.
- Of parallel triplets between two nodes the closest is taken, the others then meet its node.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np

from turngraph.data.memory_graph.recall.ranking import best_first, cost_of, least, rounded
from turngraph.data.memory_graph.recall.traverse_settings import BeamSearch
from turngraph.data.memory_graph.recall.view import View, apart

NEAR = 256
"""Of a hub's triplets, so many of the closest are looked at first."""


class Path(NamedTuple):
    """A walk through the graph.

    Args:
        nodes: one more than triplets, from the linked object on.
        triplets: in the order of walking.
        cost: sum of -ln s over the triplets; smaller is closer to the question.
    """

    nodes: tuple[int, ...]
    triplets: tuple[int, ...] = ()
    cost: float = 0.0

    def score(self, mean_alpha: float) -> float:
        """Cost / hops ** mean_alpha, 0 without a hop; smaller is better."""
        return self.cost / max(len(self.triplets), 1) ** mean_alpha


@dataclass(frozen=True, slots=True)
class PathCounts:
    """What became of every path that was begun.

    ``begun`` is the sum of the five: no path disappears unaccounted.

    Args:
        begun: linked objects, and extensions that were allowed.
        extended: gave way to their extensions.
        ended: could not be extended.
        continuous: reached ``max_depth``.
        fallen: met a node or triplet that a better path took at the same depth.
        dropped: were not among the ``max_paths`` best of their depth.
        cut: of the ended and continuous, those that the final sorting left out.
    """

    begun: int = 0
    extended: int = 0
    ended: int = 0
    continuous: int = 0
    fallen: int = 0
    dropped: int = 0
    cut: int = 0

    def __add__(self, other: PathCounts) -> PathCounts:
        names = (f.name for f in fields(self))
        return PathCounts(*(getattr(self, name) + getattr(other, name) for name in names))


@dataclass(frozen=True, slots=True)
class Beams:
    """The paths that were kept, best first for each linked object in turn, and the account."""

    paths: tuple[Path, ...]
    counts: PathCounts

    @property
    def triplets(self) -> np.ndarray:
        """Those of all paths, each once, in their order; int64."""
        found = dict.fromkeys(t for path in self.paths for t in path.triplets)
        return np.fromiter(found, np.int64)


def beam_search(view: View, settings: BeamSearch | None = None) -> Beams:
    """The best paths from every linked object apart.

    Args:
        view: the graph as the question sees it.
        settings: depth, width and which paths may cross; None: the paper's.
    """
    settings = settings or BeamSearch()
    near = _Surroundings(view)
    searches = [_Search(near, start, settings) for start in view.question_nodes.tolist()]
    for _ in range(settings.max_depth):
        # at once for all searches: one by one takes twice as long
        near.of([path.nodes[-1] for search in searches for path in search.live])
        for search in searches:
            search.deepen()
    found = [search.finish() for search in searches]
    paths = tuple(path for kept, _ in found for path in kept)
    return Beams(paths, sum((counts for _, counts in found), PathCounts()))


@dataclass(frozen=True, slots=True)
class _Around:
    """What lies around a node.

    Args:
        triplets, others, cosines: every triplet (rising), the node behind it, its rounded cosine.
        near: the places of those that are closest to the question.
        costs: what a step over each of these costs.
        limit: a step over any other costs no less.
    """

    triplets: np.ndarray
    others: np.ndarray
    cosines: np.ndarray
    near: np.ndarray | slice
    costs: np.ndarray
    limit: float

    def whole(self, view: View) -> _Around:
        """The same, all of it near."""
        if self.limit == math.inf:
            return self
        cosines = rounded(view.similarity(self.triplets))  # of a hub's, exactly
        return _around(self.triplets, self.others, cosines, len(cosines))


def _around(triplets: np.ndarray, others: np.ndarray, cosines: np.ndarray, size: int) -> _Around:
    """The ``size`` closest are near, or all where there are not many more."""
    if len(cosines) <= 4 * size:
        return _Around(triplets, others, cosines, slice(None), cost_of(cosines), math.inf)
    near = least(-cosines, size)
    costs = cost_of(cosines[near])
    limit = float(costs.max()) if len(near) < len(cosines) else math.inf
    return _Around(triplets, others, cosines, near, costs, limit)


class _Surroundings:
    """What lies around nodes, looked up once a question: many paths come to the same hub."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._known: dict[int, _Around] = {}
        self._taken = np.zeros(len(view.node_types), bool)

    def of(self, nodes: Sequence[int]) -> list[_Around]:
        """What lies around nodes."""
        new = np.array(sorted({node for node in nodes if node not in self._known}), np.int64)
        for group in apart(self.view, new):
            self._know(group)
        return [self._known[node] for node in nodes]

    def _know(self, nodes: np.ndarray) -> None:
        """Take over what lies around a hub, or around nodes that are none: all of it is near."""
        triplets, here, others = self.view.around_all(nodes)
        cosines = self.view.facts_around(triplets, here)[1]
        if len(nodes) == 1:
            self._known[int(nodes[0])] = _around(triplets, others, cosines, NEAR)
            return
        columns = triplets, others, cosines, cost_of(cosines)  # at once for all
        bounds = np.searchsorted(here, [*nodes.tolist(), nodes[-1] + 1]).tolist()
        for node, begin, end in zip(nodes.tolist(), bounds, bounds[1:], strict=False):
            triplets, others, cosines, costs = (column[begin:end] for column in columns)
            near = slice(None)
            self._known[node] = _Around(triplets, others, cosines, near, costs, math.inf)

    def elsewhere(self, around: Sequence[_Around], nodes: set[int]) -> list[np.ndarray]:
        """Which of the triplets around some nodes lead to none of these nodes."""
        self._taken[list(nodes)] = True
        free = [~self._taken[a.others] for a in around]
        self._taken[list(nodes)] = False
        return free


class _Search:
    """The search from one linked object."""

    def __init__(self, near: _Surroundings, start: int, settings: BeamSearch) -> None:
        self.near, self.settings = near, settings
        self.live, self.ended = [Path((start,))], list[Path]()
        self.counts = PathCounts(begun=1)

    def deepen(self) -> None:
        """Walk on by one triplet."""
        if self.live:
            self.live, stuck, account = _deepen(self.near, self.live, self.settings)
            self.ended += stuck
            self.counts += account

    def finish(self) -> tuple[list[Path], PathCounts]:
        """The paths that are kept, and the account."""
        ended, live = self.ended, self.live
        kept = _final(self.near.view, ended, live, self.settings)
        cut = len(ended) + len(live) - len(kept)
        return kept, self.counts + PathCounts(ended=len(ended), continuous=len(live), cut=cut)


def _deepen(
    near: _Surroundings, live: Sequence[Path], settings: BeamSearch
) -> tuple[list[Path], list[Path], PathCounts]:
    """One depth: the paths that survive, those that have ended, and what became of the others."""
    around = near.of([path.nodes[-1] for path in live])
    free = _free(near, live, around, settings)
    taken = _take(near.view, live, around, free, settings)
    if taken is None:  # not enough of what is near
        whole = [a.whole(near.view) for a in around]
        taken = _take(near.view, live, whole, free, settings)
    survivors, fallen = taken
    offered = [int(np.count_nonzero(allowed)) for allowed in free]
    ended = [path for i, path in enumerate(live) if offered[i] == fallen[i]]
    begun, fell = sum(offered), sum(fallen)
    dropped = begun - fell - len(survivors)
    extended = len(live) - len(ended)
    return survivors, ended, PathCounts(begun, extended, fallen=fell, dropped=dropped)


def _free(
    near: _Surroundings, live: Sequence[Path], around: Sequence[_Around], settings: BeamSearch
) -> list[np.ndarray]:
    """For each path, which of the triplets at its end it may take."""
    again = settings.same_path_intersection_by_node
    if not (again or settings.diff_paths_intersection_by_node):
        # no live path's node twice, and so none of their triplets either
        return near.elsewhere(around, set(chain.from_iterable(path.nodes for path in live)))
    found = []
    for path, a in zip(live, around, strict=True):
        others = [other for other in live if other is not path]
        nodes, triplets = set(path.nodes[-2:-1] if again else path.nodes), set(path.triplets)
        if not settings.diff_paths_intersection_by_node:
            nodes.update(*(other.nodes for other in others))
        if not settings.diff_paths_intersection_by_rel:
            triplets.update(*(other.triplets for other in others))
        (free,) = near.elsewhere([a], nodes)
        found.append(free & ~np.isin(a.triplets, list(triplets)))
    return found


def _take(
    view: View,
    live: Sequence[Path],
    around: Sequence[_Around],
    free: Sequence[np.ndarray],
    settings: BeamSearch,
) -> tuple[list[Path], list[int]] | None:
    """The best extensions that do not meet each other, and how many of each path fell away.

    None where those near are too few to say.
    """
    whose = np.repeat(np.arange(len(live)), [len(a.costs) for a in around])
    costs = np.concatenate([a.costs for a in around])
    costs += np.array([path.cost for path in live])[whose]
    costs[~np.concatenate([may[a.near] for a, may in zip(around, free, strict=True)])] = np.inf
    triplets = np.concatenate([a.triplets[a.near] for a in around])
    others = np.concatenate([a.others[a.near] for a in around])
    limit = min(path.cost + a.limit for path, a in zip(live, around, strict=True))
    survivors: list[Path] = []
    fallen = [0] * len(live)
    met, used = set[int](), set[int]()

    def extended(i: int) -> Path:
        path = live[whose[i]]
        walked = (*path.nodes, int(others[i])), (*path.triplets, int(triplets[i]))
        return Path(*walked, float(costs[i]))

    def read(places: list[int]) -> list[Any]:
        if (whose[places] == whose[places[0]]).all():  # they differ in the last hop only
            names = view.names(others[places].tolist())
            return list(zip(map(view.text, triplets[places].tolist()), names, strict=True))
        return _read(view, [extended(i) for i in places])

    for i in best_first(costs, read):
        if len(survivors) == settings.max_paths:
            return survivors, fallen
        if costs[i] >= limit:
            return None
        new = extended(i)
        node, triplet = new.nodes[-1], new.triplets[-1]
        by_node = node in met and not settings.diff_paths_intersection_by_node
        if by_node or (triplet in used and not settings.diff_paths_intersection_by_rel):
            fallen[whose[i]] += 1
            continue
        met.add(node)
        used.add(triplet)
        survivors.append(new)
    done = limit == math.inf or len(survivors) == settings.max_paths
    return (survivors, fallen) if done else None


def _read(view: View, paths: Sequence[Path]) -> list[list[tuple[str, str]]]:
    """What each path says, hop by hop."""
    names = iter(view.names(node for path in paths for node in path.nodes[1:]))
    return [[(view.text(triplet), next(names)) for triplet in path.triplets] for path in paths]


def _final(
    view: View, ended: list[Path], continuous: list[Path], settings: BeamSearch
) -> list[Path]:
    """The ``max_paths`` best of both kinds, or of one kind before the other."""
    kinds = [[*ended, *continuous]]
    if settings.final_sorting_mode == "ended_first":
        kinds = [ended, continuous]
    elif settings.final_sorting_mode == "continuous_first":
        kinds = [continuous, ended]
    ranked: list[Path] = []
    for paths in kinds:
        scores = np.array([path.score(settings.mean_alpha) for path in paths])
        order = best_first(scores, lambda some, paths=paths: _read(view, [paths[i] for i in some]))
        ranked += [paths[i] for i in order]
    return list(islice(ranked, settings.max_paths))
