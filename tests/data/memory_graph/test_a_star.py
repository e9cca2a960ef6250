"""A*: a path worked by hand, the fast search beside a plain one, the bounds."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from turngraph.data.memory_graph.recall.a_star import Routes, a_star
from turngraph.data.memory_graph.recall.traverse_settings import AStar
from turngraph.tests.data.memory_graph.tiny_graphs import graphs, networkx_of, shuffled
from turngraph.tests.data.memory_graph.tiny_view import TinyView

SETTINGS = st.builds(
    AStar,
    max_depth=st.integers(1, 6),
    max_expanded=st.sampled_from((2, 5, 150)),
)
# two paths from s to g: a short one over x, which is the opposite of g, and a long one over y and
# z, which resemble it. 1 - u . v: s 1 from all others, x 2 from y, z and g, these 0 from each other
VECTORS = {"s": [0, 1], "g": [1, 0], "x": [-1, 0], "y": [1, 0], "z": [1, 0]}
TRIPLES = [("s", "to", "x"), ("x", "to", "g"), ("s", "to", "y"), ("y", "to", "z"), ("g", "of", "z")]
HAND = TinyView(TRIPLES, ["s", "g"], vectors=VECTORS)


def named(view: TinyView, found: Routes) -> list[str]:
    return ["".join(view.names(route.nodes)) for route in found.routes]


def test_by_hand_the_longer_path_is_taken() -> None:
    # open: x 1 + 2 = 3, y 1 + 0 = 1; of y: z 2 + 0 = 2; of z: g 3 + 0 = 3, which ties with x and
    # reads before it, so that three nodes are expanded: s, y, z
    found = a_star(HAND)
    assert named(HAND, found) == ["syzg"]
    assert found.num_expanded == 3
    assert HAND.texts(found.triplets) == ["s to y", "y to z", "g of z"]


def test_of_parallel_triplets_the_closest_is_taken() -> None:
    triples = [("a", "likes", "b"), ("b", "sees", "a"), ("a", "hears", "b")]
    view = TinyView(triples, ["a", "b"], cosines={"b sees a": 0.5})
    assert view.texts(a_star(view).triplets) == ["b sees a"]
    tied = TinyView(triples, ["a", "b"])
    assert tied.texts(a_star(tied).triplets) == ["a hears b"]


def test_every_two_linked_objects_make_a_pair() -> None:
    view = TinyView([("a", "to", "b"), ("b", "to", "c")], ["c", "a", "d", "b"])
    found = a_star(view)
    assert found.num_pairs == 6
    assert named(view, found) == ["cba", "cb", "ab"]  # nothing leads to d
    assert a_star(TinyView(TRIPLES, ["s"])).num_pairs == 0
    assert a_star(TinyView(TRIPLES, ["s"])).triplets.tolist() == []


def plain_search(view: TinyView, start: int, goal: int, chosen: AStar) -> list[int] | None:
    """Search by the definition with a list of open nodes: (estimate, name), steps, path."""
    graph = networkx_of(view)
    vector = lambda node: view.node_vectors([node])[0].astype(float)  # noqa: E731
    ip = lambda u, v: 1 - float(vector(u) @ vector(v))  # noqa: E731
    opened: list[tuple[float, str, list[int]]] = [(0.0, "", [start])]
    best, expanded = {start: 0}, 0
    while opened:
        opened.sort(key=lambda entry: (round(entry[0], 5), entry[1]))
        _, _, way = opened.pop(0)
        node, steps = way[-1], len(way) - 1
        if node == goal:
            return way
        if steps > best[node] or steps == chosen.max_depth:
            continue
        if expanded == chosen.max_expanded:
            return None
        expanded += 1
        for other in sorted(set(graph.successors(node))):
            if best.get(other, 99) > steps + 1:
                best[other] = steps + 1
                estimate = steps + 1 + ip(other, goal)
                opened.append((estimate, view.names([other])[0], [*way, other]))
    return None


@settings(max_examples=50, deadline=None)
@given(graphs(min_starts=2), SETTINGS)
def test_the_fast_search_equals_the_plain_one(graph: dict[str, Any], chosen: AStar) -> None:
    view = TinyView(**graph)
    found = [route.nodes for route in a_star(view, chosen).routes]
    pairs = combinations(view.question_nodes.tolist(), 2)
    plain = [plain_search(view, *pair, chosen) for pair in pairs]
    assert found == [tuple(way) for way in plain if way]


@settings(max_examples=50, deadline=None)
@given(graphs(min_starts=2), SETTINGS, st.integers(0, 9))
def test_the_order_of_insertion_changes_nothing(
    graph: dict[str, Any], chosen: AStar, seed: int
) -> None:
    one, other = TinyView(**graph), shuffled(graph, seed)
    found, again = a_star(one, chosen), a_star(other, chosen)
    assert one.texts(found.triplets) == other.texts(again.triplets)
    assert found.num_expanded == again.num_expanded
