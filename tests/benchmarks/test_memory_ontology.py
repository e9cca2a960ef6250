"""The benchmark of computed answers, small: its answers are those of the life, and it says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from turngraph.benchmarks.memory_graph import life_questions, memory_ontology, quads_speed
from turngraph.benchmarks.memory_graph.life_questions import (
    Question,
    questions,
    whole_units,
)
from turngraph.benchmarks.memory_graph.life_reader import measure_reader, named
from turngraph.benchmarks.memory_graph.life_wordings import unanswerable
from turngraph.benchmarks.memory_graph.memory_ontology import fill_given, is_right, main
from turngraph.benchmarks.memory_graph.synthetic_life import Life, given_lines, make_life
from turngraph.data.memory_graph.ontology.compute import Computed
from turngraph.data.memory_graph.ontology.typed_plan import NoPlan, Plan
from turngraph.data.memory_graph.recall.word_vectors import word_vectors
from turngraph.inference import plan_models

SMALL = 300


def small(seed: int) -> Life:
    return make_life(seed, SMALL)


def test_a_life_has_2000_facts_and_is_drawn_with_its_seed() -> None:
    life = make_life(3)
    assert life.num_facts == 2000
    assert make_life(3).facts == life.facts != make_life(4).facts
    assert sum(len(line["triplets"]) for line in given_lines(life)) == 2000


def test_twenty_questions_of_each_operation_with_an_answer_each() -> None:
    asked = questions(make_life(0), "test", 0)
    counts = {one.operation: 0 for one in asked}
    for one in asked:
        counts[one.operation] += 1
        assert one.gold
        assert one.evidence
    assert set(counts.values()) == {20}
    assert len(counts) == 18
    assert len(unanswerable()) == 40


def test_the_fresh_wordings_are_split_into_two_halves() -> None:
    life = make_life(0)
    dev, test = (questions(life, f"fresh_{half}", 0) for half in ("dev", "test"))
    assert (len(dev), len(test)) == (312, 304)
    assert len({one.operation for one in dev}) == len({one.operation for one in test}) == 20
    assert all(one.gold and one.evidence for one in (*dev, *test))
    silent = [unanswerable(f"fresh_{half}") for half in ("dev", "test")]
    assert [len(one) for one in silent] == [37, 33]
    assert not set(silent[0]) & set(silent[1])


def test_evidence_of_the_other_author_is_in_the_life_of_seed_0() -> None:
    life = make_life(0)
    told = {(one.object, one.since) for kind in life.facts.values() for one in kind}
    asked = [one for half in ("dev", "test") for one in questions(life, f"unseen_{half}", 0)]
    assert len(asked) == 244
    assert all(one.gold and one.evidence and one.evidence <= told for one in asked)
    assert [len(unanswerable(f"unseen_{half}")) for half in ("dev", "test")] == [19, 13]
    with pytest.raises(ValueError, match=r"--seed 1: the wordings 'unseen_dev'"):
        questions(small(1), "unseen_dev", 1)


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


def test_the_parts_print_tables_and_write_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(memory_ontology, "make_life", small)
    monkeypatch.setattr(life_questions, "PER_OPERATION", 1)
    monkeypatch.setattr(quads_speed, "NUM_RDFLIB", 2)
    monkeypatch.setattr(quads_speed, "NUM_ASKED", 4)
    turns = [{"speaker": "Ann", "dia_id": "D1:1", "text": "I moved to Oslo on 7 May 2023."}]
    asked = [("When did Ann move to Oslo?", "7 May 2023", 2), ("Who sang?", "Bob", 4),
             ("How often did Ann visit Rome?", "two times", 5)]  # fmt: skip
    qa = [{"question": q, "answer": a, "evidence": ["D1:1"], "category": c} for q, a, c in asked]
    session = {"session_1": turns, "session_1_date_time": "1:56 pm on 8 May, 2023"}
    item = {"sample_id": "c1", "qa": qa, "conversation": session}
    (tmp_path / "locomo_3.json").write_text(json.dumps([item]))
    target = tmp_path / "report.json"
    main(["--parts", "life", "quads", "locomo", "--wordings", "dev", "--quads", "600", "--show",
          "--data", str(tmp_path), "--output", str(target)])  # fmt: skip
    printed = capsys.readouterr().out
    assert "| all | 18 | 1.000 | 1.000 | 0.000 |" in printed
    assert "| 600 | rdflib |" in printed
    assert "dates and numbers: 1 questions, 1 computed, 1 right" in printed
    [report] = json.loads(target.read_text())["reports"]
    assert report["life"]["dev, given triplets"]["count"]["exact"] == 1
    assert report["locomo"]["covered"] == 1
    assert report["locomo"]["never_said_computed"] == 0
    with pytest.raises(ValueError, match=r"--data: locomo needs the folder"):
        main(["--parts", "locomo"])


def test_the_lm_plans_each_question_alone_and_then_what_the_rules_leave(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def plans(question: str, *_: object) -> list[Plan]:
        asked.append(question)
        raise NoPlan("the language model finds no plan")

    monkeypatch.setattr(memory_ontology, "make_life", small)
    monkeypatch.setattr(plan_models, "load_plans", lambda *_: plans)
    found = memory_ontology.measure_planner(0, "any", 1, False)
    assert (found["asked"], found["model"]) == (20, "any")
    rules, alone, both = (found[name] for name in ("rules", "LM alone", "rules, then LM"))
    assert rules == both
    assert rules["exact"] + rules["silent"] == 20
    assert alone == {"asked": 20, "exact": 0, "evidence": 0, "silent": 20} | {
        "unanswerable": 5, "without": 5
    }  # fmt: skip
    assert len(set(asked[:25])) == 25  # then those that the rules do not plan
    assert set(asked[25:]) <= set(asked[:25])
    assert rules["without"] == 5
    assert "LM alone: 0 of 20 exact, 20 not computed; 5 of 5 unanswerable silent" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("kind", "gold", "answer", "right"),
    [
        ("yes", "yes", "Yes, you did.", True),
        ("yes", "no", "Yes, you did.", False),
        ("names", {"Rome", "Oslo"}, "You visited Oslo and Rome.", True),
        ("order", ["Rome", "Oslo"], "Oslo, then Rome", False),
        ("dates", {"2019-05-03"}, "On 3 May 2019.", True),
        ("number", (1200.5, "euros"), "It was 1,200.5 euros", True),
        ("number", (3, ""), "13 times", False),
        ("span", ("2020-01-01", "2020-03-01"), "For 2 months.", True),
    ],
)
def test_a_free_answer_names_what_is_right(kind: Any, gold: Any, answer: str, right: bool) -> None:
    assert named(Question("count", "", "2024", kind, gold, frozenset()), answer) == right


def test_a_reader_that_copies_the_first_line_needs_what_is_computed(tmp_path: Path) -> None:
    life = small(0)
    asked = [one for one in questions(life, "dev", 0) if one.operation == "sum"][:2]

    def generate(prompts: Any, schema: Any) -> list[tuple[str, bool]]:
        return [(json.dumps({"answer": prompt.split("\n")[1]}), True) for prompt in prompts]

    with fill_given(tmp_path / "my.db", life) as graph:
        graph.embed = word_vectors
        found = measure_reader(graph, asked, generate)
    assert found == {"asked": 2, "facts": 0, "facts and computed": 2}
