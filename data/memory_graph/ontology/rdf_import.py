"""Imports RDF: TriG files of ``memory export --trig``, and the triples of any Turtle file."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from turngraph.configs.extras import extra
from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.extract.given import GivenExtractor
from turngraph.data.memory_graph.memory_types import (
    Episode,
    Extraction,
    Replaced,
    Span,
    Thesis,
    Triplet,
)
from turngraph.data.memory_graph.names import alias
from turngraph.data.memory_graph.ontology.lens import DERIVED_FROM, HYPOTHESIS, LABEL, SUPERSEDED_BY
from turngraph.data.memory_graph.ontology.ontology import (
    OWL,
    RDF,
    RDFS,
    SKOS,
    TG,
    Ontology,
    as_relation,
)
from turngraph.data.memory_graph.ontology.rdf_export import (
    FROM,
    MENTIONS,
    OBJECT,
    PROPERTIES,
    RELATION,
    SOURCE,
    SPAN,
    SPEAKER,
    STATEMENT,
    SUBJECT,
    TEXT,
    TO,
    WHEN,
)
from turngraph.data.memory_graph.ontology.turtle import Source, read_turtle
from turngraph.data.memory_graph.times import parse_time

with extra("rdf", "typed memory graphs need"):
    from pyoxigraph import BlankNode, Literal, NamedNode, RdfFormat

_SPAN = re.compile(r"(\w+) (\d+)-(\d+)")
_TYPE = RDF + "type"
_OF_THINGS = ("#NamedIndividual", "#Thing", "#Resource")
_VOCABULARIES = (RDF, RDFS, OWL, SKOS)
_FORMATS = {".trig": RdfFormat.TRIG, ".nq": RdfFormat.N_QUADS}


def read_rdf(path: str | Path, ontology: Ontology, extractor: GivenExtractor) -> Iterator[Episode]:
    """Read the episodes of a file of RDF, for ``MemoryGraph.remember_many``.

    Facts of an export keep their texts, spans, times, speakers, sources and supersessions, and get
    new ids. Each triple of another file becomes an episode, whose source is the file; its relation
    is a surface word of the property (``as_relation``), else the property's local name.

    Args:
        path: path of a file of TriG (.trig), N-Quads (.nq) or Turtle.
        ontology: ontology with the surface words of properties.
        extractor: extractor of the graph, which gets the statements.

    Raises:
        UserError: the file is invalid (the message has line and column), or two of its objects
            have the same name.
    """
    path = Path(path)
    source = read_turtle(path, _FORMATS.get(path.suffix.lower(), RdfFormat.TURTLE))
    about = _About.of(source)
    if any(not {TEXT.value, RELATION.value}.isdisjoint(one) for one in about.values.values()):
        yield from _exported(about, extractor)
    else:
        yield from _triples(about, ontology, extractor)


@dataclass
class _About:
    """Statements of a file: values by subject and property, in order."""

    source: Source
    values: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    @classmethod
    def of(cls, source: Source) -> _About:
        about = cls(source)
        for quad in source.quads:
            if isinstance(quad.object, NamedNode | Literal):
                values = about.values.setdefault(_name(quad.subject), {})
                values.setdefault(quad.predicate.value, []).append(quad.object.value)
        return about

    def all(self, subject: str, term: NamedNode) -> list[str]:
        """Return the values of a property."""
        return self.values.get(subject, {}).get(term.value, [])

    def one(self, subject: str, term: NamedNode) -> str | None:
        """Return the first value of a property; None: it has none."""
        return next(iter(self.all(subject, term)), None)

    def needed(self, subject: str, term: NamedNode) -> str:
        """Return the value of a required property."""
        value = self.one(subject, term)
        if value is None:
            raise self.error(subject, f"{term.value.rpartition(':')[2]} is missing")
        return value

    def time(self, subject: str, term: NamedNode) -> str | None:
        """Return a time in ISO form."""
        value = self.one(subject, term)
        try:
            return None if value is None else parse_time(value)
        except UserError:
            name = term.value.rpartition(":")[2]
            raise self.error(subject, f"{name} {value!r} is not a time") from None

    def error(self, subject: str, message: str) -> UserError:
        """Return an error that names file, line and column of a term."""
        line, column = self.source.place_of(subject) or (1, 1)
        short = subject.removeprefix(TG)
        return UserError(f"{self.source.path}:{line}:{column}: {short}: {message}")


def _name(term: object) -> str:
    return term.value if isinstance(term, NamedNode | BlankNode) else str(term)


def _exported(about: _About, extractor: GivenExtractor) -> Iterator[Episode]:
    """Yield the episodes of an export in the order of their ids."""
    facts = [subject for subject, values in about.values.items() if RELATION.value in values]
    _check_names(about, facts)
    old: dict[str, list[str]] = defaultdict(list)
    told: dict[str, list[str]] = defaultdict(list)
    for fact in sorted(facts, key=_number):
        for newer in about.all(fact, SUPERSEDED_BY):
            old[newer].append(fact)
        sayers = about.all(fact, DERIVED_FROM)
        if not sayers:
            raise about.error(fact, "no episode states this fact")
        for sayer in sayers:
            told[sayer].append(fact)
    theses: dict[str, list[str]] = defaultdict(list)
    for thesis in sorted(_subjects(about, STATEMENT), key=_number):
        for newer in about.all(thesis, SUPERSEDED_BY):
            old[newer].append(thesis)
        for sayer in about.all(thesis, DERIVED_FROM):
            theses[sayer].append(thesis)
    for iri in sorted({*told, *_subjects(about, TEXT)}, key=_number):
        episode = Episode(
            about.needed(iri, TEXT),
            about.time(iri, WHEN),
            about.one(iri, SOURCE) or about.source.path.name,
            f"{about.source.path.name} {iri}",
            about.one(iri, SPEAKER),
            _properties(about, iri),
        )
        triplets = tuple(_triplet(about, fact, iri, old[fact]) for fact in told[iri])
        stated = tuple(_thesis(about, thesis, iri, old[thesis]) for thesis in theses[iri])
        yield extractor.hold(episode, Extraction(triplets, stated))


def _subjects(about: _About, term: NamedNode) -> list[str]:
    return [subject for subject, values in about.values.items() if term.value in values]


def _properties(about: _About, episode: str) -> dict[str, str]:
    try:
        read = json.loads(about.one(episode, PROPERTIES) or "{}")
    except ValueError:
        read = None
    if not isinstance(read, dict) or not all(isinstance(value, str) for value in read.values()):
        raise about.error(episode, "properties must be a JSON object of texts")
    return read


def _check_names(about: _About, facts: Sequence[str]) -> None:
    """Check that no two objects have the same name: an import would make them one object."""
    names: dict[str, str] = {}
    for fact in facts:
        for end in (SUBJECT, OBJECT):
            node = about.needed(fact, end)
            other = names.setdefault(alias(about.needed(node, LABEL)), node)
            if other != node:
                both = f"{other.rpartition(':')[2]} and {node.rpartition(':')[2]}"
                hint = "memory export --jsonl keeps them apart"
                raise about.error(node, f"{both} are two objects with one name; {hint}")


def _number(iri: str) -> tuple[int, str]:
    """Return a sort key of an IRI that sorts IRIs by the number at their end."""
    return len(iri), iri


def _ends(about: _About, fact: str) -> tuple[str, str, str]:
    subject, object = (about.needed(about.needed(fact, end), LABEL) for end in (SUBJECT, OBJECT))
    return subject, about.needed(fact, RELATION), object


def _triplet(about: _About, fact: str, episode: str, old: Sequence[str]) -> Triplet:
    """Return a fact as a statement of one of its episodes; the newer fact ends a superseded one."""
    is_superseded = bool(about.all(fact, SUPERSEDED_BY))
    return Triplet(
        *_ends(about, fact),
        valid_from=about.time(fact, FROM),
        valid_to=None if is_superseded else about.time(fact, TO),
        hypothesis=about.one(fact, HYPOTHESIS) == "true",
        span=_span(about, fact, episode),
        replaces=_replaced(about, old),
    )


def _thesis(about: _About, fact: str, episode: str, old: Sequence[str]) -> Thesis:
    is_superseded = bool(about.all(fact, SUPERSEDED_BY))
    return Thesis(
        about.needed(fact, STATEMENT),
        tuple(about.needed(node, LABEL) for node in about.all(fact, MENTIONS)),
        valid_from=about.time(fact, FROM),
        valid_to=None if is_superseded else about.time(fact, TO),
        hypothesis=about.one(fact, HYPOTHESIS) == "true",
        span=_span(about, fact, episode),
        replaces=_replaced(about, old),
    )


def _span(about: _About, fact: str, episode: str) -> Span | None:
    spans = [_SPAN.fullmatch(text) for text in about.all(fact, SPAN)]
    here = [(int(one[2]), int(one[3])) for one in spans if one and episode.endswith(f":{one[1]}")]
    return min(here, default=None)


def _replaced(about: _About, old: Sequence[str]) -> tuple[Replaced, ...]:
    return tuple(
        Replaced(text=about.needed(subject, STATEMENT))
        if about.one(subject, STATEMENT) is not None
        else Replaced(*_ends(about, subject))
        for subject in old
    )


def _triples(about: _About, ontology: Ontology, extractor: GivenExtractor) -> Iterator[Episode]:
    """Yield an episode for each triple about things; triples about the vocabulary are skipped."""
    name = about.source.path.name
    terms = {s for s, v in about.values.items() if any(map(_is_of_vocabulary, v.get(_TYPE, ())))}
    has_facts = not about.source.quads  # an empty file is no ontology
    for index, quad in enumerate(about.source.quads):
        predicate = quad.predicate.value
        if predicate.startswith(_VOCABULARIES) and predicate != RDF + "type":
            continue
        if _name(quad.subject) in terms:  # the file's own classes and properties
            continue
        if predicate == _TYPE and _name(quad.object).startswith(_VOCABULARIES):
            continue  # "is a NamedIndividual"
        ends = [_label(about, term) for term in (quad.subject, quad.object)]
        relation = "is a" if predicate == RDF + "type" else _relation(predicate, ontology)
        text = f"{ends[0]} {relation} {ends[1]}."
        episode = Episode(text, None, name, f"{name} {index} {text}")
        has_facts = True
        yield extractor.hold(episode, Extraction((Triplet(ends[0], relation, ends[1]),)))
    if not has_facts:
        raise UserError(
            f"{about.source.path}: an ontology, which has no facts to remember; `ask --compute"
            " --ontology FILE` uses one"
        )


def _is_of_vocabulary(iri: str) -> bool:
    """Return whether a type is a type of an ontology's terms, not of things."""
    return iri.startswith(_VOCABULARIES) and not iri.endswith(_OF_THINGS)


def _label(about: _About, term: object) -> str:
    if isinstance(term, Literal):
        return term.value
    return about.one(_name(term), LABEL) or _local(_name(term))


def _relation(iri: str, ontology: Ontology) -> str:
    term = ontology.properties.get(iri)
    return (None if term is None else as_relation(term)) or _local(iri)


def _local(iri: str) -> str:
    """Return the last part of an IRI as words: "works at" of "urn:my:worksAt"."""
    last = re.split(r"[/#:]", iri.rstrip("/#:"))[-1]
    return " ".join(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", last.replace("_", " ")).split())
