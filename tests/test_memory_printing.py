"""Lines of facts: where they come from, when they hold, how many origins and sources are named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turngraph.data.memory_graph.memory_types import Fact, Provenance
from turngraph.data.memory_graph.recall.held_quotes import RecalledTheme
from turngraph.data.memory_graph.recall.plan_trace import PlanTrace, Step, StepTrace, SubTrace
from turngraph.data.memory_graph.recall.recollection import ReadAnswer, Recollection
from turngraph.inference.memory_printing import (
    answer_line,
    behind_line,
    fact_json,
    print_facts,
    print_recollection,
    print_themes,
    recollection_json,
    theme_json,
    validity,
)


@pytest.mark.parametrize(
    ("num_origins", "said"),
    [
        (0, ""),
        (1, "#1 2020 Bob a.txt"),
        (3, "#1 2020 Bob a.txt; #2 2020 Bob a.txt; #3 2020 Bob a.txt"),
        (4, "#1 2020 Bob a.txt; #2 2020 Bob a.txt; #3 2020 Bob a.txt; and 1 more"),
    ],
)
def test_a_fact_names_its_first_origins_and_counts_the_others(
    num_origins: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    origins = tuple(
        Provenance(1 + i, (0, 9), "a.txt", speaker="Bob", said="2020") for i in range(num_origins)
    )
    print_facts([Fact(7, "simple", "Anna lives in Oslo", provenance=origins, valid_from="2019")])
    assert capsys.readouterr().out == f"7\ttriplet\tAnna lives in Oslo\tfrom 2019\t{said}\n"


def test_what_was_recalled_is_json() -> None:
    fact = Fact(8, "thesis", "Bob may move.", score=0.12345678)
    found = Recollection("Where?", (), (fact,), 3, {"walk": 1.236}, behind=("a.txt",))
    assert fact_json(fact)["score"] == 0.123457
    assert recollection_json(found, "2020") == {
        **{"question": "Where?", "as_of": "2020", "mode": "facts", "no_answer": False},
        **{
            "by_similarity": False,
            "without_themes": False,
            "entities": [],
            "facts": [fact_json(fact)],
        },
        **{"themes": [], "behind": ["a.txt"], "plan": None, "answer": None, "revision": 3},
        "milliseconds": {"walk": 1.24},
    }


def test_a_theme_is_json_and_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    fact, sources = Fact(8, "thesis", "Bob may move."), ("a.txt", None)
    theme = RecalledTheme(
        4, 1, 0.12345678, 3, sources, (fact,), "Bob.", "lm:x", 0.98765432, (8,), ("Who?",)
    )
    assert theme_json(theme) == {
        **{"theme": 4, "level": 1, "eigenvalue": 0.123457, "score": 0.987654, "chunks": 3},
        **{"sources": ["a.txt", None], "summary": "Bob.", "maker": "lm:x"},
        "questions": ["Who?"],
        **{"quotes": [fact_json(fact)], "facts": [8]},
    }
    print_themes([theme])
    assert capsys.readouterr().out == "4\t1\t0.123\t3\t2\tBob may move.\n"


@pytest.mark.parametrize(
    ("answers", "is_printed"),
    [
        ([["Rome", "Oslo"]], False),
        ([["Oslo", "Rome"]], True),
        ([["Oslo"], ["Rome"]], True),
        ([["Rome"], ["Oslo"]], False),
    ],
)
def test_the_answer_of_a_plan_is_printed_unless_its_last_step_shows_it(
    answers: list[list[str]], is_printed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    subs = [
        SubTrace(
            "?", tuple(StepTrace(Step(1, "?"), (), answers=(a,)) for a in steps), None, "limit"
        )
        for steps in answers
    ]
    plan = PlanTrace(tuple(subs), "Oslo", "limit", 0, 0, 0)
    fact = Fact(8, "thesis", "Bob may move.")
    print_recollection(Recollection("?", (), (fact,), 1, {}, mode="plan", plan=plan), None)
    said = capsys.readouterr().out.splitlines()
    assert ("answer: Oslo (not calibrated)" in said) == is_printed


@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_theme_of_themes_is_called_one(level: int, capsys: pytest.CaptureFixture[str]) -> None:
    fact = Fact(8, "thesis", "Bob may move.")
    theme = RecalledTheme(4, level, 0.5, 3, ("a.txt",), (fact,), None, None, 0.25, (8,), ())
    print_recollection(Recollection("?", (), (fact,), 1, {}, themes=(theme,)), None)
    kind = " (of themes)" if level == 2 else ""
    said = f"theme 4{kind}, closeness 0.250: 3 passages of 1 source\n"
    assert capsys.readouterr().out.startswith(said)


def test_a_hypothesis_is_called_one(capsys: pytest.CaptureFixture[str]) -> None:
    print_facts([Fact(8, "thesis", "Bob may move.", hypothesis=True, score=-0.12345)])
    said = capsys.readouterr()
    assert said.out == "8\tthesis\tBob may move. (a hypothesis)\t\t\n"
    assert said.err == "fact\tkind\ttext\tholds\tsaid\n"
    print_facts([])
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("since", "until", "partly", "holds"),
    [
        (None, None, None, ""),
        ("2019", None, None, "from 2019"),
        (None, "2021", None, "until 2021"),
        ("2019", "2021", None, "from 2019 until 2021"),
        ("2019", None, "2020", "partly until 2020"),
        ("2019", "2021", "2020", "from 2019 until 2021"),
    ],
)
def test_when_a_fact_holds(
    since: str | None, until: str | None, partly: str | None, holds: str
) -> None:
    fact = Fact(8, "thesis", "x", valid_from=since, valid_to=until, partly_until=partly)
    assert validity(fact) == holds


def test_sources_that_are_behind_are_named_up_to_a_number() -> None:
    assert "than what a, b, (no source), d, e say;" in behind_line(["a", "b", None, "d", "e"])
    assert "than what a, b, c, d, e and 2 more say;" in behind_line(list("abcdefg"))


def test_an_answer_names_its_fact_unless_it_is_withheld() -> None:
    found = ReadAnswer("Oslo", 0.5, None, 7, (14, 18))
    sure = "probability 0.50, not calibrated; fact 7, characters 14 to 18"
    assert answer_line(found) == f"answer: Oslo ({sure})"
    withheld = replace(found, text="not in the evidence", confidence=0.25, withheld="Oslo")
    assert answer_line(withheld) == "no answer that is sure enough (confidence 0.25)"
