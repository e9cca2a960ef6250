"""Backups of an open graph: whole or not at all."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from turngraph.configs import progress
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.record.store import Store
from turngraph.data.memory_graph.upkeep import backup as module
from turngraph.memory import main
from turngraph.tests.data.memory_graph.small_graphs import exported, small_graph


@pytest.mark.parametrize("read_only", [False, True])
def test_a_backup_is_the_graph_as_it_was(tmp_path: Path, read_only: bool) -> None:
    with small_graph(tmp_path / "one.db") as graph:
        before = exported(graph, tmp_path)
        with MemoryGraph.open(tmp_path / "one.db", read_only=read_only) as other:
            other.backup(tmp_path / "deep" / "copy.db")
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

        class Bar(progress.tqdm):
            def update(self, n: float | None = 1) -> bool | None:
                steps.append(n)
                if len(steps) in (3, 6):
                    other.remember(f"Carl lives in Rome{len(steps)}.")
                return super().update(n)

        monkeypatch.setattr(progress, "tqdm", Bar)
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
from turngraph.configs import progress
from turngraph.data.memory_graph.graph import MemoryGraph
graph = MemoryGraph.open({str(path)!r})
graph.remember("Carl lives in Rome.")
os._exit(0) if {killed} else graph.close()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert Path(f"{path}-wal").exists() == killed
    mode, derived = path.stat().st_mode, Path(f"{path}.derived")
    derived.mkdir(exist_ok=True)
    (derived / "of_the_newer_state.npy").write_bytes(b"vectors")
    main(["restore", "--db", str(path), "--backup", str(tmp_path / "copy.db")])
    assert not derived.exists()
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


@pytest.mark.slow
@pytest.mark.parametrize("point", ["shutil.copymode", "os.replace", "shutil.rmtree"])
def test_a_restoration_that_is_killed(tmp_path: Path, point: str) -> None:
    """The old graph, with what its -wal has, or the new one is there, never a mixture."""
    path = tmp_path / "my.db"
    with small_graph(path) as graph:
        graph.backup(tmp_path / "copy.db")
    new = content(tmp_path / "copy.db", tmp_path)
    code = f"""
import os, shutil, signal, sys
from pathlib import Path
from turngraph.configs import progress
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.upkeep.backup import restore
if sys.argv[1] == "write":
    graph = MemoryGraph.open({str(path)!r})
    graph.remember("Carl lives in Rome.")
    os._exit(0)
{point} = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
restore({str(tmp_path / "copy.db")!r}, {str(path)!r})
"""
    subprocess.run([sys.executable, "-c", code, "write"], check=True)
    for ending in ("", "-wal"):
        shutil.copy(f"{path}{ending}", tmp_path / f"old.db{ending}")
    old = content(tmp_path / "old.db", tmp_path)
    assert old != new
    killed = subprocess.run([sys.executable, "-c", code, "restore"], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert content(path, tmp_path) == (new if point == "shutil.rmtree" else old)


def test_what_sqlite_left_of_a_lost_graph_is_not_read(tmp_path: Path) -> None:
    """A -journal or a -wal without its database would be taken for the new one's."""
    with small_graph(tmp_path / "my.db") as graph:
        graph.backup(tmp_path / "copy.db")
        graph.remember("Carl lives in Rome.")
        for ending in ("-wal", "-shm"):
            shutil.copy(f"{tmp_path / 'my.db'}{ending}", f"{tmp_path / 'lost.db'}{ending}")
    db = sqlite3.connect(tmp_path / "copy.db", isolation_level=None)
    for sql in ("PRAGMA cache_size = 1", "BEGIN", "UPDATE nodes SET text = zeroblob(9999)"):
        db.execute(sql)
    shutil.copy(tmp_path / "copy.db-journal", tmp_path / "lost.db-journal")
    db.execute("ROLLBACK")
    db.close()
    module.restore(tmp_path / "copy.db", tmp_path / "lost.db")
    assert not list(tmp_path.glob("lost.db-*"))
    assert content(tmp_path / "lost.db", tmp_path) == content(tmp_path / "copy.db", tmp_path)


def test_a_backup_of_a_graph_with_a_problem_is_restored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A problem that is no damage was in the graph that is lost, too."""
    with small_graph(tmp_path / "my.db") as graph:
        sql = "UPDATE edges SET valid_from = '2020', valid_to = '2019' WHERE id = 1"
        graph.store.db.execute(sql)
        graph.backup(tmp_path / "copy.db")
    module.restore(tmp_path / "copy.db", tmp_path / "new.db")
    assert "copy.db: edges that end before they begin: 1 (1)" in caplog.text
    with MemoryGraph.open(tmp_path / "new.db") as graph:
        assert graph.stats().nodes["episodic"] == 5


def test_an_idle_reader_of_a_replaced_graph_is_told(tmp_path: Path) -> None:
    """A restored file is not in WAL mode, where an idle reader holds no lock of it."""
    path = tmp_path / "my.db"
    with small_graph(path) as graph:
        graph.backup(tmp_path / "copy.db")
    module.restore(tmp_path / "copy.db", path)
    with MemoryGraph.open(path, read_only=True) as reader:
        assert reader.stats().nodes["episodic"] == 5
        module.restore(tmp_path / "copy.db", path)
        with MemoryGraph.open(path) as graph:
            graph.remember("Carl lives in Rome.")
            with pytest.raises(
                ValueError, match=r"my\.db: was replaced or moved while it was open"
            ):
                reader.show("Anna")
    path.rename(tmp_path / "other.db")
    with MemoryGraph.open(tmp_path / "other.db") as graph:
        graph.remember("Carl lives in Oslo.")
        (tmp_path / "other.db").rename(path)
        with pytest.raises(ValueError, match="was replaced or moved"):
            graph.remember("Carl lives in Bern.")


def test_a_check_of_an_open_graph_keeps_its_locks(tmp_path: Path) -> None:
    """To read the file and close it would drop them, and the graph could be replaced."""
    path = tmp_path / "my.db"
    with small_graph(path) as graph:
        graph.backup(tmp_path / "copy.db")
        graph.store.db.execute("UPDATE nodes SET text = 'x' || x'ff' WHERE id = 1")
        assert graph.check()[0].damage
        code = f"""
from turngraph.data.memory_graph.upkeep.backup import restore
restore({str(tmp_path / "copy.db")!r}, {str(path)!r})
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "open in another process" in done.stderr


def test_what_is_no_backup_or_damaged_replaces_nothing(tmp_path: Path) -> None:
    path, copy = tmp_path / "my.db", tmp_path / "copy.db"
    with small_graph(path) as graph:
        graph.backup(copy)
    before, whole = content(path, tmp_path), copy.read_bytes()
    half = whole[: len(whole) // 2]
    for name, data in (("noise.db", b"noise" * 999), ("half.db", half), ("empty.db", b"")):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "folder.db").mkdir()
    (tmp_path / "link.db").symlink_to("my.db")
    (tmp_path / "hard.db").hardlink_to(path)
    with sqlite3.connect(tmp_path / "bare.db", isolation_level=None) as db:
        db.execute("VACUUM")  # a page without tables
    with sqlite3.connect(tmp_path / "other.db") as db:
        db.execute("CREATE TABLE mine (a)")
    reasons = {
        "noise.db": "damaged, or not a memory graph",
        "half.db": "damaged",
        "other.db": "not a memory graph",
        "missing.db": "no such backup",
        "empty.db": "not a memory graph",
        "bare.db": "not a memory graph",
        "folder.db": "a folder, not a backup",
        **dict.fromkeys(("my.db", "link.db", "hard.db"), "the graph itself, not a backup"),
    }
    for name, reason in reasons.items():
        with pytest.raises(ValueError, match=rf"{re.escape(name)}: {reason}"):
            module.restore(tmp_path / name, path)
        assert content(path, tmp_path) == before
    with pytest.raises(ValueError, match=r"folder\.db: a folder, not a memory graph"):
        module.restore(path, tmp_path / "folder.db")
    with pytest.raises(ValueError, match=r"empty\.db: not a memory graph"):
        module.restore(tmp_path / "empty.db", tmp_path / "new.db")
    assert not [*tmp_path.glob("new.db*"), *tmp_path.glob(".*partial*")]


def test_an_opening_waits_for_a_restoration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has opened the old file meanwhile opens the new one."""
    path = tmp_path / "my.db"
    with small_graph(path) as graph:
        graph.backup(tmp_path / "copy.db")
        graph.remember("Carl lives in Rome.")
    connect, opened = Store._connect, []

    def late(store: Store) -> sqlite3.Connection:
        db = connect(store)
        if store.path == path and not opened:
            opened.append(True)
            module.restore(tmp_path / "copy.db", path)
        return db

    monkeypatch.setattr(Store, "_connect", late)
    with MemoryGraph.open(path) as graph:
        assert graph.stats().nodes["episodic"] == 5
        graph.remember("Carl lives in Oslo.")
    with MemoryGraph.open(path) as graph:
        assert graph.stats().nodes["episodic"] == 6
        assert graph.check() == []
