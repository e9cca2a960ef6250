"""The benchmark of computed answers, small: its answers are those of the life, and it says so."""

from __future__ import annotations

from typing import Any

import pytest

from turngraph.benchmarks.memory_graph import memory_ontology
from turngraph.benchmarks.memory_graph.life_questions import (
    Question,
    questions,
    unanswerable,
    whole_units,
)
from turngraph.benchmarks.memory_graph.memory_ontology import is_right, main
from turngraph.benchmarks.memory_graph.synthetic_life import Life, given_lines, make_life
from turngraph.data.memory_graph.ontology.compute import Computed

SMALL = 300


def small(seed: int) -> Life:
    return make_life(seed, SMALL)


def test_a_life_has_2000_facts_and_is_drawn_with_its_seed() -> None:
    life = make_life(3)
    assert life.num_facts == 2000
    assert make_life(3).facts == life.facts != make_life(4).facts
    assert sum(len(line["triplets"]) for line in given_lines(life)) == 2000


def test_two_questions_of_each_wording_with_an_answer_each() -> None:
    life = make_life(0)
    for author, numbers in (("second", (170, 186, 17, 13)), ("third", (158, 150, 11, 19))):
        halves = [questions(life, f"{author}_{half}", 0) for half in ("dev", "test")]
        silent = [unanswerable(f"{author}_{half}") for half in ("dev", "test")]
        assert (*map(len, halves), *map(len, silent)) == numbers
        assert all(one.gold and one.evidence for half in halves for one in half)
        assert len({one.operation for half in halves for one in half}) == 20
        assert not set(silent[0]) & set(silent[1])


@pytest.mark.parametrize(
    ("kind", "gold", "text", "answer", "right"),
    [
        ("names", {"Oslo", "Rome"}, "", "Rome, Oslo", True),
        ("number", (2.5, "euros"), "", "2.5 euros", True),
        ("number", (2.5, "euros"), "", "2.4 euros", False),
        ("number", (2, ""), "", "2 to 3", False),
        ("span", ("2020-01-31", "2020-03-01"), "how many months", "1 month", True),
        ("span", ("2020-01-31", "2020-03-01"), "how many months", "30 days", False),
        ("order", ["Rome", "Oslo"], "", "my trip to Oslo, then Rome", False),
        ("yes", "no", "", "no", True),
    ],
)
def test_only_the_whole_answer_is_right(
    kind: Any, gold: Any, text: str, answer: str, right: bool
) -> None:
    question = Question("count", text, "2024", kind, gold, frozenset())
    assert is_right(question, Computed("count", answer, (), "", (), 1)) == right
    assert whole_units("2020-02-28", "2021-02-27", "year") == 0


def test_the_parts_print_tables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(memory_ontology, "make_life", small)
    first = [one for one in questions(small(0), "third_dev", 0) if one.operation == "count"][:2]
    monkeypatch.setattr(memory_ontology, "questions", lambda *_: first)
    main(["--wordings", "third_dev", "--show"])
    printed = capsys.readouterr().out
    assert "| all | 2 | 1.000 | 1.000 | 0.000 |" in printed
