"""SPARQL in a process of its own, what is refused, and exports for other RDF tools."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import rdflib

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.ontology.ontology import TG, load_ontology
from turngraph.data.memory_graph.ontology.rdf import (
    answer_request,
    ask_sparql,
    check_query,
    syntax_message,
)
from turngraph.data.memory_graph.ontology.rdf_export import export_trig
from turngraph.memory import main
from turngraph.tests.data.memory_graph.test_lens import BUYS, LIVES, MOVES, remember

HOMES = "SELECT ?name { ?who tg:residence ?place . ?place rdfs:label ?name }"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rdf") / "my.db"
    with MemoryGraph.open(path) as graph:
        remember(graph, [LIVES], [MOVES], BUYS)
    return path


def asked(path: Path, query: str, as_of: str | None = None) -> dict:
    """The reply to a request, without a process."""
    request = {"path": str(path), "query": query, "as_of": as_of, "ontology": None}
    *_, reply = answer_request(request | {"alone": False})
    return reply


@pytest.mark.parametrize(("as_of", "home"), [(None, "Bergen"), ("2020", "Oslo"), ("2018", None)])
def test_the_default_graph_has_what_holds(path: Path, as_of: str | None, home: str | None) -> None:
    rows = asked(path, HOMES, as_of)["rows"]
    assert [row["name"]["value"] for row in rows] == ([] if home is None else [home])


def test_named_graphs_have_the_history(path: Path) -> None:
    query = "SELECT DISTINCT ?p { GRAPH ?f { ?who tg:residence ?p } }"
    assert len(asked(path, query)["rows"]) == 2


def test_ask_and_construct(path: Path) -> None:
    assert asked(path, "ASK { ?e a/rdfs:subClassOf* tg:Action }")["answer"] is True
    triples = asked(path, "CONSTRUCT { ?e a tg:Buy } WHERE { ?e a tg:Buy }")["triples"]
    assert triples.count(f"<{TG}Buy>") == 1


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT * { SERVICE <http://localhost/> { ?s ?p ?o } }", "query:1:12: SERVICE is refused"),
        ("SELECT *\n{ service silent <http://x/> {} }", "query:2:3: SERVICE is refused"),
        ("INSERT DATA { tg:a tg:b tg:c }", "query:1:1: UPDATE is refused"),
        ("PREFIX a: <urn:a>\nDELETE WHERE { ?s ?p ?o }", "query:2:1: UPDATE is refused"),
        ("CLEAR ALL", "query:1:1: UPDATE is refused"),
        ("SELECT * FROM <http://x/> { ?s ?p ?o }", "query:1:10: FROM reads this graph only"),
        ("SELECT * FROM NAMED <file:///x> { }", "query:1:10: FROM reads this graph only"),
    ],
)
def test_what_writes_or_leaves_the_machine_is_refused(query: str, message: str) -> None:
    with pytest.raises(ValueError, match="^" + message):
        check_query(query)


@pytest.mark.parametrize(
    "query",
    [
        'SELECT ?service { ?service rdfs:label "SERVICE INSERT FROM <http://x/>" } # SERVICE',
        "SELECT * FROM NAMED <urn:turngraph:f3> { GRAPH ?f { ?s ?p ?o } }",
        "PREFIX delete: <urn:d> SELECT * { ?s delete:insert ?o }",
    ],
)
def test_the_same_words_elsewhere_are_allowed(query: str) -> None:
    check_query(query)


def test_errors_of_syntax_have_line_and_column(path: Path) -> None:
    assert asked(path, "SELECT ?x\n{ ?x a }")["error"].startswith("query:2:9: not SPARQL: ")
    with pytest.raises(ValueError, match=r"^query:1:16: unknown prefix my: "):
        check_query("SELECT ?x { ?x my:p ?y }")
    assert syntax_message("odd") == "query: not SPARQL: odd"


@pytest.mark.traced_processes
def test_a_process_answers_in_time_or_is_ended_and_tells_its_errors(path: Path) -> None:
    assert [row[0]["value"] for row in ask_sparql(path, HOMES).rows] == ["Bergen"]
    many = "?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l"
    with pytest.raises(ValueError, match=r"longer than 0\.1 s"):
        ask_sparql(path, f"SELECT (COUNT(*) AS ?n) {{ {many} }}", seconds=0.1)
    doubled = "".join(f"BIND(CONCAT(?t{i}, ?t{i}) AS ?t{i + 1}) " for i in range(40))
    with pytest.raises(ValueError, match="more than 128 MiB of memory"):
        ask_sparql(path, f'SELECT ?t40 {{ BIND("ab" AS ?t0) {doubled} }}', memory=128 << 20)
    with pytest.raises(ValueError, match=r"none\.db: no such memory graph"):
        ask_sparql(path.parent / "none.db", HOMES)


def test_the_command_prints_rows_and_json(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    main(["sparql", "--db", str(path), "SELECT ?e { ?e a tg:Buy }"])
    assert capfd.readouterr().out.startswith("tg:e")
    main(["sparql", "--db", str(path), "--json", "ASK { ?e a tg:Buy }"])
    assert json.loads(capfd.readouterr().out)["answer"] is True
    with pytest.raises(ValueError, match=r"none\.ttl: cannot be read"):
        main(["sparql", "--db", str(path), HOMES, "--ontology", str(path.parent / "none.ttl")])
    with pytest.raises(ValueError, match="--alone: given without --ontology"):
        main(["sparql", "--db", str(path), HOMES, "--alone"])


def test_trig_has_facts_episodes_and_texts(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "my.trig"
    main(["export", "--db", str(path), "--trig", str(target)])
    assert target.stat().st_mode & 0o077 == 0
    data = rdflib.Dataset()
    data.parse(target, format="trig")
    tg = rdflib.Namespace(TG)
    [oslo] = [s for s, _, o in data.triples((None, rdflib.RDFS.label, None)) if str(o) == "Oslo"]
    [graph] = [g for g in data.graphs() if (None, tg.residence, oslo) in g]
    fact = graph.identifier
    assert str(data.value(fact, tg.relation)) == "lives in"
    assert str(data.value(fact, tg.boundary)).endswith(" 2022-06")
    episode = data.value(fact, rdflib.PROV.wasDerivedFrom)
    assert str(data.value(episode, tg.text)) == "Text 0"
    with MemoryGraph.open(path, read_only=True) as memory:
        assert export_trig(memory.store, load_ontology(), target) == len(data)


def test_shacl_is_turtle(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "shapes.ttl"
    main(["export", "--db", str(path), "--shacl", str(target)])
    assert len(rdflib.Graph().parse(target)) > 100
