"""Answers put together by how sure their models are, by rules from other questions than its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from turngraph.benchmarks.combine import Answers, best_rule, main, put_together, read, row

WRONG = {"id": "Q1", "label": "Lima"}


def line(number: int, right: bool, logprob: float | None, **more: Any) -> dict[str, Any]:
    record: dict[str, Any] = {
        "conversation": f"c{number // 2}", "turn": str(number), "gold": [{"label": "Quito"}],
        "answer": "Quito" if right else "Lima", "candidates": [] if right else [WRONG],
    }  # fmt: skip
    return record | ({} if logprob is None else {"logprob": logprob}) | more


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in lines), encoding="utf-8")
    return path


def answers(first: np.ndarray, second: np.ndarray, logprobs: np.ndarray) -> Answers:
    keys = [(f"c{n // 2}", str(n)) for n in range(len(first))]
    hits = np.array([first, second], float)
    return Answers(keys, logprobs, {"hit_at_1": hits, "hit_at_5": hits})


def test_the_second_answers_what_it_is_sure_of() -> None:
    rng = np.random.default_rng(0)
    sure = rng.random(200) < 0.3
    logprobs = np.array([np.full(200, -1.0), np.where(sure, -0.1, -2.0)])
    both = answers(~sure, sure, logprobs)
    assert put_together(both, seed=0)["hit_at_1"].tolist() == [1.0] * 200
    weight, limit = best_rule(both, np.ones(200, bool))
    assert -2 < limit + weight * -1.0 <= -0.1


def test_where_the_first_is_not_sure_the_second_answers() -> None:
    unsure = np.arange(200) % 3 == 0
    logprobs = np.array([np.where(unsure, -5.0, -0.1), np.full(200, -1.0)])
    assert put_together(answers(~unsure, unsure, logprobs), seed=0)["hit_at_1"].mean() == 1.0


def test_what_tells_nothing_gains_nothing() -> None:
    rng = np.random.default_rng(1)
    gains = []
    for _ in range(20):
        first, second = rng.random((2, 400)) < 0.3
        both = answers(first, second, rng.normal(size=(2, 400)))
        gains.append(put_together(both, seed=0)["hit_at_1"].mean() - first.mean())
    assert abs(np.mean(gains)) < 0.02  # the best rule for the questions themselves gains 0.03


def test_conversations_are_not_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    halves = []

    def recorded(both: Answers, chosen: np.ndarray) -> tuple[float, float]:
        halves.append(chosen)
        return best_rule(both, chosen)

    monkeypatch.setattr("turngraph.benchmarks.combine.best_rule", recorded)
    rng = np.random.default_rng(2)
    both = answers(*(rng.random((2, 60)) < 0.5), rng.normal(size=(2, 60)))
    put_together(both, seed=0, num_splits=5)
    assert len(halves) == 10
    for one, other in zip(halves[::2], halves[1::2], strict=True):
        assert (one[::2] == one[1::2]).all()
        assert (one != other).all()
    assert any((halves[0] != half).any() for half in halves[2::2])


def test_a_question_is_known_by_its_key_and_an_error_is_never_taken(tmp_path: Path) -> None:
    wrong = [line(n, False, -1.0) for n in range(40)]
    right = [line(n, True, -1.0) for n in range(40)]
    right[7] = {k: v for k, v in right[7].items() if k not in ("answer", "candidates", "logprob")}
    right[7]["error"] = "out of memory"
    first = write(tmp_path / "a" / "p.jsonl", wrong)
    second = write(tmp_path / "b" / "p.jsonl", [*right[::-1], line(50, True, -1.0)])
    both = read(first, second)
    assert len(both.keys) == 40
    at = both.keys.index(("c3", "7"))
    hits = put_together(both, seed=0)["hit_at_1"]
    assert hits[at] == 0
    assert both.logprobs[1, at] < -1000
    assert np.delete(hits, at).all()
    assert row(both, 0)[:4] == ["40", "0.000 [0.000, 0.000]", row(both, 0)[2], "0.975"]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ([line(0, True, None)], r"b.p\.jsonl, line 1, field logprob: none is there"),
        ([line(0, True, 0.5)], r"line 1, field logprob: must be a number up to 0, not 0.5"),
        ([line(9, True, -1.0)], r"b.p\.jsonl: has no question of .*a.p\.jsonl"),
    ],
)
def test_what_cannot_be_put_together_is_refused(
    tmp_path: Path, second: list[dict[str, Any]], message: str
) -> None:
    first = write(tmp_path / "a" / "p.jsonl", [line(0, True, -1.0)])
    with pytest.raises(ValueError, match=message):
        read(first, write(tmp_path / "b" / "p.jsonl", second))


def test_the_table_has_a_row_for_each_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line(n, n % 3 == 0, -0.1 if n % 3 == 0 else -3.0) for n in range(60)]
    first = write(tmp_path / "text" / "p.jsonl", [line(n, n % 3 == 1, -1.0) for n in range(60)])
    others = [write(tmp_path / name / "p.jsonl", lines) for name in ("nodes", "again")]
    main([str(first), *map(str, others)])
    head, _, nodes, again = capsys.readouterr().out.splitlines()
    cells = [cell.strip() for cell in nodes.strip("|").split("|")]
    assert cells[:2] == ["nodes", "60"]
    assert again.startswith("| again |")
    assert len(cells) == len(head.strip("|").split("|"))
    assert cells[4] == "0.667" == cells[5].split()[0]
