"""Scores of answers from diaries."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import pytest

from turngraph.benchmarks.memory_graph import answers, reader_questions
from turngraph.benchmarks.memory_graph.answers import Asked, drawn
from turngraph.configs.user_error import UserError
from turngraph.data.jsonlines import read_conversations
from turngraph.data.memory_graph.memory_types import Episode
from turngraph.data.memory_graph.recall.recollection import ReadAnswer
from turngraph.data.memory_graph.recall.word_vectors import word_vectors
from turngraph.data.types import NOT_IN_EVIDENCE

DIARY = {
    "name": "eva",
    "speaker": "Eva Moe",
    "entries": [
        {"date": "2021-01-01", "text": "I live in Oslo. It rained."},
        {"date": "2022-01-01", "text": "I live in Bergen."},
        {"date": "2022-05-01", "text": "My cat is called Luna."},
    ],
    "questions": [
        {"question": "What is my cat called?", "evidence": [3], "answers": ["Luna", "cat Luna"]},
        {"question": "Who is my boss?", "evidence": [], "answers": []},
    ],
    "ends": [
        {"entry": 1, "quote": "I live in Oslo", "ended_by": 2},
        {"entry": 1, "quote": "in Oslo", "ended_by": 3},
    ],
}


def test_a_diary_is_asked_and_its_ends_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "diaries.json"
    path.write_text(json.dumps([DIARY]))
    monkeypatch.setattr(answers, "make_embed", lambda name: word_vectors)
    read = lambda found: ReadAnswer("Luna", 1.0, 0.6)  # noqa: E731
    loaded = SimpleNamespace(reader=lambda: SimpleNamespace(read=lambda found: read(found)))
    monkeypatch.setattr(answers, "load_reader", lambda name: loaded)
    answers.main(["--diaries", str(path), "--reader", "a checkpoint"])
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("eva: 1 questions, first 1.000, among three 1.000")
    assert "answer in what is read 1.000, exact 1.000, F1 1.000, p50 " in first
    assert first.endswith(
        " ms, from 0.4 1 of 2, from 0.5 1 of 2, from 0.6 1 of 2, given 2, 1 right"
    )
    read = lambda found: ReadAnswer(NOT_IN_EVIDENCE, 1.0, 0.6, withheld="Luna")  # noqa: E731
    answers.main(["--diaries", str(path), "--reader", "a checkpoint"])
    withheld, _ = capsys.readouterr().out.splitlines()
    assert "exact 1.000" in withheld
    assert withheld.endswith(" from 0.6 1 of 2, given 0, 0 right")
    assert second == "eva: 1 of 1 ends right, 0 of 3 false"
    answers.main(["--diaries", str(path), "--over", "chat"])
    assert capsys.readouterr().out.startswith("eva: 1 questions, first 1.000, among three 1.000")
    path.write_text(json.dumps([DIARY, {**DIARY, "name": "bo", "questions": []}]))
    with pytest.raises(UserError, match=r"diaries\.json: diary 'bo' has no questions to ask"):
        answers.main(["--diaries", str(path)])


def test_questions_for_a_reader_have_what_is_recalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_questions, "make_embed", lambda name: word_vectors)
    chat = {**DIARY, "name": "chat", "entries": [
        {"date": "2020-02-02T10:00", "speaker": "Bo", "text": "Bo: I am in Rome."},
        {"date": "2020-02-03", "speaker": "Eva Moe", "text": "Eva Moe: I am not."},
    ], "questions": [
        {"question": "Where is Bo?", "evidence": [1], "answers": ["Rome"]},
        {"question": "When was Bo there?", "evidence": [1], "answers": ["2020-02-02"]},
        {"question": "Where is Eva Moe?", "evidence": [], "answers": []},
        {"question": "Who is Bo?", "evidence": [2], "answers": ["a friend"]},
    ]}  # fmt: skip
    path = tmp_path / "memories.jsonl"
    path.write_text(f"{json.dumps(DIARY)}\n{json.dumps(chat)}\n")
    reader_questions.main(["--input", str(path), "--output", str(tmp_path / "made")])
    tune = read_conversations(tmp_path / "made" / "tune.jsonl")
    train = read_conversations(tmp_path / "made" / "train.jsonl")
    assert [one.turns[0].answers[0].label for one in tune] == ["Luna", NOT_IN_EVIDENCE]
    assert "2022-05-01: Eva Moe: My cat is called Luna." in [one.text for one in tune[0].evidence]
    found = ["Rome", "2020-02-02", NOT_IN_EVIDENCE, NOT_IN_EVIDENCE]
    assert [one.turns[0].answers[0].label for one in train] == found
    assert any(entity.label == "Bo" for one in train[0].evidence for entity in one.entities)


def test_the_committed_diaries_are_whole() -> None:
    for diary in json.loads(answers.DIARIES.read_text("utf-8")):
        episodes, asked = answers.diary_questions(diary)
        assert (len(episodes), len(asked)) == (25, 25)
        assert {int(n) for one in asked for n in one.evidence} <= set(range(1, 26))


def test_questions_are_drawn_from_all_by_the_seed() -> None:
    def asked(name: str) -> Asked:
        return Asked(name, "", frozenset({"1"} if name.isdigit() else ()), ())

    none: list[Episode] = []
    asking = [(none, [asked(n) for n in "12a"]), (none, [asked(n) for n in "3b4"])]
    kept = [[one.question for one in part] for _, part in drawn(asking, 3, 0)]
    assert sum(map(len, kept)) == 3
    assert all(map(str.isdigit, chain(*kept)))
    assert kept == [[one.question for one in part] for _, part in drawn(asking, 3, 0)]
    with pytest.raises(UserError, match="must lie between 1 and 4"):
        drawn(asking, 5, 0)
