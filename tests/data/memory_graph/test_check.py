"""What check finds, what rebuild puts right, and what is said of a damaged file."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode
from turngraph.data.memory_graph.recall import vector_matrix
from turngraph.data.memory_graph.recall.adjacency import Adjacency
from turngraph.data.memory_graph.recall.derived_files import read_arrays
from turngraph.data.memory_graph.recall.vector_matrix import VectorMatrix
from turngraph.data.memory_graph.record.integrity import Problem
from turngraph.data.memory_graph.record.schema import SCHEMA_VERSION
from turngraph.data.memory_graph.record.store import Store
from turngraph.data.memory_graph.upkeep import check as check_module
from turngraph.data.memory_graph.upkeep.check import check, check_file
from turngraph.data.memory_graph.upkeep.transfer import export_jsonl
from turngraph.tests.data.memory_graph.small_graphs import (
    TEXTS,
    embed,
    exported,
    node_of,
    small_graph,
)

BREAKS = {
    "nodes of an unknown type": "UPDATE nodes SET type = 7 WHERE text = 'tea'",
    "edges of an unknown type": "UPDATE edges SET type = 7 WHERE id = 3",
    "simple edges that do not join two objects": "UPDATE edges SET target = 999 WHERE id = 1",
    "hyper edges that do not join": "UPDATE edges SET source = 999 WHERE type = 1",
    "episodic edges that do not join": "DELETE FROM nodes WHERE id = 1",
    "time edges that do not join": "DELETE FROM nodes WHERE type = 3",
    "simple edges without a relation": "UPDATE edges SET relation = NULL WHERE id = 1",
    "duplicate edges": "INSERT INTO edges (type, source, target, revision)"
    " SELECT type, source, target, 1 FROM edges WHERE type = 2",
    "episodes without their row of fields": "DELETE FROM episodes WHERE node = 1",
    "rows of episodes without an episode": "INSERT INTO episodes (node, extractor) VALUES (2, 'x')",
    "aliases of no object": "UPDATE aliases SET node = 1 WHERE spelling = 'tea'",
    "objects whose name is not among": "UPDATE nodes SET text = 'coffee' WHERE text = 'tea'",
    "sightings of no alias": "INSERT INTO sightings VALUES (999, 1)",
    "sightings in no episode": "INSERT INTO sightings VALUES (1, 2)",
    "provenance of no fact": "INSERT INTO provenance VALUES (9999, 1, 0, 1)",
    "provenance in no episode": "UPDATE provenance SET episode = 2 WHERE fact = 3",
    "provenance outside of its": "UPDATE provenance SET stop = 999 WHERE fact = 3",
    "simple edges without provenance": "DELETE FROM provenance WHERE fact = 3",
    "theses without provenance": "DELETE FROM provenance WHERE NOT fact & 1",
    "supersessions of no fact": "INSERT INTO supersessions VALUES (3, 999, '2020', NULL, NULL)",
    "theses that are not joined": "DELETE FROM edges WHERE type = 2 AND source = {thesis}",
    "subjects of triplets that are not joined": "DELETE FROM edges WHERE type = 2 AND source = 2",
    "objects of triplets that are not joined": "DELETE FROM edges WHERE type = 2 AND source = 3",
    "objects that are not joined to the episodes that": "DELETE FROM edges WHERE type = 2"
    " AND source = 2",
    "objects and times without edges": "INSERT INTO nodes (type, revision, text)"
    " VALUES (0, 1, 'lonely')",
    "texts that differ from their hashes": "UPDATE nodes SET text = 'x' WHERE id = {thesis}",
    "aliases that differ from their spellings": "UPDATE aliases SET spelling = 'x' WHERE id = 1",
    "nodes with an invalid time": "UPDATE nodes SET said = 'soon' WHERE id = 1",
    "edges that end before they begin": "UPDATE edges SET valid_from = '2020', valid_to = '2019'"
    " WHERE id = 1",
    "name_words and the texts": "DELETE FROM aliases WHERE id = 1",
    "fact_words and the texts": "UPDATE nodes SET text = 'x' WHERE id = 1",
}


@pytest.mark.parametrize("what", BREAKS)
def test_what_does_not_hold_is_found(tmp_path: Path, what: str) -> None:
    with small_graph(tmp_path / "memory.db") as graph:
        assert graph.check() == []
        thesis = node_of(graph, "Eve: Anna likes tea.")
        graph.store.db.execute(BREAKS[what].format(thesis=thesis))
        found = [problem for problem in graph.check() if problem.what.startswith(what)]
        assert len(found) == 1
        assert found[0].count >= 1
        assert not any(text in str(found[0]) for text in ("Anna", "tea"))


def test_rebuild_makes_word_indexes_and_arrays_anew(tmp_path: Path) -> None:
    with small_graph(tmp_path / "memory.db") as graph:
        before = exported(graph, tmp_path)
        Adjacency(graph.store.db, graph.store.derived).refresh()
        [array] = graph.store.derived.glob("*/edge_target.npy")
        np.save(array, np.load(array)[::-1])
        graph.store.db.execute("INSERT INTO fact_words (rowid, words) VALUES (1000, 'nothing')")
        problems = graph.check()
        assert [problem.derived for problem in problems] == [True, True]
        assert "`check --rebuild` rebuilds it" in str(problems[0])
        assert graph.check(rebuild=True) == []
        assert list(graph.store.derived.glob("*/")) == []
        assert exported(graph, tmp_path) == before


def test_arrays_that_lag_behind_are_no_problem_and_say_their_revision(tmp_path: Path) -> None:
    with small_graph(tmp_path / "memory.db") as graph:
        Adjacency(graph.store.db, graph.store.derived).refresh()
        old = graph.store.revision
        graph.merge("Anna", "Annie")
        graph.remember("Carl knows Anna.")
        assert graph.check() == []
        assert read_arrays(graph.store.derived, "adjacency")[0]["revision"] == old
        graph.store.db.execute("UPDATE edges SET target = 3 WHERE id = 2")
        assert any("differ from the record" in problem.what for problem in graph.check())


def test_vectors_are_of_the_texts_as_they_were_at_their_revision(tmp_path: Path) -> None:
    with small_graph(tmp_path / "memory.db") as graph:
        graph.embed = embed
        graph.ask("Where does Anna live?")
    with MemoryGraph.open(tmp_path / "memory.db") as graph:
        graph.rename("Anna", "Anna Schmidt")
        assert graph.check() == []
        names = np.array(VectorMatrix(graph.store.derived / "names").labels)
        assert len(names) == graph.stats().nodes["object"]
        [labels] = (graph.store.derived / "names").glob("labels-*")
        names[:, 1] += 1
        labels.write_bytes(names.tobytes())
        [problem] = graph.check()
        assert problem.derived
        assert problem.what.endswith("/names differ from revision 1")
        assert problem.count == len(names) - 1  # Anna's is of another revision
        assert graph.check(rebuild=True) == []


def rename_and_ask(graph: MemoryGraph) -> None:
    graph.rename("Anna", "Anna Schmidt")
    graph.ask("Where does Anna live?")


def forget_anna(graph: MemoryGraph) -> None:
    graph.forget(entity="Anna")


@pytest.mark.parametrize("change", [rename_and_ask, forget_anna])
def test_a_writer_that_erases_vectors_meanwhile_is_no_problem(
    change: Callable[[MemoryGraph], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are erased after the commit and before the files' revision is written."""
    path = tmp_path / "memory.db"
    with small_graph(path) as graph:
        graph.embed = embed
        graph.ask("Where does Anna live?")
    erased, go_on = Event(), Event()
    write_json, locked = vector_matrix.write_json, check_module.locked
    wrong_arrays = check_module._wrong_arrays

    def write() -> None:
        with MemoryGraph.open(path, embed) as graph:
            change(graph)

    def write_later(*given: Any) -> None:
        erased.set()
        assert go_on.wait(60)
        write_json(*given)

    def begin_to_write(store: Store) -> list[Problem]:
        writer.start()
        assert erased.wait(60)
        return wrong_arrays(store)

    def let_go(*given: Any) -> Any:
        go_on.set()
        return locked(*given)

    writer = Thread(target=write)
    monkeypatch.setattr(vector_matrix, "write_json", write_later)
    monkeypatch.setattr(check_module, "_wrong_arrays", begin_to_write)
    monkeypatch.setattr(check_module, "locked", let_go)
    with MemoryGraph.open(path, read_only=True) as graph:
        problems = graph.check()
    go_on.set()
    writer.join()
    assert problems == []


def test_stats_count_everything(tmp_path: Path) -> None:
    with small_graph(tmp_path / "memory.db") as graph:
        graph.remember("Anna lives in Rome.", time="2021")
        graph.rename("Anna", "Anna Schmidt")
        stats = graph.stats()
    assert stats.nodes["episodic"] == len(TEXTS) + 1
    assert stats.nodes["object"] == 10
    assert sum(stats.edges.values()) > 60
    assert (stats.first, stats.last) == ("2020-01-01", "2021")
    assert (stats.sources, stats.edits, stats.revision) == (1, 1, 3)
    assert stats.schema_version == SCHEMA_VERSION
    assert (stats.closed, stats.superseded) == (2, 2)  # the triplet and the thesis of Paris
    assert stats.aliases == 11
    assert stats.bytes["memory.db"] > 0


def large_graph(path: Path) -> None:
    """Make a closed database of some hundred pages."""
    texts = [f"Person {n} lives in City {n % 7}. " + "It " + "was said " * 90 for n in range(60)]
    with MemoryGraph.open(path) as graph:
        episodes = (
            Episode(text, "2020", f"file {n % 3}", f"origin {n}", "Eve", {"page": f"{n:0200}"})
            for n, text in enumerate(texts)
        )
        graph.remember_many(episodes, batch=10)  # so that all tables are all over the file


def overwrite(path: Path, begin: int, stop: int) -> None:
    with path.open("r+b") as file:
        file.seek(begin)
        file.write(b"\xa5" * (stop - begin))


DAMAGE: dict[str, Callable[[Path, int], None]] = {
    "overwritten in the middle": lambda path, size: overwrite(path, size // 2, size // 2 + 20_000),
    "cut short": lambda path, size: os.truncate(path, size * 2 // 3),
    "cut inside a page": lambda path, size: os.truncate(path, size * 4 // 5 + 77),
    "a byte of a text": lambda path, size: overwrite(
        path, at := path.read_bytes().index(b"Person 7 lives"), at + 1
    ),
    "all of it": lambda path, size: overwrite(path, 0, size),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_file_is_an_error_that_says_how_to_recover_it(tmp_path: Path, name: str) -> None:
    path = tmp_path / "memory.db"
    large_graph(path)
    DAMAGE[name](path, path.stat().st_size)
    problems = check_file(path)
    assert problems[0].damage
    assert not any("Person" in str(problem) for problem in problems)
    assert "`sqlite3 OLD.db .recover | sqlite3 NEW.db`" in problems[-1].what
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: [^\n]*$") as caught:
        export_jsonl(Store(path, read_only=True), tmp_path / "out.jsonl")
    assert "recover" in str(caught.value) or name == "all of it"
    assert "Person" not in str(caught.value)
    assert not (tmp_path / "out.jsonl").exists()


def test_what_is_no_memory_graph_is_not_called_damaged(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such memory graph"):
        check_file(tmp_path / "none.db")
    with sqlite3.connect(tmp_path / "other.db") as db:
        db.execute("CREATE TABLE t (x)")
    with pytest.raises(ValueError, match="not a memory graph"):
        check_file(tmp_path / "other.db")


def test_check_reads_only(tmp_path: Path) -> None:
    small_graph(tmp_path / "memory.db").close()
    before = (tmp_path / "memory.db").read_bytes()
    with MemoryGraph.open(tmp_path / "memory.db", read_only=True) as graph:
        assert check(graph.store) == []
        with pytest.raises(ValueError, match="reading only"):
            graph.check(rebuild=True)
    assert (tmp_path / "memory.db").read_bytes() == before
