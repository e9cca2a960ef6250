"""Wording of facts about the world: as kb fact, infobox, table row, sentence and question."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from turngraph.data.sources.worldfacts_facts import COMPASS, Fact
from turngraph.data.types import Entity, Evidence, Source

WITH_ARTICLE = frozenset(
    "Bahamas;Central African Republic;Comoros;Dominican Republic;DR Congo;Gambia;Maldives;"
    "Netherlands;Philippines;Republic of the Congo;Solomon Islands;United Arab Emirates;"
    "United Kingdom;United States".split(";")
)
STATE_WORD = re.compile(
    r"\b(?:Republic|Kingdom|States?|Confederation|Union|Sultanate|Duchy|Federation|Commonwealth)\b"
)
FORMS: tuple[Source, ...] = ("kb", "text", "table", "infobox")
TABLES = {"country": ("Countries", "Country"), "city": ("Cities", "City")}
# In a table the value of these relations is the title.
NOT_IN_TABLES = ("city country", "region")
SECOND_FORM = 0.4
OFFICIAL_NAME = 0.25


@dataclass(frozen=True, slots=True)
class Relation:
    """Wording of one relation in evidence and in questions.

    Args:
        noun: the kb's predicate, and its name in a question.
        column: the infobox's label and the table's column.
        sentences: templates of a sentence; ``{s}`` the subject, ``{v}`` the values.
        questions: templates of a question about ``{s}``.
        unit: unit after the value in a table or an infobox.
        verb: "is" or "are", to agree with the noun.
    """

    noun: str
    column: str
    sentences: tuple[str, ...]
    questions: tuple[str, ...]
    unit: str = ""
    verb: str = "is"


def _side(name: str) -> Relation:
    return Relation(
        f"neighbour to the {name}",
        f"Neighbour to the {name}",
        (
            f"To the {name} of {{s}} lies {{v}}.",
            f"On its {name} side, {{s}} borders on {{v}}.",
            f"{{s}} has {{v}} as its neighbour to the {name}.",
        ),
        (f"Which country lies to the {name} of {{s}}?", f"Which country is {name} of {{s}}?"),
    )


RELATIONS: dict[str, Relation] = {
    "capital": Relation(
        "capital",
        "Capital",
        (
            "The capital of {s} is {v}.",
            "{v} is the capital of {s}.",
            "{v} is the capital city of {s}.",
        ),
        ("What is the capital of {s}?", "Which capital does {s} have?"),
    ),
    "population": Relation(
        "population",
        "Population",
        ("{s} has a population of {v}.", "{v} people live in {s}.", "{s} counts {v} inhabitants."),
        ("What population does {s} have?", "How large a population does {s} have?"),
    ),
    "area": Relation(
        "area",
        "Area",
        ("{s} covers an area of {v} square kilometres.", "The area of {s} is {v} km²."),
        ("What area does {s} cover?", "How large an area does {s} cover?"),
        unit=" km²",
    ),
    "currency": Relation(
        "currency",
        "Currency",
        ("The currency of {s} is the {v}.", "People in {s} pay with the {v}."),
        ("Which currency does {s} use?", "What currency do people use in {s}?"),
    ),
    "currency code": Relation(
        "currency code",
        "Currency code",
        ("The money of {s} has the currency code {v}.", "{v} is the currency code of {s}."),
        ("Which currency code does {s} use?", "What currency code does {s} have?"),
    ),
    "languages": Relation(
        "languages",
        "Languages",
        ("The languages of {s} are {v}.", "The languages spoken in {s} are {v}."),
        ("Which languages do people speak in {s}?", "What languages does {s} have?"),
        verb="are",
    ),
    "language": Relation(
        "language",
        "Language",
        ("The language of {s} is {v}.", "The language spoken in {s} is {v}."),
        ("Which language do people speak in {s}?", "What language does {s} have?"),
    ),
    "calling code": Relation(
        "calling code",
        "Calling code",
        ("The calling code of {s} is {v}.", "A call to {s} starts with the calling code {v}."),
        ("Which calling code does {s} have?", "What calling code does {s} use?"),
    ),
    "numeric code": Relation(
        "numeric code",
        "Numeric code",
        ("The numeric code of {s} is {v}.", "In the ISO list, {s} has the numeric code {v}."),
        ("Which numeric code does {s} have?", "What numeric code does {s} use?"),
    ),
    "letter code": Relation(
        "three-letter code",
        "Three-letter code",
        (
            "The three-letter code of {s} is {v}.",
            "{s} is abbreviated by its three-letter code {v}.",
        ),
        ("Which three-letter code does {s} have?", "What three-letter code does {s} use?"),
    ),
    "demonym": Relation(
        "demonym",
        "Demonym",
        ("The demonym of {s} is {v}.", "{v} is the demonym used for {s}."),
        ("Which demonym does {s} have?", "What demonym do people use for {s}?"),
    ),
    "region": Relation(
        "region",
        "Region",
        ("{s} belongs to the region of {v}.", "The region of {s} is {v}."),
        ("Which region does {s} belong to?", "To what region does {s} belong?"),
    ),
    "neighbours": Relation(
        "neighbours",
        "Neighbours",
        ("The neighbours of {s} are {v}.", "{s} shares its borders with the neighbours {v}."),
        ("Which neighbours does {s} have?", "What countries does {s} have as neighbours?"),
        verb="are",
    ),
    **{name: _side(name) for name in COMPASS},
    "city population": Relation(
        "population",
        "Population",
        (
            "{s} has a population of {v}.",
            "{v} people live in the city of {s}.",
            "{s}, a city in {g}, has a population of {v}.",
        ),
        ("What population does {s} have?", "How many people live in {s}?"),
    ),
    "city country": Relation(
        "country",
        "Country",
        ("{s} is a city in {v}.", "The city of {s} lies in {v}."),
        ("Which country is {s} in?", "In which country does {s} lie?"),
    ),
}


def named(entity: Entity) -> str:
    """Return the name of an entity in a sentence: "the Netherlands", "Peru"."""
    return f"the {entity.label}" if entity.label in WITH_ARTICLE else entity.label


def sentence(text: str) -> str:
    """Return a text with a capital letter at its start."""
    return text[:1].upper() + text[1:]


def render(fact: Fact, seed: int) -> list[Evidence]:
    """Return the evidence that states a fact, in one or two of the four forms.

    The fact and the seed determine forms and words, as in a world where some pages exist and
    others do not.
    """
    rng = random.Random(f"{seed}/{fact.key}")
    count = 2 if rng.random() < SECOND_FORM else 1
    forms = [f for f in FORMS if f != "table" or fact.relation not in NOT_IN_TABLES]
    return [_render(fact, form, rng) for form in rng.sample(forms, count)]


def _render(fact: Fact, form: Source, rng: random.Random) -> Evidence:
    relation, labels = RELATIONS[fact.relation], [value.label for value in fact.values]
    entities = [fact.subject, *fact.values]
    if form == "kb":
        text = ", ".join([fact.subject.label, relation.noun, *labels])
    elif form == "infobox":
        text = f"{fact.subject.label}, {relation.column}, {', '.join(labels)}{relation.unit}"
    elif form == "table":
        title, column = TABLES[fact.subject.id.split(":")[0]]
        cell = f"{relation.column} {relation.verb} {', '.join(labels)}{relation.unit}"
        text = f"{title} of {named(fact.group)}, {column} is {fact.subject.label}, {cell}"
        entities.append(fact.group)
    else:
        template = rng.choice(relation.sentences)
        last = named(fact.values[-1])
        values = " and ".join(filter(None, [", ".join(labels[:-1]), last]))
        subject = _official(fact.subject, rng)
        text = sentence(template.format(s=subject, v=values, g=named(fact.group)))
        entities += [fact.group] if "{g}" in template else []
    distinct = {entity.id: entity for entity in entities}
    return Evidence(f"{fact.key}/{form}", text, form, tuple(distinct.values()))


def _official(entity: Entity, rng: random.Random) -> str:
    """Return, in some cases, the official name, so that entities must be found by mentions."""
    official = [name for name in entity.mentions if STATE_WORD.search(name)]
    return f"the {official[-1]}" if official and rng.random() < OFFICIAL_NAME else named(entity)


def ask(rng: random.Random, relation: str, subject: str) -> str:
    """Return a question that names its subject: "What is the currency of Peru?"."""
    return rng.choice(RELATIONS[relation].questions).format(s=subject)


def ask_elliptically(rng: random.Random, relation: str, templates: tuple[str, ...]) -> str:
    """Return a question without its subject: "And its currency?"."""
    words = RELATIONS[relation]
    return rng.choice(templates).format(noun=words.noun, verb=words.verb)
