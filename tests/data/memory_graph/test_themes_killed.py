"""Killed while themes are made or forgotten: the same command gives the same, and no byte stays."""

from __future__ import annotations

import random
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from turngraph.tests.data.memory_graph import making_themes
from turngraph.tests.data.memory_graph.talks import (
    SECRET,
    Content,
    Script,
    content,
    opened,
    questions,
    talk,
    with_talks,
)
from turngraph.tests.data.memory_graph.test_durability import running


def killed(path: Path, after: int, *arguments: str) -> bool:
    """Run a process and kill it before a write, by its number; return whether it ended before."""
    command = [sys.executable, "-m", making_themes.__name__, str(path), "ask", *arguments]
    with running(command) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        for number, line in enumerate(process.stdout):
            if line == "end\n":
                assert process.wait() == 0
                return True
            if number == after:
                process.send_signal(signal.SIGKILL)
                break
            process.stdin.write("go\n")
            process.stdin.flush()
        assert process.wait() == -signal.SIGKILL
    return False


def shown(path: Path) -> tuple[Content, list[Any]]:
    with opened(path) as graph:
        assert graph.check() == []
        return content(graph), questions(graph)


def kill_themes(folder: Path, places: list[int], *arguments: str, again: bool = False) -> None:
    """Kill runs over one database, each going on where the last one died; then let one end.

    Args:
        folder: of the databases.
        places: number of the write before which each run dies.
        arguments: of the runs.
        again: the rules have made themes before, which the runs replace.
    """
    for name in ("killed.db", "whole.db"):
        with with_talks(folder / name, "abc", 16) as graph:
            if again:
                assert graph.make_themes().themes[1]
    for place in places:
        killed(folder / "killed.db", place, *arguments)
        with opened(folder / "killed.db") as graph:
            assert graph.check() == []
    for name in ("killed.db", "whole.db"):
        with opened(folder / name) as graph:
            graph.make_themes(Script().lm() if arguments else None)
    assert shown(folder / "killed.db") == shown(folder / "whole.db")


def test_killed_themes_go_on(tmp_path: Path) -> None:
    kill_themes(tmp_path, [4])


def test_themes_killed_while_they_are_made_again_go_on(tmp_path: Path) -> None:
    kill_themes(tmp_path, [5], "lm", again=True)


@pytest.mark.slow
@pytest.mark.parametrize(("by", "again"), [((), False), (("lm",), False), (("lm",), True)])
def test_themes_killed_twenty_times_go_on(tmp_path: Path, by: tuple[str, ...], again: bool) -> None:
    draw = random.Random(0)
    kill_themes(tmp_path, [draw.randrange(6) for _ in range(20)], *by, again=again)


def bytes_of(path: Path) -> bytes:
    files = [*path.parent.glob(f"{path.name}*"), *Path(f"{path}.derived").rglob("*")]
    return b"".join(file.read_bytes() for file in files if file.is_file())


def with_a_secret(path: Path) -> None:
    """Talks whose questions, quotations and summaries have a word that only source b says."""
    script = Script()
    with opened(path) as graph:
        graph.remember_many(talk("a", 16))
        episodes = talk("b", 16)
        graph.remember_many(
            [type(one)(f"{one.text} {SECRET} sang.", one.time, "b") for one in episodes]
        )
        graph.make_themes()
        graph.make_themes(script.lm())
        assert any(SECRET in text for text, *_ in questions(graph))
        assert any(SECRET in str(theme.summary) for theme in graph.themes())
        graph.ask_themes("What did Anna say?")


def forget_killed(folder: Path, places: list[int]) -> None:
    """Kill ``forget`` at each place; the next opening leaves a graph that never knew it."""
    with_a_secret(folder / "first.db")
    assert bytes_of(folder / "first.db").count(SECRET.encode()) > 32
    with opened(folder / "never.db") as never:
        never.remember_many(talk("a", 16))
        never.make_themes()
        wanted = content(never), [row for row in questions(never) if row[2]]
    for place in places:
        path = folder / f"{place}.db"
        shutil.copytree(f"{folder}/first.db.derived", f"{path}.derived")
        shutil.copy(folder / "first.db", path)
        ended = killed(path, place, "forget", "b")
        with opened(path) as graph:
            known = graph.store.db.execute("SELECT 1 FROM episodes WHERE source = 'b'").fetchone()
            if known is not None:
                assert not ended
                graph.forget(source="b")
        assert SECRET.lower().encode() not in bytes_of(path).lower()
        with opened(path) as graph:
            assert graph.check() == []
            graph.make_themes()
            assert (content(graph), [row for row in questions(graph) if row[2]]) == wanted


def test_a_killed_forget_is_finished(tmp_path: Path) -> None:
    forget_killed(tmp_path, [2])


@pytest.mark.slow
def test_a_forget_that_is_killed_anywhere_is_finished(tmp_path: Path) -> None:
    forget_killed(tmp_path, list(range(8)))
