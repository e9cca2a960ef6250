"""Table of sentences: what holds, from when, until when, and as of which moments asking finds it.

An event ("was founded") is a fact from its time on, for good; a state ("lived", "was the mayor")
holds at the time that its sentence gives.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Fact
from turngraph.data.memory_graph.recall.word_vectors import word_vectors
from turngraph.data.memory_graph.upkeep.show import history, show

Row = dict[str, Any]
ROWS: list[Row] = [
    json.loads(line)
    for line in (Path(__file__).parent / "when_facts_hold.jsonl").read_text("utf-8").splitlines()
]
by_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['said'][-1][1]} {row['fact']}")


def remember(graph: MemoryGraph, row: Row) -> None:
    for time, text in row["said"]:
        graph.remember(text, time=time)


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[MemoryGraph]:
    with MemoryGraph.open(tmp_path / "memory.db", word_vectors) as graph:
        if graph.store.is_file:
            graph.store.db.execute("PRAGMA synchronous = OFF")  # no power cut is tested here
        yield graph


def stated(facts: tuple[Fact, ...] | list[Fact]) -> dict[str, Fact]:
    return {" ".join(fact.ends): fact for fact in facts if fact.ends}


@by_row
def test_a_fact_holds_when_its_sentence_says(graph: MemoryGraph, row: Row) -> None:
    remember(graph, row)
    said = row["fact"]
    fact = stated(history(graph.store, row["of"]))[said]
    assert (fact.valid_from, fact.valid_to) == (row["from"], row["until"])
    holds_now = row["until"] is None
    assert (said in stated(show(graph.store, row["of"]).facts)) == holds_now
    assert (said in stated(graph.ask(said).facts)) == holds_now
    for as_of in row["found"]:
        assert said in stated(graph.ask(said, as_of=as_of).facts), as_of
    for as_of in row["missing"]:
        assert said not in stated(graph.ask(said, as_of=as_of).facts), as_of


def test_the_table_has_sixty_rows() -> None:
    assert len(ROWS) >= 60


@pytest.mark.parametrize(
    ("first", "then", "month"),
    [
        ("Anna lives in Paris.", "Anna moved to Bergen in June.", "2021-06"),
        ("Tom is the CEO of Acme.", "Tom quit Acme in June.", "2021-06"),
        ("Tom works at Acme.", "Tom joined Bolt in June, and Ida left Bolt.", "2021-06"),
        ("Tom owns the red boat.", "Tom sold the red boat in June.", "2021-06"),
        ("Acme is called Acme Ltd.", "Acme was renamed Bolt in June.", "2021-06"),
        ("Tom works at Acme.", "Tom works at Bolt.", "2021-07-10"),
    ],
)
def test_a_thesis_ends_when_its_triplet_does(
    graph: MemoryGraph, first: str, then: str, month: str
) -> None:
    graph.remember(first, time="2020")
    graph.remember(then, time="2021-07-10")
    sql = "SELECT valid_to FROM {} WHERE valid_to IS NOT NULL"
    ends = [graph.store.db.execute(sql.format(table)).fetchall() for table in ("edges", "nodes")]
    assert ends == [[(month,)], [(month,)]]


def test_theses_are_in_the_order_of_their_triplets(graph: MemoryGraph) -> None:
    graph.remember("Anna moved to Paris in 2020.", time="2020-05")
    graph.remember("Anna moved to Bergen in 2019.", time="2021")
    rows = graph.store.db.execute("SELECT text, valid_to FROM nodes WHERE valid_to IS NOT NULL")
    assert rows.fetchall() == [("Anna moved to Bergen in 2019.", "2020")]


def test_a_thing_without_a_name_is_one_of_its_text_alone(graph: MemoryGraph) -> None:
    graph.remember("The bridge was designed by Otto Krall. Ida opened the bridge.")
    graph.remember("The bridge was designed by Rosa Anders.")
    [(num,)] = graph.store.db.execute("SELECT count(*) FROM nodes WHERE text = 'bridge'")
    assert num == 2
    found = stated(graph.ask("Who designed the bridge?").facts)
    assert "bridge was designed by Otto Krall" in found
    assert "bridge was designed by Rosa Anders" in found
    graph.remember("The meeting is on Monday.", time="2024-05-01")
    graph.remember("The meeting is on Friday.", time="2024-05-02")
    assert "meeting is on Monday" not in stated(graph.ask("When is the meeting?").facts)


@pytest.mark.parametrize(
    ("sentence", "held", "not_held"),
    [
        ("Anna bought a car in January 2023.", ["2023", "2024"], ["2004", "2022"]),
        ("Anna lived in Cork until 2010.", ["2004", "2009"], ["2011", "2024"]),
        ("Anna lived in Rome from 2010 to 2015.", ["2010", "2014"], ["2009", "2016"]),
        ("Anna was the mayor of Vik in 2005.", ["2005"], ["2004", "2007"]),
        ("Anna lives in Bonn.", ["2024-05-08", "2025"], ["2004", "2024-05-07"]),
        ("Anna is a vet.", ["2024-05-08", "2025"], ["2023"]),
        ("Anna likes tea so much!", ["2024-05-08", "2025"], ["2004", "2023"]),
        ("Since 2019 Anna has lived in Graz.", ["2019", "2024"], ["2018", "2004"]),
        ("In 2001 so very odd to Anna was the sea.", ["2001", "2024"], ["2000"]),
        ("Anna was born in Kiel in 1970.", ["1970", "2024"], ["1969"]),
        ("Anna founded Fjordtech in 1998.", ["1998", "2024"], ["1997"]),
        ("Anna weighed 72.5kg in May 2020.", ["2020-05"], ["2020-04", "2020-07"]),
        ("Anna visited Oslo yesterday.", ["2024-05-07", "2025"], ["2024-05-06"]),
    ],
)
@pytest.mark.parametrize("way", ["ask", "ask_both", "ask_episodes"])
def test_sentences_and_texts_hold_when_their_facts_do(
    graph: MemoryGraph, way: str, sentence: str, held: list[str], not_held: list[str]
) -> None:
    graph.remember(sentence, time="2024-05-08")
    for as_of in held:
        found = getattr(graph, way)(f"Anna? {sentence}", as_of=as_of).facts
        assert any(sentence[:12] in fact.text for fact in found if not fact.ends), as_of
    for as_of in not_held:
        assert getattr(graph, way)(f"Anna? {sentence}", as_of=as_of).facts == (), as_of
