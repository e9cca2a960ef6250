"""The benchmark of extraction: its matching and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turngraph.benchmarks.memory_graph import extraction
from turngraph.benchmarks.memory_graph.extraction import Gold, read_cases
from turngraph.data.memory_graph.memory_types import Triplet


@pytest.mark.parametrize(
    ("found", "matches"),
    [
        (Triplet("the Ida", "sold", "Bike", valid_from="2010"), True),
        (Triplet("Ida", "sells", "bike", valid_from="2010"), True),
        (Triplet("Ida", "did not sell", "bike", valid_from="2010"), False),
        (Triplet("Ida", "sold", "bike"), False),
        (Triplet("Ida", "sold", "car", valid_from="2010"), False),
        (Triplet("bike", "was sold by", "Ida", valid_from="2010"), True),
        (Triplet("Ida", "was sold by", "bike", valid_from="2010"), False),
        (Triplet("Ida", "sold", "bike", valid_from="2010", hypothesis=True), False),
    ],
)
def test_matching(found: Triplet, matches: bool) -> None:
    gold = Gold(("Ida",), ("sold", "~was sold by"), ("bike",), valid_from="2010")
    assert gold.matches(found) == matches


def test_an_object_inside_a_relation_is_ignored() -> None:
    gold = Gold(("Ida",), ("sold to",), ("Bo",))
    assert gold.matches(Triplet("Ida", "sold old bike to", "Bo"))
    assert not gold.matches(Triplet("Ida", "gave old bike to", "Bo"))


def test_precision_and_recall_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gold = [["Ida", "lives in", "Oslo"], ["Ida", "owns", "boat"], ["Ida", "likes", "tea"]]
    gold[2].append({"optional": True})  # type: ignore[arg-type]
    row = {"half": "seen", "text": "Ida lives in Oslo and likes tea and has a dog.", "gold": gold}
    path = tmp_path / "gold.jsonl"
    path.write_text(json.dumps({"about": "x"}) + "\n" + json.dumps(row), encoding="utf-8")
    extraction.main(["--input", str(path), "--show", "seen"])
    printed = capsys.readouterr().out
    assert "| seen | 1 | 2 | 2 | 0.500 | 0.500 |" in printed
    assert "missed Ida ; owns ; boat" in printed
    assert "wrong  Ida ; has ; dog" in printed


@pytest.mark.parametrize(
    ("gold", "message"),
    [
        ([["Ida", "lives in"]], r"line 1, field gold\[0\]"),
        ([["Ida", "lives in", "Oslo", {"from": 2010}]], r"line 1, field gold\[0\]"),
        ([["Ida", "lives in", "Oslo", {"since": "2010"}]], "from, to, hypothesis, optional"),
    ],
)
def test_bad_gold_is_named(tmp_path: Path, gold: list[object], message: str) -> None:
    path = tmp_path / "gold.jsonl"
    path.write_text(json.dumps({"half": "seen", "text": "x", "gold": gold}), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_cases(path)


def test_a_half_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "gold.jsonl"
    path.write_text(json.dumps({"half": "seen", "text": "x", "gold": []}), encoding="utf-8")
    with pytest.raises(ValueError, match="--show all given, must be one of seen"):
        extraction.main(["--input", str(path), "--show", "all"])
