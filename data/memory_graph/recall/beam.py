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

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import islice

import numpy as np

from data.memory_graph.recall.ranking import best_first, cost_of, rounded
from data.memory_graph.recall.traverse_settings import BeamSearch
from data.memory_graph.recall.view import View


@dataclass(frozen=True, slots=True)
class Path:
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
    paths: list[Path] = []
    counts = PathCounts()
    for start in view.question_nodes.tolist():
        found, account = _search(near, start, settings)
        paths += found
        counts += account
    return Beams(tuple(paths), counts)


@dataclass(frozen=True, slots=True)
class _Around:
    """The triplets at a node (rising), the nodes behind them, and what a step over each costs."""

    triplets: np.ndarray
    others: np.ndarray
    costs: np.ndarray


class _Surroundings:
    """What lies around nodes, looked up once a question: many paths come to the same hub."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._known: dict[int, _Around] = {}
        self._taken = np.zeros(len(view.node_types), bool)

    def of(self, node: int) -> _Around:
        """What lies around one node."""
        if node not in self._known:
            triplets, others = self.view.around(node)
            costs = cost_of(rounded(self.view.similarity(triplets)))
            self._known[node] = _Around(triplets, others, costs)
        return self._known[node]

    def free(self, node: int, nodes: set[int], triplets: set[int]) -> np.ndarray:
        """Which of the triplets around a node are none of these and lead to none of these nodes."""
        around, few = self.of(node), list(nodes)
        self._taken[few] = True
        free = ~self._taken[around.others]
        self._taken[few] = False
        if len(free):
            held = np.fromiter(triplets, np.int64, len(triplets))
            places = np.minimum(np.searchsorted(around.triplets, held), len(free) - 1)
            free[places[around.triplets[places] == held]] = False
        return free


def _search(near: _Surroundings, start: int, settings: BeamSearch) -> tuple[list[Path], PathCounts]:
    live, ended = [Path((start,))], []
    counts = PathCounts(begun=1)
    for _ in range(settings.max_depth):
        if not live:
            break
        live, stuck, account = _deepen(near, live, settings)
        ended += stuck
        counts += account
    kept = _final(near.view, ended, live, settings)
    cut = len(ended) + len(live) - len(kept)
    return kept, counts + PathCounts(ended=len(ended), continuous=len(live), cut=cut)


def _deepen(
    near: _Surroundings, live: Sequence[Path], settings: BeamSearch
) -> tuple[list[Path], list[Path], PathCounts]:
    """One depth: the paths that survive, those that have ended, and what became of the others."""
    free = [_free(near, path, live, settings) for path in live]
    survivors, fallen = _take(near, live, free, settings)
    offered = [int(np.count_nonzero(allowed)) for allowed in free]
    ended = [path for i, path in enumerate(live) if offered[i] == fallen[i]]
    begun, fell = sum(offered), sum(fallen)
    dropped = begun - fell - len(survivors)
    extended = len(live) - len(ended)
    return survivors, ended, PathCounts(begun, extended, fallen=fell, dropped=dropped)


def _free(
    near: _Surroundings, path: Path, live: Sequence[Path], settings: BeamSearch
) -> np.ndarray:
    """Which of the triplets at a path's end it may take."""
    others = [other for other in live if other is not path]
    nodes = set(path.nodes[-2:-1] if settings.same_path_intersection_by_node else path.nodes)
    triplets = set(path.triplets)
    if not settings.diff_paths_intersection_by_node:
        nodes.update(*(other.nodes for other in others))
    if not settings.diff_paths_intersection_by_rel:
        triplets.update(*(other.triplets for other in others))
    return near.free(path.nodes[-1], nodes, triplets)


def _take(
    near: _Surroundings, live: Sequence[Path], free: Sequence[np.ndarray], settings: BeamSearch
) -> tuple[list[Path], list[int]]:
    """The best extensions that do not meet each other, and how many of each path fell away."""
    around = [near.of(path.nodes[-1]) for path in live]
    steps = zip(live, around, free, strict=True)
    costs = np.concatenate([np.where(may, path.cost + a.costs, np.inf) for path, a, may in steps])
    starts = np.cumsum([0, *(len(may) for may in free)])
    survivors: list[Path] = []
    fallen = [0] * len(live)
    nodes, triplets = set[int](), set[int]()

    def extended(i: int) -> tuple[int, Path]:
        """Whose extension stands at a place of ``costs``, and what it is."""
        whose = int(np.searchsorted(starts, i, "right")) - 1
        path, a, j = live[whose], around[whose], i - starts[whose]
        walked = (*path.nodes, int(a.others[j])), (*path.triplets, int(a.triplets[j]))
        return whose, Path(*walked, float(costs[i]))

    for i in best_first(costs, lambda i: _reads(near.view, extended(i)[1])):
        if len(survivors) == settings.max_paths:
            break
        whose, new = extended(i)
        node, triplet = new.nodes[-1], new.triplets[-1]
        by_node = node in nodes and not settings.diff_paths_intersection_by_node
        if by_node or (triplet in triplets and not settings.diff_paths_intersection_by_rel):
            fallen[whose] += 1
            continue
        nodes.add(node)
        triplets.add(triplet)
        survivors.append(new)
    return survivors, fallen


def _reads(view: View, path: Path) -> tuple[tuple[str, str], ...]:
    """What a path says, hop by hop."""
    names = view.names(path.nodes[1:])
    return tuple((view.text(t), name) for t, name in zip(path.triplets, names, strict=True))


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
        order = best_first(scores, lambda i, paths=paths: _reads(view, paths[i]))
        ranked += [paths[i] for i in order]
    return list(islice(ranked, settings.max_paths))
