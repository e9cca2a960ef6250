"""WaterCircles: circles worked by hand, the fast search beside a plain one, the budgets."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turngraph.data.memory_graph.memory_types import EPISODIC, SIMPLE, THESIS
from turngraph.data.memory_graph.recall import water_circles as module
from turngraph.data.memory_graph.recall.traverse_settings import WaterCircles
from turngraph.data.memory_graph.recall.water_circles import Circles, water_circles
from turngraph.tests.data.memory_graph.tiny_graphs import graphs
from turngraph.tests.data.memory_graph.tiny_view import TinyView

FEW = st.integers(0, 3)
SETTINGS = st.builds(
    WaterCircles,
    max_circles=st.integers(1, 3),
    hyper_num=FEW,
    episodic_num=FEW,
    chain_triplets_num=FEW,
    other_triplets_num=FEW,
    strict_filter=st.booleans(),
    max_width=st.sampled_from((1, 2, 1000)),
)
WIDE = replace(WaterCircles(), strict_filter=False)
TYPES = {
    "Anna met Bob in RÓME.": THESIS,
    "Bob is a fan of Romeo.": THESIS,
    "Bob slept.": THESIS,
    "Anna met Bob in Róme. Bob slept.": EPISODIC,
}
TRIPLES = [
    ("anna", "knows", "bob"),
    ("bob", "saw", "rome"),
    ("anna", "likes", "tea"),
    ("rome", "in", "italy"),
    ("bob", "likes", "ale"),
    ("bob", "", "Anna met Bob in RÓME."),
    ("anna", "", "Anna met Bob in RÓME."),
    ("bob", "", "Bob is a fan of Romeo."),
    ("bob", "", "Bob slept."),
    ("Bob slept.", "", "Anna met Bob in Róme. Bob slept."),
]
COSINES = {"bob likes ale": 0.9, "rome in italy": 0.8, "anna likes tea": 0.7, "bob saw rome": 0.6,
           "anna knows bob": 0.5, "Bob slept.": 0.9, "Bob is a fan of Romeo.": 0.3}  # fmt: skip
HAND = TinyView(TRIPLES, ["anna", "rome"], TYPES, COSINES)


def read(view: TinyView, found: Circles) -> tuple[list[str], ...]:
    lists = (found.theses, found.episodes, found.primary, found.secondary)
    return tuple(view.facts(keys) for keys in lists)


def test_one_circle_by_hand() -> None:
    # around anna: bob 1, tea 1, the meeting 1; around rome: bob 1, italy 1
    # anna-bob: bob is no nearer to anna than anna (0, 1), anna no nearer to rome than bob (far, 1):
    # they meet; bob-rome likewise; tea and italy are reached by one of them only
    # the meeting was walked by anna's circle and mentions rome, accents and case aside: 1
    assert read(HAND, water_circles(HAND, WaterCircles(max_circles=1))) == (
        ["Anna met Bob in RÓME."],
        [],
        ["bob saw rome", "anna knows bob"],
        ["rome in italy", "anna likes tea"],
    )


def test_two_circles_by_hand() -> None:
    # the second circles of both go from bob to ale, two more theses and his end of the meeting;
    # no episode is next to a node of the first
    # ale is 2 from both, and from both over bob: behind the point where they met, so secondary,
    # although closest to the question; it is of the second circle, tea and italy of the first
    # "Romeo" is no mention of rome: both theses count 0 and go by closeness, 0.9 before 0.3
    assert read(HAND, water_circles(HAND)) == (
        ["Anna met Bob in RÓME.", "Bob slept.", "Bob is a fan of Romeo."],
        [],
        ["bob saw rome", "anna knows bob"],
        ["rome in italy", "anna likes tea", "bob likes ale"],
    )


def test_the_strict_filter_keeps_triplets_that_join_two_entities_if_any() -> None:
    view = TinyView([*TRIPLES, ("anna", "left", "rome")], ["anna", "rome"], TYPES, COSINES)
    *_, primary, secondary = read(view, water_circles(view, WaterCircles(max_circles=1)))
    assert primary == ["anna left rome"]
    assert secondary == [
        "rome in italy",
        "anna likes tea",
    ]  # triplets in which circles met are in no list
    *_, primary, _ = read(view, water_circles(view, replace(WIDE, max_circles=1)))
    assert primary == ["bob saw rome", "anna knows bob", "anna left rome"]
    # in the second circle anna's water walks on from rome: italy's triplet names another entity
    *_, primary, secondary = read(view, water_circles(view, WIDE))
    assert primary == ["rome in italy", "anna likes tea", "bob saw rome", "anna knows bob",
                       "anna left rome"]  # fmt: skip
    assert secondary == ["bob likes ale"]


def test_the_question_s_spelling_counts_like_the_object_s_name() -> None:
    saw, slept, by_name = "Ada saw the Big-Apple.", "Ada slept.", "Ada left NEW York."
    triples = [("ada", "", text) for text in (saw, slept, by_name)]
    types = dict.fromkeys((saw, slept, by_name), THESIS)
    view = TinyView(triples, ["ada", "new york"], types, {slept: 0.9, saw: 0.5})
    assert view.facts(water_circles(view).theses) == [by_name, slept, saw]
    view.entities = (view.entities[0], view.entities[1]._replace(name="big apple"))
    assert view.facts(water_circles(view).theses) == [saw, by_name, slept]


def plain_circles(view: TinyView, start: int, chosen: WaterCircles) -> tuple[dict, dict, int]:
    """Hops by node, the circle of each walked triplet, nodes held back."""
    hops, circle_of, front, held = {start: 0}, {}, [start], 0
    for circle in range(1, chosen.max_circles + 1):
        led: dict[int, float] = {}
        for node in front:
            for t, other in zip(*(a.tolist() for a in view.around(node)), strict=True):
                circle_of.setdefault(t, circle)
                if hops.setdefault(other, circle) == circle:
                    led[other] = max(led.get(other, -2.0), view.cosines.get(view.text(t), 0))
        ranked = sorted(led, key=lambda node: (-led[node], view.names_of[node]))
        front = ranked[: chosen.max_width]
        held += len(ranked) - len(front) if circle < chosen.max_circles else 0
    return hops, circle_of, held


def plain_primary(
    view: TinyView, t: int, waters: dict[int, tuple[dict, dict, int]]
) -> tuple[bool, bool]:
    """Whether a simple triplet is primary, and whether it names two entities."""
    a, b = view.ends([t])[0].tolist()
    named = {a, b} & set(waters)
    walkers = [i for i, (_, circle_of, _) in waters.items() if t in circle_of]
    if any(named - {i} for i in walkers):
        return True, len(named) == 2
    far = 10**6
    for i, j in permutations(waters, 2):
        near_i, near_j = waters[i][0], waters[j][0]
        for u, v in ((a, b), (b, a)):
            out = u in near_i and near_i[u] <= near_i.get(v, far)
            back = v in near_j and near_j[v] <= near_j.get(u, far)
            if out and back:
                return True, len(named) == 2
    return False, len(named) == 2


def plain(view: TinyView, chosen: WaterCircles) -> tuple[list[str], ...]:
    """Search by the definition, one triplet at a time."""
    waters = {i: plain_circles(view, i, chosen) for i in view.question_nodes.tolist()}
    first: dict[int, int] = {}
    texts: dict[int, tuple[int, int]] = {}
    for i, (_, circle_of, _) in waters.items():
        for t, circle in circle_of.items():
            first[t] = min(circle, first.get(t, circle))
            key = int(view.fact_keys(np.array([t]))[0])
            others = [j for j in waters if j != i and view.mentions([key], view.names_of[j])[0]]
            if view.type_of(t) != SIMPLE:
                texts[key] = max(texts.get(key, (0, 0)), (len(others), t))
    rank = lambda t: (-view.cosines.get(view.text(t), 0), view.text(t))  # noqa: E731
    simple = sorted((t for t in first if view.type_of(t) == SIMPLE), key=rank)
    kind = {t: plain_primary(view, t, waters) for t in simple}
    primary = [t for t in simple if kind[t][0]]
    if chosen.strict_filter and any(kind[t][1] for t in primary):
        primary = [t for t in primary if kind[t][1]]
    secondary: list[int] = []
    for circle in range(1, chosen.max_circles + 1):
        rest = [t for t in simple if not kind[t][0] and first[t] == circle]
        secondary += rest[: chosen.other_triplets_num]
    ranked = sorted(texts, key=lambda key: (-texts[key][0], rank(texts[key][1])))
    theses = [view.fact_text(key) for key in ranked if view.node_types[key // 2] == THESIS]
    episodes = [view.fact_text(key) for key in ranked if view.node_types[key // 2] == EPISODIC]
    return (
        theses[: chosen.hyper_num],
        episodes[: chosen.episodic_num],
        view.texts(primary[: chosen.chain_triplets_num]),
        view.texts(secondary),
    )


@settings(max_examples=50, deadline=None)
@given(graphs(), SETTINGS)
def test_the_fast_circles_equal_the_plain_ones(graph: dict[str, Any], chosen: WaterCircles) -> None:
    view = TinyView(**graph)
    found = water_circles(view, chosen)
    assert read(view, found) == plain(view, chosen)
    held = [plain_circles(view, i, chosen)[2] for i in view.question_nodes.tolist()]
    assert found.held_back == sum(held)


def around_a_hub(seed: int) -> TinyView:
    """Return a view with a hub that is not linked, most of whose triplets are alike."""
    rng = np.random.default_rng(seed)
    triples = [("ada", "knows", "hub"), ("bo", "knows", "o3"), ("o5", "knows", "bo")]
    triples += [("bo", "knows", "hub")] * int(rng.integers(2))
    triples += [("o3", "sees", f"o{i}") for i in rng.choice(np.arange(10, 80), 6, replace=False)]
    for i in range(80):
        ends = ("hub", "likes", f"o{i}")
        triples.append(ends if rng.random() < 0.5 else ends[::-1])
    types = {}
    for i in range(90):
        named = rng.choice([*[""] * 40, "Ada ", "Bo ", "Ada and Bo "])
        text = f"{named}text {i}"
        types[text] = THESIS if i % 2 else EPISODIC
        triples += [("hub", "", text)] + [("bo", "", text)] * int(rng.random() < 0.1)
    texts = [f"{s} {r} {t}" if t not in types else t for s, r, t in triples]
    cosines = {text: round(float(rng.normal(0, 0.3)), 2) for text in sorted(set(texts))}
    order = rng.permutation(len(triples))
    return TinyView([triples[i] for i in order], ["ada", "bo"], types=types, cosines=cosines)


@pytest.mark.parametrize("seed", range(2))
def test_no_candidate_of_a_hub_is_left_out(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    may_be_chosen = module._may_be_chosen

    def counted(*args: Any) -> np.ndarray:
        kept.append((len(rows := may_be_chosen(*args)), len(args[3])))
        return rows

    monkeypatch.setattr(module, "_may_be_chosen", counted)
    monkeypatch.setattr(module, "SAMPLED", 4)
    view = around_a_hub(seed)
    for budget, width in product((0, 1, 2, 7), (5, 1000)):
        budgets = dict.fromkeys(("hyper_num", "episodic_num", "other_triplets_num"), budget)
        for depth in (1, 2, 3):
            chosen = WaterCircles(depth, chain_triplets_num=2 * budget, max_width=width, **budgets)
            assert read(view, water_circles(view, chosen)) == plain(view, chosen)
    assert any(rows < some / 2 for rows, some in kept)


@settings(deadline=None)
@given(graphs(min_starts=1), SETTINGS, st.integers(0, 2**32))
def test_approximate_cosines_change_nothing(
    graph: dict[str, Any], chosen: WaterCircles, seed: int
) -> None:
    view = TinyView(**graph)
    expected = water_circles(view, chosen)
    rng, facts_around = np.random.default_rng(seed), view.facts_around

    def rough(triplets: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        keys, cosines = facts_around(triplets, ends)
        return keys, cosines + rng.uniform(-0.0049, 0.0049, len(cosines))  # like a hub's

    view.facts_around = rough
    assert np.array_equal(water_circles(view, chosen).facts, expected.facts)
