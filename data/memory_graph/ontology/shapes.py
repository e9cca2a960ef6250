"""Shapes of an ontology (domain, range, count, pattern): facts that break them, and SHACL."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal as OneOf

from turngraph.configs.extras import extra
from turngraph.data.memory_graph.ontology.lens import DATES, TYPE, Lens, TypedFact
from turngraph.data.memory_graph.ontology.ontology import PREFIXES, TG, XSD, Ontology, Property

with extra("rdf", "typed memory graphs need"):
    from pyoxigraph import DefaultGraph, Literal, NamedNode, Quad

Kind = OneOf["domain", "range", "count", "pattern"]
_DATE_TYPES = frozenset(DATES.values())


@dataclass(frozen=True, slots=True)
class Violation:
    """Fact that breaks the shape of a property.

    Args:
        key: key of the fact.
        subject: IRI of the subject of the triple.
        property: IRI of the property.
        kind: broken shape. ``domain``, ``range``: none of a thing's types fits, or a value has
            another datatype; ``count``: a functional property has a second value; ``pattern``: a
            value does not match.
    """

    key: int
    subject: str
    property: str
    kind: Kind


def shape_report(lens: Lens, moment: int) -> list[Violation]:
    """Return the violations among the facts that hold at a second, by fact key.

    A thing without a type counts as a member of every class.
    """
    held = [fact for fact in lens.facts.values() if fact.holds(moment) and not fact.hypothesis]
    types: dict[str, set[str]] = defaultdict(set)
    values: dict[tuple[str, str], set[str]] = defaultdict(set)
    for fact in held:
        for quad in (*fact.own, *fact.shared):
            if quad.predicate == TYPE:
                types[_name(quad.subject)].add(_name(quad.object))
        for quad in _triples(fact):
            values[_name(quad.subject), quad.predicate.value].add(str(quad.object))
    violations = dict.fromkeys(
        Violation(fact.key, _name(quad.subject), quad.predicate.value, kind)
        for fact in held
        for quad in _triples(fact)
        for kind in _broken(lens.ontology, quad, types, values)
    )
    return sorted(violations, key=lambda one: (one.key, one.property, one.kind, one.subject))


def _name(term: object) -> str:
    assert isinstance(term, NamedNode), "the lens writes IRIs only"
    return term.value


def _triples(fact: TypedFact) -> Iterator[Quad]:
    return (quad for quad in fact.own if not isinstance(quad.graph_name, DefaultGraph))


def _broken(
    ontology: Ontology,
    quad: Quad,
    types: dict[str, set[str]],
    values: dict[tuple[str, str], set[str]],
) -> Iterator[Kind]:
    subject, iri = _name(quad.subject), quad.predicate.value
    term = ontology.properties.get(iri)
    if term is None:
        return
    if term.domain is not None and not _may_be(ontology, types.get(subject), term.domain):
        yield "domain"
    text = quad.object.value if isinstance(quad.object, Literal) else None
    if _out_of_range(ontology, quad, types.get(_name(quad.object)) if text is None else None):
        yield "range"
    if text is not None and term.pattern is not None and not re.search(term.pattern, text):
        yield "pattern"
    if term.functional and len(values[subject, iri]) > 1:
        yield "count"


def contradicts_range(lens: Lens, key: int, moment: int) -> bool:
    """Return whether a value of a fact contradicts its property's range: by its datatype, or by its
    types, if facts that hold at the second ``moment`` give it types and none fits the range."""

    def is_told(quad: Quad) -> bool:
        if isinstance(quad.graph_name, DefaultGraph):
            return True
        teller = lens.facts[int(_name(quad.graph_name).removeprefix(f"{TG}f"))]
        return teller.holds(moment) and not teller.hypothesis

    return any(
        _out_of_range(
            lens.ontology,
            quad,
            {
                _name(one.object)
                for one in lens.rdf.quads_for_pattern(quad.object, TYPE, None, None)
                if is_told(one)
            }
            if isinstance(quad.object, NamedNode)
            else None,
        )
        for quad in _triples(lens.facts[key])
    )


def _out_of_range(ontology: Ontology, quad: Quad, types: set[str] | None) -> bool:
    term = ontology.properties.get(quad.predicate.value)
    if term is None:
        return False
    if isinstance(quad.object, Literal):
        datatype = quad.object.datatype.value
        return term.datatype is not None and datatype not in datatypes(term.datatype)
    return term.range is not None and not _may_be(ontology, types, term.range)


def _may_be(ontology: Ontology, types: set[str] | None, wanted: str) -> bool:
    return not types or any(ontology.is_a(kind, wanted) for kind in types)


def datatypes(datatype: str) -> list[str]:
    """Return the datatypes that are allowed for a datatype: for dates, also partial ones."""
    kind = datatype.removeprefix(XSD)
    return [XSD + name for name in sorted(_DATE_TYPES)] if kind in _DATE_TYPES else [datatype]


def shacl(ontology: Ontology) -> str:
    """Return the shapes of an ontology as SHACL in Turtle, for the output of ``memory export``."""
    lines = [f"@prefix {prefix}: <{iri}> ." for prefix, iri in PREFIXES.items()]
    for iri, term in sorted(ontology.properties.items()):
        lines += _shapes(iri, term)
    return "\n".join(lines) + "\n"


def _shapes(iri: str, term: Property) -> Iterator[str]:
    untyped = "[ sh:property [ sh:path rdf:type ; sh:maxCount 0 ] ]"
    parts = []
    if term.domain is not None:
        yield f"\n[] a sh:NodeShape ; sh:targetSubjectsOf <{iri}> ;"
        yield f"  sh:or ( [ sh:class <{term.domain}> ] {untyped} ) ."
    if term.datatype is not None:
        fits = " ".join(f"[ sh:datatype <{allowed}> ]" for allowed in datatypes(term.datatype))
        parts.append(f"sh:or ( {fits} )")
    elif term.range is not None:
        parts.append(f"sh:or ( [ sh:class <{term.range}> ] {untyped} )")
    if term.functional:
        parts.append("sh:maxCount 1")
    if term.pattern is not None:
        parts.append(f"sh:pattern {Literal(term.pattern)}")
    for part in parts:  # one shape each, so that a report names the broken one
        yield f"\n[] a sh:NodeShape ; sh:targetSubjectsOf {NamedNode(iri)} ;"
        yield f"  sh:property [ sh:path <{iri}> ; {part} ] ."
