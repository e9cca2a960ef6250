"""A predictions file's numbers by hand, intervals, differences, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from turngraph.data.scoring.predictions import read_predictions
from turngraph.data.scoring.score import (
    bootstrap,
    breakdown,
    paired_difference,
    score_files,
    score_predictions,
    summarise,
)
from turngraph.data.scoring.score_tables import METRICS

LIMA, QUITO = {"id": "Q2868", "label": "Lima"}, {"id": "Q2900", "label": "Quito"}


def line(conversation: str, turn: int, answer: str | None, *gold: str, **more: Any) -> dict:
    record: dict[str, Any] = {
        "conversation": conversation,
        "turn": f"t{turn}",
        "turn_index": turn,
        "question": "?",
        "gold": [{"label": label} for label in gold],
        "source": "kb",
        "domain": "places",
        "num_tokens": 100,
        "milliseconds": 2000,
        "answer_in_evidence": ["kb"],
        "guess_at_1": 0.25,
        "guess_at_5": 0.5,
    }
    if answer is not None:
        record |= {"answer": answer, "candidates": [], "logprob": -1.0, "evidence": []}
    return record | more


HAND_WRITTEN = [
    line("c1", 0, "Lima", "Lima"),
    line("c1", 1, "Limma", "Lima", source="text", candidates=[LIMA, QUITO], num_tokens=300),
    line("c1", 2, "Limma", "Quito", source="text", candidates=[LIMA, QUITO], domain="food"),
    line("c2", 0, "2 October 2000", "2000-10-02", answer_in_evidence=[], milliseconds=6000),
    line("c2", 1, None, "1,234", error="out of memory", source=None, answer_in_evidence=[]),
    line("c2", 2, "the old town of Lima", "Lima", candidates=[QUITO]),
]


def write(path: Path, lines: list[Any]) -> Path:
    texts = [one if isinstance(one, str) else json.dumps(one) for one in lines]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def hand_written(tmp_path: Path) -> Path:
    return write(tmp_path / "hand.jsonl", HAND_WRITTEN)


def means(report: dict) -> dict[str, float]:
    return {name: value["mean"] for name, value in report["metrics"].items()}


# The numbers


def test_every_number_of_a_hand_written_file(hand_written: Path, tmp_path: Path):
    report = score_files([hand_written], [], tmp_path / "out.json")
    total = report["files"][0]["total"]
    assert (total["questions"], total["conversations"], total["errors"]) == (6, 2, 1)
    assert means(total) == pytest.approx(
        {
            "hit_at_1": 3 / 6,
            "hit_at_5": 4 / 6,
            "guess_at_1": 0.25,
            "guess_at_5": 0.5,
            "exact_match": 2 / 6,
            # {old, town, of, lima} and {lima}: 2 * 1 / 5
            "f1": 2.4 / 6,
            "substring": 3 / 6,
            "answer_in_evidence": 4 / 6,
            "num_tokens": 800 / 6,
            "seconds": 16 / 6,
        }
    )
    assert json.loads((tmp_path / "out.json").read_text(encoding="utf-8")) == report


def test_breakdowns_have_sorted_groups_with_counts(hand_written: Path):
    by = score_files([hand_written], ["source", "turn", "domain", "answer_type"], None)["files"][0]
    groups = {
        name: {group: (row["questions"], row["errors"]) for group, row in rows.items()}
        for name, rows in by["by"].items()
    }
    assert groups == {
        "source": {"(none)": (1, 1), "kb": (3, 0), "text": (2, 0)},
        "turn": {"1": (2, 0), "2": (2, 1), "3": (2, 0)},
        "domain": {"food": (1, 0), "places": (5, 1)},
        "answer_type": {"date": (1, 0), "number": (1, 1), "string": (4, 0)},
    }
    assert [list(rows) for rows in groups.values()] == [sorted(rows) for rows in groups.values()]
    assert means(by["by"]["source"]["text"])["hit_at_1"] == 0.5


def test_what_holds_the_answer_is_one_kind_of_passage_several_or_nothing(tmp_path: Path):
    held = (["kb"], ["text"], ["text"], ["kb", "text"], [])
    lines = [line("c", turn, "a", "a", answer_in_evidence=by) for turn, by in enumerate(held)]
    found = breakdown(score_predictions(write(tmp_path / "p.jsonl", lines)), "held_by")
    assert {name: row.num_questions for name, row in found.items()} == {
        "kb": 1,
        "nothing": 1,
        "several": 1,
        "text": 2,
    }


def test_turns_are_sorted_as_numbers(tmp_path: Path):
    path = write(tmp_path / "p.jsonl", [line("c", turn, "a", "a") for turn in (10, 1, 9)])
    assert list(breakdown(score_predictions(path), "turn")) == ["2", "10", "11"]


def test_the_answer_type_of_a_list_is_what_its_labels_share(tmp_path: Path):
    lines = [line("c", 0, "x", "1", "2"), line("c", 1, "x", "1", "Lima")]
    scores = score_predictions(write(tmp_path / "p.jsonl", lines))
    assert {name: row.num_questions for name, row in breakdown(scores, "answer_type").items()} == {
        "number": 1,
        "string": 1,
    }


def test_what_no_line_measured_is_shown_as_unknown(tmp_path: Path, capsys):
    record = line("c", 0, "Lima", "Lima")
    for name in ("num_tokens", "milliseconds", "answer_in_evidence", "guess_at_1"):
        del record[name]
    report = score_files([write(tmp_path / "p.jsonl", [record])], [], tmp_path / "o.json")
    assert means(report["files"][0]["total"])["num_tokens"] is None
    assert "nan" not in capsys.readouterr().out.lower()
    assert "NaN" not in (tmp_path / "o.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_the_tables_fit_into_the_terminal(
    width: int,
    hand_written: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    name = "graph_with_memory_and_a_name_that_is_long"
    other = write(tmp_path / f"{name}.jsonl", HAND_WRITTEN[:4])
    score_files([hand_written, other], ["source"], None)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    assert "…" not in out
    words = out.split()
    for heading in (*METRICS.values(), "Questions", "Errors"):
        assert words.count(heading.split()[0]) >= 3, heading
    assert words.count("+0.000") == 6  # of H@1 and H@5: mean, and both ends of the interval


def test_two_files_are_named_and_compared_in_tables_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    paths = [write(tmp_path / f"{name}.jsonl", HAND_WRITTEN[:1]) for name in ("graph", "text")]
    score_files(paths, ["domain"], None)
    out = capsys.readouterr().out
    counts, shown = ["Questions", "Errors"], "1.000 1.000 0.250 0.500 1.000 1.000 1.000 1.000"
    means, intervals = ["1", "0", *shown.split(), "100.0", "2.000"], ["1.000-1.000"] * 6
    columns = [word for heading in METRICS.values() for word in heading.split()]
    by_domain = [["domain", *counts, *columns], ["places", *means], intervals]
    title = "All questions; below each mean its 95 % interval; Guess@k: an entity of E_t at random"
    assert [line.split() for line in out.splitlines() if line.strip(" ─")] == [
        title.split(),
        ["predictions", *counts, *columns],
        *(["graph", *means], intervals, ["text", *means], intervals),
        *(["graph", "by", "domain"], *by_domain, ["text", "by", "domain"], *by_domain),
        "Difference to graph, paired by question, and its 95 % interval".split(),
        "predictions Common Only in baseline Only here H@1 H@5".split(),
        "text 1 0 0 +0.000 +0.000".split(),
        ["+0.000", "to", "+0.000"] * 2,
    ]
    monkeypatch.setenv("COLUMNS", str(max(map(len, out.splitlines()))))
    score_files(paths, ["domain"], None)
    assert capsys.readouterr().out == out  # what just fits is not split
    score_files(paths[:1], ["domain"], None)
    assert "\nBy domain " in capsys.readouterr().out
    score_files([paths[0], paths[0]], [], None)
    assert f"Difference to {paths[0]}, paired" in capsys.readouterr().out


@pytest.mark.parametrize(("width", "longest"), [(30, 12), (60, 20)])
def test_a_long_name_takes_a_third_of_the_terminal(
    width: int,
    longest: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    path = write(tmp_path / f"{'x' * (longest + 1)}.jsonl", HAND_WRITTEN[:1])
    score_files([path], [], None)
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines() if "x " in line]
    assert set(names) == {"x" * longest, "x"}


# Bootstrap


def test_the_bootstrap_is_the_same_each_time_and_covers_the_mean():
    rng = np.random.default_rng(1)
    values = rng.integers(0, 2, (300, 1)).astype(float)
    clusters = [str(i // 5) for i in range(300)]
    first, again = (bootstrap(values, clusters)[0] for _ in range(2))
    assert first == again
    assert first.mean == pytest.approx(values.mean())
    assert first.low < first.mean < first.high
    # independent questions: about 1.96 standard errors to each side
    expected = 1.96 * math.sqrt(0.25 / 300)
    assert (first.high - first.low) / 2 == pytest.approx(expected, rel=0.25)


def test_whole_conversations_are_resampled():
    """Five equal questions say as much as one, so the interval is sqrt(5) times as wide."""
    rng = np.random.default_rng(2)
    values = np.repeat(rng.integers(0, 2, 60), 5).astype(float)[:, None]
    together = bootstrap(values, [str(i // 5) for i in range(300)])[0]
    apart = bootstrap(values, [str(i) for i in range(300)])[0]
    ratio = (together.high - together.low) / (apart.high - apart.low)
    assert ratio == pytest.approx(math.sqrt(5), rel=0.15)


def test_one_conversation_has_no_width_and_missing_values_are_left_out():
    values = np.array([[1.0, math.nan], [0.0, math.nan], [math.nan, math.nan]])
    known, unknown = bootstrap(values, ["a", "a", "a"])
    assert known == (0.5, 0.5, 0.5)
    assert all(math.isnan(value) for value in unknown)


# Differences


def test_paired_difference_is_second_minus_first_over_common_questions(tmp_path: Path):
    turns = [(f"c{i}", turn) for i in range(30) for turn in range(3)]
    worse = [line(c, t, "Lima" if t == 0 else "no", "Lima") for c, t in turns]
    better = [line(c, t, "Lima" if t < 2 else "no", "Lima") for c, t in turns]
    a = score_predictions(write(tmp_path / "a.jsonl", worse))
    b = score_predictions(write(tmp_path / "b.jsonl", [*better[::-1], line("new", 0, "x", "y")]))
    assert paired_difference(a, b, "hit_at_1") == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert paired_difference(b, a, "hit_at_1") == pytest.approx((-1 / 3, -1 / 3, -1 / 3))
    assert paired_difference(a, a, "f1") == (0, 0, 0)
    difference = score_files([a.path, b.path], [], None)["differences"][0]
    counts = {key: difference[key] for key in ("common", "only_in_baseline", "only_here")}
    assert counts == {"common": 90, "only_in_baseline": 0, "only_here": 1}
    assert difference["hit_at_1"]["mean"] == pytest.approx(1 / 3)
    assert difference["hit_at_5"] == difference["hit_at_1"]  # no candidates


def test_pairing_is_by_question_and_narrower_than_two_intervals(tmp_path: Path):
    rng = np.random.default_rng(3)
    right = rng.integers(0, 2, 200)
    lines = [line(f"c{i}", 0, "Lima" if ok else "no", "Lima") for i, ok in enumerate(right)]
    fixed = [one | {"answer": "Lima"} if i % 20 == 0 else one for i, one in enumerate(lines)]
    a = score_predictions(write(tmp_path / "a.jsonl", lines))
    b = score_predictions(write(tmp_path / "b.jsonl", fixed[::-1]))
    gain = sum(1 for i in range(0, 200, 20) if not right[i]) / 200
    mean, low, high = paired_difference(a, b, "hit_at_1")
    assert mean == pytest.approx(gain)
    assert 0 <= low < mean < high
    alone = summarise(a).estimates["hit_at_1"]
    assert high - low < (alone.high - alone.low) / 2


def test_no_common_question_is_an_error_that_names_both_files(tmp_path: Path):
    a = score_predictions(write(tmp_path / "a.jsonl", [line("c1", 0, "x", "y")]))
    b = score_predictions(write(tmp_path / "b.jsonl", [line("c2", 0, "x", "y")]))
    with pytest.raises(ValueError, match=r"b\.jsonl: no question .* in common with .*a\.jsonl"):
        paired_difference(a, b, "hit_at_1")
    with pytest.raises(ValueError, match="metric: must be one of hit_at_1"):
        paired_difference(a, a, "h@1")


def test_other_gold_answers_of_a_common_question_are_reported(tmp_path: Path, caplog):
    a = write(tmp_path / "a.jsonl", [line("c1", 0, "x", "y"), line("c1", 1, "x", "y")])
    b = write(tmp_path / "b.jsonl", [line("c1", 0, "x", "z"), line("c1", 1, "x", "y")])
    score_files([a, b], [], None)
    assert "1 of 2 common questions have other gold answers" in caplog.text


# Bad input


def without(name: str) -> dict:
    return {key: value for key, value in HAND_WRITTEN[1].items() if key != name}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (HAND_WRITTEN[1] | {"gold": []}, "line 2, field gold: no gold answer"),
        (HAND_WRITTEN[1] | {"gold": ["Lima"]}, "line 2, field gold[0]: must be an object"),
        (HAND_WRITTEN[1] | {"gold": [{"id": "Q1"}]}, "line 2, field gold[0].label: missing"),
        (without("conversation"), "line 2, field conversation: missing"),
        (without("turn"), "line 2, field turn: missing"),
        (without("answer"), "line 2, field answer: missing"),
        (without("candidates"), "line 2, field candidates: missing"),
        (HAND_WRITTEN[1] | {"answer": ["Lima"]}, "line 2, field answer: must be a string"),
        (HAND_WRITTEN[1] | {"candidates": [{}]}, "line 2, field candidates[0].label: missing"),
        (HAND_WRITTEN[1] | {"num_tokens": "9"}, "line 2, field num_tokens: must be a number"),
        (HAND_WRITTEN[1] | {"num_tokens": True}, "line 2, field num_tokens: must be a number"),
        (HAND_WRITTEN[1] | {"logprob": 0.5}, "line 2, field logprob: must be a number up to 0"),
        (HAND_WRITTEN[1] | {"milliseconds": -1}, "line 2, field milliseconds: must be a number"),
        (HAND_WRITTEN[1] | {"milliseconds": 10**400}, "line 2, field milliseconds: must be a"),
        (HAND_WRITTEN[1] | {"turn_index": 0.5}, "line 2, field turn_index: must be a whole"),
        (
            HAND_WRITTEN[1] | {"answer_in_evidence": "kb"},
            "line 2, field answer_in_evidence: must be a list",
        ),
        (HAND_WRITTEN[0], "line 2, field turn: this question is answered in line 1 already"),
        ('{"conversation": ', "line 2: each line must be a whole JSON object"),
        ("[]", "line 2: each line must be a JSON object"),
        ({"id": "c1", "turns": []}, "line 2: this is a conversation; predictions are needed"),
    ],
)
def test_a_malformed_line_names_file_line_and_field(tmp_path: Path, bad: Any, message: str):
    path = write(tmp_path / "bad.jsonl", [HAND_WRITTEN[0], bad])
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        read_predictions(path)
    assert str(caught.value).startswith(f"{path}, {message}")


def test_answers_without_gold_answers_are_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "some.jsonl", [without("gold"), HAND_WRITTEN[0]])
    assert [one.line for one in read_predictions(path)] == [2]
    assert "not scored: 1 line without a gold answer" in caplog.text
    with pytest.raises(ValueError, match=r"none\.jsonl: no gold answer in it"):
        read_predictions(write(tmp_path / "none.jsonl", [without("gold")]))


def test_an_empty_or_missing_file_is_an_error(tmp_path: Path):
    with pytest.raises(ValueError, match=r"empty\.jsonl: no prediction in it"):
        score_predictions(write(tmp_path / "empty.jsonl", []))
    with pytest.raises(ValueError, match=r"none\.jsonl: no such file"):
        score_predictions(tmp_path / "none.jsonl")


def test_nothing_is_written_where_a_file_is_malformed(tmp_path: Path, hand_written: Path, capsys):
    bad = write(tmp_path / "bad.jsonl", [without("gold")])
    with pytest.raises(ValueError, match="gold"):
        score_files([hand_written, bad], [], tmp_path / "out.json")
    assert capsys.readouterr().out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.jsonl", "hand.jsonl"]


def test_grouping_by_what_is_missing_or_unknown_is_an_error(tmp_path: Path):
    record = line("c", 0, "a", "a")
    del record["turn_index"]
    scores = score_predictions(write(tmp_path / "p.jsonl", [record]))
    with pytest.raises(ValueError, match=r"p\.jsonl, line 1, field turn_index: missing"):
        breakdown(scores, "turn")
    with pytest.raises(ValueError, match="--by: must be one of source, turn, domain, answer_type"):
        breakdown(scores, "colour")


def test_each_metric_stands_in_its_own_column(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One question whose values all differ: no two columns can be swapped."""
    monkeypatch.delenv("COLUMNS", raising=False)
    one = line(
        "c1", 0, "old Lima", "Lima", candidates=[QUITO, LIMA], answer_in_evidence=["kb"],
        num_tokens=123, milliseconds=4500, guess_at_5=0.75,
    )  # fmt: skip
    report = score_files([write(tmp_path / "one.jsonl", [one])], ["source"], None)
    expected = {
        "hit_at_1": 0.0, "hit_at_5": 1.0, "guess_at_1": 0.25, "guess_at_5": 0.75,
        "exact_match": 0.0, "f1": 2 / 3, "substring": 1.0,
        "answer_in_evidence": 1.0, "num_tokens": 123.0, "seconds": 4.5,
    }  # fmt: skip
    assert means(report["files"][0]["total"]) == pytest.approx(expected)
    header, row = capsys.readouterr().out.splitlines()[2:5:2]
    heads = " ".join(METRICS.values()).split()
    assert header.split()[-len(heads) :] == heads
    shown = ["0.000", "1.000", "0.250", "0.750", "0.000", "0.667", "1.000", "1.000", "123.0"]
    assert row.split()[-10:] == [*shown, "4.500"]


def test_an_entity_with_a_semicolon_in_its_label_is_one_answer(tmp_path: Path) -> None:
    named = {"id": "Q1", "label": "Tom; Jerry"}
    lines = [
        line("c", turn, "Tom; Jerry", candidates=[one], gold=[{"id": "Q1", "label": "The mouse"}])
        for turn, one in enumerate((named | {"logprob": -0.1}, named))
    ]
    scores = score_predictions(write(tmp_path / "p.jsonl", lines))
    assert scores.values[:, list(METRICS).index("hit_at_1")].tolist() == [1, 0]


def test_after_an_error_only_the_evidence_can_be_right(tmp_path: Path) -> None:
    lines = [
        line("c1", 0, "Lima", "Lima", error="cut off", answer_in_evidence=["kb"]),
        line("c1", 1, "Lima", "Lima", answer_in_evidence=None),
    ]
    del lines[1]["answer_in_evidence"]
    scores = score_predictions(write(tmp_path / "two.jsonl", lines))
    assert summarise(scores).num_errors == 1
    first, second = scores.values
    names = list(METRICS)
    right = {name for name, value in zip(names, first, strict=True) if value == 1}
    assert right == {"answer_in_evidence"}
    assert math.isnan(second[names.index("answer_in_evidence")])
