"""The speed benchmarks of the data side on small inputs."""

from __future__ import annotations

import random

import pytest

from turngraph.benchmarks.speed import graph_speed, retrieval_speed


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
