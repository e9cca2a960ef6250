"""What the rules read from a few texts, and compute for a few questions about a made-up life."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turngraph.data.memory_graph.extract.given import GivenExtractor
from turngraph.data.memory_graph.extract.rules import RulesExtractor
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode, Triplet
from turngraph.data.memory_graph.ontology.compute import compute
from turngraph.data.memory_graph.ontology.lens import Lens
from turngraph.data.memory_graph.ontology.ontology import load_ontology
from turngraph.data.memory_graph.ontology.question_plan import NoPlan
from turngraph.tests.data.memory_graph.synthetic_life import given_lines, make_life

READINGS: tuple[tuple[str, str | None, str, tuple[str, ...]], ...] = (
    (
        "2025-03-14",
        "Greta",
        "Dear Uncle Wim, we arrived in Groningen on Thursday.",
        ("Greta | arrived in | Groningen [2025-03-13..]",),
    ),
    (
        "2025-03-14",
        None,
        "The telescope, built in Chile between 2005 and 2012, weighs 350 tonnes.",
        ("telescope | weighs | 350 tonnes", "telescope | was built in | Chile [2005..]"),
    ),
    (
        "2026-03-10",
        None,
        "Considered too small for the stage, Mina Varga trained as a puppeteer instead.",
        ("Mina Varga | trained as | puppeteer",),
    ),
    (
        "2025-03-14",
        "Hana",
        "The client, Norrland Paper, wants a discount of 8 percent.",
        ("Norrland Paper | wants | discount of 8 percent",),
    ),
    (
        "2025-03-14",
        "Nora",
        "I weigh 64 kilos, two less than at Christmas.",
        ("Nora | weighs | 64 kilos",),
    ),
    (
        "2024-05-08",
        None,
        "The next council meeting is in Vik.",
        ("next council meeting | is in | Vik",),
    ),
    ("2024-05-08", None, "Grandma Tilly is 91.", ("Grandma Tilly | is | 91",)),
    (
        "2025-03-14",
        None,
        "King Aldred III ruled Veronia from 1402 until 1431.",
        ("King Aldred III | ruled | Veronia [1402..1431]",),
    ),
    (
        "2025-03-14",
        None,
        "Pilar learned the dish from a neighbour in Murcia.",
        ("Pilar | learned | dish", "Pilar | learned from | neighbour"),
    ),
    (
        "2026-03-10",
        None,
        "Female cuckoos lay their eggs in the nests of other birds, which then raise the chicks.",
        (
            "Female cuckoos | lays | eggs",
            "Female cuckoos | lays in | nests of other birds",
            "other birds | raises | chicks",
        ),
    ),
    (
        "2025-03-14",
        None,
        "The vote on the merger was postponed until May 2025.",
        ("vote on merger | was postponed until | May 2025",),
    ),
    (
        "2025-03-14",
        "Nora",
        "We took the night train to Zagreb and slept badly.",
        ("Nora | took | night train", "Nora | took night train to | Zagreb"),
    ),
    (
        "2026-03-10",
        None,
        "After a break of two years, the film society is showing silent films again.",
        ("film society | is showing | silent films",),
    ),
    (
        "2024-05-08",
        None,
        "The printer doesn't support wireless networks.",
        ("printer | does not support | wireless networks",),
    ),
)
"""When a text was said, by whom, and the triplets: subject, relation, object, when it holds."""
ANSWERS = (
    ("In July 2020, which city was I living in?", "2024-01-01", "value", "Malmo"),
    ("What was my place of residence in May 2020?", "2024-01-01", "list", "Malmo"),
    ("Where did I travel most recently?", "2021-10-28", "latest", "Vienna"),
    ("When did I visit Paris for the first time?", "2024-01-01", "first", "2014-01-27"),
    ("Did I ever visit Bilbao?", "2024-01-01", "exists", "yes"),
    ("How many visits to Prague have I made?", "2024-01-01", "count", "18"),
    ("How much money did I spend in 2016?", "2024-01-01", "sum", "5929 euros"),
    ("What's the least I've ever paid for a table?", "2024-01-01", "min", "8 euros"),
    ("What did I pay the most for in 2021?", "2024-01-01", "max", "clock"),
    ("What was my average spending per purchase in 2020?", "2024-01-01", "mean", "230.66 euros"),
    ("Which city have I travelled to the most?", "2024-01-01", "most", "Paris"),
    ("How often per year did I visit Madrid from 2014 on?", "2024-01-01", "rate", "1.5 a year"),
    ("How many years did I spend living in Trondheim?", "2024-01-01", "duration", "0 years"),
    ("As of when was I living in Bergen?", "2024-01-01", "since", "2015-11-05"),
    ("Did my trip to Seville come before my move to Tampere?", "2024-01-01", "before", "yes"),
    ("Was my trip to Riga after my trip to Porto?", "2024-01-01", "after", "yes"),
    ("Did I visit Vilnius or Riga first?", "2024-01-01", "order", "Riga, then I visit Vilnius"),
    ("What's Emil's age?", "2024-01-01", "age", "68 years"),
    (
        "How many days passed between my visit to Vilnius and my visit to Seville?",
        "2024-01-01",
        "difference",
        "1,953 days",
    ),
)
"""A question, the time at whose end it is asked, the operation and the answer."""


def shown(triplet: Triplet) -> str:
    line = f"{triplet.subject} | {triplet.relation} | {triplet.object}"
    since, until = triplet.valid_from or "", triplet.valid_to or ""
    return f"{line} [{since}..{until}]" if since or until else line


@pytest.mark.parametrize(("time", "speaker", "text", "expected"), READINGS)
def test_a_text_is_read(
    time: str, speaker: str | None, text: str, expected: tuple[str, ...]
) -> None:
    [found] = RulesExtractor().extract([Episode(text, time, speaker=speaker)])
    assert tuple(map(shown, found.triplets)) == expected


def test_questions_about_a_life_are_computed(tmp_path: Path) -> None:
    lines = tmp_path / "life.jsonl"
    lines.write_text("\n".join(map(json.dumps, given_lines(make_life(0)))), encoding="utf-8")
    extractor = GivenExtractor()
    graph = MemoryGraph.open(tmp_path / "life.db", extractor=extractor)
    graph.remember_many(extractor.read(lines))
    works = [fact.key for fact in graph.history("Anna") if "Siemens" in fact.text]
    graph.split("Anna", "Anna", facts=works)
    lens = Lens(graph.store, load_ontology())
    for text, as_of, operation, answer in ANSWERS:
        found = compute(lens, text, as_of)
        assert (text, found.operation, found.answer) == (text, operation, answer)
    with pytest.raises(NoPlan):
        compute(lens, "What should I cook tonight?", "2024-01-01")
    graph.close()
