"""Exports a memory graph's facts with their sources as TriG, and its ontology as SHACL."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from turngraph.configs.extras import extra
from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.memory_types import HYPER, THESIS
from turngraph.data.memory_graph.ontology.lens import (
    DERIVED_FROM,
    HYPOTHESIS,
    LABEL,
    SUPERSEDED_BY,
    TRUE,
    Lens,
)
from turngraph.data.memory_graph.ontology.ontology import PREFIXES, RDF, TG, Ontology
from turngraph.data.memory_graph.ontology.shapes import shacl
from turngraph.data.memory_graph.record.store import Store
from turngraph.data.outputs import whole_file

with extra("rdf", "typed memory graphs need"):
    from pyoxigraph import Literal, NamedNode, Quad, RdfFormat, serialize

SPEAKER, SOURCE, TEXT, WHEN, SPAN, BOUNDARY, RELATION, FROM, TO = (
    NamedNode(TG + name)
    for name in "speaker source text saidAt span boundary relation from to".split()
)
STATEMENT, MENTIONS, PROPERTIES = (
    NamedNode(TG + name) for name in ("statement", "mentions", "properties")
)
SUBJECT, OBJECT = NamedNode(RDF + "subject"), NamedNode(RDF + "object")
"""Properties of exports that the lens does not have; times are in the record's ISO form."""
_DATA = re.compile(rf"{TG}((?:f|o|e|ep)\d+)")
_BASE = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:[^\s<>\"{}|^`\\]*[/#:]")


def export_trig(store: Store, ontology: Ontology, path: str | Path, base: str = TG) -> int:
    """Write all facts as TriG, with episodes, texts and supersessions; return the number of quads.

    The file is readable by its owner only. It is the user's copy: forgetting does not change it.

    Args:
        store: the record.
        ontology: the ontology.
        path: path of the file.
        base: beginning of the IRIs of facts, objects, events and episodes; a different one for each
            memory keeps several memories apart.

    Raises:
        UserError: the base is not an IRI, or the file cannot be written.
    """
    _, quads = exported(store, ontology, base)
    text = serialize(quads, format=RdfFormat.TRIG, prefixes=PREFIXES)
    assert text is not None
    with whole_file(path, True) as file:
        file.write(text.decode())
    return len(quads)


def exported(store: Store, ontology: Ontology, base: str = TG) -> tuple[int, list[Quad]]:
    """Return the revision and the quads of an export; see ``export_trig``."""
    if not _BASE.fullmatch(base):
        raise UserError(f"base: {base!r} given, must be an IRI that ends with / or # or :")
    with store.reading():
        lens = Lens(store, ontology)
        revision = lens.refresh()
        quads = [*lens.rdf, *_provenance(store)]
    return revision, quads if base == TG else list(_rebased(quads, base))


def _rebased(quads: Iterable[Quad], base: str) -> Iterator[Quad]:
    """Yield quads with another beginning of the IRIs of facts, objects, events and episodes."""

    def moved(term: object) -> NamedNode | None:
        match = _DATA.fullmatch(term.value) if isinstance(term, NamedNode) else None
        return None if match is None else NamedNode(base + match[1])

    for quad in quads:
        yield Quad(
            moved(quad.subject) or quad.subject,
            quad.predicate,
            moved(quad.object) or quad.object,
            moved(quad.graph_name) or quad.graph_name,
        )


def _provenance(store: Store) -> Iterator[Quad]:
    """Yield the quads of an export that the lens does not have: words, spans and texts."""
    db = store.db
    names = (RELATION, FROM, TO, SUBJECT, OBJECT)
    sql = "SELECT id, relation, valid_from, valid_to, source, target FROM edges WHERE type = 0"
    for edge, *values in db.execute(sql):
        for name, value in zip(names, values, strict=True):
            if value is not None:
                is_node = isinstance(value, int)
                term = NamedNode(f"{TG}o{value}") if is_node else Literal(value)
                yield Quad(_fact(2 * edge + 1), name, term)
    for fact, episode, first, stop in db.execute(
        "SELECT fact, episode, start, stop FROM provenance"
    ):
        yield Quad(_fact(fact), SPAN, Literal(f"ep{episode} {first}-{stop}"))
        if fact % 2 == 0:
            yield Quad(_fact(fact), DERIVED_FROM, NamedNode(f"{TG}ep{episode}"))
    sql = "SELECT old, new, boundary FROM supersessions WHERE boundary IS NOT NULL"
    for old, new, boundary in db.execute(sql):
        yield Quad(_fact(old), BOUNDARY, Literal(f"f{new} {boundary}"))
    for old, new in db.execute("SELECT old, new FROM supersessions WHERE old % 2 = 0"):
        yield Quad(_fact(old), SUPERSEDED_BY, _fact(new))
    yield from _theses(store)
    sql = """SELECT e.node, e.speaker, e.source, n.text, n.said, e.properties
        FROM episodes e JOIN nodes n ON n.id = e.node"""
    for node, *values, properties in db.execute(sql):
        episode = NamedNode(f"{TG}ep{node}")
        text = properties if isinstance(properties, str) else json.dumps(properties)
        values.append(None if text == "{}" else text)
        names = (SPEAKER, SOURCE, TEXT, WHEN, PROPERTIES)
        for name, value in zip(names, values, strict=True):
            if value is not None:
                yield Quad(episode, name, Literal(value))


def _theses(store: Store) -> Iterator[Quad]:
    """Yield the quads of theses: texts, validity, and mentioned objects."""
    sql = f"SELECT id, text, valid_from, valid_to, hypothesis FROM nodes WHERE type = {THESIS}"
    for node, *values, hypothesis in store.db.execute(sql):
        for name, value in zip((STATEMENT, FROM, TO), values, strict=True):
            if value is not None:
                yield Quad(_fact(2 * node), name, Literal(value))
        if hypothesis:
            yield Quad(_fact(2 * node), HYPOTHESIS, TRUE)
    sql = f"""SELECT e.target, e.source, o.text FROM edges e JOIN nodes o ON o.id = e.source
        WHERE e.type = {HYPER}"""
    for thesis, node, name in store.db.execute(sql):
        mentioned = NamedNode(f"{TG}o{node}")
        yield Quad(_fact(2 * thesis), MENTIONS, mentioned)
        yield Quad(mentioned, LABEL, Literal(name))


def _fact(key: int) -> NamedNode:
    return NamedNode(f"{TG}f{key}")


def export_shacl(ontology: Ontology, path: str | Path) -> int:
    """Write the shapes of an ontology as SHACL, and return the number of lines.

    Raises:
        UserError: the file cannot be written.
    """
    text = shacl(ontology)
    with whole_file(path) as file:
        file.write(text)
    return text.count("\n")
