"""Answering with a checkpoint: records, history, controls; nothing looks at the gold."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from turngraph import infer, memory
from turngraph.configs.schema import Config, EvidenceConfig, TrainingConfig
from turngraph.data.jsonlines import write_conversations
from turngraph.data.types import Answer, Conversation, target_answer
from turngraph.inference.options import AnswerOptions
from turngraph.inference.questions import other_pools
from turngraph.tests.tiny import tiny_conversation

Json = dict[str, Any]


@pytest.fixture
def checkpoint(graph_checkpoint: str) -> str:
    return graph_checkpoint


CONVERSATIONS = [tiny_conversation(number) for number in range(4)]


def answer(
    checkpoint: str,
    folder: Path,
    *options: object,
    conversations: list[Conversation] = CONVERSATIONS,
) -> list[Json]:
    """Records of ``infer.py answer`` for some conversations."""
    write_conversations(folder / "input.jsonl", conversations)
    output = folder / "predictions.jsonl"
    arguments = ["--checkpoint", checkpoint, "--input", folder / "input.jsonl"]
    arguments += ["--output", output, "--max_new_tokens", 5, "--fresh", *options]
    infer.main(["answer", *map(str, arguments)])
    return [json.loads(line) for line in output.read_text(encoding="utf-8").split("\n")[:-1]]


@pytest.fixture(scope="module")
def plain(graph_checkpoint: str, tmp_path_factory: pytest.TempPathFactory) -> list[Json]:
    """Records with gold history."""
    return answer(graph_checkpoint, tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def predicted(graph_checkpoint: str, tmp_path_factory: pytest.TempPathFactory) -> list[Json]:
    """Records with predicted history."""
    return answer(graph_checkpoint, tmp_path_factory.mktemp("plain"), "--history", "predicted")


def timeless(records: list[Json]) -> list[Json]:
    """Records without what differs between two runs of the same."""
    return [{k: v for k, v in record.items() if k != "milliseconds"} for record in records]


def test_records_have_the_fields_of_the_design_in_the_order_of_the_file(
    plain: list[Json],
) -> None:
    records = plain
    keys = [(c.id, t.id) for c in CONVERSATIONS for t in c.turns]
    assert [(record["conversation"], record["turn"]) for record in records] == keys
    turns = [turn for conversation in CONVERSATIONS for turn in conversation.turns]
    for record, turn in zip(records, turns, strict=True):
        assert record["question"] == turn.question
        assert isinstance(record["answer"], str)
        assert record["gold"] == [{"label": a.label, "id": a.id} for a in turn.answers]
        assert record["source"] == turn.source
        assert record["domain"] == "tiny"
        assert record["logprob"] < 0
        assert record["num_tokens"] > 50
        assert record["milliseconds"] > 0
        assert len(record["evidence"]) == 4
        for item in record["evidence"]:
            assert set(item) == {"id", "source", "score", "from_turn"}
            assert 0 <= item["from_turn"] <= record["turn_index"]
        assert len(record["candidates"]) <= 5
        assert record["hit_at_1"] <= record["hit_at_5"]
    assert any(item["from_turn"] < r["turn_index"] for r in records for item in r["evidence"])


def test_score_reads_what_answer_writes(
    checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = answer(checkpoint, tmp_path)
    path, numbers = tmp_path / "predictions.jsonl", tmp_path / "scores.json"
    by = ("--by", "source", "turn", "domain", "answer_type")
    infer.main(["score", "--predictions", str(path), *by, "--output_json", str(numbers)])
    assert "H@1" in capsys.readouterr().out
    hits = sum(record["hit_at_1"] for record in records) / len(records)
    found = json.dumps(json.loads(numbers.read_text()))
    assert str(round(hits, 4)) in found or str(hits) in found


def test_batch_size_changes_no_record(checkpoint: str, tmp_path: Path) -> None:
    """But for the rounding of sums in another order, which differs from processor to processor."""
    alone = timeless(answer(checkpoint, tmp_path, "--batch_size", 1))
    assert len({record["answer"] for record in alone}) > 4
    for size in (3, 16):
        together = timeless(answer(checkpoint, tmp_path, "--batch_size", size))
        for record, other in zip(together, alone, strict=True):
            for name in ("logprob", "margin"):
                assert record.pop(name) == pytest.approx(other[name], abs=0.01)
            assert record == {name: other[name] for name in record}


def without_gold(conversation: Conversation) -> Conversation:
    turns = [replace(turn, answers=()) for turn in conversation.turns]
    return replace(conversation, turns=tuple(turns))


def test_answers_and_candidates_do_not_look_at_the_gold(
    checkpoint: str, tmp_path: Path, predicted: list[Json]
) -> None:
    known = predicted
    bare = [without_gold(conversation) for conversation in CONVERSATIONS]
    blind = answer(checkpoint, tmp_path, "--history", "predicted", conversations=bare)
    gold = {"gold", "answer_in_evidence", "hit_at_1", "hit_at_5", "guess_at_1", "guess_at_5"}
    assert not gold & set(blind[0])
    assert gold <= set(known[0])
    expected = [{k: v for k, v in record.items() if k not in gold} for record in known]
    assert timeless(blind) == timeless(expected)


def test_gold_history_fills_the_interaction_and_never_the_answer(
    checkpoint: str, tmp_path: Path, plain: list[Json]
) -> None:
    before = plain
    first = CONVERSATIONS[0]
    last = replace(first.turns[2], answers=(Answer("something else", "X"),))
    middle = replace(first.turns[1], answers=(Answer("something else", "X"),))
    changed = replace(first, turns=(*first.turns[:2], last))
    after = answer(checkpoint, tmp_path, conversations=[changed, *CONVERSATIONS[1:]])
    assert [r["answer"] for r in after] == [r["answer"] for r in before]
    changed = replace(first, turns=(first.turns[0], middle, first.turns[2]))
    after = answer(checkpoint, tmp_path, conversations=[changed, *CONVERSATIONS[1:]])
    assert after[2]["num_tokens"] != before[2]["num_tokens"]
    assert [r["answer"] for r in after[3:]] == [r["answer"] for r in before[3:]]


def test_predicted_history_is_what_was_answered(
    checkpoint: str, tmp_path: Path, plain: list[Json], predicted: list[Json]
) -> None:
    """Its own answers, given as if they were gold, lead to the same answers."""
    given = iter(predicted)
    conversations = [
        replace(
            c,
            turns=tuple(replace(t, answers=(Answer(next(given)["answer"]),)) for t in c.turns),
        )
        for c in CONVERSATIONS
    ]
    again = answer(checkpoint, tmp_path, conversations=conversations)
    assert [r["answer"] for r in again] == [r["answer"] for r in predicted]
    assert [r["answer"] for r in plain] != [r["answer"] for r in predicted]


def test_conversations_of_different_length_with_predicted_history(
    checkpoint: str, tmp_path: Path
) -> None:
    first = CONVERSATIONS[0]
    uneven = [replace(first, turns=first.turns[:1]), CONVERSATIONS[1]]
    records = answer(checkpoint, tmp_path, "--history", "predicted", conversations=uneven)
    keys = [(record["conversation"], record["turn"]) for record in records]
    assert keys == [("c0", "0"), ("c1", "0"), ("c1", "1"), ("c1", "2")]


def test_evidence_of_other_conversations(checkpoint: str, tmp_path: Path) -> None:
    renamed = [
        replace(c, evidence=tuple(replace(e, id=f"{c.id}/{e.id}") for e in c.evidence))
        for c in CONVERSATIONS
    ]
    own = answer(checkpoint, tmp_path, conversations=renamed)
    ids = [c.id for c in renamed]
    next_ = dict(zip(ids, [*ids[1:], ids[0]], strict=True))
    for history in ("gold", "predicted"):
        options = ("--evidence_of", "other", "--history", history)
        other = answer(checkpoint, tmp_path, *options, conversations=renamed)
        for record, same in zip(other, own, strict=True):
            pools = {item["id"].split("/")[0] for item in record["evidence"]}
            assert pools == {next_[record["conversation"]]}
            assert {i["id"].split("/")[0] for i in same["evidence"]} == {record["conversation"]}


def test_one_pool_for_all_has_no_other(checkpoint: str, tmp_path: Path) -> None:
    shared = [replace(c, evidence=CONVERSATIONS[0].evidence) for c in CONVERSATIONS]
    with pytest.raises(ValueError, match="same evidence"):
        answer(checkpoint, tmp_path, "--evidence_of", "other", conversations=shared)


def test_a_copy_of_a_pool_is_no_other_pool() -> None:
    first, second = CONVERSATIONS[0], replace(CONVERSATIONS[1], evidence=())
    copied = [replace(passage) for passage in first.evidence]
    third = replace(CONVERSATIONS[2], evidence=tuple(copied))
    pools = other_pools([first, third, second])
    assert pools == [(), (), first.evidence]
    with pytest.raises(ValueError, match="same evidence"):
        other_pools([first, third])


@pytest.mark.parametrize(
    ("edges", "cut"), [("none", "all"), ("no_entity", "entity"), ("no_entity", "shuffle")]
)
def test_edges_that_a_checkpoint_lacks_cannot_be_cut(edges: Any, cut: Any) -> None:
    settings = EvidenceConfig(edges=edges)
    config = Config(evidence=settings, training=TrainingConfig(max_steps=0, max_new_tokens=4))
    message = f"--cut_edges {cut}: the checkpoint has evidence.edges: {edges}$"
    with pytest.raises(ValueError, match=message):
        AnswerOptions(cut_edges=cut).resolved(config)
    found = [AnswerOptions(max_new_tokens=n).resolved(config).max_new_tokens for n in (None, 2)]
    assert found == [4, 2]


@pytest.mark.parametrize("history", ["gold", "predicted"])
def test_cut_edges_reach_the_model(
    history: str, checkpoint: str, tmp_path: Path, plain: list[Json], predicted: list[Json]
) -> None:
    whole = plain if history == "gold" else predicted
    for kind in ("entity", "all"):
        cut = answer(checkpoint, tmp_path, "--cut_edges", kind, "--history", history)
        first = [i for i, record in enumerate(whole) if record["turn_index"] == 0]
        assert [cut[i]["num_tokens"] for i in first] == [whole[i]["num_tokens"] for i in first]
        assert [cut[i]["logprob"] for i in first] != [whole[i]["logprob"] for i in first]


def test_a_draw_of_questions_is_the_same_each_time_and_part_of_a_larger_one(
    checkpoint: str, tmp_path: Path, plain: list[Json]
) -> None:
    everything = timeless(plain)
    few, more = (timeless(answer(checkpoint, tmp_path, "--max_questions", n)) for n in (3, 6))
    assert (len(few), len(more)) == (3, 6)
    assert all(record in more for record in few)
    assert all(record in everything for record in more)  # memory as if all had been asked
    assert timeless(answer(checkpoint, tmp_path, "--max_questions", 3)) == few


def test_single_answers_only(checkpoint: str, tmp_path: Path) -> None:
    first = CONVERSATIONS[0]
    both = replace(first.turns[1], answers=(Answer("one"), Answer("two")))
    conversations = [replace(first, turns=(first.turns[0], both, first.turns[2]))]
    records = answer(checkpoint, tmp_path, "--single_answers_only", conversations=conversations)
    assert [record["turn"] for record in records] == ["0", "2"]
    records = answer(checkpoint, tmp_path, conversations=conversations)
    assert target_answer(both.answers) == "; ".join(g["label"] for g in records[1]["gold"])


def test_a_draw_is_refused_with_predicted_history(checkpoint: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--history predicted answers every turn"):
        answer(checkpoint, tmp_path, "--history", "predicted", "--max_questions", 2)


@pytest.mark.parametrize("option", ["--batch_size", "--max_questions", "--max_new_tokens"])
@pytest.mark.parametrize("value", ["0", "-1", "x"])
def test_counts_must_be_positive(
    option: str, value: str, checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        answer(checkpoint, tmp_path, f"{option}={value}")
    assert stopped.value.code == 2
    assert f"argument {option}: '{value}' given" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_found_before_the_first_answer(
    checkpoint: str, tmp_path: Path
) -> None:
    """Also before the model is loaded, whose base model is not there."""
    write_conversations(tmp_path / "conversations.jsonl", [tiny_conversation(0, "one")])
    (tmp_path / "out").mkdir()
    command = ["answer", "--checkpoint", checkpoint, "--base_model", "./none"]
    command += ["--output", str(tmp_path / "out")]
    with pytest.raises(ValueError, match="cannot be written"):
        infer.main([*command, "--input", str(tmp_path / "conversations.jsonl")])


@pytest.mark.parametrize("device", ["nonsense", "cuda", "cuda:7", "cpu:1", "meta"])
def test_a_device_that_is_not_there_is_found_before_anything_is_read(
    device: str, checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    options = ["--checkpoint", checkpoint, "--device", device]
    new, wrong = str(tmp_path / "new" / "out"), tmp_path / "wrong.jsonl"
    wrong.write_text("no JSON", encoding="utf-8")
    for command in (
        ["answer", "--input", str(wrong), "--output", new],
        ["chat", "--evidence", str(wrong)],
        ["export", "--prompts", new, "--input", str(wrong)],
    ):
        with pytest.raises(ValueError, match=f"--device '{device}'"):
            infer.main([*command, *options])
    assert not (tmp_path / "new").exists()


def test_a_checkpoint_that_is_not_there_is_found_before_anything_is_read(tmp_path: Path) -> None:
    options = ["--checkpoint", str(tmp_path / "nope")]
    new, missing = str(tmp_path / "new" / "out"), str(tmp_path / "missing.jsonl")
    for command in (
        ["answer", "--input", missing, "--output", new],
        ["chat", "--evidence", missing],
        ["export", "--prompts", new, "--input", missing],
    ):
        with pytest.raises(ValueError, match="nope: no such folder"):
            infer.main([*command, *options])
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("main", [infer.main, memory.main])
def test_a_command_must_be_named(main: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([])
    assert "the following arguments are required: " in capsys.readouterr().err
