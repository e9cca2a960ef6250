"""Questions have vectors of their own, where statements have those of the tuned encoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from turngraph.data.bert_encoder import light_encoder
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.recall import question_vectors, recall
from turngraph.data.memory_graph.recall.question_vectors import ENCODER, question_encoder, shipped
from turngraph.data.memory_graph.recall.vectors import PROBE
from turngraph.data.memory_graph.recall.word_vectors import word_vectors

FOUND = {
    "Where do I live now?": "Took the keys of two rooms on Dominick Street today.",
    "What is my job?": "First week at the sawmill, my back hurts.",
    "Who repaired the roof?": "Old Hamid was up there with his slates until dusk.",
    "Which pet do we have?": "The kitten slept in my hat again.",
    "What do I not eat any more?": "No more meat for me, I told them at supper.",
    "How do I get to work?": "Two trams and the ferry, every morning.",
}
"""Questions, and the statements that answer them in other words."""


@pytest.fixture(scope="module")
def probe() -> np.ndarray:
    encoder = light_encoder(ENCODER)
    assert encoder is not None
    return encoder([PROBE])[0]


def test_questions_come_closer_to_what_answers_them(probe: np.ndarray) -> None:
    plain, tuned = light_encoder(ENCODER), question_encoder(probe)
    assert plain is not None
    assert tuned is not None
    statements = plain(list(FOUND.values()))
    before, after = (encode(list(FOUND)) @ statements.T for encode in (plain, tuned))

    def lead(cosines: np.ndarray) -> float:
        """How much closer the right statement is than the mean one."""
        return float((np.diag(cosines) - cosines.mean(1)).mean())

    assert lead(after) > lead(before) + 0.02
    right = [(cosines.argmax(1) == np.arange(len(FOUND))).sum() for cosines in (before, after)]
    assert right[1] > right[0]
    other = "What year did the company that bought Xilinx go public?"
    assert float(plain([other])[0] @ tuned([other])[0]) > 0.95


def test_the_weights_are_those_of_lora(probe: np.ndarray) -> None:
    plain, tuned = light_encoder(ENCODER), question_encoder(probe)
    assert plain is not None
    assert tuned is not None
    factors = shipped()
    changed = plain.changed({})
    changed.weights = dict(plain.weights)
    for name in {name[:-2] for name in factors if name != "probe"}:
        changed.weights[name] = plain.weights[name] + factors[f"{name}.b"] @ factors[f"{name}.a"]
        assert changed.weights[name].shape == plain.weights[name].shape
    np.testing.assert_allclose(changed(list(FOUND)), tuned(list(FOUND)), atol=1e-6)
    np.testing.assert_array_equal(plain([PROBE])[0], probe)  # the encoder itself is as it was


def test_a_question_is_asked_by_them_and_names_are_not(
    probe: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned, asked = question_encoder(probe), list[str]()
    assert tuned is not None

    def encode(texts: Sequence[str]) -> np.ndarray:
        asked.extend(texts)
        return tuned(texts)

    monkeypatch.setattr(recall, "question_encoder", lambda _: encode)
    with MemoryGraph.open(tmp_path / "a.db", light_encoder(ENCODER)) as graph:
        for text in FOUND.values():
            graph.remember(text)
        question, text = next(iter(FOUND.items()))
        assert graph.ask_both(question).facts[0].text == text
        assert graph.ask("Where is Hamid?").entities
    assert asked == [question, "Where is Hamid?"]


def test_vectors_of_another_encoder_are_left_alone(
    probe: np.ndarray, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert question_encoder(word_vectors([PROBE])[0]) is None
    assert not caplog.messages
    monkeypatch.setattr(question_vectors, "light_encoder", lambda name: None)
    assert question_encoder(probe) is None
    assert "is not on this machine under its name" in caplog.text
