"""A checkpoint that proposes answers while an LM chooses among them: in batches, in a chat."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from turngraph import infer
from turngraph.data.jsonlines import read_conversations, write_conversations
from turngraph.inference.choose import Choice
from turngraph.inference.options import LoadOptions, MemoryOptions
from turngraph.inference.propose import Proposer, load_proposer
from turngraph.inference.session import Session
from turngraph.model.checkpoint import load_checkpoint, read_checkpoint
from turngraph.tests.chatting import CONVERSATION, QUESTIONS, Loaded, Screen, evidence_of
from turngraph.tests.tiny import tiny_conversation

Json = dict[str, Any]
CONVERSATIONS = [tiny_conversation(number) for number in range(4)]


def answered(folder: Path, checkpoint: str, name: str, *options: object) -> list[Json]:
    """Records of ``infer.py answer`` without their times, in a file of that name."""
    write_conversations(folder / "input.jsonl", CONVERSATIONS)
    arguments = ["--checkpoint", checkpoint, "--input", folder / "input.jsonl"]
    infer.main(["answer", *map(str, [*arguments, "--output", folder / name, *options])])
    text = (folder / name).read_text(encoding="utf-8")
    return [json.loads(line) | {"milliseconds": 0} for line in text.splitlines()]


def proposer(checkpoint: str, nodes: str, weight: float = 1.0) -> Proposer:
    choice = Choice(nodes, weight, num=20, checkpoint=read_checkpoint(nodes))
    found = load_proposer(choice, read_checkpoint(checkpoint), LoadOptions(device="cpu"))
    assert found is not None
    return found


@pytest.fixture
def session(graph_model: Loaded, graph_checkpoint: str, nodes_checkpoint: str) -> Session:
    asked = proposer(graph_checkpoint, nodes_checkpoint)
    return Session(*graph_model, CONVERSATION.evidence, max_new_tokens=8, proposer=asked)


@pytest.mark.parametrize("options", [(), ("--max_questions", 5)])
def test_a_checkpoint_proposes_what_its_predictions_do(
    options: tuple[object, ...], graph_checkpoint: str, nodes_checkpoint: str, tmp_path: Path
) -> None:
    answered(tmp_path, nodes_checkpoint, "nodes.jsonl", *options)
    choose = ("--proposal_weight", 0.5, "--num_proposals", 4, *options, "--proposals")
    by_file = answered(tmp_path, graph_checkpoint, "a.jsonl", *choose, tmp_path / "nodes.jsonl")
    asked = answered(tmp_path, graph_checkpoint, "b.jsonl", *choose, nodes_checkpoint)
    assert asked == by_file
    assert all(len(record["candidates"]) == 4 for record in asked)


@pytest.mark.parametrize("change", [("--cut_edges", "all"), ("--evidence_of", "other")])
def test_a_control_changes_what_both_models_read(
    change: tuple[str, str], graph_checkpoint: str, nodes_checkpoint: str, tmp_path: Path
) -> None:
    def numbers(records: list[Json], name: str) -> list[dict[str, float]]:
        return [{c["id"]: c[name] for c in record["candidates"]} for record in records]

    nodes = answered(tmp_path, nodes_checkpoint, "nodes.jsonl", *change)
    options = ("--proposals", nodes_checkpoint)
    asked = answered(tmp_path, graph_checkpoint, "a.jsonl", *options, *change)
    whole = answered(tmp_path, graph_checkpoint, "b.jsonl", *options)
    assert numbers(asked, "proposed") == numbers(nodes, "logprob")
    for name in ("proposed", "written"):
        assert numbers(asked, name) != numbers(whole, name)


def test_with_predicted_history_each_turn_is_proposed_to_anew(
    graph_checkpoint: str, nodes_checkpoint: str, tmp_path: Path
) -> None:
    options = ("--proposals", nodes_checkpoint, "--history", "predicted")
    records = answered(tmp_path, graph_checkpoint, "predicted.jsonl", *options)
    gold = answered(tmp_path, graph_checkpoint, "gold.jsonl", *options[:2])
    firsts = [number for number, record in enumerate(records) if record["turn_index"] == 0]
    assert len(firsts) == len(CONVERSATIONS)
    for number, (record, by_gold) in enumerate(zip(records, gold, strict=True)):
        named = [candidate["id"] for candidate in record["candidates"]]
        assert record["answer"] == record["candidates"][0]["label"]
        if number in firsts:
            assert named == [candidate["id"] for candidate in by_gold["candidates"]]
    proposed = [[c["proposed"] for c in of["candidates"]] for of in (*records, *gold)]
    assert proposed[: len(records)] != proposed[len(records) :]


def test_a_chat_chooses_as_infer_answer_does(
    session: Session, graph_checkpoint: str, nodes_checkpoint: str, tmp_path: Path
) -> None:
    write_conversations(tmp_path / "chat.jsonl", [CONVERSATION])
    arguments = ["--checkpoint", graph_checkpoint, "--input", tmp_path / "chat.jsonl"]
    arguments += ["--output", tmp_path / "out.jsonl", "--history", "predicted"]
    arguments += ["--proposals", nodes_checkpoint, "--max_new_tokens", 8]
    infer.main(["answer", *map(str, arguments)])
    lines = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    said = Screen(session)(*QUESTIONS)
    assert len(lines) == len(QUESTIONS)
    for turn, record in zip(session.turns, map(json.loads, lines), strict=True):
        assert turn.record["answer"] == record["answer"]
        assert f"> {record['question']}\n{record['answer']}\n" in said


def test_what_the_proposing_model_read_is_shown_and_saved(session: Session, tmp_path: Path) -> None:
    turn = session.ask(QUESTIONS[0])
    assert turn.proposing is not None
    of_lm, of_nodes = evidence_of(turn.example), evidence_of(turn.proposing)
    shown = evidence_of(turn.shown)
    assert shown[: len(of_lm)] == of_lm
    texts = [text for text, _, _ in shown]
    assert len(set(texts)) == len(texts) > len(of_lm)
    assert set(texts) == {text for text, _, _ in (*of_lm, *of_nodes)}
    assert all(text.split(",")[0] in Screen(session)("/evidence") for text in texts)
    assert len(session.why().passages) == len(of_lm)  # the LM's answer hangs on what it has read
    [saved] = read_conversations(session.save(tmp_path / "talk.jsonl"))
    assert [passage.text for passage in saved.turns[0].evidence] == texts


def test_a_turn_that_is_taken_back_leaves_nothing_to_propose_from(session: Session) -> None:
    for question in QUESTIONS:
        turn = session.ask(question)
    before = evidence_of(turn.shown)
    for _ in QUESTIONS:
        session.undo()
    assert [len(memory) for memory in session.memories] == [0, 0]
    for question in QUESTIONS:
        turn = session.ask(question)
    assert evidence_of(turn.shown) == before


def test_where_nothing_is_proposed_the_chat_says_so_and_goes_on(
    graph_model: Loaded, graph_checkpoint: str, nodes_checkpoint: str
) -> None:
    asked = proposer(graph_checkpoint, nodes_checkpoint)
    bare = Session(*graph_model, (), max_new_tokens=8, proposer=asked)
    said = " ".join(Screen(bare, width=500)(QUESTIONS[0], "/evidence").split())
    assert f"error: --proposals {nodes_checkpoint}: no entity is proposed for this question" in said
    assert "error: no question was answered yet" in said
    assert bare.turns == []


def test_where_the_proposing_model_has_no_memory_left_the_chat_says_what_helps(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*args: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    assert session.proposer is not None
    with monkeypatch.context() as patch:
        patch.setattr(session.proposer.model, "entity_logprobs", no_memory)
        said = Screen(session)(QUESTIONS[0])
    assert "error: out of memory; /undo removes turns" in said
    assert "keep_going" not in said
    assert session.turns == []
    assert session.ask(QUESTIONS[0]).record["answer"]


def test_both_models_recall_from_the_same_memory_graph(
    graph_model: Loaded, graph_checkpoint: str, nodes_checkpoint: str, tmp_path: Path
) -> None:
    asked = proposer(graph_checkpoint, nodes_checkpoint)
    db, size = MemoryOptions(tmp_path / "my.db"), CONVERSATION.evidence[:4]
    session = Session(*graph_model, size, db, max_new_tokens=8, proposer=asked)
    assert len({id(memory.graph) for memory in session.memories}) == 1
    session.ask("Ada lives in Lima. Is it warm there?")
    turn = session.ask("Where does Ada live?")
    assert turn.proposing is not None
    for example in (turn.example, turn.proposing):
        assert any("Ada lives in Lima" in item.evidence.text for item in example.evidence)
    session.undo()
    session.remember()
    assert session.memory.graph is not None
    assert session.memory.graph.num_turns == 1
    session.close()


def test_what_cannot_propose_is_refused(
    graph_checkpoint: str, nodes_checkpoint: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"model.answers is text, so it proposes nothing"):
        answered(tmp_path, graph_checkpoint, "out.jsonl", "--proposals", graph_checkpoint)
    above = Path(nodes_checkpoint).parent
    with pytest.raises(ValueError, match=r"not a checkpoint.*did you mean .*nodes"):
        answered(tmp_path, graph_checkpoint, "out.jsonl", "--proposals", above)
    with pytest.raises(ValueError, match=r"none.jsonl"):
        answered(tmp_path, graph_checkpoint, "out.jsonl", "--proposals", tmp_path / "none.jsonl")
    answered(tmp_path, nodes_checkpoint, "nodes.jsonl")
    found = ["--proposals", str(tmp_path / "nodes.jsonl")]
    with pytest.raises(ValueError, match="a chat needs the checkpoint that makes them"):
        infer.main(["chat", "--checkpoint", graph_checkpoint, *found])


def test_nodes_keep_no_lm(nodes_checkpoint: str) -> None:
    model = load_checkpoint(Path(nodes_checkpoint))
    assert model.lm is None
    assert model.max_tokens is None
    assert {name.split(".")[0] for name, _ in model.named_parameters()} == {"scorer"}
