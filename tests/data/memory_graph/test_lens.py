"""Facts as typed quads: events, states, times, and a refresh that equals a rebuild."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyshacl
import pytest
import rdflib
from pyoxigraph import RdfFormat, serialize

from turngraph.data.memory_graph.extract.given import GivenExtractor
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import edge_key
from turngraph.data.memory_graph.ontology.lens import Lens, read_literal
from turngraph.data.memory_graph.ontology.ontology import PREFIXES, SH, TG, XSD, load_ontology
from turngraph.data.memory_graph.ontology.shapes import shacl, shape_report
from turngraph.data.memory_graph.times import start
from turngraph.tests.data.memory_graph.random_record import RandomRecord

Line = Mapping[str, object]


def says(*ends: str, since: str | None = None, **more: object) -> dict[str, object]:
    """One triplet as ``given`` reads it."""
    named = dict(zip(("subject", "relation", "object"), ends, strict=True))
    return named | ({} if since is None else {"valid_from": since}) | more


def remember(graph: MemoryGraph, *lines: Sequence[Line], time: str = "2024-01-01") -> None:
    """Remember episodes of triplets."""
    path = graph.store.path.with_name(f"given {graph.store.revision}.jsonl")
    records = [{"text": f"Text {n}", "time": time, "triplets": li} for n, li in enumerate(lines)]
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    extractor = GivenExtractor()
    graph.extractor = extractor
    graph.remember_many(extractor.read(path))


LIVES = says("Anna", "lives in", "Oslo", since="2019-03")
MOVES = says(
    "Anna", "moved to", "Bergen", since="2022-06",
    replaces=[{"subject": "Anna", "relation": "lives in", "object": "Oslo"}],
)  # fmt: skip
BUYS = [
    says("Anna", "bought", "bicycle", since="2020-04"),
    says("Anna", "bought for", "300 euros", since="2020-04"),
    says("Anna", "bought from", "Ole", since="2020-04"),
]


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[MemoryGraph]:
    with MemoryGraph.open(tmp_path / "my.db") as graph:
        yield graph


def lens_of(graph: MemoryGraph) -> Lens:
    lens = Lens(graph.store, load_ontology())
    lens.refresh()
    return lens


def ask(lens: Lens, query: str) -> list[tuple[str, ...]]:
    """Rows of a query, IRIs without their beginning."""
    found = lens.rdf.query(query, prefixes=PREFIXES)
    return sorted(tuple(term.value.removeprefix(TG) for term in row) for row in found)


def test_verb_price_and_seller_are_one_event(graph: MemoryGraph) -> None:
    remember(graph, BUYS)
    query = """SELECT ?role ?name { ?e a tg:Buy . GRAPH ?f { ?e ?role ?o }
        OPTIONAL { ?o rdfs:label ?label } BIND(COALESCE(?label, ?o) AS ?name) }"""
    assert ask(lens_of(graph), query) == [
        ("agent", "Anna"), ("object", "bicycle"), ("paid", "300"), ("seller", "Ole"),
    ]  # fmt: skip


def test_two_objects_of_a_verb_are_two_events(graph: MemoryGraph) -> None:
    trips = [says("Anna", "flew to", place, since="2023") for place in ("Rome", "Paris")]
    remember(graph, trips)
    assert len(ask(lens_of(graph), "SELECT ?e { ?e a tg:Flight }")) == 2


def test_a_state_has_times_episodes_and_what_supersedes_it(graph: MemoryGraph) -> None:
    remember(graph, [LIVES], [MOVES])
    lens = lens_of(graph)
    query = """SELECT ?name ?begins ?ends ?newer { GRAPH ?f { ?who tg:residence ?place }
        ?place rdfs:label ?name . ?f tg:begins ?begins ; prov:wasDerivedFrom ?episode
        OPTIONAL { ?f tg:ends ?ends ; tg:supersededBy ?newer } }"""
    first, second = str(start("2019-03")), str(start("2022-06"))
    newer = f"f{max(lens.facts)}"
    found = [tuple(t and t.value.removeprefix(TG) for t in row)
             for row in lens.rdf.query(query, prefixes=PREFIXES)]  # fmt: skip
    assert sorted(found) == [("Bergen", second, None, None), ("Oslo", first, second, newer)]


def test_inverse_and_symmetric_properties_hold_in_both_directions(graph: MemoryGraph) -> None:
    remember(graph, [says("Anna", "is married to", "Carl"), says("Eva", "is mother of", "Anna")])
    query = """SELECT ?a ?p ?b { VALUES ?p { tg:spouse tg:parent tg:child } GRAPH ?f { ?s ?p ?o }
        ?s rdfs:label ?a . ?o rdfs:label ?b }"""
    assert ask(lens_of(graph), query) == [
        ("Anna", "parent", "Eva"), ("Anna", "spouse", "Carl"),
        ("Carl", "spouse", "Anna"), ("Eva", "child", "Anna"),
    ]  # fmt: skip


def test_unknown_relations_are_kept_with_their_words_and_counted(graph: MemoryGraph) -> None:
    remember(graph, [says("Anna", "yodels at", "Ole"), says("Bob", "yodels at", "Ole")])
    lens = lens_of(graph)
    assert dict(lens.unknown) == {"yodels at": 2}
    query = "SELECT ?o ?words { GRAPH ?f { ?s tg:related ?o } ?f tg:words ?words }"
    assert [row[1] for row in ask(lens, query)] == ["yodels at"] * 2


def test_hypotheses_do_not_hold(graph: MemoryGraph) -> None:
    remember(graph, [says("Anna", "lives in", "Rome", hypothesis=True)])
    lens = lens_of(graph)
    assert list(lens.held(start("2024"))) == []
    assert ask(lens, "SELECT ?h { ?f tg:hypothesis ?h }") == [("true",)]


@pytest.mark.parametrize(
    ("text", "kind", "value", "found"),
    [
        ("4 May 1988", "date", "1988-05-04", "date"),
        ("1988", "date", "1988", "gYear"),
        ("May 1988", "date", "1988-05", "gYearMonth"),
        ("1988-05-04T10:30", "dateTime", "1988-05-04T10:30:00", "dateTime"),
        ("300 euros", "decimal", "300", "decimal"),
        ("$1,200.50", "decimal", "1200.5", "decimal"),
        ("a@b.c", "string", "a@b.c", "string"),
    ],
)
def test_values_are_read_as_their_datatype(text: str, kind: str, value: str, found: str) -> None:
    literal = read_literal(text, XSD + kind)
    assert literal is not None
    assert (literal.value, literal.datatype.value) == (value, XSD + found)


@pytest.mark.parametrize(
    ("text", "kind"), [("soon", "date"), ("2 of 3", "decimal"), ("2.5", "integer")]
)
def test_what_is_no_value_of_a_datatype(text: str, kind: str) -> None:
    assert read_literal(text, XSD + kind) is None


def same_as_rebuilt(lens: Lens) -> None:
    """Refresh, and compare with a lens that sees the record for the first time."""
    lens.refresh()
    new = Lens(lens.store, lens.ontology)
    new.refresh()
    assert set(lens.rdf) == set(new.rdf)
    assert lens.facts == new.facts


@pytest.mark.parametrize("seed", range(4))
def test_refreshed_equals_rebuilt_over_random_records(tmp_path: Path, seed: int) -> None:
    record = RandomRecord(tmp_path / "my.db", seed)
    with record.store:
        lens = Lens(record.store, load_ontology())
        for _ in range(15):
            record.write()
            same_as_rebuilt(lens)
        assert 1 < lens.num_rebuilt < 15


@pytest.mark.parametrize("seed", range(3))
def test_what_holds_equals_plain_sql_at_every_time(tmp_path: Path, seed: int) -> None:
    record = RandomRecord(tmp_path / "my.db", seed)
    with record.store:
        record.write(12)
        lens = Lens(record.store, load_ontology())
        lens.refresh()
        sql = "SELECT id, valid_from, valid_to FROM edges WHERE type = 0"
        rows = record.db.execute(sql).fetchall()
        for year in range(1989, 2017):
            moment = start(str(year))
            query = f"""SELECT ?f {{ GRAPH ?f {{ ?s ?p ?o }}
                OPTIONAL {{ ?f tg:begins ?b }} OPTIONAL {{ ?f tg:ends ?e }}
                FILTER(!BOUND(?b) || ?b <= {moment}) FILTER(!BOUND(?e) || {moment} < ?e) }}"""
            plain = {
                f"f{edge_key(edge)}" for edge, since, until in rows
                if (since is None or start(since) <= moment)
                and (until is None or moment < start(until))
            }  # fmt: skip
            assert {row[0] for row in ask(lens, query)} == plain
            held = {f"f{key}" for key, fact in lens.facts.items() if fact.holds(moment)}
            assert held == plain


def test_refreshed_equals_rebuilt_after_edits_and_forgetting(graph: MemoryGraph) -> None:
    remember(graph, [LIVES, says("Annie", "owns", "Volvo")])
    lens = lens_of(graph)
    remember(graph, [MOVES, says("Annie", "likes", "tea")], BUYS)
    same_as_rebuilt(lens)
    assert lens.num_rebuilt == 1
    remember(graph, [LIVES | {"object": "Bergen", "valid_from": "2022-06"}], BUYS)  # again
    same_as_rebuilt(lens)
    graph.merge("Anna", "Annie")
    same_as_rebuilt(lens)
    graph.undo()
    same_as_rebuilt(lens)
    graph.rename("Annie", "Anna Maria")
    same_as_rebuilt(lens)
    graph.split("Anna", "Anna Berg", facts=[max(k for k in lens.facts)])
    same_as_rebuilt(lens)
    graph.undo()
    same_as_rebuilt(lens)
    graph.forget(entity="Bergen")
    same_as_rebuilt(lens)
    assert ask(lens, "SELECT ?x { ?x rdfs:label 'Bergen' }") == []
    [oslo] = [f for f in lens.facts.values() if any(q.object.value == "Oslo" for q in f.shared)]
    assert oslo.ends is None


WRONG = [
    says("Anna", "is a", "person"),
    says("Rex", "is a", "dog"),
    says("Oslo", "is a", "city"),
    says("Oslo", "works at", "Acme"),
    says("Anna", "lives in", "Rex"),
    says("Anna", "was born on", "a rainy day"),
    says("Anna", "has email", "nowhere"),
    says("Bob", "lives in", "Rome"),
    says("Bob", "lives in", "Lima"),
    says("Eva", "lives in", "Oslo"),
]
COMPONENTS = {
    "MaxCountConstraintComponent": "count",
    "PatternConstraintComponent": "pattern",
}


def test_shape_verdicts_equal_those_of_pyshacl(graph: MemoryGraph) -> None:
    remember(graph, WRONG)
    lens, moment = lens_of(graph), start("2024-06")
    mine = {(v.subject, v.property.removeprefix(TG), v.kind) for v in shape_report(lens, moment)}
    assert {(p, kind) for _, p, kind in mine} == {
        ("employer", "domain"), ("residence", "range"), ("birthDate", "range"),
        ("email", "pattern"), ("residence", "count"),
    }  # fmt: skip
    quads = [*lens.held(moment), *lens.ontology.quads]
    held = serialize(quads, format=RdfFormat.N_QUADS)
    data, shapes = rdflib.Graph(), rdflib.Graph()
    data.parse(data=held, format="nt")
    shapes.parse(data=shacl(lens.ontology), format="turtle")
    _, report, _ = pyshacl.validate(data, shacl_graph=shapes)
    assert verdicts(report, shapes) == mine


def verdicts(report: rdflib.Graph, shapes: rdflib.Graph) -> set[tuple[str, str, str]]:
    """Subject, property and kind of each result of pyshacl."""
    sh, found = rdflib.Namespace(SH), set()
    for result in report.subjects(rdflib.RDF.type, sh.ValidationResult):
        component = str(report.value(result, sh.sourceConstraintComponent)).removeprefix(SH)
        path, shape = report.value(result, sh.resultPath), report.value(result, sh.sourceShape)
        if path is None:
            path = shapes.value(shape, sh.targetSubjectsOf)
            kind = "domain"
        else:
            kind = COMPONENTS.get(component, "range")
        found.add((str(report.value(result, sh.focusNode)), str(path).removeprefix(TG), kind))
    return found


def held_by_sql(
    graph: MemoryGraph, moment: int, relations: Mapping[str, str]
) -> set[tuple[str, ...]]:
    """Subject, property and object of what holds, by plain SQL and the times of ``memory show``."""
    sql = """SELECT source, relation, target, valid_from, valid_to FROM edges
        WHERE type = 0 AND hypothesis = 0"""
    return {
        (f"o{source}", relations[relation], f"o{target}")
        for source, relation, target, begins, ends in graph.store.db.execute(sql)
        if (begins is None or start(begins) <= moment) and (ends is None or moment < start(ends))
    }


@pytest.mark.parametrize("seed", [0, 1])
def test_sparql_equals_sql_at_every_time_after_every_edit(graph: MemoryGraph, seed: int) -> None:
    relations = {"lives in": "residence", "likes": "interest", "works at": "employer"}
    rng, lens = random.Random(seed), Lens(graph.store, load_ontology())
    values = " ".join(f"tg:{name}" for name in relations.values())
    query = f"SELECT ?s ?p ?o {{ VALUES ?p {{ {values} }} ?s ?p ?o }}"
    names, splits = "Anna Bob Carl Eva".split(), 0
    for step in range(14):
        edit = rng.choice(["remember", "remember", "merge", "split", "undo", "forget"])
        one, other = rng.sample(names, 2)
        if edit == "remember" or step < 3:
            lines = [
                says(rng.choice(names), rng.choice(list(relations)), rng.choice(["Oslo", "Rome"]),
                     since=f"20{rng.randrange(10, 20)}", hypothesis=rng.random() < 0.2)
                for _ in range(3)
            ]  # fmt: skip
            remember(graph, lines)
        elif edit == "merge" and all(len(graph.store.objects(n)) == 1 for n in (one, other)):
            if graph.store.objects(one) != graph.store.objects(other):
                graph.merge(one, other)
        elif edit == "split" and len(graph.store.objects(one)) == 1:
            told = [fact.key for fact in graph.history(one) if fact.ends]
            if len(told) > 1:
                splits += 1
                graph.split(one, f"{one} {splits}", facts=told[:1])
        elif edit == "undo" and graph.store.db.execute("SELECT 1 FROM journal").fetchone():
            graph.undo()
        elif edit == "forget":
            episodes = [e for (e,) in graph.store.db.execute("SELECT node FROM episodes")]
            graph.forget(episode=[rng.choice(episodes)])
        lens.refresh()
        for year in ("2009", "2012", "2015-06", "2020"):
            snapshot = lens.snapshot(start(year))
            found = {tuple(term.value.removeprefix(TG) for term in row)
                     for row in snapshot.query(query, prefixes=PREFIXES)}  # fmt: skip
            assert found == held_by_sql(graph, start(year), relations), (step, edit, year)
