"""The record: opening, one writer, readers, versions, files that are something else."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.record import schema
from turngraph.data.memory_graph.record.store import Store
from turngraph.tests.waiting import PATIENCE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "my.db"


def test_a_new_graph_is_its_owners_and_opens_again(path: Path) -> None:
    with Store(path) as store, store.writing() as revision:
        assert (revision, store.revision) == (1, 0)
    with Store(path) as store:
        assert store.revision == 1
        assert store.db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        for pragma, value in (("synchronous", 2), ("secure_delete", 1), ("mmap_size", 0)):
            assert store.db.execute(f"PRAGMA {pragma}").fetchone() == (value,)
        for file in path.parent.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_a_write_that_fails_leaves_nothing(path: Path) -> None:
    with Store(path) as store:
        with pytest.raises(sqlite3.IntegrityError), store.writing():
            store.db.executemany("INSERT INTO meta VALUES (?, 1)", [("a",), ("revision",)])
        assert store.revision == 0
        assert store.db.execute("SELECT count(*) FROM meta").fetchone() == (1,)
        with store.writing():
            pass
        assert store.revision == 1


def test_a_reader_keeps_its_revision(path: Path) -> None:
    with Store(path) as writer, Store(path, read_only=True) as reader:
        with reader.reading() as revision:
            with writer.writing():
                pass
            assert (revision, reader.revision, writer.revision) == (0, 0, 1)
            with reader.reading() as inner:
                assert inner == 0
        assert reader.revision == 1
        with pytest.raises(ValueError, match="for reading only"), reader.writing():
            pass
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader.db.execute("DELETE FROM meta")


def test_processes_that_make_the_same_graph_at_once_all_have_it(path: Path) -> None:
    code = (
        "import sys; from data.memory_graph.record.store import Store\n"
        "with Store(sys.argv[1]) as s, s.writing(): pass"
    )
    command = [sys.executable, "-c", code, str(path)]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(4)]
    for process in processes:
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
    with Store(path) as store:
        assert store.revision == 4


def test_threads_that_make_the_same_graph_at_once_all_have_it(tmp_path: Path) -> None:
    def write(path: Path) -> None:
        with Store(path) as store, store.writing():
            pass

    with ThreadPoolExecutor(6) as threads:
        for number in range(8):
            path = tmp_path / f"{number}.db"
            list(threads.map(write, [path] * 6))
            with Store(path) as store:
                assert store.revision == 6


def test_a_file_that_is_something_else_is_refused(tmp_path: Path, path: Path) -> None:
    def message(file: Path, **options: bool) -> str:
        with pytest.raises(ValueError, match=file.name) as error:
            Store(file, **options)
        return str(error.value)

    path.write_text("dear diary " * 1000)
    assert "no SQLite database" in message(path)
    assert path.read_text() == "dear diary " * 1000
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE bookmarks (url TEXT)")
    before = other.read_bytes()
    assert "another program's database" in message(other)
    assert other.read_bytes() == before
    assert "a folder" in message(tmp_path)
    with pytest.raises(ValueError, match=r"^\.: a folder, not a memory graph"):
        Store(".")
    assert "cannot be made" in message(tmp_path / "no" / "such.db")
    assert "no such memory graph" in message(tmp_path / "none.db", read_only=True)
    assert not (tmp_path / "none.db").exists()


def test_a_truncated_file_is_refused(path: Path) -> None:
    with Store(path) as store, store.writing():
        store.db.execute("INSERT INTO meta VALUES ('filler', ?)", ("x" * 100_000,))
    whole = path.read_bytes()
    for size in (50, 1000, 4096, len(whole) // 2):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"my.db: (damaged|not a memory graph)"):
            Store(path)


def test_a_full_disk_is_told_and_leaves_no_half_write(path: Path) -> None:
    with Store(path) as store:
        pages = store.db.execute("PRAGMA page_count").fetchone()[0]
        store.db.execute(f"PRAGMA max_page_count = {pages + 5}")
        with pytest.raises(ValueError, match=r"my\.db: the disk is full"), store.writing():
            store.db.execute("INSERT INTO meta VALUES ('filler', ?)", ("x" * 100_000,))
        assert store.revision == 0
        with store.writing():
            pass


def test_a_copy_without_a_wal_gets_one(path: Path) -> None:
    with Store(path) as store:
        store.db.execute("PRAGMA journal_mode = DELETE").fetchall()
    with Store(path, read_only=True) as store:
        assert store.db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    with Store(path) as store:
        assert store.db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize("version", [schema.SCHEMA_VERSION - 1, schema.SCHEMA_VERSION + 1])
def test_another_schema_is_refused(path: Path, version: int) -> None:
    with Store(path) as store:
        store.db.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(ValueError, match=f"schema version {version}, made by another version"):
        Store(path)


def test_an_empty_file_that_becomes_a_graph_is_its_owners_alone(path: Path) -> None:
    path.touch()
    path.chmod(0o644)
    with Store(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(Path(f"{path}-wal").stat().st_mode) == 0o600
    path.chmod(0o644)  # its owner's choice from here on
    with Store(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_errors_of_the_program_stay_what_they_are(tmp_path: Path) -> None:
    with MemoryGraph.open(tmp_path / "my.db") as graph:
        graph.remember("Anna lives in Oslo.")
        with pytest.raises(KeyError), graph.store.clear_errors():
            raise KeyError(1)
        with pytest.raises(sqlite3.OperationalError), graph.store.clear_errors():
            graph.store.db.execute("SELECT nothing FROM nowhere")
    with pytest.raises(sqlite3.ProgrammingError), graph.store.clear_errors():
        graph.store.db.execute("SELECT 1")
