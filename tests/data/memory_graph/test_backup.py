"""Backups of an open graph: whole or not at all."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.upkeep import backup as module
from turngraph.memory import main
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


def content(path: Path, folder: Path) -> object:
    with MemoryGraph.open(path) as graph:
        assert graph.check() == []
        return exported(graph, folder)


@pytest.mark.parametrize("killed", [False, True])
def test_a_restored_graph_is_the_backup(tmp_path: Path, killed: bool) -> None:
    """What a killed process left in the -wal, and derived data of the newer state, are gone."""
    path = tmp_path / "my.db"
    with small_graph(path) as graph:
        graph.backup(tmp_path / "copy.db")
    before = content(tmp_path / "copy.db", tmp_path)
    code = f"""
import os
from turngraph.data.memory_graph.graph import MemoryGraph
graph = MemoryGraph.open({str(path)!r})
graph.remember("Carl lives in Rome.")
os._exit(0) if {killed} else graph.close()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert Path(f"{path}-wal").exists() == killed
    mode = path.stat().st_mode
    main(["restore", "--db", str(path), "--backup", str(tmp_path / "copy.db")])
    assert content(path, tmp_path) == before
    assert path.stat().st_mode == mode
    assert sorted(p.name for p in tmp_path.iterdir() if ".partial" in p.name) == []


@pytest.mark.parametrize("there", ["nothing", "noise", "an empty file"])
def test_a_graph_that_is_lost_is_restored(tmp_path: Path, there: str) -> None:
    with small_graph(tmp_path / "my.db") as graph:
        graph.backup(tmp_path / "copy.db")
    path = tmp_path / "lost.db"
    if there != "nothing":
        path.write_bytes(b"" if there == "an empty file" else b"noise" * 5000)
    module.restore(tmp_path / "copy.db", path)
    assert content(path, tmp_path) == content(tmp_path / "copy.db", tmp_path)
    assert path.stat().st_mode & 0o777 == (0o644 if there == "noise" else 0o600)


def test_a_link_to_a_graph_stays_when_it_is_restored(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    with small_graph(tmp_path / "far" / "my.db") as graph:
        graph.backup(tmp_path / "copy.db")
    (tmp_path / "link.db").symlink_to("far/my.db")
    module.restore(tmp_path / "copy.db", tmp_path / "link.db")
    assert (tmp_path / "link.db").is_symlink()
    assert content(tmp_path / "far" / "my.db", tmp_path) == content(tmp_path / "copy.db", tmp_path)


def test_an_open_graph_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "my.db"
    with small_graph(path) as graph:
        graph.backup(tmp_path / "copy.db")
        graph.remember("Carl lives in Rome.")
        before = exported(graph, tmp_path)
        with pytest.raises(ValueError, match=r"my\.db: open in another process"):
            module.restore(tmp_path / "copy.db", path)
        graph.remember("Carl lives in Oslo.")
    assert content(path, tmp_path) != before
    assert not list(tmp_path.glob(".*partial*"))


def test_a_damaged_backup_replaces_nothing(tmp_path: Path) -> None:
    path, copy = tmp_path / "my.db", tmp_path / "copy.db"
    with small_graph(path) as graph:
        graph.backup(copy)
    before, whole = content(path, tmp_path), copy.read_bytes()
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE mine (a)")
    other.close()
    half = whole[: len(whole) // 2]
    for name, data in (("noise.db", b"noise" * 999), ("half.db", half)):
        (tmp_path / name).write_bytes(data)
    for name in ("noise.db", "half.db", "other.db", "missing.db", "my.db"):
        with pytest.raises(ValueError, match=name.replace(".", r"\.")):
            module.restore(tmp_path / name, path)
        assert content(path, tmp_path) == before
    assert not list(tmp_path.glob(".*partial*"))
