"""BeamSearch: a graph worked by hand, the fast search beside the plain definition, the counts."""

from __future__ import annotations

from math import log
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turngraph.data.memory_graph.recall import beam_search as module
from turngraph.data.memory_graph.recall.beam_search import Path, PathCounts, beam_search
from turngraph.data.memory_graph.recall.traverse_settings import BeamSearch
from turngraph.tests.data.memory_graph.tiny_graphs import graphs
from turngraph.tests.data.memory_graph.tiny_view import TinyView

SETTINGS = st.builds(
    BeamSearch,
    max_depth=st.integers(1, 4),
    max_paths=st.integers(1, 4),
)
# costs: cos 1 -> s 1 -> 0; cos 0.5 -> s 0.75 -> 0.2877; cos 0 -> s 0.5 -> 0.6931
COSINES = {"q to a": 1.0, "q to b": 0.5, "b to d": 0.5, "d to f": 1.0}  # all others 0
TRIPLES = [("q", "to", "a"), ("q", "to", "b"), ("c", "to", "q"), ("a", "to", "d"),
           ("b", "to", "d"), ("b", "to", "e"), ("d", "to", "f")]  # fmt: skip
HAND = TinyView(TRIPLES, ["q"], cosines=COSINES)


def named(view: TinyView, paths: tuple[Path, ...]) -> list[str]:
    return ["".join(view.names(path.nodes)) for path in paths]


def test_a_search_by_hand() -> None:
    # depth 1: qa 0, qb 0.2877, qc 0.6931: two survive, qc is dropped
    # depth 2: qbd 0.2877 + 0.2877 = 0.5754 first; qad 0.6931 meets d and falls away, so qa has
    #          ended; qbe 0.2877 + 0.6931 = 0.9808 is the second to survive
    # depth 3: qbdf 0.5754 + 0, qbda 0.5754 + 0.6931 = 1.2685 (a is free, qa is not live): both
    #          survive and are continuous; qbe has ended at a leaf
    # scores:  qa 0 / 1 = 0; qbdf 0.5754 / 3 ** 0.75 = 0.2524; qbda 1.2685 / 2.2795 = 0.5565;
    #          qbe 0.9808 / 2 ** 0.75 = 0.5832
    found = beam_search(HAND, BeamSearch(max_depth=3, max_paths=2))
    assert named(HAND, found.paths) == ["qa", "qbdf"]
    assert [path.score for path in found.paths] == pytest.approx([0, 0.2524], abs=1e-4)
    assert HAND.texts(found.triplets) == ["q to a", "q to b", "b to d", "d to f"]
    # begun: q, then 3 + 3 + 2 extensions; extended: q, qb, qbd
    assert found.counts == PathCounts(9, 3, ended=2, continuous=2, fallen=1, dropped=1, cut=2)


def test_without_neighbours_a_path_ends_where_it_began() -> None:
    view = TinyView([], ["q"])
    found = beam_search(view)
    assert found.counts == PathCounts(begun=1, ended=1)
    assert found.paths == (Path((1,)),)
    assert found.triplets.tolist() == []
    assert beam_search(TinyView(TRIPLES)).counts == PathCounts()


def reads(view: TinyView, path: Path) -> list[tuple[str, str]]:
    return list(zip(view.texts(path.triplets), view.names(path.nodes[1:]), strict=True))


def plain_extensions(view: TinyView, path: Path, live: list[Path]) -> list[Path]:
    """Search by the definition, step by step."""
    found = []
    others = [other for other in live if other != path]
    for t, v in zip(*(a.tolist() for a in view.around(path.nodes[-1])), strict=True):
        node = any(v in o.nodes for o in others)
        rel = any(t in o.triplets for o in others)
        if not (v in path.nodes or node or rel or t in path.triplets):
            cosine = view.cosines.get(view.text(t), 0)
            cost = path.cost - log(max((1 + cosine) / 2, 1e-6))
            found.append(Path((*path.nodes, v), (*path.triplets, t), cost))
    return found


def plain_search(view: TinyView, start: int, chosen: BeamSearch) -> tuple[list[Path], int, int]:
    """Kept paths, how many fell away and how many were dropped."""
    live, ended, fallen, dropped = [Path((start,))], [], 0, 0
    for _ in range(chosen.max_depth):
        offers = [(new, path) for path in live for new in plain_extensions(view, path, live)]
        offers.sort(key=lambda offer: (round(offer[0].cost, 9), reads(view, offer[0])))
        survivors, going = [], set()
        for new, path in offers:
            met = any(new.nodes[-1] == o.nodes[-1] for o in survivors)
            crossed = any(new.triplets[-1] == o.triplets[-1] for o in survivors)
            if len(survivors) == chosen.max_paths:
                dropped += 1
                going.add(path)
            elif met or crossed:
                fallen += 1
            else:
                survivors.append(new)
                going.add(path)
        ended += [path for path in live if path not in going]
        live = survivors
    score = lambda p: round(p.cost / max(len(p.triplets), 1) ** 0.75, 9)  # noqa: E731
    all_paths = sorted([*ended, *live], key=lambda path: (score(path), reads(view, path)))
    return all_paths[: chosen.max_paths], fallen, dropped


@pytest.mark.parametrize("near", [1, module.NEAR])  # every node of five triplets is a hub, or none
@settings(max_examples=50, deadline=None)
@given(graphs(), SETTINGS)
def test_the_fast_search_equals_the_plain_one(
    near: int, graph: dict[str, Any], chosen: BeamSearch
) -> None:
    view = TinyView(**graph)
    with patch.object(module, "NEAR", near):
        found = beam_search(view, chosen)
    plain = [plain_search(view, start, chosen) for start in view.question_nodes.tolist()]
    assert [reads(view, p) for p in found.paths] == [
        reads(view, p) for ps, _, _ in plain for p in ps
    ]
    assert [p.cost for p in found.paths] == pytest.approx(
        [p.cost for ps, _, _ in plain for p in ps]
    )
    assert found.counts.fallen == sum(fallen for _, fallen, _ in plain)
    assert found.counts.dropped == sum(dropped for _, _, dropped in plain)


def test_a_hub_reads_no_texts_without_ties() -> None:
    class Counting(TinyView):
        read_texts = 0

        def text(self, triplet: int) -> str:
            self.read_texts += 1
            return super().text(triplet)

    names = [f"n{i}" for i in range(1000)]
    cosines = {f"q knows {name}": i / 1000 for i, name in enumerate(names)}
    view = Counting([("q", "knows", name) for name in names], ["q"], cosines=cosines)
    view.similarity = lambda ts: ts / 1000  # type: ignore[method-assign]
    found = beam_search(view, BeamSearch(1, 10))
    assert found.counts == PathCounts(1001, 1, continuous=10, dropped=990)
    assert found.triplets.tolist() == list(range(999, 989, -1))
    assert view.read_texts == 0  # nothing ties
