"""Ontologies: what life.ttl says, a user's Turtle, and what is wrong in one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from turngraph.data.memory_graph.extract.aspect_words import ASPECTS
from turngraph.data.memory_graph.extract.given import GivenExtractor
from turngraph.data.memory_graph.extract.local_lm import LmExtractor
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode, Extraction, Triplet
from turngraph.data.memory_graph.ontology.compute import compute
from turngraph.data.memory_graph.ontology.lens import Lens
from turngraph.data.memory_graph.ontology.ontology import TG, as_relation, base_words, load_ontology
from turngraph.data.memory_graph.ontology.question_terms import superlatives
from turngraph.data.memory_graph.ontology.typed_extractor import (
    TypedExtractor,
    classes_of,
    relations_of,
)
from turngraph.memory import main
from turngraph.tests.runs import ROOT

HEAD = """@prefix tg: <urn:turngraph:> .
@prefix my: <urn:my:> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
"""


def write(folder: Path, body: str, head: str = HEAD) -> Path:
    path = folder / "my.ttl"
    path.write_text(head + body, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("relation", "event", "role"),
    [
        ("bought", "Buy", "object"),
        ("bought from", "Buy", "seller"),
        ("bought for", "Buy", "paid"),
        ("visited", "Trip", "destination"),
        ("flew from", "Flight", "origin"),
        ("moved to", "Move", "destination"),
        ("married", "Marriage", "marriedTo"),
    ],
)
def test_verbs_are_events_and_prepositions_roles(relation: str, event: str, role: str) -> None:
    assert load_ontology().event_of(relation) == (TG + event, TG + role)


def test_the_docs_count_the_classes_and_properties() -> None:
    life = load_ontology()
    counted = f"has Turngraph's {len(life.classes)} classes and {len(life.properties)} properties"
    assert counted in (ROOT / "docs" / "ontology.md").read_text(encoding="utf-8")


def test_every_class_has_words_and_is_what_a_property_is_about() -> None:
    """A class counts as named by its own words or a narrower one's; so do domains and ranges."""
    life = load_ontology()
    ends = {iri for one in life.properties.values() for iri in (one.domain, one.range)}
    for iri in life.classes:
        assert any(one.words for other, one in life.classes.items() if life.is_a(other, iri)), iri
        wider = {other for other in life.classes if life.is_a(iri, other)} - {TG + "Thing"}
        assert wider & ends or iri == TG + "Thing", iri
    for one in life.properties.values():
        assert one.domain or one.range or one.datatype, one.iri


STATED = [
    ("Anna", "has habit", "morning run", "Which habit does Anna have?"),
    ("Anna", "prefers", "tea", "What does Anna prefer?"),
    ("Anna", "has preference", "window seats", "Which preference does Anna have?"),
    ("Anna", "has goal", "marathon", "What goal does Anna have?"),
    ("Anna", "practises", "yoga", "What does Anna practise?"),
    ("Anna", "has degree", "master of law", "Which degree does Anna have?"),
    ("Anna", "has award", "Vik prize", "Which award does Anna have?"),
    ("Anna", "has account", "vik_sailor", "Which account does Anna have?"),
    ("Anna", "wears", "red coat", "What does Anna wear?"),
    ("Anna", "grows", "roses", "What does Anna grow?"),
    ("Anna", "collects", "stamps", "What does Anna collect?"),
    ("Anna", "eats", "rice", "What does Anna eat?"),
    ("Anna", "speaks", "Danish", "Which languages does Anna speak?"),
    ("Saab 9000", "has brand", "Saab", "Which brand does the Saab 9000 have?"),
    ("Anna's choir", "has schedule", "Mondays", "What is the schedule of Anna's choir?"),
    ("Repair", "has status", "completed", "What is the status of the repair?"),
    ("Flood", "was caused by", "rain", "What caused the flood?"),
    ("Rain", "caused", "flood", "What did the rain cause?"),
]


@pytest.mark.parametrize(("subject", "relation", "object_", "question"), STATED)
def test_what_an_extractor_may_state_answers_a_question(
    subject: str, relation: str, object_: str, question: str
) -> None:
    life = load_ontology()
    given = GivenExtractor()
    episode = Episode(f"{subject} {relation} {object_}.", "2024-05-01", origin="a")
    given.hold(episode, Extraction((Triplet(subject, relation, object_),)))
    with MemoryGraph.open(":memory:", extractor=given) as graph:
        graph.remember_many([episode])
        assert compute(Lens(graph.store, life), question).answer == object_


def test_nouns_states_and_odd_prepositions_are_no_events() -> None:
    life = load_ontology()
    assert [life.event_of(r) for r in ("lives in", "cat", "bought under", "")] == [None] * 4


def test_every_aspect_of_the_rules_but_opening_hours_is_a_property() -> None:
    hours = {"begins", "ends", "opens", "closes"}
    known = load_ontology().property_words
    assert [r for r, a in ASPECTS.items() if a not in hours and base_words(r) not in known] == []


def test_classes_and_properties_are_below_others_and_inverse_in_both_directions() -> None:
    life = load_ontology()
    assert life.is_a(TG + "Flight", TG + "Action")
    assert not life.is_a(TG + "Action", TG + "Flight")
    assert TG + "sibling" in life.below(TG + "knows")
    assert life.properties[TG + "child"].inverse == TG + "parent"
    assert life.properties[TG + "parent"].inverse == TG + "child"


def test_a_user_file_beside_life_and_instead_of_it(tmp_path: Path) -> None:
    body = """my:Climb a owl:Class ; rdfs:subClassOf tg:Action ; tg:objectRole my:peak ;
      skos:altLabel "climbed" .
    my:peak a owl:ObjectProperty ."""
    path = write(tmp_path, body)
    beside, instead = load_ontology(path), load_ontology(path, alone=True)
    climb = ("urn:my:Climb", "urn:my:peak")
    assert beside.event_of("climbed") == instead.event_of("climbed") == climb
    assert beside.event_of("bought") is not None
    assert instead.event_of("bought") is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("my:a a owl:Class ; b:x 1 .", "my.ttl:7:20: The prefix b: has not been declared"),
        ("my:a a owl:Class", "my.ttl:7:17: "),
        (
            "my:A a owl:Class ; rdfs:subClassOf my:B .\nmy:B a owl:Class ; rdfs:subClassOf my:A .",
            "my.ttl:7:1: <urn:my:A>: cyclic subClassOf: <urn:my:A> > <urn:my:B> > <urn:my:A>",
        ),
        (
            'my:p a owl:ObjectProperty ; rdfs:domain tg:Person ;\n  skos:altLabel "works at" .',
            "my.ttl:7:1: <urn:my:p>: 'work at' means two properties of tg:Person: tg:employer",
        ),
        ('my:a my:on "2023-02-30"^^xsd:date .', "my.ttl:7:13: '2023-02-30' is not a date"),
        ('my:a my:on "2023-13"^^xsd:gYearMonth .', "my.ttl:7:13: '2023-13' is not a gYearMonth"),
        ("my:p a owl:ObjectProperty ; rdfs:range my:Nowhere .", "range <urn:my:Nowhere> is no"),
        ("my:p a owl:ObjectProperty ; owl:inverseOf my:q .", "inverse <urn:my:q> is not a"),
        ("my:C a owl:Class ; tg:objectRole my:q .", "objectRole <urn:my:q> is not a property"),
        ('my:p a owl:DatatypeProperty ; tg:pattern "(" .', "pattern is not a regular expression"),
    ],
)
def test_what_is_wrong_is_named_with_line_and_column(
    tmp_path: Path, body: str, message: str
) -> None:
    with pytest.raises(ValueError, match=r"my\.ttl:\d+:\d+: ") as error:
        load_ontology(write(tmp_path, body))
    assert message in str(error.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.ttl: cannot be read: No such file"):
        load_ontology(tmp_path / "none.ttl")
    (tmp_path / "bytes.ttl").write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"bytes\.ttl: not UTF-8 at byte 1"):
        load_ontology(tmp_path / "bytes.ttl")


def test_the_command_prints_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, 'my:C a owl:Class ; skos:altLabel "comet" .')
    main(["ontology", "check", str(path), "--alone"])
    assert capsys.readouterr().out == f"{path}: 1 class, 0 properties, 1 surface word\n"


# What is remembered


@pytest.mark.parametrize(
    ("first", "second", "held"),
    [
        (("Acme", "is based in", "Oslo"), ("Acme", "has headquarters", "Bergen"), {"Bergen"}),
        (("Acme", "is based in", "Oslo"), ("Acme", "is based in", "Oslo"), {"Oslo"}),
        (("Anna", "is married to", "Carl"), ("Carl", "is married to", "Eva"), {"Eva"}),
        (("Anna", "likes", "tea"), ("Anna", "likes", "jam"), {"tea", "jam"}),
        (("Bob", "was born", "1988"), ("Bob", "was born on", "4 May 1989"), {"4 May 1989"}),
    ],
)
def test_a_new_value_of_a_functional_property_ends_the_old_one(
    tmp_path: Path, first: tuple[str, ...], second: tuple[str, ...], held: set[str]
) -> None:
    given = GivenExtractor()
    extractor = TypedExtractor(given, load_ontology())
    with MemoryGraph.open(tmp_path / "my.db", extractor=extractor) as graph:
        for index, ends in enumerate((first, second)):
            triplet = Triplet(*ends, valid_from=f"202{index}")
            episode = Episode(f"Text {index}", origin=str(index))
            graph.remember_many([given.hold(episode, Extraction((triplet,)))])
        sql = """SELECT o.text FROM edges e JOIN nodes o ON o.id = e.target
            WHERE e.type = 0 AND e.valid_to IS NULL"""
        assert {name for (name,) in graph.store.db.execute(sql)} == held


def test_relations_for_a_language_model_read_as_facts_and_mean_their_terms() -> None:
    life = load_ontology()
    relations = set(relations_of(life))
    assert {"was born in", "is based in", "is called", "visited", "travelled to"} <= relations
    assert {"lives in", "has sibling", "has parent", "has uncle", "bought from"} <= relations
    assert not {"be bear in", "be call", "trip to", "sibling", "uncle"} & relations
    for term in life.properties.values():
        named = as_relation(term)
        assert (named is None) is not bool(term.words)
        assert named is None or term.iri in life.property_words[base_words(named)]
        relations.discard(named or "")
    meant = {life.event_of(relation) for relation in relations}
    assert None not in meant
    assert {(TG + "Trip", TG + "destination"), (TG + "Buy", TG + "seller")} <= meant


def test_a_relation_without_a_verb_is_offered_as_it_is_spelled(tmp_path: Path) -> None:
    body = 'my:mentor a owl:ObjectProperty ; skos:altLabel "Mentor" , "coach" .\n'
    assert relations_of(load_ontology(write(tmp_path, body), alone=True)) == ("Mentor",)


def test_a_language_model_can_use_no_other_relation() -> None:
    relations = relations_of(load_ontology())
    triplet = {"subject": "Anna", "relation": "yodels at", "object": "Ole", "when": "",
               "hypothesis": False}  # fmt: skip
    reply = {"theses": [], "triplets": [triplet], "times": []}
    prompts: list[str] = []

    def generate(texts: Sequence[str], schema: dict[str, Any]) -> list[tuple[str, bool]]:
        prompts.extend(texts)
        return [(json.dumps(reply), True) for _ in texts]

    extractor = LmExtractor(generate, relations=relations)
    with pytest.raises(ValueError, match="breaks the prompt's schema"):
        extractor.extract([Episode("Anna yodels at Ole.", origin="a")])
    triplet["relation"] = relations[0]
    [found] = extractor.extract([Episode("Anna yodels at Ole.", origin="a")])
    assert found.triplets[0].relation == relations[0]
    assert f"Relations, no others: {relations[0]}" in prompts[0]


def test_a_language_model_gives_objects_the_classes_of_an_ontology() -> None:
    ontology = load_ontology()
    classes = classes_of(ontology)
    assert {"person", "city", "habit", "preference", "schedule", "user account"} <= set(classes)
    kinds = [{"name": "Gdynia", "kind": "city"}, {"name": "", "kind": "city"}]
    reply = {"theses": [], "triplets": [], "times": [], "classes": kinds}
    prompts: list[str] = []

    def generate(texts: Sequence[str], schema: dict[str, Any]) -> list[tuple[str, bool]]:
        prompts.extend(texts)
        return [(json.dumps(reply), True) for _ in texts]

    extractor = LmExtractor(generate, classes=classes)
    with MemoryGraph.open(":memory:", extractor=TypedExtractor(extractor, ontology)) as graph:
        graph.remember("Gdynia is by the sea.")
        lens = Lens(graph.store, ontology)
        lens.refresh()
        types = [quad for fact in lens.facts.values() for quad in fact.own if "City" in str(quad)]
    assert len(types) == 1
    assert '"classes": the "kind" of every entity' in prompts[0]
    kinds[0]["kind"] = "spaceship"
    with pytest.raises(ValueError, match="breaks the prompt's schema"):
        extractor.extract([Episode("Gdynia is by the sea.", origin="a")])


def test_remember_uses_an_ontology_only_if_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "notes.txt"
    text.write_text(
        "Acme is based in Oslo since 2019.\n\nAcme is headquartered in Bergen since 2021."
    )
    remember = ["remember", "--db", str(tmp_path / "my.db"), "--input", str(text)]
    main([*remember, "--typed"])
    with MemoryGraph.open(tmp_path / "my.db") as graph:
        ended = {fact.text: fact.valid_to for fact in graph.history("Acme") if fact.ends}
    assert set(ended.values()) == {"2021", None}
    with pytest.raises(ValueError, match="--ontology and --alone need --typed"):
        main([*remember, "--alone"])


@pytest.mark.parametrize(
    ("asked", "read"),
    [
        ("the biggest", "the highest big"),
        ("the slowest", "the highest slow"),
        ("the latest", "the highest late"),
        ("the heaviest", "the highest heavy"),
        ("the cleanest", "the highest clean"),
        ("the most big", "the highest big"),
        ("the least big", "the lowest big"),
        ("the Hottest", "the highest hot"),
        ("the priciest", "the highest pricey"),
        ("the thinnest", "the lowest thin"),
        ("the least thin", "the highest thin"),
        ("the bigger one", "the bigger one"),
    ],
)
def test_superlatives_are_read_by_the_adjectives_of_properties(asked: str, read: str) -> None:
    size: Any = SimpleNamespace(
        high=("big", "late", "slow", "heavy", "clean", "hot", "pricey"), low=("thin",)
    )
    ontology: Any = SimpleNamespace(properties={"size": size})
    assert superlatives(asked, ontology) == read
