"""The choice of passages by BM25+ and by nodes, on a pool in which nodes know better."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from turngraph.benchmarks.quality import passage_choice
from turngraph.data.jsonlines import read_conversations, write_conversations
from turngraph.data.types import Answer, Conversation, Entity, Evidence, Turn


def test_recall_and_files(
    tiny_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    oslo = Entity("oslo", "Oslo")
    pool = (
        *(Evidence(f"p{i}", f"Capital of Norway, {i}", "text") for i in range(4)),
        Evidence("right", "Oslo is a city.", "text", (oslo,)),
    )
    turns = (Turn("0", "Capital of Norway?", (Answer("Oslo"),)), Turn("1", "And of Peru?"))
    conversation = Conversation("c", "", turns, pool)
    write_conversations(tmp_path / "dev.jsonl", [conversation])
    candidate = {"id": "oslo", "label": "Oslo", "logprob": math.log(0.9)}
    record = {"conversation": "c", "turn": "0", "candidates": [candidate]}
    (tmp_path / "nodes.jsonl").write_text(json.dumps(record) + "\n")
    argv = ["--input", str(tmp_path / "dev.jsonl"), "--nodes", str(tmp_path / "nodes.jsonl")]
    argv += [
        "--budgets",
        "300",
        "40",
        "--base_model",
        tiny_folder,
        "--write",
        str(tmp_path / "out"),
    ]
    passage_choice.main(argv)
    printed = capsys.readouterr().out
    assert "| 300 | 5.0 / 5.0 | 1.000 | 1.000 | +0.000 [+0.000, +0.000] |" in printed
    assert "| 0.000 | 1.000 | +1.000 [+1.000, +1.000] |" in printed
    assert printed.endswith("1 questions\n")
    chosen = {
        order: read_conversations(tmp_path / "out" / f"{order}_40.jsonl")[0]
        for order in passage_choice.ORDERS
    }
    assert all(not one.evidence and not one.turns[1].evidence for one in chosen.values())
    ids = {order: [p.id for p in one.turns[0].evidence] for order, one in chosen.items()}
    assert "right" not in ids["bm25"]
    assert ids["nodes"][0] == "right"
