"""Finds the readings of a clause: terms of the ontology whose surface words it contains.

The words of a label need not be adjacent ("was I at Acme" contains "be at"), and its last
preposition may stand elsewhere ("at which company did I work"). If a clause has several readings,
the first one is used that links every word and selects facts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from turngraph.data.memory_graph.ontology.ontology import (
    Class,
    Label,
    Ontology,
    Property,
    base_words,
)
from turngraph.data.memory_graph.ontology.question_forms import EVENTS_FIRST, PREPOSITIONS
from turngraph.data.memory_graph.ontology.typed_plan import Operation

MAX_GAP = 3
"""Maximum number of other words between two words of a label."""


_PLURALS = {"children": ("child",), "wives": ("wife",), "people": ("person",), "men": ("man",),
            "women": ("woman",)}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Term:
    """Term that words of a clause name.

    Args:
        places: indices of these words in the clause, in order; (): no word names the term.
        iri: IRI of the property or the class.
        is_event: whether the term is a class of events.
        is_amount: whether the words name a number of these events: "price".
    """

    places: tuple[int, ...]
    iri: str
    is_event: bool
    is_amount: bool = False

    @property
    def first(self) -> int:
        """Index of the term's first word."""
        return self.places[0] if self.places else 0

    @property
    def stop(self) -> int:
        """Index after the term's last word."""
        return self.places[-1] + 1 if self.places else 0


def labels_of(ontology: Ontology) -> dict[str, list[Label]]:
    """Return the labels of an ontology by their first word."""
    labels = ontology.labels
    if not labels:
        terms: list[Class | Property] = [*ontology.properties.values()]
        terms += [kind for kind in ontology.classes.values() if ontology.object_role(kind.iri)]
        for term in terms:
            for is_asked, texts in ((False, term.words), (True, _asked(term))):
                for text in texts:
                    for label in _labels(text, term, is_asked):
                        labels.setdefault(label.words[0], []).append(_of_event(ontology, label))
    return labels


def _of_event(ontology: Ontology, label: Label) -> Label:
    """Return a label of a role as a label of the role's events: "price" refers to purchases."""
    domain = "" if label.is_event else ontology.properties[label.iri].domain or ""
    if ontology.object_role(domain) is None:
        return label
    return replace(label, iri=domain, is_event=True, is_amount=True)


def _asked(term: Class | Property) -> Sequence[str]:
    return (*term.asked, *term.high, *term.low) if isinstance(term, Property) else term.asked


def _labels(text: str, term: Class | Property, is_asked: bool) -> Iterator[Label]:
    words = tuple(text.split())
    ending = words[-1] if len(words) > 1 and words[-1] in PREPOSITIONS else ""
    head = words[:-1] if ending else words
    is_event = isinstance(term, Class)
    yield Label(head, ending, term.iri, is_event, is_asked)
    if head[0].endswith("ed") and len(head[0]) > 4:  # a verb that is in no list of verbs
        for stem in (head[0][:-2], head[0][:-1]):
            yield Label((stem, *head[1:]), ending, term.iri, is_event, is_asked)
    if head[0] == "be" and len(head) > 1:  # "employed by"
        yield Label(head[1:], ending, term.iri, is_event, is_asked)


@lru_cache(maxsize=1 << 12)
def word_forms(word: str) -> frozenset[str]:
    """Return the possible base forms of a word of a question: "city" of "cities"."""
    word = re.sub(r"['’]s?$", "", word.lower())
    forms = {base_words(word), *_PLURALS.get(word, ())}
    for ending, other in (("s", ""), ("es", ""), ("ies", "y"), ("ed", ""), ("d", ""), ("ing", ""),
                          ("ing", "e")):  # fmt: skip
        if word.endswith(ending) and len(word) > len(ending) + 2:
            forms.add(base_words(word.removesuffix(ending) + other))
    return frozenset(forms)


def readings(
    ontology: Ontology, words: Sequence[str], operation: Operation, is_where: bool
) -> list[list[Term]]:
    """Return the terms that a clause may name, the likeliest first; equally likely ones together.

    Args:
        ontology: the ontology.
        words: words of the clause.
        operation: operation of the question; those in ``EVENTS_FIRST`` prefer classes of events,
            the others properties.
        is_where: whether the clause asks for a place.
    """
    forms = [word_forms(word) for word in words]
    labels = labels_of(ontology)
    ranked: dict[tuple[int, ...], set[Term]] = defaultdict(set)
    for first, starts in enumerate(forms):
        for label in (one for start in starts for one in labels.get(start, ())):
            places = _places(label.words, forms, first)
            if not places or (
                is_where and not label.is_event and not is_place(ontology, label.iri)
            ):
                continue
            places, lacks = _with_ending(label, words, places)
            if lacks and label.words == ("be",):
                continue
            term = Term(places, label.iri, label.is_event, label.is_amount)
            is_other = label.is_event != (operation in EVENTS_FIRST)
            size = (
                (is_other, -len(places)) if operation in EVENTS_FIRST else (-len(places), is_other)
            )
            gap = places[-1] - places[0] + 1 - len(places)
            ranked[label.is_asked, lacks, *size, gap].add(term)
    groups: list[list[Term]] = []
    seen: set[tuple[str, tuple[int, ...]]] = set()
    for rank in sorted(ranked):
        fresh = {term for term in ranked[rank] if (term.iri, term.places) not in seen}
        seen |= {(term.iri, term.places) for term in fresh}
        groups.append(_deepest(ontology, fresh))
    return [group for group in groups if group]


def _deepest(ontology: Ontology, terms: set[Term]) -> list[Term]:
    """Return terms without those that are above another of them."""

    def is_above(one: Term, other: Term) -> bool:
        return other.iri != one.iri and ontology.is_a(other.iri, one.iri)

    lowest = [term for term in terms if not any(is_above(term, other) for other in terms)]
    return sorted(lowest, key=lambda term: (term.first, term.iri))


def _places(words: Sequence[str], forms: Sequence[frozenset[str]], first: int) -> tuple[int, ...]:
    """Return the indices of a label's words, given the first one's; (): some are missing."""
    places = [first]
    for word in words[1:]:
        start = places[-1] + 1
        hits = [p for p in range(start, min(start + MAX_GAP + 1, len(forms))) if word in forms[p]]
        if not hits:
            return ()
        places.append(hits[0])
    return tuple(places)


def _with_ending(
    label: Label, words: Sequence[str], places: tuple[int, ...]
) -> tuple[tuple[int, ...], bool]:
    """Return the indices with that of the label's preposition, and whether it is missing."""
    if not label.ending:
        return places, False
    start = places[-1] + 1
    lower = [word.lower() for word in words]
    for place in range(start, min(start + MAX_GAP + 1, len(words))):
        if lower[place] == label.ending:
            return (*places, place), False
    return places, label.ending not in (lower[:1] + lower[-1:])


def is_place(ontology: Ontology, iri: str) -> bool:
    """Return whether the values of a property are places or organisations."""
    kind = ontology.properties[iri].range or ""
    return any(ontology.is_a(kind, f"urn:turngraph:{name}") for name in ("Place", "Organization"))


def superlatives(text: str, ontology: Ontology) -> str:
    """Return a question with "highest" or "lowest" before adjectives: "lowest light" of "lightest".

    The adjectives are those of the properties of an ontology.
    """
    for term in ontology.properties.values():
        for adjectives, most, least in (
            (term.high, "highest", "lowest"), (term.low, "lowest", "highest")
        ):  # fmt: skip
            for word in adjectives:
                text = re.sub(rf"\b(?:most {word}|{_superlative(word)})\b", f"{most} {word}", text,
                              flags=re.IGNORECASE)  # fmt: skip
                text = re.sub(rf"\bleast {word}\b", f"{least} {word}", text, flags=re.IGNORECASE)
    return text


def _superlative(word: str) -> str:
    """Return the superlative of an adjective: "heaviest" of "heavy"."""
    if word.endswith("e"):
        return f"{word}st"
    if word.endswith("y"):
        return f"{word.removesuffix('y').removesuffix('e')}iest"
    is_doubled = re.search(r"[^aeiou][aeiou][bdgmnpt]$", word) is not None
    return f"{word}{word[-1] if is_doubled else ''}est"
