"""Personalised PageRank: flows worked by hand, networkx beside it, facts by their nodes."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turngraph.data.memory_graph.memory_types import EPISODIC, THESIS, TIME
from turngraph.data.memory_graph.recall.pagerank import ppr, spread
from turngraph.data.memory_graph.recall.traverse_settings import PPR
from turngraph.tests.data.memory_graph.tiny_graphs import graphs, networkx_of, shuffled
from turngraph.tests.data.memory_graph.tiny_view import TinyView

EXACT = PPR(num_rounds=60, threshold=0)


def scores(view: TinyView, chosen: PPR = EXACT) -> dict[str, float]:
    flow = spread(view, chosen)
    return {name: float(flow.scores[node]) for name, node in view.ids.items()}


def test_facts_by_hand() -> None:
    types = {"a met b": THESIS, "long ago": EPISODIC, "1999": TIME}
    triples = [("q", "to", "a"), ("q", "", "a met b"), ("a met b", "", "long ago"),
               ("1999", "", "long ago")]  # fmt: skip
    view = TinyView(triples, ["q"], types)
    # round 1: q keeps 1/2, sends 1/4 to a and to the thesis
    # round 2: each keeps 1/8; a sends 1/8 to q, the thesis 1/16 to q and to the episode
    # and stays there: q 1/2 + 3/16, a 1/8, thesis 1/8, episode 1/16; the time is not walked
    expected = {"q": 11 / 16, "a": 1 / 8, "a met b": 1 / 8, "long ago": 1 / 16, "1999": 0}
    assert scores(view, PPR(num_rounds=2)) == pytest.approx(expected)
    # over q-a flow 1/4 and 1/8, of which half would stay
    found = ppr(view, PPR(num_rounds=2))
    assert view.facts(found.facts) == ["q to a", "a met b", "long ago"]
    assert found.scores == pytest.approx([3 / 16, 1 / 8, 1 / 16])
    assert found.num_walked == 2 + 3
    assert view.facts(ppr(view, PPR(top_k=1)).facts) == ["q to a"]


def test_an_amount_below_the_threshold_stays_unwalked() -> None:
    names = [f"n{i}" for i in range(100)]
    view = TinyView([("q", "to", name) for name in names], ["q"])
    found = spread(view, PPR(threshold=0.01))  # each gets 1/2 / 100
    assert found.num_walked == 100
    assert found.scores[view.ids["n7"]] == pytest.approx(0.005)
    assert found.scores.sum() == pytest.approx(1)


def test_without_a_linked_object_or_a_triplet_no_fact_is_found() -> None:
    assert ppr(TinyView([("a", "to", "b")])).facts.tolist() == []
    alone = TinyView([("a", "to", "b")], ["q"])
    assert ppr(alone).facts.tolist() == []
    assert scores(alone, PPR())["q"] == pytest.approx(1)
    # q has no neighbours: its score is shared with the other linked object
    two = TinyView([("a", "to", "b")], ["q", "a"])
    assert scores(two, PPR(num_rounds=1)) == pytest.approx({"q": 3 / 8, "a": 3 / 8, "b": 1 / 4})


def peer(view: TinyView, damping: float) -> dict[int, float]:
    """Return PageRank by networkx without times; weights of parallel triplets are added up."""
    graph = nx.DiGraph()
    graph.add_nodes_from(n for n in view.ids.values() if view.node_types[n] != TIME)
    for u, v in networkx_of(view).edges():
        if TIME not in (view.node_types[u], view.node_types[v]):
            before = graph.get_edge_data(u, v, {"weight": 0})["weight"]
            graph.add_edge(u, v, weight=before + 1)
    starts = dict.fromkeys(view.question_nodes.tolist(), 1)
    return nx.pagerank(graph, damping, starts, tol=1e-14, max_iter=2000)


@settings(max_examples=30, deadline=None)
@given(graphs(min_starts=1), st.sampled_from((0.3, 0.5, 0.7)))
def test_scores_equal_those_of_networkx(graph: dict[str, Any], damping: float) -> None:
    view = TinyView(**graph)
    flow = spread(view, PPR(damping=damping, num_rounds=60, threshold=0))
    for node, score in peer(view, damping).items():
        assert flow.scores[node] == pytest.approx(score, abs=1e-8)


@settings(max_examples=50, deadline=None)
@given(graphs(), st.integers(1, 6), st.integers(0, 9))
def test_the_order_of_insertion_changes_nothing(
    graph: dict[str, Any], top_k: int, seed: int
) -> None:
    one, other = TinyView(**graph), shuffled(graph, seed)
    found, again = (ppr(view, PPR(top_k=top_k)) for view in (one, other))
    assert one.facts(found.facts) == other.facts(again.facts)
    assert found.scores == pytest.approx(again.scores)


@settings(max_examples=50, deadline=None)
@given(graphs(), st.integers(1, 9))
def test_restrictions_budget_and_order_hold(graph: dict[str, Any], top_k: int) -> None:
    view = TinyView(**graph)
    found = ppr(view, PPR(top_k=top_k))
    assert len(set(found.facts.tolist())) == len(found.facts) <= top_k
    assert (np.diff(found.scores) <= 0).all()
    assert (found.scores >= 0).all()
    for key in found.facts.tolist():
        nodes = view.ends([key // 2])[0].tolist() if key % 2 else [key // 2]
        assert all(view.allowed(node) for node in nodes)
