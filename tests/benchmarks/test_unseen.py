"""Questions over unseen documents, their scores, and the command that asks them."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from turngraph.benchmarks.quality.unseen.__main__ import main
from turngraph.benchmarks.quality.unseen.measures import (
    Scored,
    estimates,
    measures,
    perfect_error,
    risk_coverage,
    score,
    threshold,
)
from turngraph.benchmarks.quality.unseen.questions import read_asked
from turngraph.data.json_fields import iter_lines
from turngraph.data.jsonlines import write_conversations
from turngraph.data.scoring.metrics import answer_in_evidence
from turngraph.data.types import NOT_IN_EVIDENCE, Answer, Conversation, Turn
from turngraph.model.checkpoint import checkpoint_config
from turngraph.tests.tiny import tiny_conversation


@pytest.mark.parametrize("name", ["both", "second", "third"])
def test_the_documents_hold_the_answers_and_a_fifth_has_none(name: str) -> None:
    asked = read_asked(name)
    turns = [(c, turn) for c in asked.conversations for turn in c.turns]
    assert set(Counter(len(c.turns) for c in asked.conversations)) == {1, 2, 3, 4}
    assert set(Counter(c.domain for c, _ in turns).values()) == {20}
    unanswerable = Counter(c.domain for c, t in turns if not asked.accepted[c.id, t.id])
    assert set(unanswerable.values()) == {4}
    for conversation, turn in turns:
        document = [e for e in conversation.evidence if e.id.startswith(conversation.domain)]
        accepted = asked.accepted[conversation.id, turn.id]
        held = any(answer_in_evidence(gold, document) for gold in accepted)
        assert held == bool(accepted), turn.question
        assert turn.answers == (accepted[0] if accepted else (Answer(NOT_IN_EVIDENCE),))


def test_the_halves_share_no_question_but_the_documents() -> None:
    read, unread = read_asked("read"), read_asked("unread")
    assert len(read.accepted) == len(unread.accepted) == 50
    questions = [{t.question for c in one.conversations for t in c.turns} for one in (read, unread)]
    assert len(questions[0] & questions[1]) <= 5  # follow-ups such as "By whom?"
    assert read.conversations[0].evidence == unread.conversations[0].evidence
    assert read.hash != unread.hash


def test_diaries_have_a_pool_of_their_own() -> None:
    asked = read_asked("diaries")
    assert {c.domain for c in asked.conversations} == {"nora", "jonas"}
    assert asked.conversations[0].evidence[0].text.startswith("Nora Whelan (2021-01-04): New note")
    assert sum(not accepted for accepted in asked.accepted.values()) == 4
    assert asked.accepted["nora-0", "0"][0] == (Answer("Dominick Street"),)


def scored(confidence: list[float], right: list[bool], answerable: list[bool]) -> Scored:
    zeros = np.zeros(len(right))
    kinds = np.array(answerable), np.array(right), zeros, np.zeros(len(right), dtype=bool)
    ids = [str(index) for index in range(len(right))]
    return Scored(*kinds, np.array(confidence), zeros, zeros, ids, ids, True)


def test_the_threshold_keeps_nine_of_ten_right_answers() -> None:
    sure = [0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.1]
    one = scored([*sure, 0.6, 0.5, 0.99, 0.3], [True] * 10 + [False] * 4, [True] * 10 + [False] * 4)
    everything = np.arange(14)
    assert threshold(one, everything) == 0.55
    hits, _, withheld, error, risk = measures(one, everything)
    assert (hits, withheld) == (1.0, 0.5)
    assert risk == pytest.approx(1 / 7)  # of the seven surest, 0.99 is wrong
    assert 0 < error < 1
    assert measures(one, everything, least=0.98)[2] == 0.75
    assert all(e.low <= e.mean <= e.high for e in estimates(one, everything) if e.mean == e.mean)


def test_every_accepted_spelling_is_right_and_withholding_is_where_nothing_answers() -> None:
    asked = read_asked("read")

    def given(conversation: str, turn: str, answer: str) -> dict[str, object]:
        record: dict[str, object] = {"conversation": conversation, "turn": turn, "answer": answer}
        zeros = {"candidates": [], "evidence": [], "logprob": -1.0, "milliseconds": 500.0}
        return record | zeros | {"confidence": None}

    found = score(
        asked,
        [
            given("mill-read-0", "2", "20 shifts"),
            given("mill-read-0", "2", "21 shifts"),
            given("mill-read-0", "2", "Not in the evidence."),
            given("mill-read-1", "2", NOT_IN_EVIDENCE),
            given("mill-read-1", "2", "one pound"),
        ],
    )
    assert found.answerable.tolist() == [True, True, True, False, False]
    assert found.right.tolist() == [True, False, False, True, False]
    assert found.abstains.tolist() == [False, False, True, True, False]
    assert found.f1[:2].tolist() == [1.0, 0.5]
    assert found.confidence.tolist() == [math.exp(-1)] * 5
    assert not found.calibrated


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    unknown = (Turn("0", "Who rules Peru?", (Answer(NOT_IN_EVIDENCE),)),)
    conversations = [tiny_conversation(number) for number in range(3)]
    conversations.append(Conversation("no", "none", unknown, conversations[0].evidence))
    write_conversations(tmp_path / "questions.jsonl", conversations)
    return tmp_path / "questions.jsonl"


def test_checkpoints_answer_from_the_same_passages(
    tmp_path: Path, questions: Path, graph_checkpoint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output, zero_shot = tmp_path / "records.jsonl", tmp_path / "zero_shot"
    options = ["--checkpoint", graph_checkpoint, "--questions", str(questions)]
    options += ["--output", str(output), "--device", "cpu", "--max_new_tokens", "4"]
    main([*options, "--zero_shot", str(zero_shot)])
    said = capsys.readouterr().out
    model = checkpoint_config(zero_shot).model
    assert (model.evidence, model.lora, model.layer) == ("text", None, 0)
    _, *records = (record for _, record in iter_lines(output))
    read = {
        name: [
            (r["conversation"], r["turn"], r["evidence"])
            for r in records
            if r["checkpoint"] == name
        ]
        for name in (graph_checkpoint, str(zero_shot))
    }
    assert len(read[graph_checkpoint]) == 10
    assert sorted(read[graph_checkpoint], key=str) == sorted(read[str(zero_shot)], key=str)
    assert f"| all | {graph_checkpoint} | 9 + 1 |" in said
    assert f"| none | {zero_shot} | 0 + 1 | nan |" in said
    assert f"Not calibrated, the LM's own probability: {graph_checkpoint}, {zero_shot}" in said

    whole = output.read_text()
    output.write_text("".join(whole.splitlines(keepends=True)[:4]))
    main([*options, "--zero_shot", str(zero_shot)])
    again = [json.loads(line) for line in output.read_text().splitlines()[1:]]
    assert len(again) == len(records)
    assert {(r["checkpoint"], r["conversation"], r["turn"], r["answer"]) for r in again} == {
        (r["checkpoint"], r["conversation"], r["turn"], r["answer"]) for r in records
    }
    with pytest.raises(ValueError, match="measured with batch_size=1, now 2"):
        main([*options, "--batch_size", "2"])


def test_a_perfect_calibration_has_an_error_of_few_answers() -> None:
    sure = np.full(100, 0.5)
    binomial = np.random.default_rng(1).binomial(100, 0.5, 100_000)
    expected = float(np.abs(binomial / 100 - 0.5).mean())
    assert perfect_error(sure, num_draws=4000) == pytest.approx(expected, abs=0.002)
    assert perfect_error(np.ones(10)) == 0.0
    assert perfect_error(np.full(10_000, 0.5), num_draws=50) < expected / 5


def test_risk_by_coverage() -> None:
    curve = risk_coverage([0.2, 0.9, 0.5], [False, True, False])
    assert curve == [(1 / 3, 0.0), (2 / 3, 1 / 2), (1.0, 2 / 3)]
