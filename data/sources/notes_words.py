"""Words that made documents are filled with; each part of the data has its own."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from importlib.resources import files

TOWN_ENDS = (
    "bridge bury by combe den field ford ham haven ley mere minster mouth port stead ton wick worth"
).split()
MONTHS = (
    "January February March April May June July August September October November December".split()
)
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()

SHARES = {"train": (0.0, 0.6), "tune": (0.6, 0.76), "test": (0.76, 1.0)}
LISTS: dict[str, list[str]] = json.loads(
    (files("turngraph.data.sources") / "notes_words.json").read_text(encoding="utf-8")
)


def words_of(part: str) -> dict[str, Sequence[str]]:
    """Return the words of a part, train, tune or test, by their kinds; parts share none.

    Names of days and months, and the ends of towns' names, are common to all.
    """
    begin, end = SHARES[part]
    return {
        name: _shuffled(name, words)[round(begin * len(words)) : round(end * len(words))]
        for name, words in LISTS.items()
    }


def _shuffled(name: str, words: Sequence[str]) -> list[str]:
    return random.Random(f"notes {name}").sample(words, len(words))


def make_values(rng: random.Random, words: dict[str, Sequence[str]]) -> dict[str, str]:
    """Return one value of every kind, such as a person, a town or a date."""
    town = rng.choice(words["town_begin"]) + rng.choice(TOWN_ENDS)
    house = f"{rng.choice(words['house'])} {rng.choice(('House', 'Inn', 'Hotel', 'Lodge'))}"
    first, surname = rng.choice(words["first"]), rng.choice(words["surname"])
    day, month, year = rng.randint(1, 28), rng.choice(MONTHS), rng.randint(2015, 2027)
    date = rng.choice((f"{day} {month} {year}", f"{month} {day}, {year}"))
    code = f"{rng.choice(words['code'])} {rng.randint(2, 99)}"
    unit = rng.choice(("euros", "pounds", "dollars"))
    amount = rng.choice((rng.randint(3, 99), rng.randint(100, 950)))
    return {
        "first": first,
        "person": f"{first} {surname}",
        "town": town,
        "house": house,
        "hall": f"{town} {rng.choice(('Town Hall', 'Library', 'School', 'Arts Centre', 'Barn'))}",
        "org": f"{town} {rng.choice(words['org'])}",
        "firm": f"{surname} {rng.choice(words['firm'])}",
        "event": f"{town} {rng.choice(words['event'])}",
        "product": f"{code} {rng.choice(words['device'])}",
        "good": rng.choice(words["good"]),
        "task": rng.choice(words["task"]),
        "job": rng.choice(words["job"]),
        "hobby": rng.choice(words["hobby"]),
        "pet": rng.choice(words["pet"]),
        "present": rng.choice(words["present"]),
        "colour": rng.choice(words["colour"]),
        "date": date,
        "weekday": rng.choice(DAYS),
        "time": f"{rng.randint(6, 22):02d}:{rng.randrange(0, 60, 5):02d}",
        "year": str(rng.randint(1871, 2024)),
        "meeting": f"meeting of the {town} {rng.choice(words['org'])}",
        "joined": str(rng.randint(1988, 2026)),
        "recent": str(rng.randint(2019, 2027)),
        "money": f"{amount} {unit}",
        "count": str(rng.randint(11, 480)),
        "number": f"{rng.randint(2, 95) * 100:,}",
        "grams": f"{rng.randint(12, 190) * 10} grams",
        "hours": f"{rng.randint(3, 48)} hours",
        "months": f"{rng.randint(2, 10) * 6} months",
        "km": f"{rng.randint(11, 240)} km",
        "size": f"{rng.randint(10, 180)} cm",
        "platform": f"{rng.randint(1, 14)}{rng.choice(('', 'A', 'B'))}",
        "room": f"{rng.choice('ABCDEF')}{rng.randint(101, 499)}",
        "phone": f"{rng.randint(2000, 9899)}",
    }
