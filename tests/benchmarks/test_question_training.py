"""An encoder of questions learns from memories, and keeps its vectors of other questions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from turngraph.benchmarks.memory_graph import question_training as training
from turngraph.data.bert_encoder import light_encoder
from turngraph.data.memory_graph.recall import question_vectors
from turngraph.data.memory_graph.recall.question_vectors import ENCODER
from turngraph.data.memory_graph.recall.vectors import PROBE

ANSWERS = {
    "What is the secret?": "Blue lamps hum. It rained.",
    "Where did it go?": "Nine goats sat on a wall.",
    "Who knew?": "The baker sold his boots.",
}
MEMORY = {
    "name": "m",
    "entries": [{"text": text} for text in ANSWERS.values()],
    "questions": [
        *({"question": q, "evidence": [n]} for n, q in enumerate(ANSWERS, 1)),
        {"question": "Why?", "evidence": []},
    ],
}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    memories = tmp_path / "memories.jsonl"
    memories.write_text(f"{json.dumps(MEMORY)}\n" * 2)
    monkeypatch.setattr(training, "WRITTEN", (memories,))
    monkeypatch.setattr(training, "EPOCHS", 15)
    monkeypatch.setattr(training, "kept_encoder", light_encoder)
    anchors = tmp_path / "anchors.jsonl"
    lines = [{"turns": [{"question": f"Who is number {n}?"}, {"question": "?"}]} for n in range(4)]
    anchors.write_text("".join(json.dumps(line) + "\n" for line in [{"evidence": []}, *lines]))
    return ["--anchors", str(anchors)]


def test_what_is_found_is_printed_before_and_after(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    training.main(files)
    before, after = capsys.readouterr().out.splitlines()
    assert before.startswith("before: first 0.")
    assert after == "after: first 1.000, among three 1.000 of 3 questions"


def test_the_weights_are_written_for_questions(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "questions.safetensors"
    training.main([*files, "--output", str(path)])
    monkeypatch.setattr(question_vectors, "FILE", path)
    question_vectors.shipped.cache_clear()
    try:
        plain = light_encoder(ENCODER)
        assert plain is not None
        tuned = question_vectors._tuned.__wrapped__(plain)
    finally:
        monkeypatch.undo()
        question_vectors.shipped.cache_clear()
    cosines = tuned(list(ANSWERS)) @ plain(list(ANSWERS.values())).T
    assert cosines.argmax(1).tolist() == [0, 1, 2]
    kept = [f"Who is number {n}?" for n in range(4)]
    assert float((tuned(kept) * plain(kept)).sum(1).min()) > 0.95
    assert training.read_anchors([Path(files[1])]) == kept
    np.testing.assert_allclose(question_vectors.shipped()["probe"], plain([PROBE])[0], atol=1e-3)


def test_a_memory_keeps_the_questions_that_it_answers() -> None:
    encoder = light_encoder(ENCODER)
    assert encoder is not None
    memory = training.read_memory(json.dumps(MEMORY), encoder)
    assert memory.owners.tolist() == [0, 0, 1, 2]
    assert (memory.questions, memory.gold) == (list(ANSWERS), [[0], [1], [2]])
    [row] = memory.closeness(memory.entries[1:2])
    assert row.argmax() == 1
    assert row[1].item() == pytest.approx(1, abs=1e-5)
