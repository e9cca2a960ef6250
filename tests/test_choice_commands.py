"""A checkpoint that chooses inside itself, in every command: answered, chatted with, explained."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM

import turngraph
from turngraph import infer
from turngraph.benchmarks.quality import faithfulness
from turngraph.data.jsonlines import write_conversations
from turngraph.data.types import Conversation, Turn
from turngraph.inference.api import QA, load
from turngraph.inference.serve.serve_options import ServeOptions
from turngraph.inference.serve.service import Service
from turngraph.inference.session import Session
from turngraph.tests.chatting import CONVERSATION, QUESTIONS, Screen, evidence_of
from turngraph.tests.tiny import tiny_conversation

Json = dict[str, Any]
CONVERSATIONS = [tiny_conversation(number) for number in range(4)]
Answered = Callable[..., list[Json]]


@pytest.fixture
def answered(choice_checkpoint: str, tmp_path: Path) -> Answered:
    """Records of ``turngraph answer`` without their times, in a file of that name."""

    def run(name: str, *options: object, checkpoint: str = choice_checkpoint) -> list[Json]:
        write_conversations(tmp_path / "input.jsonl", CONVERSATIONS)
        given = ["--checkpoint", checkpoint, "--input", tmp_path / "input.jsonl"]
        given += ["--output", tmp_path / name, "--max_new_tokens", 8]
        infer.main(["answer", *map(str, [*given, *options])])
        text = (tmp_path / name).read_text(encoding="utf-8")
        return [json.loads(line) | {"milliseconds": 0} for line in text.splitlines()]

    return run


@pytest.fixture(scope="module")
def qa(choice_checkpoint: str) -> QA:
    return load(choice_checkpoint, device="cpu")


@pytest.fixture
def session(qa: QA) -> Session:
    return qa.chat(CONVERSATION.evidence, max_new_tokens=8)


def test_answers_are_chosen_from_proposals(answered: Answered) -> None:
    records = answered("whole.jsonl")
    assert len(records) == 12
    for record in records:
        assert record["answer"] == record["candidates"][0]["label"]
        assert 1 <= len(record["candidates"]) <= 4
        for one in record["candidates"]:
            assert {"id", "label", "logprob", "written", "proposed"} == one.keys()
    other = answered("cut.jsonl", "--cut_edges", "all")

    def numbers(found: list[Json], name: str) -> list[dict[str, float]]:
        return [{c["id"]: c[name] for c in record["candidates"]} for record in found]

    assert numbers(other, "proposed") != numbers(records, "proposed")


@pytest.mark.parametrize("history", ["gold", "predicted"])
def test_the_size_of_batches_changes_nothing(answered: Answered, history: str) -> None:
    options = ("--history", history, "--batch_size")
    alone, together = answered("1.jsonl", *options, 1), answered("5.jsonl", *options, 5)
    for one, other in zip(alone, together, strict=True):
        assert one["answer"] == other["answer"]
        assert one["logprob"] == pytest.approx(other["logprob"], abs=1e-3)


def test_a_chat_chooses_as_answer_does(session: Session, qa: QA) -> None:
    records = list(qa.answer([CONVERSATION], history="predicted", max_new_tokens=8))
    said = Screen(session)(*QUESTIONS)
    for turn, record in zip(session.turns, records, strict=True):
        assert turn.record["answer"] == record["answer"]
        assert f"> {record['question']}\n{record['answer']}\n" in said


def test_a_chat_streams_shows_explains_and_undoes(session: Session) -> None:
    assert "".join(session.stream(QUESTIONS[0])) == session.last().text
    turn = session.last()
    num = session.builder.num_in_prompt(turn.example.evidence)
    assert 0 < num < len(turn.evidence)
    explained = session.why()
    assert len(explained.passages) == num
    assert len(explained.dropped) == len(turn.evidence) - num
    assert {passage.reason for passage in explained.dropped} == {"scorer"}
    assert all(
        item.evidence.text.split(",")[0] in Screen(session)("/evidence") for item in turn.evidence
    )
    assert "share" in Screen(session)("/why") or explained.passages
    before = evidence_of(turn.example)
    session.undo()
    assert evidence_of(session.ask(QUESTIONS[0]).example) == before


def test_where_nothing_is_named_the_chat_writes(qa: QA) -> None:
    chat = qa.chat(["It often rains here."], max_new_tokens=4)
    assert isinstance(chat.ask("Does it rain?").text, str)
    assert "written" not in json.dumps(chat.last().record)
    assert isinstance(qa.chat(max_new_tokens=4).ask("Does it rain?").text, str)


def test_independent_questions_are_answered_together(qa: QA) -> None:
    evidence = [list(CONVERSATION.evidence), ["It often rains."], []]
    records = qa.generate_batch(["What is the capital of Peru?", "Rain?", "Why?"], evidence)
    assert [bool(record["candidates"]) for record in records] == [True, False, False]


def test_answers_are_explained_on_a_page(answered: Answered, tmp_path: Path) -> None:
    answered("out.jsonl", "--explain", tmp_path / "why.html")
    pages = sorted(tmp_path.glob("why*.html"))
    assert len(pages) == len(CONVERSATIONS)
    assert "read by the scorer of entities alone" in pages[0].read_text(encoding="utf-8")


def test_it_does_not_take_or_make_proposals_for_others(
    answered: Answered, choice_checkpoint: str, nodes_checkpoint: str, graph_checkpoint: str
) -> None:
    with pytest.raises(ValueError, match="is choice, so that its own scorer proposes"):
        answered("a.jsonl", "--proposals", nodes_checkpoint)
    with pytest.raises(ValueError, match=r"its model\.answers is choice, so it chooses itself"):
        answered("b.jsonl", "--proposals", choice_checkpoint, checkpoint=graph_checkpoint)


def test_an_export_is_its_lm_alone(
    choice_checkpoint: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_conversations(tmp_path / "input.jsonl", CONVERSATIONS[:1])
    given = ["--checkpoint", choice_checkpoint, "--output", tmp_path / "lm"]
    given += ["--prompts", tmp_path / "prompts", "--input", tmp_path / "input.jsonl"]
    with caplog.at_level(logging.WARNING):
        infer.main(["export", *map(str, given)])
    assert "the LM without the scorer" in caplog.text
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "lm")
    lines = (tmp_path / "prompts" / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    prompts = [json.loads(line)["prompt"] for line in lines]
    examples = load(choice_checkpoint).builder.conversation(CONVERSATIONS[0])
    for example, prompt in zip(examples, prompts, strict=True):
        assert prompt == [*example.prefix_ids, *example.graph.prompt_ids, *example.suffix_ids]


def test_a_server_refuses_it(qa: QA, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"model.answers is choice, which is not served yet"):
        Service(qa, ServeOptions(), tmp_path)


def test_its_explanations_can_be_measured(
    choice_checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_conversations(tmp_path / "input.jsonl", CONVERSATIONS[:1])
    given = ["--checkpoint", choice_checkpoint, "--input", tmp_path / "input.jsonl"]
    given += ["--records", tmp_path / "records.jsonl", "--sizes", 1, "--max_new_tokens", 8]
    faithfulness.main(list(map(str, given)))
    lines = (tmp_path / "records.jsonl").read_text(encoding="utf-8").splitlines()[1:]
    assert len(lines) == 3
    for record in map(json.loads, lines):
        assert len(record["parts"]["share"]) == record["num_passages"] < 6
        assert sum(record["parts"]["share"]) > 0
    assert "comprehensiveness" in capsys.readouterr().out


def test_a_model_card_says_how_it_answers(qa: QA, tmp_path: Path) -> None:
    card = (qa.save_pretrained(tmp_path / "saved") / "README.md").read_text(encoding="utf-8")
    assert "proposes entities of the evidence, and its language model chooses" in card
    again = turngraph.load(tmp_path / "saved", device="cpu")
    one, other = (
        [record["candidates"] for record in each.answer(CONVERSATIONS[:1])] for each in (qa, again)
    )
    assert one == other


def test_an_empty_conversation_is_answered(qa: QA) -> None:
    bare = Conversation("bare", "", (Turn("0", "Why?"),))
    [record] = qa.answer([bare], max_new_tokens=4)
    assert record["candidates"] == []
