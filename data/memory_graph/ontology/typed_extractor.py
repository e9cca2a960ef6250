"""Extractor whose statements also supersede facts by an ontology; relations for an LM."""

from __future__ import annotations

from collections.abc import Sequence

from turngraph.data.memory_graph.memory_types import (
    Ends,
    Episode,
    Extraction,
    Extractor,
    Triplet,
    Update,
)
from turngraph.data.memory_graph.names import alias
from turngraph.data.memory_graph.ontology.lens import read_literal
from turngraph.data.memory_graph.ontology.ontology import (
    Ontology,
    Property,
    as_relation,
    base_words,
)


class TypedExtractor:
    """Wrapper of an extractor, which returns the inner extractor's statements and names.

    A statement with a functional property also replaces facts with another value of the property:
    a person who moves to Bergen no longer lives in Oslo. A symmetric property is replaced at both
    ends.

    Args:
        inner: extractor of the statements.
        ontology: the ontology.
    """

    def __init__(self, inner: Extractor, ontology: Ontology) -> None:
        self.inner, self.ontology = inner, ontology
        self.name = inner.name

    def extract(self, episodes: Sequence[Episode]) -> list[Extraction]:
        """Return one extraction for every episode, in order."""
        return self.inner.extract(episodes)

    def replaced(self, updates: Sequence[Update]) -> list[tuple[int, ...]]:
        """Return, for every update, the keys of the known facts that the new statement replaces."""
        replaced = self.inner.replaced(updates)
        return [
            tuple(dict.fromkeys((*keys, *self._superseded(update))))
            for keys, update in zip(replaced, updates, strict=True)
        ]

    def _superseded(self, update: Update) -> list[int]:
        """Return the keys of facts with another value of the functional property of a triplet."""
        new = update.new
        if not isinstance(new, Triplet) or new.hypothesis:
            return []
        term = self._functional(new.relation, new.object)
        if term is None:
            return []

        def contradicts(text: str, ends: Ends | None) -> bool:
            if ends is None:
                return False
            subject, relation, object = ends
            if self._functional(relation, object) is not term:
                return False
            pair, other = (alias(new.subject), alias(new.object)), (alias(subject), alias(object))
            if term.symmetric:
                return set(pair) != set(other) and bool(set(pair) & set(other))
            return pair[0] == other[0] and pair[1] != other[1]

        known = update.known_where(contradicts)
        return [fact.key for fact in known if fact.valid_to is None]

    def _functional(self, relation: str, value: str) -> Property | None:
        """Return the functional property of a relation; None: it has none, or several ones."""
        terms = [self.ontology.properties[iri]
                 for iri in self.ontology.property_words.get(base_words(relation), ())]  # fmt: skip
        if len(terms) > 1:
            terms = [
                term for term in terms
                if term.datatype is None or read_literal(value, term.datatype) is not None
            ]  # fmt: skip
        return terms[0] if len(terms) == 1 and terms[0].functional else None

    def entities(self, question: str) -> list[str]:
        """Return the names that a question mentions, in order."""
        return self.inner.entities(question)

    def cost(self) -> dict[str, float]:
        """Return the costs of the inner extractor."""
        return self.inner.cost()


def relations_of(ontology: Ontology) -> tuple[str, ...]:
    """Return the relations that an LM may use, as facts spell them: "was born in", "visited".

    These are one surface word of each property (``as_relation``), and the verb of each class of
    events, alone and with each preposition that names a role of the class.
    """
    relations = [as_relation(term) for term in ontology.properties.values()]
    for iri, kind in ontology.classes.items():
        role = ontology.object_role(iri)
        if role is None:
            continue
        relations.append(as_relation(kind))
        verb = as_relation(kind, is_alone=False)
        for term in ontology.properties.values():
            for word in term.prepositions:
                if verb and ontology.role(iri, word) == term.iri:
                    relations.append(f"{verb} {word}")
    return tuple(sorted({relation for relation in relations if relation is not None}))


def classes_of(ontology: Ontology) -> tuple[str, ...]:
    """Return the classes that an LM may give objects: the first word of each class of things."""
    things = (kind.words[0] for iri, kind in ontology.classes.items()
              if kind.words and ontology.object_role(iri) is None)  # fmt: skip
    return tuple(sorted(dict.fromkeys(things)))
