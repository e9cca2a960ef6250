"""Who is meant: "I" in questions, short forms in a source, pronouns, "the same day"."""

from __future__ import annotations

from pathlib import Path

import pytest

from turngraph.data.memory_graph.extract.dates import find_dates
from turngraph.data.memory_graph.extract.rules import RulesExtractor
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode
from turngraph.data.memory_graph.plan.decompose import decompose
from turngraph.data.memory_graph.recall.word_vectors import word_vectors
from turngraph.data.memory_graph.turns import chat_episodes

NORA = "Nora Whelan"


@pytest.fixture
def graph(tmp_path: Path) -> MemoryGraph:
    return MemoryGraph.open(tmp_path / "my.db", word_vectors)


def linked(graph: MemoryGraph, way: str, question: str) -> set[str]:
    found = getattr(graph, way)(question)
    return {entity.name for entity in found.entities}


@pytest.mark.parametrize("way", ["ask", "ask_both", "ask_episodes", "ask_themes"])
def test_first_person_means_the_one_speaker_in_every_mode(graph: MemoryGraph, way: str) -> None:
    graph.remember("I live in Cork.", "2021", "diary", NORA)
    graph.remember("We went to Lisbon.", "2022", "diary", NORA)
    for question in ("Where do I live?", "What is my home?", "Where did we go?"):
        assert NORA in linked(graph, way, question)
    assert NORA not in linked(graph, way, "Where does Bert live?")
    graph.remember("I live in Oslo.", "2022", "letters", "Bert Moe")
    assert NORA not in linked(graph, way, "Where do I live?")


def test_the_user_of_a_chat_comes_first(graph: MemoryGraph) -> None:
    graph.remember("I live in Cork.", "2021", "diary", NORA)
    graph.remember_many(chat_episodes("I live in Lima.", "I see.", "2022", "chat", "chat 1"))
    assert linked(graph, "ask", "Where do I live?") >= {"user"}
    assert NORA not in linked(graph, "ask", "Where do I live?")


def test_plans_know_the_speaker(graph: MemoryGraph) -> None:
    graph.remember("I was born in Norway.", "2021", "diary", NORA)
    graph.remember("Jonas Store leads Norway.", "2021", "news")
    assert decompose("Who leads the country where I was born?") == (
        "country where I was born", "Who leads [1]",
    )  # fmt: skip
    assert len(decompose("Who is the sister of my boyfriend?")) == 1
    found = graph.ask_planned("Who leads the country where I was born?")
    assert found.plan is not None
    assert found.plan.subs[0].steps[0].answer == "Norway"


def test_a_short_form_means_the_longer_name_of_its_source(graph: MemoryGraph) -> None:
    graph.remember("We bought a Toyota Yaris.", "2021-01", "nora", NORA)
    graph.remember("The Yaris is red.", "2021-02", "nora", NORA)
    graph.remember("Saw the Kangoo beside the Renault Kangoo.", "2021-03", "nora", NORA)
    graph.remember("The Kangoo is old.", "2021-04", "nora", NORA)
    assert graph.show("Yaris").node == graph.show("Toyota Yaris").node
    assert any("red" in fact.text for fact in graph.show("Toyota Yaris").facts)


def test_other_sources_other_names_and_two_of_them_are_left_apart(graph: MemoryGraph) -> None:
    graph.remember("We bought a Toyota Corolla.", "2021-01", "nora", NORA)
    graph.remember("The Corolla is red.", "2021-02", "bert", "Bert Moe")
    assert graph.show("Corolla").node != graph.show("Toyota Corolla").node
    graph.remember("Moved to New York. Ate in York.", "2021-03", "nora", NORA)
    assert graph.show("York").node != graph.show("New York").node
    graph.remember("I know Ford Fiesta and Fiesta Mexicana.", "2021-04", "nora", NORA)
    graph.remember("The Fiesta was loud.", "2021-05", "nora", NORA)
    assert graph.show("Fiesta").node not in (
        graph.show("Ford Fiesta").node, graph.show("Fiesta Mexicana").node,
    )  # fmt: skip


def test_pronouns_lead_to_what_the_last_sentence_with_a_name_names() -> None:
    text = "Marta Kowalska lives in Lodz. It rained. Her dog is old. Bread is cheap."
    [found] = RulesExtractor().extract([Episode(text)])
    named = [set(thesis.entities) for thesis in found.theses]
    assert "Marta Kowalska" in named[2]
    assert "Marta Kowalska" not in named[3]


@pytest.mark.parametrize(
    ("text", "before", "day"),
    [
        ("The same day it rained.", "2021-05-03", "2021-05-03"),
        ("I left on that day.", "2021-05-03", "2021-05-03"),
        ("On 4 May 2021 I left, and that day it rained.", "2020-01-01", "2021-05-04"),
        ("The same day it rained.", "2021-05", None),
        ("The same day it rained.", None, None),
    ],
)
def test_the_same_day_is_the_last_one(text: str, before: str | None, day: str | None) -> None:
    found = [date.first for date in find_dates(text, None, before)]
    assert found[-1:] == ([] if day is None else [day])


def test_the_same_day_follows_the_sentences() -> None:
    text = "On 3 May 2021 Anna moved to Cork. The same day she met Bo Ek."
    [found] = RulesExtractor().extract([Episode(text, "2022-01-01")])
    assert [thesis.valid_from for thesis in found.theses] == ["2021-05-03", "2021-05-03"]
    assert "The same day (3 May 2021) she met Bo Ek." in found.theses[1].text
