"""The table of how well confidence is calibrated."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from turngraph.benchmarks.quality import reliability


def test_risk_by_coverage() -> None:
    curve = reliability.risk_coverage([0.2, 0.9, 0.5], [False, True, False])
    assert curve == [(1 / 3, 0.0), (2 / 3, 1 / 2), (1.0, 2 / 3)]


def test_the_table_and_the_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "test.jsonl"
    records = [
        {"hit_at_1": n % 2 == 0, "confidence": 0.5, "logprob": -0.01 - n / 1000} for n in range(8)
    ]
    path.write_text("".join(json.dumps(r) + "\n" for r in [*records, {"error": "x"}]))
    reliability.main([str(path), "--figure", str(tmp_path / "figure.svg")])
    said = capsys.readouterr().out
    assert said.startswith("8 questions, 0.500 of the answers are right")
    assert "| calibrated confidence | 0.000 |" in said
    assert "| the model's probability | 0.487 | 0.395 | 0.500 | 0.500 | 0.500 |" in said
    figure = (tmp_path / "figure.svg").read_text()
    assert figure.startswith("<?xml")
    assert {"share that is right", "share answered, the surest first"} <= set(
        re.findall(r"<!-- (.*?) -->", figure)
    )
    path.write_text(json.dumps({"hit_at_1": True, "logprob": 0}) + "\n")
    with pytest.raises(ValueError, match="line 1: no calibrated confidence"):
        reliability.main([str(path)])
    path.write_text("")
    with pytest.raises(ValueError, match="no answer to a question"):
        reliability.main([str(path)])
