"""Makes questions of several hops over invented people, towns, countries, companies and books.

No text of any benchmark is in them. Each kind of question has four wordings, which were written
down before the rules of planning were run on them, and were not changed afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from turngraph.benchmarks.memory_graph.retrieval_data import Collection, Question
from turngraph.data.memory_graph.memory_types import Episode

ONSETS = "b br d dr f g gl h k kr l m n p r s st t tr v w z".split()
VOWELS = "a e i o u ae ei ou".split()
ENDS = {
    "person": "l n r s th x".split(),
    "surname": "berg dal vik mond rath sen quist hurst".split(),
    "town": "stad ford mouth heim borough".split(),
    "country": "ia land avia".split(),
    "company": "tek works corp labs".split(),
}
BOOK_WORDS = (
    "Glass Winter Amber Hollow Silent Copper Broken Golden Distant Paper".split(),
    "Lantern Orchard Compass Harbour Meridian Archive Sparrow Causeway Almanac Threshold".split(),
)
NUM = {"person": 60, "town": 30, "country": 8, "company": 24, "book": 60}
NUM_EACH = 2
"""Questions of each wording."""

BRIDGES = {
    "author, birthplace": (
        "Where was the author of {book} born?",
        "In which town was the person who wrote {book} born?",
        "What is the birthplace of the writer of {book}?",
        "Name the town in which {book}'s author came into the world.",
    ),
    "employer, seat": (
        "In which town is the company that employs {person} based?",
        "Where is {person}'s employer based?",
        "What town is home to the firm where {person} works?",
        "The company {person} works for has its seat in which town?",
    ),
    "spouse, employer": (
        "Which company does the spouse of {person} work for?",
        "Where does {person}'s spouse work?",
        "Who employs the person that {person} is married to?",
        "{person} is married to an employee of which company?",
    ),
    "author, birthplace, country": (
        "In which country is the town where the author of {book} was born?",
        "What country contains the birthplace of {book}'s author?",
        "The writer of {book} was born in a town of which country?",
        "Which country does the birthplace of the person who wrote {book} belong to?",
    ),
    "birthplace, country, leader": (
        "Who leads the country where the birthplace of {person} is located?",
        "Who is the leader of the country that contains {person}'s birthplace?",
        "{person} was born in a town of a country that is led by whom?",
        "Which politician governs the country in which {person}'s birthplace lies?",
    ),
}
COMPARISONS = {
    "same birthplace": (
        "Were {one} and {other} born in the same town?",
        "Do {one} and {other} share a birthplace?",
        "Is the birthplace of {one} also that of {other}?",
        "{one} and {other}: were they born in one place?",
    ),
    "older company": (
        "Which company was founded earlier, {one} or {other}?",
        "Is {one} older than {other}?",
        "Of {one} and {other}, which firm was founded first?",
        "Did {one} or {other} come into being first?",
    ),
}


class Planted(NamedTuple):
    """A collection of passages with its questions, and the kind of each question."""

    collection: Collection
    kinds: tuple[str, ...]


@dataclass
class _World:
    """Who and what there is; every list holds positions in ``names``, by kind."""

    names: dict[str, list[str]]
    born: list[int]  # town of each person
    spouse: list[int]
    works: list[int]  # company of each person
    lies: list[int]  # country of each town
    led: list[int]  # person who leads each country
    seat: list[int]  # town of each company
    founded: list[int]  # year
    wrote: list[int]  # person who wrote each book


def planted_hops(seed: int) -> Planted:
    """Return passages, one for each invented thing, and questions with their gold passages.

    Args:
        seed: random seed of names, facts, wordings of passages, and of what is asked about.
    """
    draw = np.random.default_rng(seed)
    world = _world(draw)
    passages = _passages(world, draw)
    origin = {key: str(number) for number, key in enumerate(passages)}
    questions: list[Question] = []
    kinds: list[str] = []
    for kind, wordings in (BRIDGES | COMPARISONS).items():
        for wording in wordings:
            for _ in range(NUM_EACH):
                fields, gold = _asked(kind, world, draw)
                found = frozenset(origin[one] for one in gold)
                questions.append(Question(wording.format(**fields), found))
                kinds.append(kind)
    episodes = [Episode(text, origin=origin[key]) for key, text in passages.items()]
    return Planted(Collection("planted", episodes, questions), tuple(kinds))


def _world(draw: np.random.Generator) -> _World:
    def syllable() -> str:
        return str(draw.choice(ONSETS)) + str(draw.choice(VOWELS))

    def name(kind: str) -> str:
        return (syllable() + syllable() + str(draw.choice(ENDS[kind]))).capitalize()

    def distinct(make: Callable[[], str], num: int) -> list[str]:
        found: dict[str, None] = {}
        while len(found) < num:
            found[make()] = None
        return list(found)

    names = {kind: distinct(partial(name, kind), NUM[kind]) for kind in ("town", "country")}
    names["company"] = distinct(lambda: name("company"), NUM["company"])
    names["person"] = distinct(lambda: f"{name('person')} {name('surname')}", NUM["person"])
    firsts, seconds = BOOK_WORDS
    titles = [f"The {one} {other}" for one in firsts for other in seconds]
    names["book"] = [titles[i] for i in draw.permutation(len(titles))[: NUM["book"]].tolist()]

    def any_of(kind: str, num: int) -> list[int]:
        return [int(i) for i in draw.integers(NUM[kind], size=num)]

    couples = draw.permutation(NUM["person"]).reshape(-1, 2)
    spouse = [0] * NUM["person"]
    for one, other in couples.tolist():
        spouse[one], spouse[other] = other, one
    return _World(
        names=names,
        born=any_of("town", NUM["person"]),
        spouse=spouse,
        works=any_of("company", NUM["person"]),
        lies=any_of("country", NUM["town"]),
        led=[int(i) for i in draw.permutation(NUM["person"])[: NUM["country"]]],
        seat=any_of("town", NUM["company"]),
        founded=[int(i) for i in draw.integers(1850, 2015, size=NUM["company"])],
        wrote=any_of("person", NUM["book"]),
    )


def _passages(world: _World, draw: np.random.Generator) -> dict[tuple[str, int], str]:
    """Return the text of each thing's passage, with its name as title; kinds are mixed."""
    town, country, person, company, book = (
        world.names[kind] for kind in ("town", "country", "person", "company", "book")
    )
    found: dict[tuple[str, int], str] = {}

    def add(kind: str, number: int, *sentences: tuple[str, ...]) -> None:
        said = [str(draw.choice(list(wordings))) for wordings in sentences]
        found[kind, number] = f"{world.names[kind][number]}\n{' '.join(said)}"

    for i, name in enumerate(person):
        birth, firm, married = town[world.born[i]], company[world.works[i]], person[world.spouse[i]]
        add(
            "person", i,
            (f"{name} was born in {birth}.", f"{name} is a native of {birth}."),
            (f"{name} works for {firm}.", f"{name} is employed by {firm}."),
            (f"{name} is married to {married}.", f"{name} is the spouse of {married}."),
        )  # fmt: skip
    for i, name in enumerate(town):
        where = country[world.lies[i]]
        add("town", i, (f"{name} is a town in {where}.", f"{name} is located in {where}."),
            ("It has a market and two bridges.", "A river runs through it."))  # fmt: skip
    for i, name in enumerate(country):
        who = person[world.led[i]]
        add("country", i, (f"{name} is led by {who}.", f"{who} is the president of {name}."),
            ("Its coast is long.", "Most of it is forest."))  # fmt: skip
    for i, name in enumerate(company):
        where, year = town[world.seat[i]], world.founded[i]
        add(
            "company", i,
            (f"{name} is based in {where}.", f"{name} has its head office in {where}."),
            (f"{name} was founded in {year}.", f"The company was established in {year}."),
        )  # fmt: skip
    for i, name in enumerate(book):
        who = person[world.wrote[i]]
        add("book", i, (f"{name} is a novel by {who}.", f"{name} was written by {who}."),
            ("Critics liked it.", "It sold well."))  # fmt: skip
    keys = list(found)
    return {keys[i]: found[keys[i]] for i in draw.permutation(len(keys)).tolist()}


def _asked(
    kind: str, world: _World, draw: np.random.Generator
) -> tuple[dict[str, str], list[tuple[str, int]]]:
    """Return the names that a question has, and the passages that answer it."""

    def names(what: str) -> tuple[int, int]:
        one, other = draw.permutation(NUM[what])[:2].tolist()
        return one, other

    if kind in COMPARISONS:
        what = "person" if kind == "same birthplace" else "company"
        one, other = names(what)
        fields = {"one": world.names[what][one], "other": world.names[what][other]}
        return fields, [(what, one), (what, other)]
    if kind.startswith("author"):
        book = names("book")[0]
        writer = world.wrote[book]
        gold = [("book", book), ("person", writer)]
        if kind.endswith("country"):
            gold.append(("town", world.born[writer]))
        return {"book": world.names["book"][book]}, gold
    person = names("person")[0]
    gold = [("person", person)]
    if kind == "employer, seat":
        gold.append(("company", world.works[person]))
    elif kind == "spouse, employer":
        gold.append(("person", world.spouse[person]))
    else:
        gold += [("town", world.born[person]), ("country", world.lies[world.born[person]])]
    return {"person": world.names["person"][person]}, gold
