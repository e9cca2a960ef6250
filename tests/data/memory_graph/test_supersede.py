"""Contradictions: which facts are laid beside a new one, and what closing one does to both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import (
    Episode,
    Extraction,
    Fact,
    Replaced,
    Thesis,
    Triplet,
    Update,
)
from turngraph.data.memory_graph.times import now
from turngraph.inference.memory_printing import remembered_line
from turngraph.tests.data.memory_graph.scripted import Scripted, nothing, same_relation

Held = tuple[str, str | None, str | None]


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[MemoryGraph]:
    with MemoryGraph.open(tmp_path / "my.db", extractor=Scripted()) as graph:
        yield graph
        assert graph.check() == []


def held(graph: MemoryGraph, name: str = "Anna") -> list[Held]:
    """Object and times of every simple triplet of an object, in order of time."""
    facts = [fact for fact in graph.history(name) if fact.ends]
    return [(fact.ends[2], fact.valid_from, fact.valid_to) for fact in facts]


def closings(graph: MemoryGraph) -> int:
    return graph.store.db.execute("SELECT count(*) FROM supersessions").fetchone()[0]


def test_a_new_fact_closes_the_old_one_where_it_was_said(graph: MemoryGraph) -> None:
    graph.remember("Anna likes Paris", "2018")
    got = graph.remember("Anna likes Rome", "2020-05")
    assert (got.superseded, got.superseded_theses) == (2, 1)  # the triplet and the thesis
    assert "1 thesis and 1 triplet superseded" in remembered_line(got)
    assert held(graph) == [("Paris", None, "2020-05"), ("Rome", "2020-05", None)]
    theses = [(f.text, f.valid_from, f.valid_to) for f in graph.history("Anna") if not f.ends]
    assert theses == [
        ("Anna likes Paris", None, "2020-05"), ("Anna likes Rome", "2020-05", None),
    ]  # fmt: skip
    assert [fact.ends[2] for fact in graph.show("Anna").facts if fact.ends] == ["Rome"]


def test_the_boundary_is_where_the_new_fact_begins_by_its_text(graph: MemoryGraph) -> None:
    text = "Anna moved to Rome in 2019"
    said = Triplet("Anna", "likes", "Rome", valid_from="2019")
    graph.extractor.script = {text: Extraction((said,))}
    graph.remember("Anna likes Paris", "2018")
    graph.remember(text, "2021")
    assert held(graph) == [("Paris", None, "2019"), ("Rome", "2019", None)]


def test_without_any_time_the_boundary_is_now(graph: MemoryGraph) -> None:
    graph.remember("Anna likes Paris")
    before = now()
    graph.remember("Anna likes Rome")
    [(_, _, boundary), _] = held(graph)
    assert held(graph) == [("Paris", None, boundary), ("Rome", boundary, None)]
    assert before <= boundary <= now()


@pytest.mark.parametrize("batch", [1, 200])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0), (0, 2, 1)])
def test_what_is_remembered_late_finds_its_place(
    graph: MemoryGraph, order: tuple[int, ...], batch: int
) -> None:
    said = [("Paris", "2018"), ("Rome", "2019"), ("Oslo", "2020")]
    episodes = [Episode(f"Anna likes {said[i][0]}", said[i][1]) for i in order]
    graph.remember_many(episodes, batch=batch)
    assert [(name, to) for name, _, to in held(graph)] == [
        ("Paris", "2019"), ("Rome", "2020"), ("Oslo", None),
    ]  # fmt: skip
    begins = [begin for _, begin, _ in held(graph)]
    assert begins == [None, "2019", "2020"]


def test_a_correction_in_the_same_text_and_the_correction_of_it(graph: MemoryGraph) -> None:
    text = "Anna likes Paris, no, Rome, no, Paris after all"
    cities = ("Paris", "Rome", "Paris")
    said = [Triplet("Anna", "likes", city, span=(i, i + 1)) for i, city in enumerate(cities)]
    graph.extractor.script = {text: Extraction(tuple(said))}
    graph.remember(text, "2020")
    assert held(graph) == [
        ("Paris", None, "2020"), ("Rome", "2020", "2020"), ("Paris", "2020", None),
    ]  # fmt: skip


def test_what_is_said_again_after_it_was_closed_is_a_new_fact(graph: MemoryGraph) -> None:
    for year, city in (("2018", "Paris"), ("2019", "Rome"), ("2020", "Paris"), ("2021", "Paris")):
        graph.remember(f"Anna likes {city}", year)
    assert held(graph) == [
        ("Paris", None, "2019"), ("Rome", "2019", "2020"), ("Paris", "2020", None),
    ]  # fmt: skip
    old, new = (f for f in graph.history("Anna") if f.ends and f.ends[2] == "Paris")
    assert [[place.said for place in f.provenance] for f in (old, new)] == [
        ["2018"], ["2020", "2021"],
    ]  # fmt: skip


def test_what_is_known_to_have_ended_is_one_fact_however_often_it_is_said(
    graph: MemoryGraph,
) -> None:
    said = Triplet("Anna", "likes", "Paris", "2010", "2015")
    graph.extractor.script = {f"text {i}": Extraction((said,)) for i in range(3)}
    graph.remember_many([Episode("text 0", "2020"), Episode("text 1", "2021")])
    graph.remember("text 2", "2022")
    assert held(graph) == [("Paris", "2010", "2015")]


def test_hypotheses_close_nothing_and_are_other_facts(graph: MemoryGraph) -> None:
    maybe = Triplet("Anna", "likes", "Rome", hypothesis=True)
    thesis = Thesis("Anna likes Rome", ("Anna",), hypothesis=True)
    graph.extractor.script = {"maybe": Extraction((maybe,), (thesis,))}
    graph.remember("Anna likes Paris", "2018")
    graph.remember("maybe", "2019")
    assert closings(graph) == 0
    assert all(not new.hypothesis for new, _ in graph.extractor.judged)
    graph.remember("Anna likes Rome", "2020")  # which is more than a guess
    facts = {(f.ends[2], f.hypothesis): f.valid_to for f in graph.history("Anna") if f.ends}
    assert facts == {("Paris", False): "2020", ("Rome", True): "2020", ("Rome", False): None}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_plan_closes_what_is_said_after_it(graph: MemoryGraph, order: tuple[int, int]) -> None:
    """A fact that begins later than it is said ends what holds until then, said before or after."""
    plan = Extraction((Triplet("Anna", "likes", "Rome", valid_from="2020"),))
    graph.extractor.script = {"Rome from 2020": plan}
    said = [("Rome from 2020", "2018"), ("Anna likes Paris", "2019")]
    for index in order:
        graph.remember(*said[index])
    assert [fact[0] for fact in held(graph)] == ["Paris", "Rome"]
    assert held(graph)[0][2] == held(graph)[1][1] == "2020"


def test_what_had_ended_when_it_was_said_closes_nothing(graph: MemoryGraph) -> None:
    past = Extraction((Triplet("Anna", "likes", "Rome", valid_to="2010"),))
    graph.extractor.script = {"Rome until 2010": past}
    graph.remember("Anna likes Paris", "2018")
    graph.remember("Rome until 2010", "2019")
    assert sorted(held(graph)) == [("Paris", None, None), ("Rome", None, "2010")]


def test_a_late_fact_is_not_closed_by_a_hypothesis(graph: MemoryGraph) -> None:
    maybe = Triplet("Anna", "likes", "Rome", hypothesis=True)
    graph.extractor.script = {"maybe": Extraction((maybe,))}
    graph.remember("maybe", "2020")
    graph.remember("Anna likes Paris", "2019")
    assert closings(graph) == 0


def asked_about(graph: MemoryGraph, text: str) -> list[str]:
    """The texts beside which a text's triplet was laid."""
    graph.extractor.judged.clear()
    graph.remember(text)
    [facts] = [facts for new, facts in graph.extractor.judged if isinstance(new, Triplet)]
    return [fact.text for fact in facts]


def test_the_facts_around_both_ends_are_laid_beside_a_new_one(graph: MemoryGraph) -> None:
    graph.extractor.judge = nothing
    for text in ("Anna likes Paris", "Bob owns Rome", "Rome borders Lazio", "Carl likes Oslo"):
        graph.remember(text)
    assert asked_about(graph, "anna likes ROME") == [
        "Anna likes Paris", "Rome borders Lazio", "Bob owns Rome",
    ]  # fmt: skip


def test_an_old_fact_of_a_hub_is_still_in_sight(graph: MemoryGraph) -> None:
    graph.extractor.judge = nothing
    graph.remember("Anna inhabits Paris")
    graph.remember("Anna likes Rome")
    graph.remember_many([Episode(f"Anna knows P{i}") for i in range(200)])
    facts = asked_about(graph, "Anna likes Oslo")
    assert facts[0] == "Anna likes Rome"
    assert facts[1:41] == [f"Anna knows P{i}" for i in range(199, 159, -1)]
    assert "Anna inhabits Paris" in facts[41:]
    assert len(facts) < 45
    # and the thesis that said what a new triplet replaces is found through it
    graph.extractor.judge = same_relation
    graph.remember("Anna inhabits Bonn", "2030")
    theses = {f.text: f.valid_to for f in graph.history("Paris") if not f.ends}
    assert theses == {"Anna inhabits Paris": "2030"}


def test_theses_around_the_entities_those_that_share_most_first(graph: MemoryGraph) -> None:
    graph.extractor.judge = nothing
    for text in (
        "Anna and Bob met.",
        "Bob and Carl met.",
        "Anna and Bob and Carl met.",
        "Eva ran.",
    ):
        graph.remember(text)
    graph.extractor.judged.clear()
    graph.remember("Anna and Bob and Carl fought.")
    [(_, facts)] = graph.extractor.judged
    assert [fact.text for fact in facts] == [
        "Anna and Bob and Carl met.", "Bob and Carl met.", "Anna and Bob met.",
    ]  # fmt: skip


def by_name(update: Update) -> list[int]:
    """As ``given`` does: what a statement names, by its words."""

    def fits(fact: Fact, named: Replaced) -> bool:
        if named.text is not None:
            return fact.text.casefold() == named.text.casefold()
        wanted = (named.subject, named.relation, named.object)
        ends = fact.ends or (None, None, None)
        return all(a is None or a == b for a, b in zip(wanted, ends, strict=True))

    return [f.key for f in update.known if any(fits(f, n) for n in update.new.replaces)]


@pytest.mark.parametrize(
    ("replaces", "gone"),
    [
        (Replaced("Anna", "likes", "Paris"), ["Anna likes Paris"]),
        (Replaced("Anna"), ["Anna likes Paris", "Anna owns Cats"]),
        (Replaced(object="Cats"), ["Anna owns Cats", "Bob owns Cats"]),
        (Replaced(text="bob owns cats"), ["Bob owns Cats"]),
        (Replaced("Nobody"), []),
    ],
)
def test_what_a_statement_names_is_found_wherever_it_is(
    graph: MemoryGraph, replaces: Replaced, gone: list[str]
) -> None:
    graph.extractor.judge = by_name
    for text in ("Anna likes Paris", "Anna owns Cats", "Bob owns Cats"):
        graph.remember(text, "2020")
    new = Thesis("All is new.", ("Zoe",), replaces=(replaces,))
    graph.extractor.script = {"news": Extraction((Triplet("Anna", "eats", "Cats"),), (new,))}
    graph.remember("news", "2021")
    closed = [f for name in ("Anna", "Bob") for f in graph.history(name) if f.valid_to == "2021"]
    wanted = "thesis" if replaces.text else "simple"
    assert sorted({f.text for f in closed if f.type == wanted}) == gone
    assert all(f.valid_to is None for f in graph.history("Anna") if f.text == "Anna eats Cats")
