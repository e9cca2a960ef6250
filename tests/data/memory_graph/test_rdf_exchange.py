"""RDF out and in again, other files of RDF, a copy on a server, and what an ontology covers."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyoxigraph import Literal, NamedNode, RdfFormat, parse

from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode
from turngraph.data.memory_graph.ontology.ontology import RDFS, TG, load_ontology
from turngraph.data.memory_graph.ontology.push import push, pushed_revision
from turngraph.memory import main
from turngraph.tests.data.memory_graph.sparql_server import SparqlServer, serving
from turngraph.tests.data.memory_graph.test_lens import BUYS, LIVES, MOVES, remember, says

OTHERS = [
    says("Bob", "was born on", "4 May 1988"),
    says("Anna", "likes", "tea", hypothesis=True),
    says("Anna", "yodels at", "Ole", since="2020-04-05"),
]
HEAD = "@prefix my: <urn:my:> .\n@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[MemoryGraph]:
    with MemoryGraph.open(tmp_path / "my.db") as graph:
        remember(graph, [LIVES], [MOVES], BUYS, OTHERS, [LIVES])
        yield graph


def export(graph: MemoryGraph, *options: str) -> Path:
    target = graph.store.path.with_suffix(".trig")
    main(["export", "--db", str(graph.store.path), "--trig", str(target), *options])
    return target


def plain(path: Path) -> list[str]:
    """The quads of an export with what its ids mean in their place; names are unique here."""
    quads = list(parse(path.read_bytes(), RdfFormat.TRIG))
    told = {(q.subject.value, q.predicate.value): q.object.value for q in quads}
    names = {iri: value for (iri, term), value in told.items() if term in (RDFS + "label",)}
    names |= {iri: value for (iri, term), value in told.items() if term == TG + "text"}

    def meant(term: object) -> str:
        value = str(getattr(term, "value", term))
        if found := re.fullmatch(rf"{TG}[ef](\d+)", value):
            fact = f"{TG}f{found[1]}"
            rdf = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
            ends = [names[told[fact, rdf + end]] for end in ("subject", "object")]
            return f"{value[len(TG)]} {ends} {told[fact, TG + 'relation']}"
        if isinstance(term, Literal) and re.match(r"(?:ep|f)\d+ ", value):
            return value.partition(" ")[2]  # a span, a boundary
        return names.get(value, value)

    return sorted(
        " | ".join(map(meant, (q.subject, q.predicate, q.object, q.graph_name))) for q in quads
    )


def test_an_export_that_is_imported_exports_the_same(graph: MemoryGraph, tmp_path: Path) -> None:
    first = export(graph)
    other = tmp_path / "other.db"
    main(["import", "--db", str(other), "--rdf", str(first)])
    with MemoryGraph.open(other) as imported:
        second = export(imported)
        assert plain(second) == plain(first)
        facts = imported.history("Anna")
        assert {p.source for fact in facts for p in fact.provenance} == {"given 0.jsonl"}


@pytest.mark.parametrize(
    "texts",
    [
        ["It rained."],
        ["Anna lives in Paris.", "It rained.", "🙂", "Anna lives in Oslo. It snowed."],
    ],
    ids=["no triplets", "some triplets"],
)
def test_no_text_and_no_sentence_is_lost(texts: list[str], tmp_path: Path) -> None:
    said = "2024-03-01T08:30:00+09:00"
    with MemoryGraph.open(tmp_path / "my.db") as graph:
        for number, text in enumerate(texts):
            graph.remember_many([Episode(text, said, f"letter {number}", speaker="Eva")])
        before = kept(graph)
        target = export(graph)
    other = tmp_path / "other.db"
    main(["import", "--db", str(other), "--rdf", str(target)])
    with MemoryGraph.open(other) as graph:
        assert kept(graph) == before


def kept(graph: MemoryGraph) -> list[list[tuple[object, ...]]]:
    """Episodes, theses with what they mention, and triplets of a graph, without ids."""
    queries = (
        """SELECT n.text, n.said, e.source, e.speaker, e.properties
            FROM episodes e JOIN nodes n ON n.id = e.node""",
        """SELECT t.text, t.valid_from, t.valid_to, o.text, p.start, p.stop
            FROM nodes t JOIN edges h ON h.target = t.id AND h.type = 1
            JOIN nodes o ON o.id = h.source JOIN provenance p ON p.fact = 2 * t.id""",
        """SELECT s.text, e.relation, o.text, e.valid_from, e.valid_to FROM edges e
            JOIN nodes s ON s.id = e.source JOIN nodes o ON o.id = e.target WHERE e.type = 0""",
    )
    return [sorted(graph.store.db.execute(sql), key=repr) for sql in queries]


def test_an_ontology_is_no_memory(tmp_path: Path) -> None:
    ontology = tmp_path / "my.ttl"
    ontology.write_text(
        HEAD + "@prefix owl: <http://www.w3.org/2002/07/owl#> .\n"
        'my:Cat a owl:Class ; my:note "purrs" .\n'
    )
    db = str(tmp_path / "my.db")
    ranges = tmp_path / "ranges.ttl"  # domains and ranges alone: no term has a type
    ranges.write_text(
        HEAD + "@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n"
        "my:climbed rdfs:domain my:Person ; rdfs:range my:Peak .\n"
    )
    for file in (ontology, ranges):
        with pytest.raises(UserError, match="an ontology, which has no facts to remember"):
            main(["import", "--db", db, "--rdf", str(file)])
    with ontology.open("a") as file:
        file.write('my:tom a owl:NamedIndividual, my:Cat ; my:likes "fish" .\n')
    main(["import", "--db", db, "--rdf", str(ontology)])
    with MemoryGraph.open(db) as graph:
        assert {fact.text for fact in graph.history("tom")} == {"tom is a Cat", "tom likes fish"}


def test_a_base_keeps_memories_apart_and_is_read_again(graph: MemoryGraph, tmp_path: Path) -> None:
    target = export(graph, "--base", "https://example.org/anna/")
    text = target.read_text(encoding="utf-8")
    assert "<https://example.org/anna/f" in text
    assert not re.search(r"tg:(?:f|o|e|ep)\d", text)
    main(["import", "--db", str(tmp_path / "other.db"), "--rdf", str(target)])
    with pytest.raises(ValueError, match=r"base: 'no iri' given, must be an IRI"):
        export(graph, "--base", "no iri")


def test_any_turtle_is_a_text_a_triple(tmp_path: Path) -> None:
    path = tmp_path / "friends.ttl"
    path.write_text(
        HEAD + 'my:a rdfs:label "Anna Berg" ; <urn:turngraph:residence> my:Oslo ; my:worksOn "x" .'
    )
    db = str(tmp_path / "my.db")
    main(["import", "--db", db, "--rdf", str(path)])
    with MemoryGraph.open(db) as graph:
        facts = graph.history("Anna Berg")
        assert [fact.text for fact in facts] == ["Anna Berg lives in Oslo", "Anna Berg works On x"]
        assert facts[0].provenance[0].source == "friends.ttl"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('rdfs:label "Oslo"', 'rdfs:label "Bergen"', r"are two objects with one name"),
        ('tg:from "2019-03"', 'tg:from "2019-33"', r"f\d+: from '2019-33' is not a time"),
        ("tg:text", "tg:texts", r"ep\d+: text is missing"),
        (" .", " ", "my.trig"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(
    graph: MemoryGraph, tmp_path: Path, old: str, new: str, message: str
) -> None:
    path = export(graph)
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(ValueError, match=r"my\.trig:\d+:\d+: ") as error:
        main(["import", "--db", str(tmp_path / "other.db"), "--rdf", str(path)])
    assert re.search(message, str(error.value))
    assert not (tmp_path / "other.db").exists()


def test_options_of_one_file_need_it(tmp_path: Path) -> None:
    db = str(tmp_path / "my.db")
    with MemoryGraph.open(db):
        pass
    with pytest.raises(ValueError, match="need --rdf"):
        main(["import", "--db", db, "--input", "a.jsonl", "--alone"])
    with pytest.raises(ValueError, match="--base, --ontology and --alone need"):
        main(["export", "--db", db, "--jsonl", str(tmp_path / "a"), "--base", "urn:a:"])
    with pytest.raises(ValueError, match="--base needs --trig"):
        main(["export", "--db", db, "--shacl", str(tmp_path / "a"), "--base", "urn:a:"])


def test_the_page_colours_objects_by_class(graph: MemoryGraph, tmp_path: Path) -> None:
    remember(graph, [says("Rex", "is a", "dog")])
    page, db = tmp_path / "page.html", str(graph.store.path)
    main(["export", "--db", db, "--html", str(page), "--classes"])
    [data] = re.findall(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
    classes = {one["text"]: one.get("class") for one in json.loads(data)["nodes"]}
    known = {name: classes[name] for name in ("Anna", "Oslo", "Rex", "Ole", "tea", "dog")}
    assert known == {
        "Anna": "Agent", "Oslo": "Place", "Rex": "Pet", "Ole": "Agent", "tea": None, "dog": None,
    }  # fmt: skip
    main(["export", "--db", db, "--html", str(page), "--question", "How often did Anna move?"])
    [data] = re.findall(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
    read = json.loads(data)
    computed = read["computed"]
    assert (computed["operation"], computed["total"]) == ("count", len(computed["facts"]))
    assert "tg:Move" in computed["plan"]
    assert computed["sparql"][0].startswith("SELECT")
    assert {read["edges"][index]["relation"] for index in computed["facts"]} == {"moved to"}
    with pytest.raises(ValueError, match="--question: not computed: "):
        main(["export", "--db", db, "--html", str(page), "--question", "Why did Anna move?"])
    with pytest.raises(ValueError, match="--classes and --question need --html"):
        main(["export", "--db", db, "--jsonl", str(tmp_path / "a"), "--classes"])


# A copy on a server


def test_a_copy_on_a_server_shows_the_newest_revision_and_nothing_forgotten(
    graph: MemoryGraph, capsys: pytest.CaptureFixture[str]
) -> None:
    ontology = load_ontology()
    with serving(SparqlServer()) as server:
        strange = NamedNode(f"{TG}another:f3")  # of a memory whose base begins with this one
        server.store.update(f"INSERT DATA {{ GRAPH {strange} {{ {strange} {strange} 1 }} }}")
        count, removed = push(graph.store, ontology, server.url)
        assert (removed, pushed_revision(server.url)) == (0, graph.store.revision)
        assert len(server.store) == count + 2
        ask = 'ASK { GRAPH ?g { ?o <http://www.w3.org/2000/01/rdf-schema#label> "Bergen" } }'
        assert server.store.query(ask)
        graph.forget(entity="Bergen")
        main(["push", "--db", str(graph.store.path), "--endpoint", server.url])
        assert "1 graph of forgotten facts removed" in capsys.readouterr().out
        assert not server.store.query(ask)
        assert server.store.query(f"ASK {{ GRAPH {strange} {{ ?s ?p ?o }} }}")
        assert pushed_revision(server.url, "urn:another:") is None


def test_questions_are_answered_by_the_copy_if_it_has_the_newest_revision(
    graph: MemoryGraph, capsys: pytest.CaptureFixture[str]
) -> None:
    db, question = str(graph.store.path), "How much did Anna spend in total?"
    at = ["--base", "urn:my:"]
    with serving(SparqlServer()) as server:
        there = ["--endpoint", server.url]

        def printed(*argv: str) -> str:
            main([*argv])
            return capsys.readouterr().out

        ask = ("ask", "--db", db, "--no_embed", "--compute", question)
        sparql = ("sparql", "--db", db)
        with pytest.raises(ValueError, match=r"has nothing complete of urn:turngraph:"):
            main([*ask, *there])
        printed("push", "--db", db, *there, *at, "--timeout", "0.999")
        here = printed(*ask)
        assert "(sum)" in here
        assert printed(*ask, *there, *at) == here
        rows = 'SELECT ?n { GRAPH <urn:my:record> { ?o rdfs:label ?n } FILTER(?n = "Bergen") }'
        assert "Bergen" in printed(*sparql, *there, *at, rows)
        assert printed(*sparql, *there, *at, "ASK { GRAPH ?f { ?e tg:agent ?a } }") == "yes\n"
        with pytest.raises(ValueError, match="takes SELECT and ASK queries, not CONSTRUCT"):
            main([*sparql, *there, *at, "CONSTRUCT WHERE { ?s ?p ?o }"])
        with pytest.raises(ValueError, match="query:1:1: UPDATE is refused"):
            main([*sparql, *there, *at, "DROP ALL"])
        remember(graph, [says("Rex", "is a", "dog")])
        newer = r"has revision \d+ of urn:my:, the memory graph is at revision \d+: push"
        for argv in ((*ask, *there, *at), (*sparql, *there, *at, rows)):
            with pytest.raises(ValueError, match=newer):
                main(list(argv))
    with pytest.raises(ValueError, match="cannot be given with --endpoint"):
        main([*sparql, "--endpoint", "http://localhost/query", "--as_of", "2020", rows])
    with pytest.raises(ValueError, match="--timeout: 0 given, must be above 0"):
        main(["push", "--db", db, *there, "--timeout", "0"])
    with pytest.raises(ValueError, match="--alone: given without --ontology"):
        main([*sparql, "--endpoint", "http://localhost/query", "--alone", rows])
    with pytest.raises(ValueError, match="--base needs --endpoint"):
        main([*sparql, *at, rows])


def test_errors_of_a_server_hold_no_remembered_text(graph: MemoryGraph) -> None:
    said = r"^http://127\.0\.0\.1:\d+/query: the server answered with status 400$"
    with serving(SparqlServer(status=400)) as server, pytest.raises(ValueError, match=said):
        push(graph.store, load_ontology(), server.url)  # the server repeats what it was sent
    with serving(SparqlServer(seconds=0.5)) as server:
        with pytest.raises(ValueError, match=r"no reply within 0\.1 s$"):
            push(graph.store, load_ontology(), server.url, timeout=0.1)
        server.seconds, server.is_odd = 0.0, True
        with pytest.raises(ValueError, match="the reply is not a SPARQL result"):
            push(graph.store, load_ontology(), server.url)
    with pytest.raises(ValueError, match="no connection"):
        push(graph.store, load_ontology(), server.url)


@pytest.mark.parametrize(
    "url", ["ftp://a/query", "http://a/query?key=secret", "me:secret@a/query", "query"]
)
def test_a_wrong_address_is_refused(graph: MemoryGraph, url: str) -> None:
    with pytest.raises(ValueError, match=r"^endpoint: ") as error:
        push(graph.store, load_ontology(), url)
    assert "secret" not in str(error.value)


# Coverage


@pytest.mark.parametrize("num_unknown", [20, 22])
def test_unknown_relations_are_named_up_to_a_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], num_unknown: int
) -> None:
    with MemoryGraph.open(tmp_path / "my.db") as graph:
        verbs = [f"yodels{letter} at" for letter in string.ascii_lowercase[:num_unknown]]
        remember(graph, [says("Anna", verb, "Ole") for verb in verbs])
        main(["ontology", "coverage", "--db", str(graph.store.path)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"0 of {num_unknown} facts typed (0.0%)"
    more = ["first 20 of 22 unknown relations"] if num_unknown > 20 else []
    assert [line.partition(" unknown: ")[0] for line in lines[1:21]] == ["1"] * 20
    assert [line for line in lines[21:] if "broken shape" not in line] == more


def test_coverage_counts_unknown_relations_and_broken_shapes(
    graph: MemoryGraph, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    remember(graph, [says("Bob", "has email", "nowhere")])
    db = str(graph.store.path)
    main(["ontology", "coverage", "--db", db])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "9 of 10 facts typed (90.0%)"
    broken = ["2 broken shapes: count", "1 broken shape: pattern"]  # Oslo is said again
    assert lines[1:] == ["1 unknown: yodels at", *broken]
    mine = tmp_path / "my.ttl"
    mine.write_text(
        "@prefix my: <urn:my:> .\n@prefix owl: <http://www.w3.org/2002/07/owl#> .\n"
        "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n"
        'my:yodels a owl:ObjectProperty ; skos:altLabel "yodels at" .\n'
    )
    main(["ontology", "coverage", "--db", db, "--ontology", str(mine)])
    assert capsys.readouterr().out.startswith("10 of 10 facts typed (100.0%)\n")
    ask = ["ask", "--db", db, "--no_embed", "Who yodels at Ole?"]
    main([*ask, "--compute", "--ontology", str(mine)])
    assert capsys.readouterr().out.startswith("computed: Anna (value)\n")
    with pytest.raises(ValueError, match="--base need --compute"):
        main([*ask, "--ontology", str(mine)])
