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
from turngraph.data.memory_graph.ontology.compute import compute
from turngraph.data.memory_graph.ontology.lens import Lens
from turngraph.data.memory_graph.ontology.ontology import load_ontology
from turngraph.data.memory_graph.ontology.typed_plan import NoPlan
from turngraph.data.memory_graph.recall.word_vectors import word_vectors
from turngraph.data.memory_graph.times import end
from turngraph.data.memory_graph.upkeep.html_page import page_data
from turngraph.data.memory_graph.upkeep.show import history, show
from turngraph.inference.memory_printing import validity

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


SENTENCES: list[tuple[str, str, str]] = [
    ("Anna bought a car in January 2023.", "2023 2024", "2004"),
    ("Anna lived in Cork until 2010.", "2004 2009", "2024"),
    ("Anna lived in Rome from 2010 to 2015.", "2010 2014", "2016"),
    ("Anna was the mayor of Vik in 2005.", "2005", "2004 2007"),
    ("Anna lives in Bonn.", "2024-05-08 2025", "2004"),
    ("Anna is a vet.", "2024-05-08 2025", "2023"),
    ("Anna likes tea so much!", "2024-05-08 2025", "2004"),
    ("Since 2019 Anna has lived in Graz.", "2019 2024", "2018"),
    ("In 2001 so very odd to Anna was the sea.", "2001 2024", "2000"),
    ("Anna was born in Kiel in 1970.", "1970 2024", "1969"),
    ("Anna weighed 72.5kg in May 2020.", "2020-05", "2020-04 2020-07"),
    ("Anna visited Oslo yesterday.", "2024-05-07 2025", "2024-05-06"),
    ("Anna married Paul on 3 May 2001.", "2001-05-03 2024", "2001-05-02"),
    ("Anna was married to Paul from 2001 to 2009.", "2001 2008", "2010"),
    ("Anna joined the choir last month.", "2024-04 2025", "2024-03"),
    ("Anna has been the mayor of Lutvik since 2019.", "2019 2024", "2018"),
    ("From 2003 to 2006 Anna studied in Graz.", "2003 2005", "2002"),
    ("Anna was the captain of Vik until her arrest in 1941.", "1930 1940", "1943"),
    ("Anna was a nurse from May 2011 to June 2012.", "2011-06 2012-05", "2013"),
    ("Anna moved to Tromso in March 2020.", "2020-03 2024", "2019"),
    ("Anna rented a flat in Split from May to August 2018.", "2018-06 2018-07", "2018-03 2019"),
    ("Anna will move to Porto in 2030.", "2025 2031", "2023"),
    ("Anna has lived in one house since June 2011.", "2011-06 2020", "2011-05"),
    ("Anna does not live in Bonn.", "2024-06 2025", "2004"),
    ("Anna no longer lives in Bonn.", "2024-06 2025", "2004"),
    ("Anna never lived in Rome.", "2024-06 2025", "2004"),
    ("Anna worked at Fenwick until March 2016.", "2010 2016-02", "2016-05 2024"),
    ("Anna started at Marlow on 1 September 2022.", "2022-09-01 2024", "2022-08-31"),
    ("Anna retired in 2021.", "2021 2024", "2020"),
    ("Anna taught maths between 1998 and 2004.", "1999 2003", "1997 2006"),
    ("Anna was a baker for ten years.", "2024-06 2025", "2004"),
    ("Anna has been out of work for two months.", "2024-05-08 2024-06", "2023"),
    ("In the summer of 2015 Anna walked to Santiago.", "2015-09 2024", "2014"),
    ("Anna broke her arm on 24 December 2019.", "2019-12-24 2020", "2019-12-23"),
    ("Two years ago Anna bought a boat.", "2022 2024", "2021"),
    ("Anna gave up coffee last year.", "2023-12 2024", "2022"),
    ("Anna sits an exam on 3 June 2024.", "2024-06-03", "2024-06-02 2004"),
    ("Anna is on holiday from 10 to 20 July 2024.", "2024-07-15", "2024-07-25 2024-06"),
    ("Anna will be in Lima until 2026.", "2025", "2027 2004"),
    ("The passport of Anna is valid until 14 March 2029.", "2024-06 2028", "2030"),
]
"""Sentences said on 8 May 2024, times at which they hold, and times at which they do not. A plan
holds from when it was told."""

MISREAD = ["Anna had a dog until it died in 2017.", "By 2014 Anna had three children."]
"""Sentences of which the rules miss the time: a reader finds the dog in 2016, and the children in
2015. Like undated ones, they hold from when they were said, which is what is printed."""


@pytest.mark.parametrize("sentence", MISREAD)
def test_a_sentence_whose_time_is_missed_is_shown_as_said(
    graph: MemoryGraph, sentence: str
) -> None:
    graph.remember(sentence, time="2024-05-08")
    told = {fact.text: validity(fact) for fact in show(graph.store, "Anna").facts}
    assert told[sentence] == "said in 2024-05-08"
    found = [fact.text for fact in graph.ask_both(f"Anna? {sentence}", as_of="2016").facts]
    assert sentence not in found


@pytest.mark.parametrize(("sentence", "held", "not_held"), SENTENCES)
def test_sentences_and_texts_hold_when_their_facts_do(
    graph: MemoryGraph, sentence: str, held: str, not_held: str
) -> None:
    """In every way of asking that takes a time, and on the page."""
    graph.remember(sentence, time="2024-05-08")
    question = f"Anna? {sentence}"
    for way in ("ask", "ask_both", "ask_episodes", "ask_planned", "ask_themes"):
        for as_of in held.split():
            found = getattr(graph, way)(question, as_of=as_of).facts
            assert any(sentence[:12] in fact.text for fact in found if not fact.ends), (way, as_of)
        for as_of in not_held.split():
            assert getattr(graph, way)(question, as_of=as_of).facts == (), (way, as_of)
    nodes = page_data(graph.store.db, "")["nodes"]
    said = [node for node in nodes if sentence[:12] in node["text"] and node["type"] in (1, 2)]
    for node in said:
        begin, end_ = node["holds"]
        for as_of, holds in [(t, True) for t in held.split()] + [
            (t, False) for t in not_held.split()
        ]:
            moment = end(as_of) - 1
            on_page = (begin is None or begin <= moment) and (end_ is None or moment < end_)
            assert on_page == holds, (node, as_of)
    assert len(said) == 2


@pytest.mark.parametrize(
    ("text", "question", "at"),
    [
        ("Anna lives in Bonn.", "Where does Anna live?", {"2024-06": "Bonn", "2004": None}),
        ("Anna lived in Cork until 2010.", "Where did Anna live?", {"2004": "Cork", "2024": None}),
        ("Since 2019 Anna has lived in Graz.", "Where does Anna live?",
         {"2020": "Graz", "2018": None}),
        ("Anna works at Solera since March 2021.", "Where does Anna work?",
         {"2022": "Solera", "2020": None}),
    ],
)  # fmt: skip
def test_computed_answers_hold_when_their_facts_do(
    graph: MemoryGraph, text: str, question: str, at: dict[str, str | None]
) -> None:
    graph.remember(text, time="2024-05-08")
    for as_of, expected in at.items():
        try:
            answer = compute(Lens(graph.store, load_ontology()), question, as_of).answer
        except NoPlan:
            answer = None
        if expected is None:
            assert answer is None or not any(name in answer for name in text.split()[2:]), as_of
        else:
            assert answer is not None
            assert expected in answer, as_of
