"""The Python API: load, chat, stream, answer in batches, save; and what it costs to import."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from time import sleep
from typing import Any

import pytest

import turngraph
import turngraph.inference.answer_batches
import turngraph.model.checkpoint
from turngraph import infer
from turngraph.data.jsonlines import write_conversations, write_pool
from turngraph.data.types import Evidence
from turngraph.inference.api import QA, AnswerSettings
from turngraph.inference.evidence import read_evidence
from turngraph.inference.options import AnswerOptions
from turngraph.inference.text_stream import TextStream
from turngraph.model.checkpoint import read_checkpoint
from turngraph.tests.tiny import tiny_conversation

Json = dict[str, Any]
CONVERSATIONS = [tiny_conversation(number) for number in range(4)]
QUESTIONS = [turn.question for turn in CONVERSATIONS[0].turns]


def timeless(records: list[Json]) -> list[Json]:
    return [record | {"milliseconds": 0} for record in records]


def test_answers_are_as_long_as_training_has_set(graph_checkpoint: str) -> None:
    """The same length in answer and chat, unless a caller gives another one."""
    qa = turngraph.load(graph_checkpoint, device="cpu")
    limit = 7
    trained = replace(qa.config, training=replace(qa.config.training, max_new_tokens=limit))
    qa.checkpoint = replace(qa.checkpoint, config=trained)
    assert qa.chat(CONVERSATIONS[0].evidence).max_new_tokens == limit
    assert qa.chat(CONVERSATIONS[0].evidence, max_new_tokens=3).max_new_tokens == 3
    found = [timeless(list(qa.answer(CONVERSATIONS, max_new_tokens=n))) for n in (None, limit, 2)]
    assert found[0] == found[1] != found[2]


def test_the_five_lines_of_the_readme(qa: QA, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "dune.md").write_text("# Dune\n\nDune was written by Frank Herbert.\n", "utf-8")
    write_pool(tmp_path / "pool.jsonl", CONVERSATIONS[0].evidence)
    evidence = [f"{docs}/", str(tmp_path / "pool.jsonl")]
    chat = qa.chat(evidence=evidence, memory=tmp_path / "my.db", max_new_tokens=6)
    try:
        answer = chat.ask("Who wrote Dune?")
        assert answer.text == answer.record["answer"]
        assert answer.confidence is None  # this checkpoint has no calibration
        assert answer.probability == pytest.approx(math.exp(answer.record["logprob"]))
        assert answer.milliseconds > 0
        assert any("Frank Herbert" in item.evidence.text for item in answer.evidence)
        assert {entity.id for entity in answer.candidates}
        passages = answer.why().passages
        assert [p.text for p in passages] == [i.evidence.text for i in answer.example.evidence]
        assert sum(passage.share for passage in passages) == pytest.approx(1)
        assert "".join(chat.stream("When was he born?")) == chat.last().text
        assert chat.last().example.turn == 1
        assert chat.undo() == "When was he born?"
        assert chat.last() is answer
    finally:
        chat.close()
    assert (tmp_path / "my.db").is_file()


def test_a_stream_is_the_answer_and_a_caller_who_leaves_takes_it_back(
    qa: QA,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = CONVERSATIONS[0].evidence
    chat, streamed = (qa.chat(pool, max_new_tokens=8) for _ in range(2))
    for question in QUESTIONS:
        expected = chat.ask(question)
        assert "".join(streamed.stream(question)) == expected.text
        assert timeless([streamed.last().record]) == timeless([expected.record])
    added: list[None] = []
    with monkeypatch.context() as patch:
        patch.setattr(TextStream, "add", lambda *_: added.append(sleep(0.2)) or "word")
        words = streamed.stream("And another one?")
        next(words)
        words.close()
    assert len(added) < 5  # of 8 tokens: the others are not generated
    assert len(streamed.turns) == len(QUESTIONS)
    assert streamed.ask(QUESTIONS[0]).text == chat.ask(QUESTIONS[0]).text


def test_a_blank_question_and_a_wrong_number_are_refused(qa: QA) -> None:
    with pytest.raises(ValueError, match="must not be blank"):
        qa.chat(["Lima grows."]).ask("  ")
    with pytest.raises(ValueError, match="--max_new_tokens: 0 given"):
        next(qa.answer(CONVERSATIONS, max_new_tokens=0))
    for begin in (qa.chat, qa.reader):
        with pytest.raises(ValueError, match=r"--abstain_below: 1\.5 given"):
            begin(abstain_below=1.5)
    with pytest.raises(ValueError, match="--history: 'golden' given, must be one of gold"):
        AnswerOptions(history="golden")  # type: ignore[arg-type]


@pytest.mark.parametrize("history", ["gold", "predicted"])
def test_batch_answers_are_those_of_the_command_line(
    qa: QA, graph_checkpoint: str, tmp_path: Path, history: Any
) -> None:
    write_conversations(tmp_path / "in.jsonl", CONVERSATIONS)
    command = ["answer", "--checkpoint", graph_checkpoint, "--input", str(tmp_path / "in.jsonl")]
    command += ["--output", str(tmp_path / "out.jsonl"), "--max_new_tokens", "5"]
    infer.main([*command, "--history", history, "--device", "cpu", "--batch_size", "3"])
    lines = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    written = timeless([json.loads(line) for line in lines])
    for source in (str(tmp_path / "in.jsonl"), CONVERSATIONS):
        records = qa.answer(source, history=history, max_new_tokens=5, batch_size=3)
        assert timeless(list(records)) == written


def test_an_answer_comes_before_the_next_batch_is_read(
    qa: QA, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered, answer_batch = list[int](), turngraph.inference.answer_batches.answer_batch

    def noted(*given: Any, **named: Any) -> list[Json]:
        answered.append(len(given[2]))
        return answer_batch(*given, **named)

    monkeypatch.setattr(turngraph.inference.answer_batches, "answer_batch", noted)
    records = qa.answer(CONVERSATIONS, max_new_tokens=2, batch_size=2)
    assert next(records)["conversation"] == CONVERSATIONS[0].id
    assert answered == [2]
    records.close()


def test_the_keywords_of_answer_are_the_fields_of_its_options() -> None:
    assert set(AnswerSettings.__annotations__) == {field.name for field in fields(AnswerOptions)}


def test_controls_do_not_stay_behind(qa: QA) -> None:
    before = timeless(list(qa.answer(CONVERSATIONS, max_new_tokens=4)))
    assert list(qa.answer(CONVERSATIONS, max_new_tokens=4, cut_edges="all"))
    assert timeless(list(qa.answer(CONVERSATIONS, max_new_tokens=4))) == before


def test_a_batch_of_questions_each_with_its_evidence(qa: QA) -> None:
    pools = [conversation.evidence for conversation in CONVERSATIONS[:2]]
    found = qa.generate_batch([QUESTIONS[0], QUESTIONS[:2]], pools, max_new_tokens=5)
    assert [(r["conversation"], r["turn_index"]) for r in found] == [("0", 0), ("1", 0), ("1", 1)]
    alone = qa.chat(pools[0], max_new_tokens=5).ask(QUESTIONS[0])
    assert found[0]["answer"] == alone.text
    with pytest.raises(ValueError, match="zip"):
        qa.generate_batch(QUESTIONS, pools)


def test_evidence_of_every_kind_is_one_pool(tmp_path: Path) -> None:
    given = Evidence("e0", "Peru, Capital, Lima", "infobox")
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "one.md").write_text("# Peru\n\nLima lies on the coast since 1535.\n", "utf-8")
    write_pool(tmp_path / "pool.jsonl", [replace(given, id="e1", text="Peru, Currency, sol")])
    long = "Lima is large. " * 300
    items = ["Lima grows fast.", long, given, folder, str(tmp_path / "pool.jsonl")]
    found = read_evidence(items)
    texts = {passage.text for passage in found}
    assert texts >= {"Lima grows fast.", given.text, "Peru, Currency, sol"}
    [inside] = [passage for passage in found if "Lima lies on the coast" in passage.text]
    [alone] = read_evidence([folder / "one.md"])
    assert alone.entities == inside.entities
    assert len({passage.id for passage in found}) == len(found)
    assert all(passage.entities for passage in found)


@pytest.mark.parametrize("item", ["missing.jsonl", "no_such_folder/", Path("a text"), "gone.md"])
def test_a_path_that_is_not_there_is_no_text(item: Any) -> None:
    with pytest.raises(ValueError, match=f"^{Path(item)}: no such file or folder"):
        read_evidence([item])


def test_saved_again_it_answers_the_same_and_holds_no_trainer_state(
    qa: QA, graph_checkpoint: str, tmp_path: Path
) -> None:
    folder = qa.save_pretrained(tmp_path / "far" / "away" / "new")
    assert qa.save_pretrained(folder.parent / "beside").is_dir()
    assert not (folder / "trainer_state").exists()
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "library_name: turngraph" in card
    assert "top_k: 4" in card
    assert read_checkpoint(folder).manifest["files"].keys() >= {"config.yaml", "metrics.json"}
    (folder / "README.md").write_text("edited", encoding="utf-8")
    again = turngraph.load(folder, device="cpu")
    records = [list(one.answer(CONVERSATIONS, max_new_tokens=4)) for one in (qa, again)]
    assert timeless(records[0]) == timeless(records[1])
    with pytest.raises(ValueError, match="exists already"):
        qa.save_pretrained(folder)


def test_importing_takes_no_library_with_it() -> None:
    code = (
        "import sys, turngraph; turngraph.__version__;"
        "sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert set(turngraph.__all__) <= set(dir(turngraph))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        turngraph.nothing  # noqa: B018
