"""The demo's table, and the command that it ends with."""

from __future__ import annotations

from pathlib import Path

import pytest

from turngraph.benchmarks import demo
from turngraph.data.jsonlines import dump


def test_an_answer_with_a_line_separator_is_one_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "predictions.jsonl"
    record = {"answer": "one\u2028two", "hit_at_1": 1, "hit_at_5": 1, "num_tokens": 7}
    monkeypatch.setattr(demo.infer, "main", lambda argv: output.write_text(dump(record) + "\n"))
    row = demo.answer_and_score(tmp_path, tmp_path, output, num_questions=1)
    assert (row["questions"], row["hit_at_1"], row["tokens"]) == (1, 1, 7)


def test_the_command_to_go_on_with_is_the_one_of_this_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ".venv" / "bin"
    monkeypatch.setattr(demo.sys, "executable", str(folder / "python"))
    assert demo.turngraph_command() == "turngraph"
    folder.mkdir(parents=True)
    (folder / "turngraph").touch()
    assert demo.turngraph_command() == ".venv/bin/turngraph"
    monkeypatch.chdir(folder.parent.parent.parent)
    assert demo.turngraph_command() == f"{tmp_path.name}/.venv/bin/turngraph"
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / ".venv"))
    assert demo.turngraph_command() == "turngraph"
