"""Killed while themes are made or forgotten: the same command gives the same, and no byte stays."""

from __future__ import annotations

import random
import shutil
import signal
import sys
from collections.abc import Sequence
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


TWENTY = random.Random(0).choices(range(6), k=20)


@pytest.mark.parametrize(
    ("places", "by", "again"),
    [
        ([4], (), False),
        ([5], ("lm",), True),
        pytest.param(TWENTY, (), False, marks=pytest.mark.slow),
        pytest.param(TWENTY, ("lm",), False, marks=pytest.mark.slow),
        pytest.param(TWENTY, ("lm",), True, marks=pytest.mark.slow),
    ],
)
def test_killed_themes_go_on(
    tmp_path: Path, places: list[int], by: tuple[str, ...], again: bool
) -> None:
    """Each run goes on where the last one died; ``again``: the rules have made themes before."""
    killed_db, whole = tmp_path / "killed.db", tmp_path / "whole.db"
    for path in (killed_db, whole):
        with with_talks(path, "abc", 16) as graph:
            if again:
                assert graph.make_themes().themes[1]
    for place in places:
        killed(killed_db, place, *by)
        with opened(killed_db) as graph:
            assert graph.check() == []
    for path in (killed_db, whole):
        with opened(path) as graph:
            graph.make_themes(Script().lm() if by else None)
    assert shown(killed_db) == shown(whole)


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


@pytest.mark.parametrize(
    "places", [[2], pytest.param(range(8), marks=pytest.mark.slow)], ids=["once", "anywhere"]
)
def test_a_killed_forget_is_finished(tmp_path: Path, places: Sequence[int]) -> None:
    """The next opening leaves a graph that never knew it."""
    with_a_secret(tmp_path / "first.db")
    assert bytes_of(tmp_path / "first.db").count(SECRET.encode()) > 32
    with opened(tmp_path / "never.db") as never:
        never.remember_many(talk("a", 16))
        never.make_themes()
        wanted = content(never), [row for row in questions(never) if row[2]]
    for place in places:
        path = tmp_path / f"{place}.db"
        shutil.copytree(f"{tmp_path}/first.db.derived", f"{path}.derived")
        shutil.copy(tmp_path / "first.db", path)
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
