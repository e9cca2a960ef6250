"""The speed benchmarks of the data side on small inputs."""

from __future__ import annotations

import random

import pytest

from turngraph.benchmarks.speed import graph_speed


def test_graphs_of_new_passages_are_counted(
    tiny_folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    graph_speed.main(["--graphs", "2", "--passages", "4", "--model", tiny_folder])
    assert capsys.readouterr().out.startswith("2 graphs of ")
    passages = graph_speed.make_passages(random.Random(0), 4, 5)
    assert len({passage.text for passage in passages}) == 4
    assert all(len(passage.entities) == 5 for passage in passages)
