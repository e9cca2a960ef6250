"""A study's report: groups of turns, and its command."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from turngraph.benchmarks.study import run_study
from turngraph.benchmarks.study.report import question_groups


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([20, 15, 12, 10], {"1": 20, "2": 15, "3": 12, "4": 10}),
        ([20, 15, 12, 6, 4], {"1": 20, "2": 15, "3": 12, "4+": 10}),
        ([20, 15, 12, 5], {"1": 20, "2": 15, "3+": 17}),
        ([20, 9, 40, 40], {"1": 20, "2": 9, "3": 40, "4": 40}),
        ([20, 9, 40, 6, 3, 2], {"1": 20, "2": 9, "3": 40, "4+": 11}),
        ([5, 3], {"1+": 8}),
    ],
)
def test_the_last_turns_with_few_questions_are_one_group(
    counts: list[int], expected: dict[str, int]
) -> None:
    asked = [
        SimpleNamespace(conversation=str(number), turn=str(turn), turn_index=turn)
        for turn, count in enumerate(counts)
        for number in range(count)
    ]
    scores = SimpleNamespace(predictions=asked, path="predictions.jsonl")
    rows: Any = {"text": SimpleNamespace(by_seed={0: scores})}
    of_study: Any = SimpleNamespace(baselines=["text"])
    found = Counter(question_groups(of_study, rows, "turn").values())
    assert found == {f"turn {name}": count for name, count in expected.items()}


def test_the_command_on_the_page_names_what_was_given() -> None:
    given = ["--config", "a.yaml", "--size", "gpu", "--data", "my data", "--output", "out"]
    expected = "turngraph study --config a.yaml --size gpu --data 'my data' --output out"
    assert (
        run_study.command_line(*run_study.parse([*given, "--plan", "--rows", "text"])) == expected
    )
    fields = ["--training.max_steps", "2"]
    short = run_study.command_line(*run_study.parse(["--config", "a.yaml", *fields]))
    assert short == "turngraph study --config a.yaml --size cpu --training.max_steps 2"
