"""Beam search for the paths from each linked object that are closest to the question.

After PersonalAI (arXiv 2506.17001), section 3, "BeamSearch". Choices that the paper leaves open:

- The extensions of one depth are taken best first until ``max_paths`` have survived. An extension
  that meets a node of a better extension of this depth is discarded (``fallen``). All
  extensions after the last survivor are dropped by the beam, whether they would have met anything
  or not.
- A path has ended if it has no allowed extension, or if all its extensions were discarded. A path
  whose extensions were dropped is no result: better paths replaced it.
- Only live paths occupy their nodes; those of ended and dropped paths are free again.
- Ties are broken by the texts of the paths, hop by hop: the triplet, then the name of the node
  behind it. Only paths with the same texts are ordered by id.
- Of parallel triplets between two nodes the closest is taken; the others then meet its node.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np

from turngraph.data.memory_graph.recall.ranking import best_first, cost_of, least, rounded
from turngraph.data.memory_graph.recall.traverse_settings import BeamSearch
from turngraph.data.memory_graph.recall.view import View, apart

NEAR = 256
"""Number of a hub's triplets, those closest to the question, that are considered first."""
MEAN_ALPHA = 0.75
"""A path's score is its cost / hops ** MEAN_ALPHA; with 0 it would be the sum, with 1 the mean."""


class Path(NamedTuple):
    """A walk through the graph.

    Args:
        nodes: one more than triplets, starting with the linked object.
        triplets: triplets in the order of the walk.
        cost: sum of -ln s over the triplets; smaller is closer to the question.
    """

    nodes: tuple[int, ...]
    triplets: tuple[int, ...] = ()
    cost: float = 0.0

    @property
    def score(self) -> float:
        """cost / hops ** MEAN_ALPHA, 0 without a hop; smaller is better."""
        return self.cost / math.pow(max(len(self.triplets), 1), MEAN_ALPHA)


@dataclass(frozen=True, slots=True)
class PathCounts:
    """Numbers of paths by outcome.

    ``begun`` is the sum of extended, ended, continuous, fallen and dropped: every path is counted.

    Args:
        begun: linked objects and allowed extensions.
        extended: paths that were replaced by their extensions.
        ended: paths that could not be extended.
        continuous: paths that reached ``max_depth``.
        fallen: paths that met a node of a better path at the same depth.
        dropped: paths that were not among the ``max_paths`` best of their depth.
        cut: ended and continuous paths that the final sorting left out.
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
    """The paths that were kept, best first for each linked object in turn, and their counts."""

    paths: tuple[Path, ...]
    counts: PathCounts

    @property
    def triplets(self) -> np.ndarray:
        """Triplets of all paths, each once, in their order; int64."""
        triplets = dict.fromkeys(t for path in self.paths for t in path.triplets)
        return np.fromiter(triplets, np.int64)


def beam_search(view: View, settings: BeamSearch | None = None) -> Beams:
    """Find the best paths from every linked object, each searched alone.

    Args:
        view: the graph as the question sees it.
        settings: depth and width; None: the defaults.
    """
    settings = settings or BeamSearch()
    neighbourhoods = _Neighbourhoods(view)
    searches = [_Search(neighbourhoods, start, settings) for start in view.question_nodes.tolist()]
    for _ in range(settings.max_depth):
        # one look-up for all searches: one look-up each takes twice as long
        neighbourhoods.of([path.nodes[-1] for search in searches for path in search.live])
        for search in searches:
            search.deepen()
    finished = [search.finish() for search in searches]
    paths = tuple(path for kept, _ in finished for path in kept)
    return Beams(paths, sum((counts for _, counts in finished), PathCounts()))


@dataclass(frozen=True, slots=True)
class _Neighbourhood:
    """The triplets around a node.

    Args:
        triplets, others, cosines: every triplet (sorted), the node behind it, its rounded cosine.
        near: index of those that are closest to the question.
        costs: cost of a step over each of the near triplets.
        limit: a step over any other triplet costs no less than this.
    """

    triplets: np.ndarray
    others: np.ndarray
    cosines: np.ndarray
    near: np.ndarray | slice
    costs: np.ndarray
    limit: float

    def whole(self, view: View) -> _Neighbourhood:
        """Return the same neighbourhood with every triplet near."""
        if self.limit == math.inf:
            return self
        cosines = rounded(view.similarity(self.triplets))  # exact; a hub's were approximate
        return _neighbourhood(self.triplets, self.others, cosines, num_near=len(cosines))


def _neighbourhood(
    triplets: np.ndarray, others: np.ndarray, cosines: np.ndarray, num_near: int
) -> _Neighbourhood:
    """Build a neighbourhood whose ``num_near`` closest triplets are near; all if few more exist."""
    if len(cosines) <= 4 * num_near:
        return _Neighbourhood(triplets, others, cosines, slice(None), cost_of(cosines), math.inf)
    near = least(-cosines, num_near)
    costs = cost_of(cosines[near])
    limit = float(costs.max()) if len(near) < len(cosines) else math.inf
    return _Neighbourhood(triplets, others, cosines, near, costs, limit)


class _Neighbourhoods:
    """Neighbourhoods of nodes, read once for each question, as many paths reach the same hub."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._known: dict[int, _Neighbourhood] = {}
        self._taken = np.zeros(len(view.node_types), bool)

    def of(self, nodes: Sequence[int]) -> list[_Neighbourhood]:
        """Return the neighbourhood of each node."""
        new = np.array(sorted({node for node in nodes if node not in self._known}), np.int64)
        for group in apart(self.view, new):
            self._read(group)
        return [self._known[node] for node in nodes]

    def _read(self, nodes: np.ndarray) -> None:
        """Read the neighbourhood of one hub, or those of several nodes that are no hubs."""
        triplets, here, others = self.view.around_all(nodes)
        cosines = self.view.facts_around(triplets, here)[1]
        if len(nodes) == 1:
            self._known[int(nodes[0])] = _neighbourhood(triplets, others, cosines, num_near=NEAR)
            return
        costs = cost_of(cosines)
        bounds = np.searchsorted(here, [*nodes.tolist(), nodes[-1] + 1]).tolist()
        for node, (begin, end) in zip(nodes.tolist(), pairwise(bounds), strict=True):
            rows = slice(begin, end)
            self._known[node] = _Neighbourhood(
                triplets[rows], others[rows], cosines[rows], slice(None), costs[rows], math.inf
            )

    def elsewhere(self, around: Sequence[_Neighbourhood], nodes: set[int]) -> list[np.ndarray]:
        """Return, for each neighbourhood, which of its triplets lead to none of the given nodes."""
        self._taken[list(nodes)] = True
        free = [~self._taken[a.others] for a in around]
        self._taken[list(nodes)] = False
        return free


class _Search:
    """The search from one linked object."""

    def __init__(self, known: _Neighbourhoods, start: int, settings: BeamSearch) -> None:
        self.known, self.settings = known, settings
        self.live, self.ended = [Path((start,))], list[Path]()
        self.counts = PathCounts(begun=1)

    def deepen(self) -> None:
        """Extend the live paths by one triplet."""
        if not self.live:
            return
        live, view = self.live, self.known.view
        around = self.known.of([path.nodes[-1] for path in live])
        # no node of a live path is taken twice, and so none of their triplets is either
        met = set(chain.from_iterable(path.nodes for path in live))
        free, most = self.known.elsewhere(around, met), self.settings.max_paths
        taken = _take(view, live, around, free, most)
        if taken is None:  # the near triplets were too few
            taken = _take(view, live, [a.whole(view) for a in around], free, most)
            assert taken is not None
        survivors, fallen = taken
        offered = [int(np.count_nonzero(allowed)) for allowed in free]
        ended = [path for i, path in enumerate(live) if offered[i] == fallen[i]]
        self.live = survivors
        self.ended += ended
        self.counts += PathCounts(
            begun=sum(offered),
            extended=len(live) - len(ended),
            fallen=sum(fallen),
            dropped=sum(offered) - sum(fallen) - len(survivors),
        )

    def finish(self) -> tuple[list[Path], PathCounts]:
        """Return the paths that are kept, and the counts."""
        ended, live = self.ended, self.live
        kept = _ranked(self.known.view, [*ended, *live])[: self.settings.max_paths]
        cut = len(ended) + len(live) - len(kept)
        return kept, self.counts + PathCounts(ended=len(ended), continuous=len(live), cut=cut)


def _take(
    view: View,
    live: Sequence[Path],
    around: Sequence[_Neighbourhood],
    free: Sequence[np.ndarray],
    max_paths: int,
) -> tuple[list[Path], list[int]] | None:
    """Take the best extensions that do not meet each other.

    Returns:
        The extensions, and how many of each live path were discarded. None if the near triplets are
        too few to tell.
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
    met = set[int]()

    def extended(i: int) -> Path:
        path = live[whose[i]]
        return Path(
            nodes=(*path.nodes, int(others[i])),
            triplets=(*path.triplets, int(triplets[i])),
            cost=float(costs[i]),
        )

    def read(tied: list[int]) -> list[Any]:
        if (whose[tied] == whose[tied[0]]).all():  # they differ in the last hop only
            names = view.names(others[tied].tolist())
            return list(zip(map(view.text, triplets[tied].tolist()), names, strict=True))
        return _read(view, [extended(i) for i in tied])

    for i in best_first(costs, read):
        if len(survivors) == max_paths:
            return survivors, fallen
        if costs[i] >= limit:
            return None
        new = extended(i)
        if new.nodes[-1] in met:
            fallen[whose[i]] += 1
            continue
        met.add(new.nodes[-1])
        survivors.append(new)
    done = limit == math.inf or len(survivors) == max_paths
    return (survivors, fallen) if done else None


def _read(view: View, paths: Sequence[Path]) -> list[list[tuple[str, str]]]:
    """Return the texts of each path, hop by hop: the triplet and the node behind it."""
    names = iter(view.names(node for path in paths for node in path.nodes[1:]))
    return [[(view.text(triplet), next(names)) for triplet in path.triplets] for path in paths]


def _ranked(view: View, paths: Sequence[Path]) -> list[Path]:
    scores = np.array([path.score for path in paths])
    order = best_first(scores, lambda tied: _read(view, [paths[i] for i in tied]))
    return [paths[i] for i in order]
