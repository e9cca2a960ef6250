"""Ontology of the memory graph: classes, properties and surface words, read from Turtle.

``life.ttl`` beside this file is Turngraph's own ontology. A user's Turtle file is read in addition
to it or instead of it. Terms are described with RDFS, OWL and SKOS; Turngraph adds
``tg:objectRole`` and ``tg:preposition``, which map words to events, and ``tg:pattern``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from turngraph.configs.extras import extra
from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.extract.word_lists import VERB_FORMS
from turngraph.data.memory_graph.ontology.turtle import Source, read_turtle
from turngraph.data.normalise import words

with extra("rdf", "typed memory graphs need"):
    from pyoxigraph import Literal, NamedNode, Quad

TG = "urn:turngraph:"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
OWL = "http://www.w3.org/2002/07/owl#"
SKOS = "http://www.w3.org/2004/02/skos/core#"
XSD = "http://www.w3.org/2001/XMLSchema#"
PROV = "http://www.w3.org/ns/prov#"
SH = "http://www.w3.org/ns/shacl#"
PREFIXES = {
    "tg": TG, "rdf": RDF, "rdfs": RDFS, "owl": OWL, "skos": SKOS, "xsd": XSD, "prov": PROV,
    "sh": SH,
}  # fmt: skip
"""Predeclared prefixes of queries and exports."""
LIFE = Path(__file__).with_name("life.ttl")
_STATED = frozenset({"past", "third"})
"""Forms of verbs in which facts are stated: "visited", "lives"."""
_CLASSES = {OWL + "Class", RDFS + "Class"}
_LABELS = (SKOS + "altLabel", SKOS + "prefLabel")
_PROPERTIES = {
    RDF + "Property", OWL + "ObjectProperty", OWL + "DatatypeProperty",
    OWL + "FunctionalProperty", OWL + "SymmetricProperty",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Class:
    """Class of things or of events.

    Args:
        iri: IRI of the term.
        above: its direct superclasses.
        words: its surface words, in the form of ``base_words``.
        object_role: property (role) of the object of its verbs; None: inherited, or not a class of
            events.
        asked: words that only questions use for the term.
        spelled, preferred: its surface words as the file spells them, and those that are its
            ``skos:prefLabel``.
    """

    iri: str
    above: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    object_role: str | None = None
    asked: tuple[str, ...] = ()
    spelled: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Property:
    """Relation or attribute.

    Args:
        iri: IRI of the term.
        above: its direct superproperties.
        words: its surface words, in the form of ``base_words``.
        domain, range: the class of its subjects, and of its objects or the datatype of its values.
        functional: whether a subject has one value at a time.
        symmetric: whether it holds in both directions.
        inverse: the property in the other direction.
        prepositions: prepositions that name it as a role of its domain's events.
        pattern: regular expression that a value matches.
        asked: words that only questions use for the term.
        high, low: adjectives for large and for small values: "heavy", "light".
        spelled, preferred: its surface words as the file spells them, and those that are its
            ``skos:prefLabel``.
    """

    iri: str
    above: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    domain: str | None = None
    range: str | None = None
    functional: bool = False
    symmetric: bool = False
    inverse: str | None = None
    prepositions: tuple[str, ...] = ()
    pattern: str | None = None
    asked: tuple[str, ...] = ()
    high: tuple[str, ...] = ()
    low: tuple[str, ...] = ()
    spelled: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()

    @property
    def datatype(self) -> str | None:
        """The XSD datatype of its values; None: its values are objects."""
        return self.range if self.range is not None and self.range.startswith(XSD) else None


@dataclass(frozen=True, slots=True)
class Label:
    """Surface words of a term of an ontology.

    Args:
        words: words in base form, without the last preposition.
        ending: last preposition; "": none.
        iri: IRI of the term.
        is_event: whether the term is a class of events.
        is_asked: whether only questions use the words.
        is_amount: whether the words name a number of these events.
    """

    words: tuple[str, ...]
    ending: str
    iri: str
    is_event: bool
    is_asked: bool
    is_amount: bool = False


@dataclass(frozen=True)
class Ontology:
    """Classes and properties by IRI, and the terms of each surface word.

    Args:
        classes, properties: classes and properties by IRI.
        quads: all statements of the files, in the default graph.
        labels: labels by their first word, filled by ``question_terms.labels_of``.
    """

    classes: Mapping[str, Class]
    properties: Mapping[str, Property]
    quads: Sequence[Quad] = ()
    class_words: dict[str, list[str]] = field(default_factory=dict)
    property_words: dict[str, list[str]] = field(default_factory=dict)
    labels: dict[str, list[Label]] = field(default_factory=dict)
    _above: dict[str, frozenset[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        terms: list[Class | Property] = [*self.classes.values(), *self.properties.values()]
        for term in terms:
            iri = term.iri
            self._above[iri] = frozenset(self._closure(iri))
            index = self.class_words if isinstance(term, Class) else self.property_words
            for word in term.words:
                index.setdefault(word, []).append(iri)

    def _closure(self, iri: str) -> Iterator[str]:
        """Yield a term and all its superclasses or superproperties, each once."""
        seen, open_ = {iri}, [iri]
        while open_:
            current = open_.pop()
            yield current
            term = self.classes.get(current) or self.properties.get(current)
            new = set(term.above) - seen if term else set()
            seen |= new
            open_ += sorted(new)

    def is_a(self, iri: str, above: str) -> bool:
        """Return whether a term is another term or below it."""
        return above in self._above.get(iri, (iri,))

    def depth(self, iri: str) -> int:
        """Return the number of terms above a term."""
        return len(self._above.get(iri, (iri,))) - 1

    def below(self, iri: str) -> list[str]:
        """Return a term and all terms below it."""
        return [term for term, above in self._above.items() if iri in above]

    def object_role(self, iri: str) -> str | None:
        """Return the role of the object of a class's verbs; None: it is not a class of events."""
        level = [iri]
        while level:
            for one in level:
                role = self.classes[one].object_role if one in self.classes else None
                if role is not None:
                    return role
            level = [up for one in level if one in self.classes for up in self.classes[one].above]
        return None

    def role(self, event: str, preposition: str) -> str | None:
        """Return the role that a preposition names at a class of events, by the nearest domain."""
        candidates = [
            (len(self._above.get(term.domain, ())), term.iri)
            for term in self.properties.values()
            if term.domain and preposition in term.prepositions and self.is_a(event, term.domain)
        ]
        return max(candidates)[1] if candidates else None

    def event_of(self, relation: str) -> tuple[str, str] | None:
        """Return class of events and role of a relation: ("Buy", "seller") of "bought from"."""
        parts = base_words(relation).split()
        for stop in range(len(parts), 0, -1):
            verb, preposition = " ".join(parts[:stop]), " ".join(parts[stop:])
            events = [iri for iri in self.class_words.get(verb, ()) if self.object_role(iri)]
            if events:
                event = max(events, key=lambda iri: (len(self._above[iri]), iri))
                role = self.role(event, preposition) if preposition else self.object_role(event)
                return None if role is None else (event, role)
        return None

    @property
    def num_words(self) -> int:
        """Number of surface words."""
        return len(self.class_words.keys() | self.property_words.keys())


@lru_cache(maxsize=1 << 14)
def base_words(text: str) -> str:
    """Return the words of a text, with verbs in base form: "live in" of "lives in"."""
    return " ".join(VERB_FORMS.get(word, (word,))[0] for word in words(text))


def as_relation(term: Class | Property, is_alone: bool = True) -> str | None:
    """Return the surface word of a term that reads best as a relation: "was born in"; None: none.

    It is the preferred one, else the first one whose verb has a form of statements, else the first.

    Args:
        term: a property or a class of events.
        is_alone: whether no preposition follows it; if one does, ``preferred`` is left out.
    """
    labels = (*term.preferred, *term.spelled) if is_alone else term.spelled
    forms = {label: VERB_FORMS.get(label.split()[0], ("", ""))[1] for label in labels}
    return next((label for label in labels if forms[label] in _STATED), next(iter(labels), None))


def load_ontology(user: str | Path | None = None, alone: bool = False) -> Ontology:
    """Read ``life.ttl`` and a user's Turtle.

    Args:
        user: path of the user's file; None: ``life.ttl`` only.
        alone: whether to read the user's file instead of ``life.ttl``.

    Raises:
        UserError: a file is missing or not Turtle, or the ontology is inconsistent; the message
            names file, line and column.
    """
    if user is None:
        assert not alone, "an ontology of nothing"
        return _life()
    sources = [*([] if alone else [read_turtle(LIFE)]), read_turtle(Path(user))]
    return build(sources)


@lru_cache(maxsize=1)
def _life() -> Ontology:
    return build([read_turtle(LIFE)])


def build(sources: Sequence[Source]) -> Ontology:
    """Build one ontology from the statements of files; see ``load_ontology``."""
    described: dict[str, dict[str, list[str]]] = {}
    for source in sources:
        for quad in source.quads:
            if isinstance(quad.subject, NamedNode) and isinstance(quad.object, NamedNode | Literal):
                values = described.setdefault(quad.subject.value, {})
                values.setdefault(quad.predicate.value, []).append(quad.object.value)
    types = {iri: set(values.get(RDF + "type", ())) for iri, values in described.items()}
    classes = {i: _class(i, described[i]) for i, kinds in types.items() if kinds & _CLASSES}
    properties = {
        i: _property(i, described[i], types[i]) for i, kinds in types.items() if kinds & _PROPERTIES
    }
    for term in list(properties.values()):  # add the other direction of an inverse
        if term.inverse in properties and properties[term.inverse].inverse is None:
            other = described[term.inverse] | {OWL + "inverseOf": [term.iri]}
            properties[term.inverse] = _property(term.inverse, other, types[term.inverse])
    _check(sources, classes, properties)
    quads = [quad for source in sources for quad in source.quads]
    return Ontology(classes, properties, quads)


def _texts(values: dict[str, list[str]], *names: str) -> tuple[str, ...]:
    labels = [label for name in names for label in values.get(name, ())]
    return tuple(dict.fromkeys(form for label in labels if (form := base_words(label))))


def _spelled(values: dict[str, list[str]], *names: str) -> tuple[str, ...]:
    labels = (" ".join(label.split()) for name in names for label in values.get(name, ()))
    return tuple(dict.fromkeys(filter(base_words, labels)))


def _first(values: dict[str, list[str]], iri: str) -> str | None:
    return next(iter(values.get(iri, ())), None)


def _class(iri: str, values: dict[str, list[str]]) -> Class:
    above = tuple(values.get(RDFS + "subClassOf", ()))
    role, asked = _first(values, TG + "objectRole"), _texts(values, SKOS + "hiddenLabel")
    spelled, preferred = _spelled(values, *_LABELS), _spelled(values, _LABELS[1])
    return Class(iri, above, _texts(values, *_LABELS), role, asked, spelled, preferred)


def _property(iri: str, values: dict[str, list[str]], types: set[str]) -> Property:
    return Property(
        iri,
        above=tuple(values.get(RDFS + "subPropertyOf", ())),
        words=_texts(values, *_LABELS),
        domain=_first(values, RDFS + "domain"),
        range=_first(values, RDFS + "range"),
        functional=OWL + "FunctionalProperty" in types,
        symmetric=OWL + "SymmetricProperty" in types,
        inverse=_first(values, OWL + "inverseOf"),
        prepositions=tuple(map(base_words, values.get(TG + "preposition", ()))),
        pattern=_first(values, TG + "pattern"),
        asked=_texts(values, SKOS + "hiddenLabel"),
        high=tuple(values.get(TG + "highWord", ())),
        low=tuple(values.get(TG + "lowWord", ())),
        spelled=_spelled(values, *_LABELS),
        preferred=_spelled(values, _LABELS[1]),
    )


def _check(
    sources: Sequence[Source], classes: Mapping[str, Class], properties: Mapping[str, Property]
) -> None:
    """Check that all terms are defined, hierarchies have no cycle, and words are unambiguous.

    Raises:
        UserError: a check fails; the message names file, line, column and term.
    """
    for term in properties.values():
        for name, iri in (("domain", term.domain), ("range", term.range)):
            if iri is not None and iri not in classes and not iri.startswith(XSD):
                raise _error(sources, term.iri, f"{name} {short(iri)} is not a class here")
        if term.inverse is not None and term.inverse not in properties:
            raise _error(sources, term.iri, f"inverse {short(term.inverse)} is not a property here")
        if term.pattern is not None:
            _check_pattern(sources, term)
    for kind in classes.values():
        if kind.object_role is not None and kind.object_role not in properties:
            role = short(kind.object_role)
            raise _error(sources, kind.iri, f"objectRole {role} is not a property here")
    ups = {iri: term.above for iri, term in properties.items()}
    ups |= {iri: kind.above for iri, kind in classes.items()}
    for iri in ups:
        _check_above(sources, iri, ups, "subClassOf" if iri in classes else "subPropertyOf")
    _check_words(sources, Ontology(classes, properties))


def _check_pattern(sources: Sequence[Source], one: Property) -> None:
    try:
        re.compile(one.pattern or "")
    except re.error as error:
        raise _error(sources, one.iri, f"pattern is not a regular expression: {error}") from None


def _check_above(
    sources: Sequence[Source], iri: str, ups: Mapping[str, tuple[str, ...]], how: str
) -> None:
    """Check that a term is not below itself."""
    paths: list[tuple[str, ...]] = [(iri, up) for up in ups[iri]]
    seen: set[str] = set()
    while paths:
        path = paths.pop()
        if path[-1] == iri:
            circle = " > ".join(map(short, path))
            raise _error(sources, iri, f"cyclic {how}: {circle}")
        if path[-1] not in seen:
            seen.add(path[-1])
            paths += [(*path, up) for up in ups.get(path[-1], ())]


def _check_words(sources: Sequence[Source], ontology: Ontology) -> None:
    """Check that no word names two properties of one class."""
    for word, iris in ontology.property_words.items():
        for index, iri in enumerate(iris):
            for other in iris[:index]:
                first, second = (ontology.properties[one].domain for one in (other, iri))
                if first is None or second is None or _related(ontology, first, second):
                    whose = short(second or first or TG + "Thing")
                    message = f"{word!r} means two properties of {whose}: {short(other)}"
                    raise _error(sources, iri, f"{message} and {short(iri)}")


def _related(ontology: Ontology, one: str, other: str) -> bool:
    return ontology.is_a(one, other) or ontology.is_a(other, one)


def _error(sources: Sequence[Source], iri: str, message: str) -> UserError:
    """Return an error at the description of a term, in the last file that has one."""
    for source in reversed(sources):
        if place := source.place_of(iri):
            return UserError(f"{source.path}:{place[0]}:{place[1]}: {short(iri)}: {message}")
    return UserError(f"{sources[-1].path}: {short(iri)}: {message}")


def short(iri: str) -> str:
    """Return an IRI with a known prefix: "tg:Person"."""
    for prefix, start in PREFIXES.items():
        if iri.startswith(start):
            return f"{prefix}:{iri[len(start) :]}"
    return f"<{iri}>"
