"""Backups of an open graph: whole or not at all."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.upkeep import backup as module
from turngraph.tests.data.memory_graph.small_graphs import exported, small_graph


def test_a_backup_is_the_graph_as_it_was(tmp_path: Path) -> None:
    with small_graph(tmp_path / "one.db") as graph:
        before = exported(graph, tmp_path)
        graph.backup(tmp_path / "deep" / "copy.db")
        graph.remember("Carl lives in Rome.")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["copy.db"]
    assert (tmp_path / "deep" / "copy.db").stat().st_mode & 0o777 == 0o600
    with MemoryGraph.open(tmp_path / "deep" / "copy.db") as copy:
        assert exported(copy, tmp_path) == before
        assert copy.check() == []
        copy.remember("Carl lives in Oslo.")


def test_others_write_while_a_backup_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy shows the moment at which it was begun, and is not begun again."""
    monkeypatch.setattr(module, "STEP_PAGES", 1)
    with small_graph(tmp_path / "one.db") as graph, MemoryGraph.open(tmp_path / "one.db") as other:
        before, steps = exported(graph, tmp_path), []

        class Bar(module.tqdm):
            def update(self, n: float | None = 1) -> bool | None:
                steps.append(n)
                if len(steps) in (3, 6):
                    other.remember(f"Carl lives in Rome{len(steps)}.")
                return super().update(n)

        monkeypatch.setattr(module, "tqdm", Bar)
        graph.backup(tmp_path / "copy.db")
        assert len(steps) > 10
        assert min(steps) >= 0
        assert graph.stats().nodes["episodic"] == 7
    with MemoryGraph.open(tmp_path / "copy.db", read_only=True) as copy:
        assert exported(copy, tmp_path) == before
        assert copy.check() == []


def test_a_backup_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("mine")
    with small_graph(tmp_path / "one.db") as graph:
        for name in ("there", "one.db"):
            with pytest.raises(ValueError, match=f"{name}: already there; a backup overwrites"):
                graph.backup(tmp_path / name)
    assert (tmp_path / "there").read_text() == "mine"


@pytest.mark.parametrize("error", [OSError(28, "No space left"), sqlite3.OperationalError("full")])
def test_a_backup_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, "replace", fail)
    with small_graph(tmp_path / "one.db") as graph:
        with pytest.raises(ValueError, match=r"copy.db: the backup cannot be written: (No|full)"):
            graph.backup(tmp_path / "copy.db")
        assert [path.name for path in tmp_path.glob("*copy*")] == []
        assert graph.check() == []


def test_a_backup_of_a_reader(tmp_path: Path) -> None:
    with small_graph(tmp_path / "one.db") as graph:
        before = exported(graph, tmp_path)
        with MemoryGraph.open(tmp_path / "one.db", read_only=True) as reader:
            reader.backup(tmp_path / "copy.db")
    with MemoryGraph.open(tmp_path / "copy.db") as copy:
        assert exported(copy, tmp_path) == before
