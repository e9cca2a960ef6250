"""One database per person: files share nothing, and no log tells what was remembered."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode
from turngraph.data.memory_graph.upkeep.check import check_file
from turngraph.data.memory_graph.upkeep.graphml import export_graphml
from turngraph.data.memory_graph.upkeep.transfer import export_jsonl, import_jsonl
from turngraph.tests.data.memory_graph.small_graphs import embed, episodes, node_of, small_graph

SECRET = "Zarquon lives in Xanadu. Zarquon met Ysolde in 2019. Zarquon moved to Quirm."
WORDS = ("zarquon", "xanadu", "ysolde", "quirm")


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_two_databases_share_nothing(tmp_path: Path) -> None:
    """What is done to one changes no byte of the other, closed or open, nor of what is beside."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        small_graph(tmp_path / name / "memory.db").close()
    with MemoryGraph.open(tmp_path / "two" / "memory.db", embed) as two:
        two.ask("Where does Anna live?")
        before = bytes_of(tmp_path / "two")
        with MemoryGraph.open(tmp_path / "one" / "memory.db", embed) as one:
            one.remember_many(episodes((SECRET,), "secret"))
            one.ask("Where does Zarquon live?")
            one.merge("Anna", "Annie")
            one.undo()
            one.forget(entity="Bob")
            one.backup(tmp_path / "one" / "backup.db")
            assert one.check(rebuild=True) == []
        assert bytes_of(tmp_path / "two") == before
        assert two.check() == []
        assert not two.store.objects("Zarquon")
        assert two.store.objects("Bob")
    assert not any(b"Zarquon" in raw for raw in bytes_of(tmp_path / "two").values())


def use_everything(folder: Path) -> list[str]:
    """Run every operation on a memory, valid and invalid, and return the error messages."""
    errors: list[str] = []
    with MemoryGraph.open(folder / "memory.db", embed) as graph:
        graph.remember_many([Episode(SECRET, "2020", "s", "o", "Zarquon")], progress=True)
        graph.remember("Zarquon lives in Quirm.", time="2021")
        graph.ask("Where does Zarquon live?")
        graph.ask("Where does Zarquon live?", as_of="2020")
        graph.show("Zarquon")
        graph.rename("Zarquon", "Zarquon Ysolde")
        graph.undo()
        graph.add_alias("Quirm", "Xanadu by the sea")
        for wrong in (
            lambda: graph.remember(SECRET, time="soon"),
            lambda: graph.remember_many([Episode(SECRET, speaker=7)]),
            lambda: graph.split("Quirm", "A", episodes=[10**6]),
            lambda: import_jsonl(graph.store, folder / "out.jsonl"),
            lambda: graph.ask("Where does Zarquon live?", as_of="soon"),
        ):
            with pytest.raises(ValueError, match=r".") as error:
                wrong()
            errors.append(str(error.value))
        graph.stats()
        graph.check(rebuild=True)
        graph.backup(folder / "backup.db")
        export_jsonl(graph.store, folder / "out.jsonl")
        export_graphml(graph.store, folder / "out.graphml")
        with MemoryGraph.open(folder / "other.db") as other:
            import_jsonl(other.store, folder / "out.jsonl")
        graph.store.db.execute("UPDATE nodes SET text = text || '!' WHERE type = 1")
        errors += map(str, graph.check())
        graph.forget(episode=node_of(graph, SECRET))
        graph.forget(entity="Quirm")
    raw = (folder / "backup.db").read_bytes()
    (folder / "backup.db").write_bytes(raw[: len(raw) // 2])
    return errors + list(map(str, check_file(folder / "backup.db")))


def test_no_log_and_no_report_tells_what_was_remembered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    errors = use_everything(tmp_path)
    assert len(errors) > 5
    printed = "".join(capfd.readouterr())
    for line in (*caplog.messages, *errors, printed):
        assert not any(word in line.lower() for word in WORDS), "tells what was remembered"
