"""Mixtures: their names, the union by fact, flat, and checks of the settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turngraph.configs.memory_schema import TRAVERSALS
from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.memory_types import EPISODIC, THESIS
from turngraph.data.memory_graph.recall.ranking import best_first, least
from turngraph.data.memory_graph.recall.traverse import traverse
from turngraph.data.memory_graph.recall.traverse_settings import (
    PPR,
    AStar,
    BeamSearch,
    Eigen,
    Flat,
    Traversal,
    WaterCircles,
    changed,
    parse_mixture,
)
from turngraph.tests.data.memory_graph.tiny_graphs import graphs
from turngraph.tests.data.memory_graph.tiny_view import TinyView

MIXTURES = st.lists(st.sampled_from(TRAVERSALS), min_size=1, unique=True).map(" + ".join)


def test_a_mixture_ignores_case_and_space() -> None:
    assert parse_mixture("BeamSearch + WaterCircles") == ("BeamSearch", "WaterCircles")
    assert parse_mixture(" a*+PPR  +flat+ppr ") == ("A*", "ppr", "flat")
    assert [parse_mixture(name) for name in TRAVERSALS] == [(name,) for name in TRAVERSALS]


@pytest.mark.parametrize("text", ["Beam", "", "A* + ", "A*, ppr", "BeamSearch WaterCircles"])
def test_an_unknown_name_is_an_error_that_lists_the_known_ones(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"known are BeamSearch, A\*, WaterCircles, flat, ppr, eigen"
    ):
        parse_mixture(text)
    with pytest.raises(ValueError, match="mixture "):
        Traversal(mixture=text)


@pytest.mark.parametrize(
    ("settings_of", "field", "value"),
    [
        (BeamSearch, "max_depth", 0),
        (BeamSearch, "max_paths", 0),
        (AStar, "max_depth", 0),
        (AStar, "max_expanded", -1),
        (WaterCircles, "max_circles", 0),
        (WaterCircles, "max_circles", 101),
        (WaterCircles, "max_width", 0),
        (WaterCircles, "hyper_num", -1),
        (WaterCircles, "episodic_num", -1),
        (WaterCircles, "chain_triplets_num", -1),
        (WaterCircles, "other_triplets_num", -1),
        (Flat, "top_k", 0),
        (PPR, "top_k", 0),
        (PPR, "damping", 1.0),
        (PPR, "num_rounds", 0),
        (PPR, "threshold", -1e-9),
        (Eigen, "top_k", 0),
        (Eigen, "gamma", float("nan")),
        (Eigen, "max_pops", 0),
    ],
)
def test_an_invalid_setting_is_named_with_its_value(
    settings_of: Any, field: str, value: Any
) -> None:
    with pytest.raises(
        ValueError, match=rf"{settings_of.__name__}\.{field}: {value!r} given, must"
    ):
        settings_of(**{field: value})


def test_a_fact_that_two_algorithms_find_counts_once() -> None:
    # each of the two walks to the thesis over another triplet: a's by the path, b's by the circle
    triples = [("a", "", "a and b"), ("b", "", "a and b"), ("a", "to", "c")]
    view = TinyView(triples, ["a", "b"], {"a and b": THESIS}, {"a to c": 0.5})
    found = traverse(view)
    # from a: c is closer and has no extension; the thesis, then b; from b likewise back to a
    assert view.facts(found.by["BeamSearch"]) == ["a to c", "a and b"]
    assert view.facts(found.by["WaterCircles"]) == ["a and b", "a to c"]
    assert view.facts(found.facts) == ["a to c", "a and b"]
    assert found.counts["WaterCircles"] == {"held_back": 0}
    # around a: the thesis and c; then b. Around b: the thesis; then a. The circle of neither
    # meets a third path, and every path but the linked objects' own is an extension
    assert found.counts["BeamSearch"]["begun"] == 2 + 6


def test_flat_finds_facts_that_no_path_leads_to() -> None:
    triples = [("a", "to", "b"), ("c", "to", "d"), ("c", "", "an episode")]
    view = TinyView(triples, [], {"an episode": EPISODIC}, {"c to d": 0.5, "an episode": 0.2})
    assert view.facts(traverse(view, Traversal("flat")).facts) == ["c to d", "an episode", "a to b"]
    assert view.facts(traverse(view, Traversal("flat", flat=Flat(1))).facts) == ["c to d"]
    for name in TRAVERSALS:
        found = traverse(view, Traversal(name))
        assert (len(found.facts) > 0) == (name in ("flat", "eigen"))  # no themes here


@settings(max_examples=50, deadline=None)
@given(graphs(), MIXTURES)
def test_a_mixture_is_the_union_by_fact(graph: dict[str, Any], mixture: str) -> None:
    view = TinyView(**graph)
    found = traverse(view, Traversal(mixture))
    alone = [traverse(view, Traversal(name)).facts for name in parse_mixture(mixture)]
    assert set(found.facts) == {key for facts in alone for key in facts}
    assert len(set(found.facts)) == len(found.facts)
    assert tuple(found.by) == tuple(found.counts) == parse_mixture(mixture)


@settings(max_examples=50, deadline=None)
@given(graphs(), st.integers(1, 9))
def test_flat_never_loses_a_closer_fact_to_a_farther_one(graph: dict[str, Any], top_k: int) -> None:
    view = TinyView(**graph)
    closeness = lambda keys: [view.cosines.get(view.fact_text(int(key)), 0) for key in keys]  # noqa: E731
    found = traverse(view, Traversal("flat", flat=Flat(top_k))).facts
    everything = sorted(closeness(view.nearest(999)))[::-1]
    assert closeness(found) == everything[:top_k]


@settings(max_examples=50)
@given(st.lists(st.integers(0, 50), max_size=3000), st.integers(1, 70))
def test_least_are_the_smallest_and_their_ties(values: list[int], k: int) -> None:
    bound = sorted(values)[:k][-1] if values else 0
    expected = [i for i, value in enumerate(values) if value <= bound]
    assert least(np.array(values, float), k).tolist() == expected


def test_least_are_the_smallest_where_the_sample_misleads() -> None:
    costs = np.zeros(10_000)
    costs[::10] = np.arange(-1000, 0)  # each one in the sample: 44 of them seem to be enough
    assert least(costs, 100).tolist() == list(range(0, 1000, 10))


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=500))
def test_best_first_equals_sorting(pairs: list[tuple[int, int]]) -> None:
    costs = np.array([cost for cost, _ in pairs], float)
    order = list(best_first(costs, lambda places: [pairs[i][1] for i in places]))
    assert order == sorted(range(len(pairs)), key=lambda i: pairs[i])


def test_numbers_of_a_traversal_are_changed_by_name() -> None:
    given = ["BeamSearch.max_depth=3", "A*.max_expanded=7", "ppr.damping=0.25"]
    found = changed(Traversal(), given)
    assert (found.beam_search.max_depth, found.beam_search.max_paths) == (3, 10)
    assert (found.a_star.max_expanded, found.ppr.damping) == (7, 0.25)
    assert changed(Traversal(), []) == Traversal()


@pytest.mark.parametrize(
    "text",
    ["max_depth=3", "BeamSearch.depth=3", "BeamSearch.max_depth=x", "ppr.weights=one",
     "WaterCircles.strict_filter=0", "BeamSearch.max_depth", "BeamSearch.max_depth=0"],
)  # fmt: skip
def test_what_is_no_number_of_a_traversal_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"setting|max_depth"):
        changed(Traversal(), [text])
