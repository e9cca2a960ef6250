"""Synthetic life of ten years: 2,000 dated facts, as triplets and as sentences.

Everything is drawn with one random seed. ``Ida`` tells of herself and of those she knows. Two of
them are called Anna.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from turngraph.data.normalise import MONTHS

SPEAKER, SAID = "Ida", "2024-01-01"
FIRST, LAST = date(2014, 1, 1), date(2023, 12, 31)
HOMES = "Oslo Bergen Trondheim Stavanger Malmo Aarhus Turku Tampere".split()
VISITED = (
    "Rome Paris Berlin Lisbon Madrid Vienna Prague Dublin Athens Warsaw Budapest Zagreb".split()
)
FLOWN = "Tokyo Lima Boston Sydney Cairo Delhi Toronto Nairobi".split()
ONCE = "Venice Naples Seville Porto Krakow Riga Tallinn Vilnius Malaga Geneva Lyon Bilbao".split()
EMPLOYERS = "Acme Nordea Telenor Equinor Kongsberg Statkraft".split()
FRIENDS = "Ole Bob Carl Eva Mia Tom Nils Liv Petra Jonas Karin Emil Sara Hugo Greta".split()
THINGS = "lamp chair table tent kettle camera clock mirror helmet backpack".split()
SELLERS = "Ikea Elkjop Biltema Clas".split()
_TITLES = "Silent Broken Golden Hidden Crimson Frozen Distant Hollow Velvet Burning".split()
_NOUNS = "River Garden Mirror Winter Harbour Empire Forest Signal Island Letter".split()
BOOKS = [f"{one} {noun}" for one in _TITLES for noun in _NOUNS[:5]]
FILMS = [f"{one} {noun}" for one in _TITLES for noun in _NOUNS[5:]]


@dataclass(frozen=True, slots=True)
class Told:
    """Fact of the life.

    Args:
        subject, relation, object: its ends and their relation.
        since: ISO date on which it began or happened; None: not told.
        text: the sentence that tells it, and the facts of the same event.
        until: when a state ended; None: it holds.
        amount: number of a price or a weight.
    """

    subject: str
    relation: str
    object: str
    since: str | None
    text: str
    until: str | None = None
    amount: int = 0


@dataclass
class Life:
    """Facts by kind; a kind's facts are in the order of their dates.

    Args:
        seed: random seed.
        facts: by kind: home, job, visit, flight, purchase, price, seller, book, film, meeting,
            weight, birth, wedding, other.
    """

    seed: int
    facts: dict[str, list[Told]] = field(default_factory=dict)

    @property
    def num_facts(self) -> int:
        """Number of facts."""
        return sum(map(len, self.facts.values()))


def spelled(iso: str) -> str:
    """Return a date in words, with its preposition: "on 3 May 2019", "in May 2019"."""
    year, month, *day = iso.split("-")
    named = f"{MONTHS[int(month) - 1].capitalize()} {year}"
    return f"on {int(day[0])} {named}" if day else f"in {named}"


def make_life(seed: int, num_facts: int = 2000) -> Life:
    """Return a life, drawn with a random seed.

    Args:
        seed: random seed.
        num_facts: of which the last ones are what friends like; with fewer than 2,000 there are
            fewer events.
    """
    rng, share = random.Random(seed), min(num_facts / 2000, 1)
    visits, flights, meetings = (int(share * count) for count in (330, 90, 300))
    life = Life(seed)
    _states(life, rng)
    dates = [FIRST + timedelta(days=day) for day in range((LAST - FIRST).days)]
    _events(life, "visit", "visited", _places(rng, visits), rng.sample(dates, visits), rng)
    _events(
        life, "flight", "flew to", rng.choices(FLOWN, k=flights), rng.sample(dates, flights), rng
    )
    _events(life, "book", "read", rng.sample(BOOKS, 50), rng.sample(dates, 50), rng)
    _events(life, "film", "watched", rng.sample(FILMS, 50), rng.sample(dates, 50), rng)
    _events(
        life, "meeting", "met", rng.choices(FRIENDS, k=meetings), rng.sample(dates, meetings), rng
    )
    _purchases(life, rng, rng.sample(dates, int(250 * share)))
    _weights(life, rng)
    _others(life, rng, num_facts)
    return life


def _places(rng: random.Random, count: int) -> list[str]:
    places = ONCE + rng.choices(VISITED, k=count - len(ONCE))
    rng.shuffle(places)
    return places


def _events(
    life: Life,
    kind: str,
    relation: str,
    objects: Sequence[str],
    dates: Sequence[date],
    rng: random.Random,
) -> None:
    seen: set[tuple[str, str]] = set()
    for name, day in zip(objects, sorted(dates), strict=True):
        is_partial = rng.random() < 0.05 and name not in ONCE
        month = day.isoformat()[:7]
        iso = month if is_partial and (name, month) not in seen else day.isoformat()
        seen.add((name, iso))
        text = f"I {relation} {name} {spelled(iso)}."
        life.facts.setdefault(kind, []).append(Told(SPEAKER, relation, name, iso, text))


def _states(life: Life, rng: random.Random) -> None:
    """Add homes and jobs, each of which ends the one before, the wedding and births."""
    for kind, relation, names, sentence in (
        ("home", "moved to", HOMES, "I moved to {} {}."),
        ("job", "started working at", EMPLOYERS, "I started working at {} {}."),
    ):
        span = (LAST - FIRST).days // len(names)
        days = [FIRST + timedelta(span * n + rng.randrange(20, span)) for n in range(len(names))]
        ends = [*(day.isoformat() for day in days[1:]), None]
        life.facts[kind] = [
            Told(SPEAKER, relation, name, day.isoformat(),
                 sentence.format(name, spelled(day.isoformat())), until)
            for name, day, until in zip(names, days, ends, strict=True)
        ]  # fmt: skip
    wedding = date(2017, rng.randrange(1, 13), rng.randrange(1, 28)).isoformat()
    text = f"I married Jonas {spelled(wedding)}."
    life.facts["wedding"] = [Told(SPEAKER, "married", "Jonas", wedding, text)]
    life.facts["birth"] = []
    for name in FRIENDS:
        born = date(rng.randrange(1950, 2010), rng.randrange(1, 13), rng.randrange(1, 28))
        said = spelled(born.isoformat()).removeprefix("on ")
        text = f"{name} was born on {said}."
        life.facts["birth"].append(Told(name, "was born on", said, None, text))


def _purchases(life: Life, rng: random.Random, dates: Sequence[date]) -> None:
    for day in sorted(dates):
        iso, thing = day.isoformat(), rng.choice(THINGS)
        price, seller = rng.randrange(5, 400), rng.choice(SELLERS)
        text = f"I bought a {thing} for {price} euros from {seller} {spelled(iso)}."
        for kind, relation, name in (
            ("purchase", "bought", thing),
            ("price", "bought for", f"{price} euros"),
            ("seller", "bought from", seller),
        ):
            told = Told(SPEAKER, relation, name, iso, text, amount=price)
            life.facts.setdefault(kind, []).append(told)


def _weights(life: Life, rng: random.Random) -> None:
    life.facts["weight"] = []
    months = [(year, month) for year in range(2014, 2024) for month in (2, 5, 8, 11)]
    for year, month in months:
        iso, kilos = date(year, month, rng.randrange(1, 28)).isoformat(), rng.randrange(58, 80)
        text = f"I weighed {kilos} kg {spelled(iso)}."
        told = Told(SPEAKER, "weighed", f"{kilos} kg", iso, text, iso, amount=kilos)
        life.facts["weight"].append(told)


def _others(life: Life, rng: random.Random, num_facts: int) -> None:
    """Add where friends live, two Annas, and as much of what they like as is lacking."""
    places = rng.sample([*VISITED, *FLOWN], len(FRIENDS))
    life.facts["friend_home"] = [
        Told(name, "lives in", place, None, f"{name} lives in {place}.")
        for name, place in zip(FRIENDS, places, strict=True)
    ]
    life.facts["anna"] = [
        Told("Anna", "lives in", "Hamburg", None, "Anna lives in Hamburg."),
        Told("Anna", "works at", "Siemens", None, "Anna works at Siemens."),
    ]
    colours = "red blue green old small tall dark fresh".split()
    nouns = "apple bird boat flower stone song hat garden".split()
    likes = [(name, f"{one} {noun}s") for name in FRIENDS for one in colours for noun in nouns]
    lacking = max(num_facts - life.num_facts, 0)
    life.facts["like"] = [
        Told(name, "likes", thing, None, f"{name} likes {thing}.")
        for name, thing in rng.sample(likes, lacking)
    ]


def given_lines(life: Life) -> list[dict[str, Any]]:
    """Return the life as lines for the extractor ``given``; a state replaces the one before."""
    lines: dict[str, dict[str, Any]] = {}
    for kind, facts in life.facts.items():
        before: Told | None = None
        for one in sorted(facts, key=lambda fact: fact.since or ""):
            triplet: dict[str, Any] = {
                "subject": one.subject, "relation": one.relation, "object": one.object,
                **({} if one.since is None else {"valid_from": one.since}),
            }  # fmt: skip
            if kind == "weight":
                triplet["valid_to"] = _day_after(one.since or "")
            if kind in ("home", "job") and before is not None:
                old = {"subject": before.subject, "relation": before.relation}
                triplet["replaces"] = [{**old, "object": before.object}]
            before = one
            line = {"text": one.text, "time": SAID, "speaker": SPEAKER, "triplets": []}
            lines.setdefault(one.text, line)["triplets"].append(triplet)
    return list(lines.values())


def _day_after(iso: str) -> str:
    return (date.fromisoformat(iso) + timedelta(days=1)).isoformat()
