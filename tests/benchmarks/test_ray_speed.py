from __future__ import annotations

import pytest

from turngraph.benchmarks.speed import ray_speed


@pytest.mark.slow
def test_both_ways_write_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray")
    sizes = ["--graphs", "2", "--sentences", "100", "--pages", "3", "--rounds", "1"]
    ray_speed.main(sizes)
    rows = capsys.readouterr().out.splitlines()[-2:]
    assert [row.split(" | ")[0] for row in rows] == [
        "| remember_all, 2 x 100",
        "| corpus build, 3 pages",
    ]
