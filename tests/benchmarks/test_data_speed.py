"""The speed benchmarks of the data side, and the recall of evidence, on small inputs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from turngraph.benchmarks.quality import evidence_recall
from turngraph.benchmarks.speed import graph_speed, retrieval_speed
from turngraph.data.jsonlines import write_conversations
from turngraph.tests.tiny import tiny_conversation


def test_both_libraries_index_and_rank_the_same_pool(capsys: pytest.CaptureFixture[str]) -> None:
    retrieval_speed.main(["--passages", "60", "--queries", "3", "--top_k", "5"])
    first, head, *rows, ratio = capsys.readouterr().out.splitlines()
    assert first == "60 passages, 3 queries of about 40 words"
    assert head.split()[:2] == ["index", "ms"]
    assert [row.split()[0] for row in rows] == ["bm25s", "rank_bm25"]
    assert all(float(cell) > 0 for row in rows for cell in row.split()[1:])
    assert float(ratio.split()[-1]) > 0


def test_graphs_of_new_passages_are_counted(
    tiny_folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    graph_speed.main(["--graphs", "2", "--passages", "4", "--model", tiny_folder])
    assert capsys.readouterr().out.startswith("2 graphs of ")
    passages = graph_speed.make_passages(random.Random(0), 4, 5)
    assert len({passage.text for passage in passages}) == 4
    assert all(len(passage.entities) == 5 for passage in passages)


def test_recall_grows_with_the_depth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "dev.jsonl"
    write_conversations(path, [tiny_conversation(number) for number in range(3)])
    weights = ["--history_weights", "1", "0"]
    evidence_recall.main(["--input", str(path), "--depths", "1", "2", *weights])
    first, heads, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("9 single-answer questions")
    assert heads.split() == ["history_weight", "top", "1", "top", "2", "all"]
    for line, weight in zip(lines, (1, 0), strict=True):
        found, *shares = map(float, line.split())
        assert found == weight
        assert shares == sorted(shares)
        assert shares[-1] == 100.0
