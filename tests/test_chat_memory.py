"""The chat with a memory graph: turns taken back, locked databases, Ctrl-C."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from turngraph.configs.memory_schema import MemoryGraphConfig
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.types import Interaction
from turngraph.inference.options import MemoryOptions
from turngraph.inference.session import Session
from turngraph.memory import main
from turngraph.tests.chatting import CONVERSATION, Loaded, Screen, ctrl_c, evidence_of


@pytest.fixture
def remembering(graph_model: Loaded, tmp_path: Path) -> Iterator[Session]:
    """A session with a memory graph in ``my.db``, which compares by words."""
    model, builder = graph_model
    builder = replace(builder, memory_graph=MemoryGraphConfig(vectors="words"))
    found = Session(model, builder, CONVERSATION.evidence, MemoryOptions(tmp_path / "my.db"), 8)
    yield found
    found.close()


def episodes(session: Session) -> int:
    """Return how many turns are remembered; in a chat, each has a question and an answer."""
    db = session.memory.graph.graph.store.db
    counts = dict(db.execute("SELECT speaker, count(*) FROM episodes GROUP BY speaker"))
    assert counts.get("user", 0) == counts.get("assistant", 0)
    return counts.get("user", 0) or counts.get(None, 0)


def test_the_memory_graph_forgets_a_turn_that_was_taken_back(
    remembering: Session, tmp_path: Path
) -> None:
    screen = Screen(remembering)
    screen("Ada moved to Oslo in 2010. Is it cold?", "Ada moved to Quito in 2019. Is it warm?")
    assert episodes(remembering) == 2
    assert "Quito" in screen("Where did Ada move to?", "/evidence")
    screen("/undo", "/undo")
    assert episodes(remembering) == 1
    assert not any(b"Quito" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    said = screen("Where did Ada move to?", "/evidence")
    assert "Oslo" in said
    assert "remembered" in said
    screen("/undo", "/undo")
    assert episodes(remembering) == 0


def test_a_conversation_without_a_file_forgets_too(graph_model: Loaded) -> None:
    model, builder = graph_model
    builder = replace(builder, memory_graph=MemoryGraphConfig(vectors="words"))
    session = Session(model, builder, CONVERSATION.evidence, None, 8)
    first = session.ask("What is the capital of Peru?")
    for _ in range(2):
        second = session.ask("Is it raining in Peru?")
        session.remember()
        assert episodes(session) == 2
        session.undo()
        assert episodes(session) == 1
    again = session.ask("Is it raining in Peru?")
    assert evidence_of(again.example) == evidence_of(second.example)
    assert any(text.startswith("What is the capital") for text, *_ in evidence_of(again.example))
    assert session.turns[0] == first
    session.close()


def test_a_locked_memory_graph_is_one_line_and_nothing_is_half_remembered(
    remembering: Session, tmp_path: Path
) -> None:
    screen = Screen(remembering)
    store = remembering.memory.graph.graph.store
    store.db.execute("PRAGMA busy_timeout = 50")
    store.wait = 0.05
    with MemoryGraph.open(tmp_path / "my.db") as other:
        with other.store.writing():
            said = screen("Ada moved to Oslo in 2010. Is it cold?")
            assert "error: this turn is not remembered yet, the next one retries: " in said
            assert "another process is writing to it" in said
            assert len(remembering.turns) == 1
            failed = screen("Where did Ada move to?")
            assert failed.count("error: ") == 1
            assert len(remembering.turns) == 1
        assert other.stats().nodes["episodic"] == 0
        said = screen("Where did Ada move to?", "/evidence")
        assert "Oslo" in said
        assert other.stats().nodes["episodic"] == 4
        with other.store.writing():
            assert "another process is writing to it" in screen("/undo")
            assert len(remembering.turns) == 2
        with other.store.reading():
            assert "-wal still has the text" in screen("/undo")
            assert len(remembering.turns) == 2
        assert "error" not in screen("/undo")
        assert other.stats().nodes["episodic"] == 2 * len(remembering.turns) == 2


def test_a_turn_that_ctrl_c_ends_while_it_is_remembered_is_whole(
    remembering: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = remembering.memory.graph
    remember = graph.remember

    def pressed(interaction: Interaction) -> None:
        if interaction:
            ctrl_c()
        remember(interaction)

    monkeypatch.setattr(graph, "remember", pressed)
    Screen(remembering, interactive=True)("Ada moved to Oslo in 2010. Is it cold?")
    assert len(remembering.turns) == episodes(remembering) == 1


def test_new_keeps_what_is_remembered(remembering: Session) -> None:
    screen = Screen(remembering)
    screen("Ada moved to Oslo in 2010. Is it cold?", "/new")
    assert remembering.turns == []
    assert episodes(remembering) == 1
    assert "remembered" in screen("Where did Ada move to?", "/evidence")
    assert episodes(remembering) == 2
    screen("/undo")
    assert episodes(remembering) == 1
    remembering.ask("Bert moved to Lima in 2015. Is it warm?")
    remembering.begin()
    assert episodes(remembering) == 2


def test_the_last_turn_is_remembered_when_a_chat_ends(
    remembering: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = remembering.persistent
    assert graph is not None
    remembering.ask("Ada moved to Oslo in 2010. Is it cold?")
    closed, close = list[int](), graph.close

    def noted() -> None:
        closed.append(graph.graph.stats().nodes["episodic"])
        close()

    monkeypatch.setattr(graph, "close", noted)
    remembering.close()
    assert closed == [2]  # question and answer


def test_a_chat_whose_last_turn_cannot_be_remembered_is_closed(
    remembering: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, closed = remembering.persistent, list[bool]()
    assert graph is not None
    remembering.ask("Ada moved to Oslo in 2010. Is it cold?")
    with monkeypatch.context() as patch:
        patch.setattr(graph, "remember", lambda _: ctrl_c() or 1 / 0)
        patch.setattr(graph, "close", lambda: closed.append(True))
        with pytest.raises(ZeroDivisionError):
            remembering.close()
    assert closed == [True]


def test_a_chat_with_a_memory_graph_is_saved_for_its_owner_only(
    remembering: Session, graph_model: Loaded, tmp_path: Path
) -> None:
    plain = Session(*graph_model, CONVERSATION.evidence, None, 2)
    umask = os.umask(0o022)
    try:
        for session, mode in ((remembering, 0o600), (plain, 0o644)):
            session.ask("I live in Lima. What is its country?")
            path = session.save(tmp_path / f"{mode}.jsonl")
            assert path.stat().st_mode & 0o777 == mode
    finally:
        os.umask(umask)


def test_what_a_user_says_is_recalled_and_a_chats_turns_are_listed(
    remembering: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """The answers of the model, which is random, are listed as history and never recalled."""
    screen = Screen(remembering)
    screen("My name is Piotr and I live in Gdynia.")
    said = screen("Where do I live?", "/evidence")
    [found] = {line for line in said.splitlines() if "live" in line and "remembered" in line}
    assert "Gdynia" in found
    remembering.remember()
    remembering.close()
    capsys.readouterr()
    with caplog.at_level(logging.INFO):
        main(["history", "--db", str(tmp_path / "my.db")])
    assert "never recalled as evidence" in caplog.text
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[1:3] for row in rows] == [["question", "user"], ["answer", "assistant"]] * 2
    assert {row[5] for row in rows} == {"never"}
    assert [row[6] for row in rows[::2]] == [
        "My name is Piotr and I live in Gdynia.", "Where do I live?",
    ]  # fmt: skip
    assert all(row[3][:2] == "20" and row[4].startswith("chat 20") for row in rows)
    main(["history", "--db", str(tmp_path / "my.db"), "--json"])
    turns = json.loads(capsys.readouterr().out)
    assert [turn["recalled"] for turn in turns] == [False] * 4
