"""Sentences that deny, doubt or ask: no triplet states what they deny."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from turngraph.data.memory_graph.extract.rules import RulesExtractor
from turngraph.data.memory_graph.memory_types import Episode, Triplet

Row = dict[str, Any]
ROWS: list[Row] = [
    json.loads(line)
    for line in (Path(__file__).parent / "negated.jsonl").read_text("utf-8").splitlines()
]
NEGATIONS = frozenset(
    "not no never neither nor none nowhere without used stopped quit denied refused refuses "
    "declined failed lacks avoided hardly scarcely barely rarely seldom".split()
)


def is_positive(triplet: Triplet) -> bool:
    """Whether a triplet states that something is so."""
    words = f"{triplet.relation} {triplet.object}".lower().split()
    return not triplet.hypothesis and NEGATIONS.isdisjoint(words)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["text"])
def test_what_is_denied_is_no_fact(row: Row) -> None:
    found = RulesExtractor().extract([Episode(row["text"], "2024-05-08", speaker="Mel")])[0]
    stated = [[t.subject, t.relation, t.object] for t in found.triplets if is_positive(t)]
    assert [ends for ends in stated if ends not in row.get("holds", [])] == []
