"""Export and import: nothing is lost, wrong files are refused whole, others can read GraphML."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx
import pytest

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode, Extraction, Thesis, Triplet
from turngraph.data.memory_graph.upkeep.graphml import export_graphml
from turngraph.data.memory_graph.upkeep.transfer import import_jsonl
from turngraph.tests.data.memory_graph.scripted import Scripted
from turngraph.tests.data.memory_graph.small_graphs import exported, node_of, small_graph


def rich_graph(path: Path) -> MemoryGraph:
    """With both times, a supersession, a hypothesis, given aliases, properties and a second Bob."""
    graph = small_graph(path)
    graph.remember("Anna lives in Rome.", time="2021-03", properties={"mood": 'gla"d\n'})
    graph.extractor = Scripted(
        {
            "one": Extraction(
                (Triplet("Anna", "wants", "tea", "2019", "2020", True, (0, 2)),),
                (Thesis("Tea is wanted.", ("tea",), "2019-05-03T10:30", None, True, (1, 3)),),
                ("1999",),
                ("teapot",),
            )
        }
    )
    graph.remember("one", source="q")
    graph.add_alias("Anna", "A.")
    graph.split("Bob", "Bob", facts=[graph.history("Bob")[0].key])
    return graph


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_round_trip_loses_nothing(tmp_path: Path) -> None:
    with rich_graph(tmp_path / "one.db") as graph:
        before, stats = exported(graph, tmp_path), graph.stats()
        facts, history = graph.store.facts([3]), graph.history("Anna")
    with MemoryGraph.open(tmp_path / "two.db") as graph:
        count = import_jsonl(graph.store, tmp_path / "exported.jsonl")
        assert count == len(before.splitlines())
        assert exported(graph, tmp_path) == before
        assert graph.check() == []
        assert (graph.stats().nodes, graph.stats().edges) == (stats.nodes, stats.edges)
        assert graph.stats().superseded == stats.superseded > 0
        assert (graph.store.facts([3]), graph.history("Anna")) == (facts, history)
        graph.remember("Anna lives in Oslo.", time="2022")
        assert graph.check() == []


def test_what_was_remembered_goes_on_alike_after_a_round_trip(tmp_path: Path) -> None:
    with rich_graph(tmp_path / "one.db") as one, MemoryGraph.open(tmp_path / "two.db") as two:
        exported(one, tmp_path)
        import_jsonl(two.store, tmp_path / "exported.jsonl")
        two.extractor = one.extractor
        for graph in (one, two):
            graph.remember_many([Episode("Anna likes Bob", "2023", origin="new")])
            assert graph.remember("other", origin="talk-1").skipped == 1
            graph.forget(source="q")
        assert exported(one, tmp_path) == exported(two, tmp_path)


def edited(field: str, value: Any, kind: str = "node") -> Callable[[list[dict[str, Any]]], None]:
    def change(lines: list[dict[str, Any]]) -> None:
        line = next(line for line in lines if line.get("kind") == kind)
        line[field] = value

    return change


WRONG = {
    "line 1: does not begin with the line": lambda lines: lines.pop(0),
    "line 2, field kind: must be one of node, episode": edited("kind", "knot"),
    "line 2, field type: must be one of object": edited("type", "knot"),
    "line 2, field text: missing": edited("text", None),
    "line 2, field text: must be a string": edited("text", 7),
    "line 2, field id: must be a whole number": edited("id", True),
    "line 2, field id: must be a number from 0": edited("id", -1),
    "line 2, field said: not a time": edited("said", "soon"),
    "line 2, field hypothesis: must be true or false": edited("hypothesis", "yes"),
    "line 2, field colour: unknown field in a line of kind node": edited("colour", "red"),
    "line 3: duplicate node": lambda lines: lines.insert(2, lines[1]),
    "is inconsistent: simple edges that": edited("target", 10**6, "edge"),
    "is inconsistent: provenance of no fact": edited("fact", 10**6, "provenance"),
    "is inconsistent: sightings of no alias": edited("alias", 10**6, "sighting"),
}


@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_file_is_refused_whole(tmp_path: Path, message: str) -> None:
    with rich_graph(tmp_path / "one.db") as graph:
        exported(graph, tmp_path)
    path = tmp_path / "exported.jsonl"
    lines = lines_of(path)
    WRONG[message](lines)
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    with MemoryGraph.open(tmp_path / "two.db") as graph:
        with pytest.raises(ValueError, match=f"exported.jsonl.*{message}") as error:
            import_jsonl(graph.store, path)
        assert "Anna" not in str(error.value)
        assert sum(graph.stats().nodes.values()) == graph.store.revision == 0
        assert graph.check() == []


def test_import_fills_only_an_empty_graph(tmp_path: Path) -> None:
    with small_graph(tmp_path / "one.db") as graph:
        before = exported(graph, tmp_path)
        with pytest.raises(ValueError, match="not empty; import fills a new memory graph"):
            import_jsonl(graph.store, tmp_path / "exported.jsonl")
        assert exported(graph, tmp_path) == before


@pytest.mark.sqlite
def test_networkx_reads_the_graphml(tmp_path: Path) -> None:
    with rich_graph(tmp_path / "one.db") as graph:
        odd = "<&>\"' \x00\x1b \ufffe ‮ \U0001f600 ]]>"
        graph.remember(odd, source="a < b", origin="x")
        count = export_graphml(graph.store, tmp_path / "graph.graphml")
        stats, anna = graph.stats(), node_of(graph, "Anna")
        shown = networkx.read_graphml(tmp_path / "graph.graphml", node_type=int)
        assert shown.number_of_nodes() == sum(stats.nodes.values())
        assert shown.number_of_edges() == sum(stats.edges.values())
        assert count == shown.number_of_nodes() + shown.number_of_edges()
        assert shown.nodes[anna]["text"] == "Anna"
        assert json.loads(shown.nodes[anna]["aliases"]) == ["Anna", "A."]
        told = [data for _, data in shown.nodes(data=True) if data.get("source") == "a < b"]
        assert [data["text"] for data in told] == [odd.translate({0: "�", 27: "�", 0xFFFE: "�"})]
        edges = [data for _, _, data in shown.edges(data=True) if data["type"] == "simple"]
        assert {"lives in", "wants"} <= {data["relation"] for data in edges}
        [wants] = [data for data in edges if data["relation"] == "wants"]
        assert (wants["valid_from"], wants["valid_to"]) == ("2019", "2020")
        assert wants["hypothesis"] is True
