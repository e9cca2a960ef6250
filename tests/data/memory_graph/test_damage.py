"""Flipped bytes: no message shows a text, every message names the episode, and it is forgotten."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.record.damage import damage
from turngraph.data.memory_graph.record.store import Store
from turngraph.memory import main

TEXT = "Zorglub lives in Quuxville. Zorglub works at Secretcorp."
PARTS = ("Zorglub", "zorglub", "Quuxville", "quuxville", "Secretcorp", "secretcorp")
READING = (
    ["ask", "Where does Zorglub live?", "--no_embed"],
    ["history", "Zorglub"],
    ["show", "Zorglub"],
    ["stats"],
    ["rename", "Zorglub", "Bulgroz"],
    ["export", "--jsonl", "{out}"],
    ["export", "--graphml", "{out}"],
    ["export", "--html", "{out}"],
    ["export", "--damaged", "{out}"],
)
FORGETTING = (["--episode", "1"], ["--source", "a letter"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a database of two episodes."""
    path = tmp_path_factory.mktemp("whole") / "my.db"
    with MemoryGraph.open(path) as graph:
        graph.remember(TEXT, "2020", "a letter", speaker="Eve", origin="first")
        graph.remember("Bob likes tea.", "2021", "a call", origin="second")
    return path.read_bytes()


def places(whole: bytes) -> Iterator[int]:
    """The third byte of every copy of each remembered word, in tables and their indexes."""
    for word in ("Zorglub", "zorglub", "Quuxville", "lives in", "a letter", "Eve", "first"):
        at = -1
        while (at := whole.find(word.encode(), at + 1)) >= 0:
            yield at + 2


def call(path: Path, command: list[str]) -> tuple[int, str]:
    """Run a command; return its exit code and its error, which is one line."""
    arguments = [part.format(out=path.with_name("out")) for part in command]
    try:
        main([arguments[0], "--db", str(path), *arguments[1:]])
    except ValueError as error:
        return 2, str(error)
    except SystemExit as exit:
        return int(str(exit.code)), ""
    return 0, ""


def test_no_error_shows_a_damaged_text(
    tmp_path: Path,
    whole: bytes,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each flipped byte is met by ``check`` and by a sixth of the commands."""
    path, errors, checked = tmp_path / "my.db", [], 0
    for number, at in enumerate(places(whole)):
        for command in (["check"], *READING[number % 6 :: 6]):
            path.write_bytes(whole[:at] + b"\xff" + whole[at + 1 :])
            capsys.readouterr()
            code, error = call(path, command)
            said = error + caplog.text
            assert "\n" not in error
            if command == ["check"]:
                said += capsys.readouterr().out
                checked += code
            assert not any(word[3:] in said for word in PARTS), (command, said)
            if code == 2:
                assert "damaged" in error, (command, error)
                errors.append(error)
    assert number * 0.9 < checked  # all but copies in free space of pages
    assert sum("episode #1 (source a letter)" in error for error in errors) > len(errors) / 2
    assert not any("source a call" in error for error in errors)


def test_a_damaged_episode_is_forgotten(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "my.db"
    for number, at in enumerate(places(whole)):
        chosen = FORGETTING[number % 2]
        path.write_bytes(whole[:at] + b"\xff" + whole[at + 1 :])
        if chosen[0] == "--source" and whole[at - 2 : at + 6] == b"a letter":
            continue  # it is not that source any more
        assert call(path, ["forget", *chosen, "--yes"]) == (0, ""), at
        with MemoryGraph.open(path) as graph:
            assert [fact.text for fact in graph.history("Bob") if fact.ends] == ["Bob likes tea"]
            problems = graph.check()
            assert all(problem.derived for problem in problems)
            if problems:  # the word index is damaged, which only check sees
                assert graph.check(rebuild=True) == []
                graph.store.db.execute("VACUUM")
        left = b"".join(file.read_bytes() for file in tmp_path.glob("my.db*") if file.is_file())
        assert [word for word in PARTS if word[3:].encode() in left] == [], at


def test_values_of_another_type_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "my.db"
    for sql in (
        "UPDATE nodes SET text = CAST(text AS BLOB) WHERE id = 1",
        "UPDATE nodes SET type = 'Zorglub' WHERE id = 1",
        "UPDATE edges SET said = x'ff' WHERE id = 1",
        "UPDATE edges SET relation = 'a' || x'c328' WHERE type = 0",
        "UPDATE aliases SET spelling = x'5a6f' WHERE id = 1",
        "UPDATE episodes SET properties = x'ff'",
    ):
        path.unlink(missing_ok=True)
        with MemoryGraph.open(path) as graph:
            graph.remember(TEXT, "2020", "a letter")
            assert damage(graph.store.db) is None
            graph.store.db.execute(sql)
            found = damage(graph.store.db)
            assert found is not None, sql
            assert "in episode #1 (source a letter)" in found
            assert graph.check()[0].what == found
            assert graph.forget(episode=1).episodes == 1
            assert graph.check() == []


BROKEN = (
    "UPDATE meta SET name = 'revisiom' WHERE name = 'revision'",
    "UPDATE meta SET value = 'soon' WHERE name = 'revision'",
    "UPDATE nodes SET id = 1099511627776 WHERE id = 2",
    "UPDATE edges SET id = -4 WHERE id = 1",
    "UPDATE edges SET type = 9 WHERE id = 2",
    "UPDATE edges SET source = 70000 WHERE id = 1",
    "UPDATE edges SET valid_from = 'soon' WHERE id = 1",
    "UPDATE nodes SET said = '0000-01-01' WHERE id = 1",
    "UPDATE OR IGNORE provenance SET episode = 70000",
    "UPDATE OR IGNORE provenance SET fact = 70000",
    "UPDATE OR IGNORE provenance SET start = 1e300",
    "UPDATE episodes SET properties = '[1' WHERE node = 1",
    "UPDATE episodes SET properties = NULL WHERE node = 1",
    "UPDATE episodes SET node = 2 WHERE node = 1",
    "DELETE FROM nodes WHERE id = 1",
    "INSERT INTO removed VALUES ('x', 9e999, 1000)",
    "UPDATE stamps SET stamp = 'x'",
    "UPDATE meta SET value = 1 WHERE name = 'revision'",
)
"""Changes as of flipped bytes, which SQLite reads without an error."""


def change(path: Path, sql: str) -> None:
    """Change a database behind its indexes and constraints, as a flipped byte does."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        rows = db.execute("SELECT rowid, * FROM sqlite_schema").fetchall()
        db.execute("PRAGMA writable_schema = ON")
        db.execute("DELETE FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL")
        db.execute("UPDATE sqlite_schema SET sql = replace(sql, 'NOT NULL', '')")
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(sql)
        db.execute("PRAGMA writable_schema = ON")
        db.execute("DELETE FROM sqlite_schema")
        insert = "INSERT INTO sqlite_schema (rowid, type, name, tbl_name, rootpage, sql)"
        db.executemany(f"{insert} VALUES (?, ?, ?, ?, ?, ?)", rows)


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_rows_that_do_not_fit_together_are_damage(
    tmp_path: Path, whole: bytes, number: int
) -> None:
    """Each command does its work or says that the graph is damaged; ``check`` finds it."""
    path = tmp_path / "my.db"
    path.write_bytes(whole)
    change(path, BROKEN[number])
    broken = path.read_bytes()
    assert call(path, ["check"])[0] == 1
    for command in (*READING[number % 3 :: 3], ["forget", "--entity", "Zorglub", "--yes"]):
        path.write_bytes(broken)
        code, error = call(path, command)
        assert (code, "damaged" in error) in ((0, False), (2, True)), (command, error)


def test_a_source_that_steers_a_terminal_is_printed_as_text(tmp_path: Path) -> None:
    with MemoryGraph.open(tmp_path / "my.db") as graph:
        graph.remember(TEXT, "2020", "\x1b[2Ja\nletter")
        graph.store.db.execute("UPDATE nodes SET text = 'Zorg' || x'ff' WHERE id = 1")
        with pytest.raises(ValueError, match="damaged texts in episode #1") as caught:
            graph.store.facts([2])
    assert "(source \ufffd[2Ja letter)" in str(caught.value)


def test_errors_of_the_program_stay_what_they_are(tmp_path: Path) -> None:
    with MemoryGraph.open(tmp_path / "my.db") as graph:
        graph.remember(TEXT)
        with pytest.raises(KeyError), graph.store.clear_errors():
            raise KeyError(1)
        with pytest.raises(sqlite3.OperationalError), graph.store.clear_errors():
            graph.store.db.execute("SELECT nothing FROM nowhere")
    with pytest.raises(sqlite3.ProgrammingError), graph.store.clear_errors():
        graph.store.db.execute("SELECT 1")


def test_a_damaged_schema_is_told(tmp_path: Path) -> None:
    path = tmp_path / "my.db"
    MemoryGraph.open(path).close()
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"valid_from TEXT", b"valid_frop TEXT"))
    with Store(path, read_only=True) as store, pytest.raises(ValueError, match="damaged; `check`"):
        store.facts([1, 2])
    code, _ = call(path, ["check"])
    assert code == 1
