"""Confidence: fitted on records, in the checkpoint, beside answers, and as a reason to abstain."""

from __future__ import annotations

import json
import math
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from sklearn import model_selection

from turngraph import infer, load
from turngraph.configs.json_files import file_hash
from turngraph.data.jsonlines import write_conversations
from turngraph.data.scoring.confidence import (
    FEATURES,
    Calibration,
    Confidence,
    expected_error,
    features,
)
from turngraph.data.types import NOT_IN_EVIDENCE
from turngraph.model.checkpoint import MANIFEST, METRICS
from turngraph.tests.chatting import Screen
from turngraph.tests.tiny import tiny_conversation
from turngraph.training.calibrate import calibrate

Json = dict[str, Any]
SURE = Calibration((0.2, 0.0, 0.0, 0.0), 1.0, 100, 0.05)


def record(logprob: float, **more: Any) -> Json:
    return {
        "conversation": "c", "logprob": logprob, "margin": 1.0, "answer": "Lima",
        "evidence": [{"score": 3.0}], "candidates": [{"label": "lima"}], "hit_at_1": True,
    } | more  # fmt: skip


def test_the_features_of_a_record() -> None:
    assert features(record(-2.0)) == [-2.0, 1.0, 1.0, 1.0]
    assert features(record(-2.0, candidates=[{"label": "Peru"}, {"label": "Lima"}]))[2] == 0
    other = record(-1e9, margin=math.inf, evidence=[], answer="Oslo", held=0.25)
    assert features(other) == [-50.0, 50.0, 0.0, 0.25]


def test_a_fit_finds_how_often_answers_are_right() -> None:
    rng, found = random.Random(0), []
    for number in range(4000):
        logprob = -6 * rng.random()
        right = rng.random() < 1 / (1 + math.exp(-(3 + logprob)))
        found.append(record(logprob, hit_at_1=right, conversation=str(number % 40)))
    calibration = calibrate(found)
    assert calibration is not None
    assert calibration.expected_error < 0.03
    assert calibration.num_questions == 4000
    for logprob in (-5.0, -3.0, -1.0):
        assert calibration.probability(record(logprob)) == pytest.approx(
            1 / (1 + math.exp(-(3 + logprob))), abs=0.03
        )


def test_no_fit_is_tried_on_the_conversations_that_it_has_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    splits, predict = list[list[Any]](), model_selection.cross_val_predict

    def note(*given: Any, cv: list[Any], **named: Any) -> Any:
        splits.append(cv)
        return predict(*given, cv=cv, **named)

    monkeypatch.setattr(model_selection, "cross_val_predict", note)
    for num in (2, 6):
        found = [record(-n, hit_at_1=n % 3 > 0, conversation=str(n % num)) for n in range(60)]
        assert calibrate(found) is not None
        for seen, held_out in splits[-1]:
            assert not {n % num for n in seen} & {n % num for n in held_out}
    assert list(map(len, splits)) == [2, 5]


def test_none_is_invented_where_there_is_too_little_to_fit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    wrong = [record(-1.0, hit_at_1=False, conversation=str(n)) for n in range(50)]
    assert calibrate([]) is None
    assert calibrate(wrong) is None
    assert calibrate([*wrong, *(record(-0.5) for _ in range(9))]) is None
    enough = [record(-0.5, conversation=str(n)) for n in range(10)]
    assert calibrate([*wrong, *enough]) is not None
    alone = [record(-n, hit_at_1=n % 2 == 0) for n in range(40)]
    assert calibrate(alone) is None  # one conversation: nothing to hold out
    apart = [record(-n, hit_at_1=n < 20, conversation=str(n < 20)) for n in range(40)]
    assert calibrate(apart) is None  # a fit on either conversation sees right or wrong ones alone
    rare = [record(-n, hit_at_1=n % 2 == 0, conversation=str(n == 18)) for n in range(19)]
    wrong = [record(-n, hit_at_1=False, conversation=str(n % 2)) for n in range(4)]
    assert calibrate([*rare, *wrong]) is not None  # a fit on a single right answer
    said = [line for line in caplog.messages if "confidence is not calibrated" in line]
    assert len(said) == 5
    assert "9 right and 50 wrong answers to tune questions of 51 conversations" in said[2]


def test_an_answer_that_is_not_sure_enough_is_withheld() -> None:
    kept = Confidence(SURE, 0.5).applied(record(-1.0))
    assert kept["answer"] == "Lima"
    assert kept["confidence"] == pytest.approx(1 / (1 + math.exp(-0.8)), abs=1e-4)
    even = Calibration((0.0,) * len(FEATURES), 0.0, 100, 0.05)
    assert "withheld" not in Confidence(even, 0.5).applied(record(-1.0))  # not below it
    withheld = Confidence(SURE, 0.8).applied(record(-1.0, hit_at_5=True))
    assert (withheld["answer"], withheld["withheld"]) == (NOT_IN_EVIDENCE, "Lima")
    assert (withheld["candidates"], withheld["hit_at_1"]) == ([], False)
    assert withheld["hit_at_5"] is False
    unscored = {key: value for key, value in record(-1.0).items() if key != "hit_at_1"}
    assert not {"hit_at_1", "hit_at_5"} & Confidence(SURE, 0.8).applied(unscored).keys()
    assert "withheld" not in Confidence(SURE, None).applied(record(-40.0))


def test_answers_from_memory_alone_have_a_confidence_of_their_own() -> None:
    even = Calibration((0.0,) * len(FEATURES), 0.0, 100, 0.05)
    both = Confidence(SURE, None, of_memory=Confidence(even, 0.6))
    remembered, read = {"score": 1.0, "source": "memory"}, {"score": 1.0, "source": "text"}
    for evidence, is_memory in (([remembered] * 2, True), ([remembered, read], False), ([], False)):
        given = both.applied(record(-1.0) | {"evidence": evidence})
        assert (given["confidence"] == 0.5) == is_memory
        assert ("withheld" in given) == is_memory


@pytest.mark.parametrize("evidence", [[], [{"score": 0.0}, {"score": 0.0}]])
def test_an_answer_from_nothing_that_matches_the_question_is_withheld(evidence: list[Any]) -> None:
    asked = record(-0.1) | {"evidence": evidence}
    withheld = Confidence(SURE, 0.0).applied(asked)
    assert (withheld["answer"], withheld["withheld"]) == (NOT_IN_EVIDENCE, "Lima")
    assert Confidence(SURE, None).applied(asked)["answer"] == "Lima"


def test_measures_of_confidence() -> None:
    assert expected_error([0.9, 0.9, 0.1, 0.1], [True, True, False, False]) == pytest.approx(0.1)
    assert expected_error([1.0, 1.0], [False, False]) == 1
    assert expected_error([0.04, 0.06, 0.14], [False, False, True]) == pytest.approx(0.96 / 3)
    assert expected_error([], []) == 0


@pytest.mark.parametrize(
    "wrong",
    [3, {}, SURE.to_json() | {"weights": [1]}, SURE.to_json() | {"bias": math.nan},
     SURE.to_json() | {"features": ["logprob"]}],
)  # fmt: skip
def test_a_wrong_calibration_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"^metrics\.json: no calibration of logprob, margin"):
        Calibration.from_json(wrong, "metrics.json")


def test_it_is_read_from_the_checkpoint(
    graph_checkpoint: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Chat, answer and their option; a checkpoint without one says what is missing."""
    folder = shutil.copytree(graph_checkpoint, tmp_path / "best")
    conversation = tiny_conversation(1)
    write_conversations(tmp_path / "in.jsonl", [conversation])
    argv = ["answer", "--checkpoint", str(folder), "--input", str(tmp_path / "in.jsonl")]
    argv += ["--max_new_tokens", "3", "--device", "cpu", "--output"]
    caplog.set_level("INFO")
    infer.main([*argv, str(tmp_path / "none.jsonl")])
    uncalibrated = [json.loads(line) for line in (tmp_path / "none.jsonl").open()]
    assert [r["confidence"] for r in uncalibrated] == [None] * len(conversation.turns)
    assert f"answers have no confidence: {folder} is not calibrated" in caplog.text
    with pytest.raises(ValueError, match="has no calibrated confidence"):
        infer.main([*argv, str(tmp_path / "a.jsonl"), "--abstain_below", "0.5"])

    (folder / METRICS).write_text(json.dumps({"confidence": SURE.to_json()}))
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"][METRICS] = file_hash(folder / METRICS)
    (folder / MANIFEST).write_text(json.dumps(manifest))
    infer.main([*argv, str(tmp_path / "b.jsonl")])
    infer.main([*argv, str(tmp_path / "c.jsonl"), "--abstain_below", "0.999"])
    plain, cut = (
        [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        for name in ("b.jsonl", "c.jsonl")
    )
    assert [r["confidence"] for r in plain] == [r["confidence"] for r in cut]
    assert [r["answer"] for r in plain] == [r["withheld"] for r in cut]
    assert {r["answer"] for r in cut} == {NOT_IN_EVIDENCE}
    infer.main(["score", "--predictions", str(tmp_path / "c.jsonl")])

    chat = load(folder, device="cpu").chat(conversation.evidence, max_new_tokens=3)
    answer = chat.ask(conversation.turns[0].question)
    assert answer.confidence == SURE.probability(answer.record) or answer.confidence == (
        pytest.approx(SURE.probability(answer.record), abs=1e-4)
    )
    assert answer.probability == pytest.approx(math.exp(answer.record["logprob"]))
    assert len(FEATURES) == len(SURE.weights)
    strict = load(folder, device="cpu").chat(
        conversation.evidence, max_new_tokens=3, abstain_below=1
    )
    assert list(strict.stream(conversation.turns[0].question)) == [NOT_IN_EVIDENCE]
    assert strict.why().answer == answer.text
    shown = Screen(strict)(conversation.turns[1].question)
    assert f"\n{NOT_IN_EVIDENCE}\n" in shown
    assert "withheld: " in shown
    why = tmp_path / "why.html"
    one = ["--max_questions", "1", "--abstain_below", "1", "--explain", str(why)]
    infer.main([*argv, str(tmp_path / "d.jsonl"), *one])
    page = why.read_text(encoding="utf-8")
    assert "<dt>Withheld answer</dt>" in page
    assert NOT_IN_EVIDENCE not in page
    with pytest.raises(ValueError, match="abstain_below: 2 given"):
        load(folder, device="cpu").chat(abstain_below=2)
