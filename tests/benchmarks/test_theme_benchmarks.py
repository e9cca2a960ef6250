"""The benchmarks of themes: their questions and measures, and whole runs on made-up data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from turngraph.benchmarks.memory_graph import theme_scale
from turngraph.benchmarks.memory_graph.spoken_themes import measure_spoken, questions_of
from turngraph.benchmarks.memory_graph.theme_retrieval import BESIDE, measure_passages, parse
from turngraph.benchmarks.memory_graph.theme_scale import build, measure_more, measure_planted, nmi
from turngraph.data.memory_graph.recall.word_vectors import word_vectors

TOPICS = ["harbour ship captain sails", "oven flour baker dough", "judge court trial verdict"]


def conversation() -> dict[str, object]:
    """Return a conversation of LoCoMo's format: Ann speaks of her garden in four sessions."""
    sessions: dict[str, object] = {}
    observed = {}
    for session in range(1, 5):
        turns = [
            {"speaker": "Ann", "dia_id": f"D{session}:{i}", "text": f"{topic} day {session} {i}"}
            for i, topic in enumerate([*TOPICS, "my garden has roses"], start=1)
        ]
        sessions[f"session_{session}"] = turns
        sessions[f"session_{session}_date_time"] = f"1:56 pm on {session} May, 2023"
        said = [[f"Ann tends the garden {session}.", f"D{session}:4"], ["Ann sails.", ["D1:1"]]]
        observed[f"session_{session}_observation"] = {"Ann": said}
    asked = [{"question": "Who sails a ship?", "evidence": ["D1:1"], "category": 1}]
    return {"sample_id": "c", "qa": asked, "conversation": sessions, "observation": observed}


def test_spoken_questions_have_gold_turns_of_several_sessions() -> None:
    numbers = {f"D{s}:{i}": 4 * (s - 1) + i - 1 for s in range(1, 5) for i in range(1, 5)}
    asked = questions_of(conversation(), numbers)
    texts = [one.text for one in asked]
    assert "What has Ann said about garden over time?" in texts
    assert not any("sails" in text for text in texts)  # one turn only
    garden = asked[texts.index("What has Ann said about garden over time?")]
    assert garden.gold == {3, 7, 11, 15}
    assert garden.said["garden"] == 4


def test_spoken_themes_and_passages_are_measured(tmp_path: Path) -> None:
    (tmp_path / "locomo_3.json").write_text(json.dumps([conversation()]))
    table = measure_spoken(tmp_path, word_vectors, 0)
    for row in ("eigen, whole themes", "ask_episodes"):
        assert f"| {row} | 1.000" in table  # all turns fit into the words
    assert "| ask_themes, words and speaker | 1.000" in table
    table = measure_passages("locomo", tmp_path, word_vectors, [0, 2], 0)
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")]
    assert {"BM25", "eigen, m = 2", "eigen, m = 2, questions shuffled"} < set(rows)
    assert "| eigen, m = 0 | 1.000" in table
    assert "eigen, shared names, too: [(0.2, 0.1, 0.0)]" in table
    assert f"| {BESIDE} | 1.000" in table


def test_planted_pages_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theme_scale, "MAX_PASSAGES", 8)
    lines = []
    for number, topic in enumerate(TOPICS):
        evidence = [
            {"id": f"e{i}", "text": f"T{number}, {topic} {i}", "source": "text"} for i in range(8)
        ]
        turn = {"id": "t", "question": "q?", "answers": []}
        lines.append(json.dumps({"id": f"c{number}", "turns": [turn], "evidence": evidence}))
    (tmp_path / "pages.jsonl").write_text("\n".join(lines))
    table = measure_planted(tmp_path / "pages.jsonl", word_vectors, 0)
    assert "24 passages of 3 pages" in table
    assert "| themes, K = 3 | 3 | 1.000 | 1.000 |" in table


def test_mutual_information_of_equal_and_of_independent_partitions() -> None:
    one = np.array([0, 0, 1, 1])
    assert nmi(one, 1 - one) == pytest.approx(1)
    assert nmi(one, np.array([0, 1, 0, 1])) == pytest.approx(0)


def test_scale_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    build(600, 0)
    found = json.loads(capsys.readouterr().out)
    assert found["residual"] < 1e-4
    assert found["build"] > 0


def test_one_more_episode_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theme_scale, "PER_SOURCE", 10)
    [*_, row] = measure_more([60], 0).splitlines()
    assert row.startswith("| 60 | 6 | ")


def test_options_have_defaults() -> None:
    args = parse(["--data", "x"])
    assert args.parts == ["passages", "spoken", "planted", "scale", "more"]
    assert args.questions == [0, 1, 3, 5]
