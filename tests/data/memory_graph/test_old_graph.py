"""A memory graph written by the code at commit bfd819e, as ``fixtures/write_old_graph.py`` did."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.recall.derived_files import read_arrays
from turngraph.data.memory_graph.record.schema import SCHEMA_VERSION
from turngraph.data.memory_graph.turns import TurnExtractor
from turngraph.data.memory_graph.upkeep.transfer import import_jsonl
from turngraph.tests.data.memory_graph.small_graphs import embed, exported

OLD = Path(__file__).parent / "fixtures" / "old_graph.tar.xz"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.unpack_archive(OLD, tmp_path)
    return tmp_path


def told(folder: Path) -> dict[str, Any]:
    """What the old code said of its graph."""
    return json.loads((folder / "told.json").read_text(encoding="utf-8"))


def open_graph(folder: Path) -> MemoryGraph:
    return MemoryGraph.open(folder / "my.db", embed, TurnExtractor())


def tables(graph: MemoryGraph) -> dict[str, list[str]]:
    """The words of each table's and index's definition, without its comments."""
    rows = graph.store.db.execute("SELECT name, sql FROM sqlite_schema")
    return {name: re.sub(r"--.*", "", sql or "").split() for name, sql in rows}


def test_it_is_opened_checked_and_exported(folder: Path) -> None:
    old = (folder / "exported.jsonl").read_text(encoding="utf-8")
    assert read_arrays(folder / "my.db.derived", "adjacency")[0]["revision"] > 0
    with open_graph(folder) as graph:
        assert graph.check() == []  # arrays and vectors that the old code derived are compared too
        assert graph.stats().schema_version == SCHEMA_VERSION
        assert exported(graph, folder) == old
        assert graph.check(rebuild=True) == []
    (folder / "old.jsonl").write_text(old, encoding="utf-8")
    with MemoryGraph.open(folder / "new.db") as new:
        import_jsonl(new.store, folder / "old.jsonl")
        assert exported(new, folder) == old
        with open_graph(folder) as graph:
            assert tables(graph) == tables(new)


@pytest.mark.parametrize("rebuilt", [False, True])
def test_it_answers_as_it_did(folder: Path, rebuilt: bool) -> None:
    """From what the old code derived, and from what the new code derives."""
    with open_graph(folder) as graph:
        if rebuilt:
            graph.check(rebuild=True)
        for asked in told(folder)["asked"]:
            found = graph.ask(asked["question"], asked["as_of"])
            facts = [[fact.key, fact.text] for fact in found.facts]
            assert facts == [fact[:2] for fact in asked["facts"]], asked["question"]
            scores = [fact[2] for fact in asked["facts"]]
            assert [fact.score for fact in found.facts] == pytest.approx(scores, abs=2e-4)
        history = [[fact.key, fact.text, fact.valid_to] for fact in graph.history("Anna")]
        assert history == told(folder)["history"]


def test_it_is_written_to(folder: Path) -> None:
    """Its edits are undone, its names found, its facts superseded and forgotten."""
    with open_graph(folder) as graph:
        assert [graph.undo().split(" #")[0] for _ in range(3)] == ["alias", "rename", "merge"]
        assert graph.store.objects("Annie") != graph.store.objects("ANNA")
        known = graph.stats().nodes["object"]
        done = graph.remember("Anna lives in Rome. Bob met JÜRGEN GROSS.", "2023")
        assert done.superseded == 2
        assert graph.stats().nodes["object"] == known
        assert "2023: Anna lives in Rome" in {fact.text for fact in graph.show("Anna").facts}
        again = graph.remember("The same mail.", origin="m1")
        assert (again.episodes, again.skipped) == (0, 1)
        assert graph.check() == []
        graph.forget(entity="Jürgen Groß")
        assert graph.check() == []
        assert graph.store.objects("Jürgen Groß") == []
    assert "Jürgen".encode() not in (folder / "my.db").read_bytes()
