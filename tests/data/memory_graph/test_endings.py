"""Statements that newer ones may have ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode, Fact, Provenance
from turngraph.data.memory_graph.plan.steps import PlanSettings
from turngraph.data.memory_graph.recall.recollection import first_facts, newer_first
from turngraph.data.memory_graph.recall.word_vectors import word_vectors
from turngraph.data.memory_graph.turns import TurnExtractor
from turngraph.inference.memory_printing import validity
from turngraph.inference.model_options import EMBEDDER, make_embed

SAID = (
    ("2021-03-15", "I gave up chocolate. It rained."),
    ("2021-05-02", "My hamster Pico is ill."),
    ("2021-06-01", "Bought apples at the market in Kiel."),
    ("2021-09-09", "Pico died."),
    ("2022-02-13", "So much for no chocolate, I had three bars."),
)
LATER = (
    *("Pico ran in the wheel all night.", "Pico ate a whole carrot.", "Pico has a new wheel."),
    *("Bought straw for the cage.", "Pico sleeps in the straw.", "Baked a carrot cake."),
    *("Ate a cake with nuts.", "Nuts and cake for breakfast.", "Baked bread with nuts."),
    *("The bread and the cake were good.", "Made a chocolate cake."),
)
"""Enough for themes: said in June 2021, a day each."""
ENDED = {"I gave up chocolate.": SAID[4][1], SAID[1][1]: SAID[3][1]}


def fill(path: Path, embed: object) -> MemoryGraph:
    graph = MemoryGraph.open(path, embed, TurnExtractor())  # type: ignore[arg-type]
    graph.remember_many([Episode(text, time, "diary", time, "Ulf") for time, text in SAID])
    return graph


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryGraph]:
    path = tmp_path_factory.mktemp("endings") / "my.db"
    with fill(path, make_embed(EMBEDDER)) as graph:
        yield graph


def ended(facts: tuple[Fact, ...]) -> dict[str, str]:
    """Return the sentences that are marked, with what may have ended them."""
    text = {fact.key: fact.text.removeprefix("Ulf: ") for fact in facts}
    return {
        text[fact.key]: text[fact.may_have_ended]
        for fact in facts
        if fact.type != "simple" and fact.may_have_ended is not None
    }


def test_who_died_and_what_was_given_in_to_is_marked_and_stands_behind(graph: MemoryGraph) -> None:
    for question in ("How is Pico?", "Do I eat chocolate?"):
        facts = graph.ask_both(question).facts
        found = ended(facts)
        assert found
        assert found.items() <= ENDED.items()
        shown = [fact.text.removeprefix("Ulf: ") for fact in facts]
        assert all(shown.index(new) < shown.index(old) for old, new in found.items())
        assert all(fact.may_have_ended is None for fact in facts if "It rained" in fact.text)


def test_facts_are_marked_by_newer_statements_about_their_subject(graph: MemoryGraph) -> None:
    """As before computing: the newer statement is not among the facts."""
    ill = [fact for fact in graph.history("Pico") if "is ill" in fact.text]
    assert ill
    assert all(fact.may_have_ended is not None for fact in graph.marked(ill))
    died = [fact for fact in graph.history("Pico") if "died" in fact.text]
    assert [fact.may_have_ended for fact in graph.marked(died)] == [None] * len(died)


def test_whole_texts_are_marked_and_stand_behind(graph: MemoryGraph) -> None:
    by_plan = graph.ask_planned("How is Pico?", settings=PlanSettings(over="episodes"))
    for facts in (graph.ask_episodes("How is Pico?").facts, by_plan.facts):
        assert ended(facts) == {SAID[1][1]: SAID[3][1]}  # of the first text "It rained" still holds
        shown = [fact.text for fact in facts]
        assert shown.index(SAID[3][1]) < shown.index(SAID[1][1])


def test_statements_of_themes_are_marked_and_stand_directly_behind(tmp_path: Path) -> None:
    with fill(tmp_path / "themes.db", make_embed(EMBEDDER)) as graph:
        days = enumerate(LATER, 10)
        graph.remember_many(
            Episode(text, f"2021-06-{day}", "diary", text, "Ulf") for day, text in days
        )
        graph.make_themes()
        found = graph.ask_themes("What has Ulf said of Pico and chocolate?")
    assert len(found.themes) == 2
    assert ENDED.items() <= ended(found.facts).items()
    keys = [key for theme in found.themes for key in theme.facts]
    assert keys == [fact.key for fact in found.facts]
    shown = [fact.text.removeprefix("Ulf: ") for fact in found.facts]
    assert all(shown.index(new) == shown.index(old) - 1 for old, new in ENDED.items())


def test_as_of_a_time_before_nothing_is_marked(graph: MemoryGraph) -> None:
    facts = graph.ask_both("How is Pico?", as_of="2021-07").facts
    assert facts
    assert ended(facts) == {}


def test_show_marks_by_the_vectors_that_questions_left(tmp_path: Path) -> None:
    path = tmp_path / "shown.db"
    with fill(path, make_embed(EMBEDDER)) as graph:
        assert ended(graph.show("Ulf").facts) == {}
        graph.ask("How is Pico?")
    with MemoryGraph.open(path, read_only=True) as graph:
        facts = graph.show("Ulf").facts
    assert ended(facts) == ENDED
    theses = {fact.text: fact for fact in facts if fact.type == "thesis"}
    died = theses["Ulf: Pico died."].key
    told = validity(theses["Ulf: My hamster Pico is ill."])
    assert told == f"said in 2021-05-02; may have ended (fact {died})"
    [triplet] = [fact for fact in facts if fact.ends == ("Ulf", "has hamster", "Pico")]
    assert triplet.may_have_ended == died


def test_vectors_of_another_encoder_are_not_judged(tmp_path: Path) -> None:
    with fill(tmp_path / "words.db", word_vectors) as graph:
        facts = graph.ask_both("How is Pico?").facts
    assert facts
    assert ended(facts) == {}


def test_a_chain_of_ends_is_told_newest_first() -> None:
    first, second, third, other = (Fact(key, "thesis", str(key)) for key in (2, 4, 6, 8))
    first, second = replace(first, may_have_ended=4), replace(second, may_have_ended=6)
    assert newer_first([first, other, second, third]) == (third, second, first, other)
    assert newer_first([first, other, second, third], max_places=2) == (second, first, other, third)
    assert newer_first([third, first]) == (third, first)  # what ended it is not there
    again = replace(third, may_have_ended=2)  # said a second time, after what had ended it
    assert newer_first([first, other, second, again]) == (again, second, first, other)
    itself = replace(third, may_have_ended=6)
    assert newer_first([itself, other]) == (itself, other)


def test_a_mark_names_the_text_of_a_fact_that_is_not_shown() -> None:
    place = Provenance(4, (0, 1))
    newer = Fact(6, "thesis", "newer", provenance=(place,))
    old, other = replace(Fact(2, "thesis", "old"), may_have_ended=6), Fact(4, "thesis", "other")
    text = Fact(8, "episodic", "newer, and more")
    assert first_facts([old, other, newer], None) == (newer, old, other)
    assert first_facts([old, other, newer], 2) == (old, other)
    assert first_facts([other, old, newer], 1) == (other,)
    of_text = replace(old, may_have_ended=8)
    assert first_facts([old, other, text, newer], 3) == (text, of_text, other)
    assert first_facts([of_text, other], 1) == (of_text,)  # it is not known
