"""Dialogues of five questions about countries and cities, with the facts that answer them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from turngraph.data.sources.worldfacts_facts import COMPASS, Country, Fact
from turngraph.data.sources.worldfacts_wording import ask, ask_elliptically, named, sentence
from turngraph.data.types import Entity

# Relations that a small language model can guess from a country's name are rarer.
WEIGHTS = {
    "population": 3.0,
    "area": 3.0,
    "calling code": 3.0,
    "currency": 3.0,
    "numeric code": 2.0,
    "languages": 6.0,
    "neighbours": 6.0,
    "capital": 2.0,
    "currency code": 1.0,
    "language": 0.5,
    "region": 0.5,
    "demonym": 0.5,
    "letter code": 0.5,
}
ITS = ("And its {noun}?", "Its {noun}?", "What about its {noun}?", "Which {noun} does it have?")
THAT = ("And that country's {noun}?", "Which {noun} does that country have?")
BACK = ("Back to {{s}}: its {noun}?", "{{s}} again: which {noun}?", "And again {{s}}: its {noun}?")
FIRST = (
    "And the first country: its {noun}?",
    "Which {noun} does the first country have?",
    "Back to the country we started with: its {noun}?",
)
SAME = ("And of {s}?", "What about {s}?", "And {s}?", "The same for {s}?")
TOWARD = ("the country to its {side}", "its neighbour to the {side}")
CITY = ("Its population?", "And its population?", "How many people live there?")
CAPITAL_PEOPLE = (
    "What population does its capital have?",
    "And the population of its capital?",
    "Its capital's population?",
)
CITY_COUNTRY = ("Which country is it in?", "In which country does it lie?")
BRIDGES = {
    "capital": "the country with the capital {v}",
    "calling code": "the country with the calling code {v}",
    "numeric code": "the country with the numeric code {v}",
    "city country": "the country where {v} lies",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with the facts that answer it.

    Args:
        question: its text.
        facts: one fact, or two linked by an entity; the last one holds the answer.
        anchor: with two facts, the entity that the user knows at that turn; no passage of the pool
            names both it and the answer.
    """

    question: str
    facts: tuple[Fact, ...]
    anchor: Entity | None = None


@dataclass(slots=True)
class Talk:
    """State of a conversation under construction.

    Args:
        rng: random generator of the conversation.
        countries: countries that it may be about, by code.
        topic: the country that "it" refers to.
        path: the fact that leads to the topic if it was never named; else empty.
        anchor: the entity from which the path starts.
        first: topic, path and anchor of the first question.
        relation: relation of the last question about a country.
        city: id of the city that was the last answer.
        answered: keys of the facts that have been answers.
    """

    rng: random.Random
    countries: dict[str, Country]
    topic: Country
    path: tuple[Fact, ...] = ()
    anchor: Entity | None = None
    first: tuple[Country, tuple[Fact, ...], Entity | None] | None = None
    relation: str = ""
    city: str = ""
    answered: set[str] = field(default_factory=set)

    def turn_to(
        self, country: Country, path: tuple[Fact, ...] = (), anchor: Entity | None = None
    ) -> None:
        """Make a country the topic."""
        self.topic, self.path, self.anchor = country, path, anchor
        self.first = self.first or (country, path, anchor)

    def pick(self, country: Country, without: Iterable[str] = ()) -> str | None:
        """Return a relation of the country that has no question yet; None if there is none."""
        taken = {*without, self.relation}
        free = [
            name
            for name in WEIGHTS
            if name in country.facts
            and name not in taken
            and country.facts[name].key not in self.answered
        ]
        return self.rng.choices(free, [WEIGHTS[n] for n in free])[0] if free else None


def _open(talk: Talk) -> Asked | None:
    """ "What is the area of Peru?" """
    if (relation := talk.pick(talk.topic)) is None:
        return None
    talk.relation = relation
    question = ask(talk.rng, relation, named(talk.topic.entity))
    return Asked(question, (talk.topic.facts[relation],))


def _open_capital(talk: Talk) -> Asked | None:
    """ "What is the capital of Peru?", for a city to ask on about."""
    fact = talk.topic.facts.get("capital")
    if fact is None or fact.values[0].id not in talk.topic.cities:
        return None
    talk.relation, talk.city = "capital", fact.values[0].id
    return Asked(ask(talk.rng, "capital", named(talk.topic.entity)), (fact,))


def _open_city(talk: Talk) -> Asked | None:
    """ "What is the population of Arequipa?" """
    towns = [id_ for id_ in talk.topic.cities if not _is_capital(talk.topic, id_)]
    if not towns:
        return None
    talk.city = talk.rng.choice(towns)
    fact = talk.topic.cities[talk.city]["city population"]
    return Asked(ask(talk.rng, "city population", fact.subject.label), (fact,))


def _is_capital(country: Country, city: str) -> bool:
    return "capital" in country.facts and country.facts["capital"].values[0].id == city


def _city(talk: Talk) -> Asked | None:
    """ "How many people live there?" of the city just answered."""
    fact = talk.topic.cities[talk.city]["city population"]
    return Asked(talk.rng.choice(CITY), (fact,))


def _its_country(talk: Talk) -> Asked | None:
    """ "Which country is it in?" of the city just asked about."""
    fact = talk.topic.cities[talk.city]["city country"]
    return Asked(talk.rng.choice(CITY_COUNTRY), (fact,))


def _around_city(talk: Talk) -> Asked | None:
    """ "What is the currency of the country it lies in?" """
    if (relation := talk.pick(talk.topic, {"capital"})) is None:
        return None
    link = talk.topic.cities[talk.city]["city country"]
    talk.relation = relation
    question = ask(talk.rng, relation, "the country it lies in")
    talk.turn_to(talk.topic, (link,), link.subject)
    return Asked(question, (link, talk.topic.facts[relation]), link.subject)


def _elliptic(talk: Talk, templates: tuple[str, ...]) -> Asked | None:
    # "Its population" after a question about a city would be the city's.
    without = {"population"} if talk.relation == "capital" else set()
    if (relation := talk.pick(talk.topic, without)) is None:
        return None
    talk.relation = relation
    question = ask_elliptically(talk.rng, relation, templates)
    return Asked(question, (*talk.path, talk.topic.facts[relation]), talk.anchor)


def _its(talk: Talk) -> Asked | None:
    """ "And its area?" """
    return _elliptic(talk, ITS)


def _that(talk: Talk) -> Asked | None:
    """ "And that country's area?" of the country just answered."""
    return _elliptic(talk, THAT)


def _back(talk: Talk) -> Asked | None:
    """ "Back to Peru: what is its currency?" """
    assert talk.first is not None
    country = talk.first[0]
    talk.turn_to(country)
    if (asked := _elliptic(talk, BACK)) is None:
        return None
    question = sentence(asked.question.format(s=named(country.entity)))
    return replace(asked, question=question)


def _first(talk: Talk) -> Asked | None:
    """ "And the currency of the first country?" """
    assert talk.first is not None
    talk.turn_to(*talk.first)
    return _elliptic(talk, FIRST)


def _shift(talk: Talk) -> Asked | None:
    """Ask about a new country by its name, often one close by."""
    talk.turn_to(_other_country(talk))
    return _open(talk)


def _shift_same(talk: Talk) -> Asked | None:
    """ "And of Chile?" """
    country = _other_country(talk)
    fact = country.facts.get(talk.relation)
    if fact is None or fact.key in talk.answered:
        return None
    talk.turn_to(country)
    return Asked(talk.rng.choice(SAME).format(s=named(country.entity)), (fact,))


def _other_country(talk: Talk) -> Country:
    seen = {talk.topic.code, talk.first[0].code if talk.first else ""}
    others = [c for code, c in talk.countries.items() if code not in seen]
    close = [c for c in others if c.region.id == talk.topic.region.id]
    return talk.rng.choice(close if close and talk.rng.random() < 0.5 else others)


def _side(talk: Talk) -> tuple[str, Fact, Country] | None:
    """Return a side on which the topic has exactly one neighbour, and that neighbour."""
    sides = [side for side in COMPASS if side in talk.topic.facts]
    if talk.path or not sides:
        return None
    side = talk.rng.choice(sides)
    fact = talk.topic.facts[side]
    return side, fact, talk.countries[fact.values[0].id.removeprefix("country:")]


def _which_side(talk: Talk) -> Asked | None:
    """ "Which country lies to the south of it?"; the answer becomes the topic."""
    if (border := _side(talk)) is None:
        return None
    side, fact, neighbour = border
    talk.turn_to(neighbour)
    return Asked(ask(talk.rng, side, "it"), (fact,))


def _toward(talk: Talk) -> Asked | None:
    """ "What is the area of the country to its south?" """
    if (border := _side(talk)) is None:
        return None
    side, fact, neighbour = border
    if (relation := talk.pick(neighbour)) is None:
        return None
    talk.relation = relation
    question = ask(talk.rng, relation, talk.rng.choice(TOWARD).format(side=side))
    return Asked(question, (fact, neighbour.facts[relation]), talk.topic.entity)


def _toward_same(talk: Talk) -> Asked | None:
    """ "And of the country to its south?" """
    if (border := _side(talk)) is None:
        return None
    side, fact, neighbour = border
    if talk.relation not in neighbour.facts:
        return None
    subject = talk.rng.choice(TOWARD).format(side=side)
    question = talk.rng.choice(SAME).format(s=subject)
    return Asked(question, (fact, neighbour.facts[talk.relation]), talk.topic.entity)


def _capital_people(talk: Talk) -> Asked | None:
    """ "How many people live in its capital?" """
    fact = talk.topic.facts.get("capital")
    if talk.path or fact is None or fact.key in talk.answered:
        return None
    if (city := talk.topic.cities.get(fact.values[0].id)) is None:
        return None
    question = talk.rng.choice(CAPITAL_PEOPLE)
    return Asked(question, (fact, city["city population"]), talk.topic.entity)


def _bridge(talk: Talk) -> Asked | None:
    """ "What is the currency of the country whose capital is Lima?"; it becomes the topic."""
    country = _other_country(talk) if talk.first else talk.topic
    links = [country.facts[name] for name in BRIDGES if name in country.facts]
    towns = [id_ for id_ in country.cities if not _is_capital(country, id_)]
    links += [country.cities[talk.rng.choice(towns)]["city country"]] if towns else []
    link = talk.rng.choice(links)
    anchor = link.subject if link.relation == "city country" else link.values[0]
    talk.turn_to(country, (link,), anchor)
    if (relation := talk.pick(country, {link.relation})) is None:
        return None
    talk.relation = relation
    question = ask(talk.rng, relation, BRIDGES[link.relation].format(v=anchor.label))
    return Asked(question, (link, country.facts[relation]), anchor)


Move = Callable[[Talk], Asked | None]
SCRIPTS: tuple[tuple[Move, ...], ...] = (
    (_open, _its, _toward_same, _shift, _back),
    (_open_capital, _city, _toward, _shift_same, _first),
    (_bridge, _its, _shift, _its, _capital_people),
    (_open, _capital_people, _shift, _toward_same, _back),
    (_open_city, _its_country, _that, _bridge, _its),
    (_open_city, _around_city, _shift, _shift_same, _its),
    (_open, _shift_same, _its, _toward, _first),
    (_open, _which_side, _that, _shift, _capital_people),
)


def make_dialogue(
    rng: random.Random, countries: dict[str, Country], topic: Country, script: Sequence[Move]
) -> list[Asked] | None:
    """Return a script's questions, beginning with a country; None if it lacks a needed fact."""
    talk, asked = Talk(rng, countries, topic), []
    if script[0] is not _bridge:
        talk.turn_to(topic)
    for move in script:
        if (new := move(talk)) is None or new.facts[-1].key in talk.answered:
            return None
        talk.answered.add(new.facts[-1].key)
        asked.append(new)
    return asked
