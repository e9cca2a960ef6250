"""A* search for a path between every two linked objects.

After PersonalAI (arXiv 2506.17001), section 3, "A*": every triplet costs 1, walked undirected, and
from a node v the goal is estimated to cost 1 - u . v of their unit embeddings (a time has none: 1).
The paper's estimates by hops are left out. This one is not admissible (it reaches 2 on edges of
cost 1), so a path need not be a shortest one: it leads through nodes that resemble the goal.
Choices that the paper leaves open:

- A pair is searched from the object that the question names first to the other.
- A node that is reached later by a shorter path is expanded again, and counts again towards
  ``max_expanded``.
- Ties are broken by the nodes' names. Between two nodes of the path, the triplet closest to the
  question is taken; ties are broken by its text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import combinations, pairwise

import numpy as np

from turngraph.data.memory_graph.recall.ranking import best_first, distinct, rounded
from turngraph.data.memory_graph.recall.traverse_settings import AStar
from turngraph.data.memory_graph.recall.view import View

BLOCK = 4096  # rows of vectors at once: bounds the memory that a hub's neighbours need

_Offer = tuple[np.ndarray, np.ndarray, np.ndarray]
"""The nodes that one expansion reaches, their estimates, and the steps to each."""


@dataclass(frozen=True, slots=True)
class Route:
    """A path between two linked objects: its nodes in order and one triplet for each step."""

    nodes: tuple[int, ...]
    triplets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Routes:
    """The paths that A* found, in the order of the pairs.

    Args:
        routes: one for every pair that was joined.
        num_pairs: pairs that were searched.
        num_expanded: nodes that were expanded, summed over all pairs.
    """

    routes: tuple[Route, ...]
    num_pairs: int
    num_expanded: int

    @property
    def triplets(self) -> np.ndarray:
        """Triplets of all routes, each once, in their order; int64."""
        triplets = dict.fromkeys(t for route in self.routes for t in route.triplets)
        return np.fromiter(triplets, np.int64)


def a_star(view: View, settings: AStar | None = None) -> Routes:
    """Find a path between every two linked objects, within the bounds of the settings.

    Args:
        view: the graph as the question sees it.
        settings: the bounds; None: the defaults.
    """
    settings = settings or AStar()
    pairs = list(combinations(view.question_nodes.tolist(), 2))
    searches = [_Search(view, start, goal, settings) for start, goal in pairs]
    paths = [path for search in searches if (path := search.run())]
    routes = tuple(Route(path, _triplets(view, path)) for path in paths)
    return Routes(routes, len(pairs), sum(search.num_expanded for search in searches))


def _triplets(view: View, path: tuple[int, ...]) -> tuple[int, ...]:
    """Return the triplet closest to the question for every step of a path."""
    return tuple(_closest_triplet(view, here, there) for here, there in pairwise(path))


def _closest_triplet(view: View, here: int, there: int) -> int:
    triplets, others = view.around(here)
    between = triplets[others == there]
    costs = -rounded(view.similarity(between))
    best = best_first(costs, lambda tied: [view.text(int(between[i])) for i in tied])
    return int(between[next(best)])


class _Search:
    """The search for one pair; its state is kept in arrays by node id.

    The nodes that one expansion reaches stay in an array that is sorted only as far as it is read.
    The heap holds only the best node of each expansion, so a hub costs no more than its arrays.
    """

    def __init__(self, view: View, start: int, goal: int, settings: AStar) -> None:
        self.view, self.start, self.goal, self.settings = view, start, goal, settings
        self.num_expanded = 0
        self.aim = view.node_vectors(np.array([goal]))[0]

    def run(self) -> tuple[int, ...] | None:
        """Return the nodes of the path; None if there is none within the bounds."""
        size = len(self.view.node_types)
        self.steps = np.zeros(size, np.int64)  # steps from the start plus 1; 0: not reached
        self.came_from = np.empty(size, np.int64)
        self.steps[self.start] = 1
        self.heap: list[tuple[float, str, int, int, Iterator[int], _Offer]] = []
        self._offer(np.array([self.start]), np.zeros(1))
        while self.heap:
            node, steps = self._next()
            if node == self.goal:
                return self._path()
            if steps != self.steps[node] or steps > self.settings.max_depth:
                continue
            if self.num_expanded == self.settings.max_expanded:
                return None
            self.num_expanded += 1
            self._expand(node)
        return None

    def _next(self) -> tuple[int, int]:
        """Pop the best open node and the steps with which it was offered."""
        _, _, node, steps, order, offer = heappop(self.heap)
        self._push(order, offer)
        return node, steps

    def _offer(self, nodes: np.ndarray, estimates: np.ndarray) -> None:
        order = best_first(estimates, lambda tied: self.view.names(nodes[tied].tolist()))
        self._push(order, (nodes, estimates, self.steps[nodes]))

    def _push(self, order: Iterator[int], offer: _Offer) -> None:
        """Put the next node of an expansion on the heap, if there is one."""
        if (i := next(order, None)) is not None:
            nodes, estimates, steps = offer
            node = int(nodes[i])
            name = self.view.names([node])[0]
            # equal estimate, name, node and steps cannot come from two expansions
            heappush(self.heap, (float(estimates[i]), name, node, int(steps[i]), order, offer))

    def _expand(self, node: int) -> None:
        """Offer the neighbours that this node reaches for the first time or by a shorter path."""
        steps = self.steps[node] + 1
        _, others = self.view.around(node)
        new, _ = distinct(others[(self.steps[others] == 0) | (self.steps[others] > steps)])
        self.steps[new] = steps
        self.came_from[new] = node
        self._offer(new, steps - 1 + self._estimate(new))

    def _estimate(self, nodes: np.ndarray) -> np.ndarray:
        """Return the estimated cost from each node to the goal."""
        blocks = [nodes[i : i + BLOCK] for i in range(0, len(nodes), BLOCK)]
        dots = [self.view.node_vectors(block) @ self.aim for block in blocks]
        return np.asarray(1 - rounded(np.concatenate([np.empty(0), *dots])))

    def _path(self) -> tuple[int, ...]:
        path = [self.goal]
        while path[-1] != self.start:
            path.append(int(self.came_from[path[-1]]))
        return tuple(reversed(path))
