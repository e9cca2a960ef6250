"""The demo's table."""

from __future__ import annotations

from argparse import Namespace
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
    row = demo.answer(tmp_path, tmp_path, output, Namespace(num_questions=1), "own")
    assert (row["questions"], row["hit_at_1"], row["tokens"]) == (1, 1, 7)
