"""Questions about a synthetic life with their answers, computed from the life and not the graph.

``life_wordings.json`` has the wordings of two authors who had not seen the rules, by operation and
kind. Each author's are in halves by their hash: the rules were extended with the ``dev`` halves,
and nobody has read the ``test`` halves or what single questions of them got.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal

from turngraph.benchmarks.memory_graph import synthetic_life as sl
from turngraph.benchmarks.memory_graph.synthetic_life import Life, Told
from turngraph.data.normalise import MONTHS

WORDINGS = Path(__file__).with_name("life_wordings.json")
PARTS = ("second_dev", "second_test", "third_dev", "third_test")
"""Author and half."""
Kind = Literal["names", "number", "span", "dates", "yes", "order"]
Evidence = frozenset[tuple[str, str | None]]


@dataclass(frozen=True, slots=True)
class Question:
    """Question with its answer.

    Args:
        operation: that answers it.
        text: of the question.
        as_of: ISO time of the question.
        kind: of the answer.
        gold: names: a set; number: a decimal with its unit; span: two ISO dates; dates: a set;
            yes: yes or no; order: names in order.
        evidence: object and date of each fact that is counted.
    """

    operation: str
    text: str
    as_of: str
    kind: Kind
    gold: Any
    evidence: Evidence


Case = tuple[dict[str, str], Kind, Any, Iterable[Told]]
"""Values of a wording, kind of the answer, answer, facts."""


def questions(life: Life, part: str, seed: int) -> list[Question]:
    """Return two questions of each wording of a half.

    Args:
        life: asked about.
        part: of ``PARTS``.
        seed: random seed.
    """
    rng = random.Random(seed)
    return [
        _question(life, operation, kind, wording, rng)
        for operation, kinds in _wordings(part)["questions"].items()
        for kind, texts in kinds.items()
        for wording in _half(texts, part)
        for _ in range(2)
    ]


def unanswerable(part: str) -> list[str]:
    """Return the questions of a half that the life does not answer."""
    return _half(_wordings(part)["unanswerable"], part)


def _wordings(part: str) -> Any:
    return json.loads(WORDINGS.read_text(encoding="utf-8"))[part.partition("_")[0]]


def _half(texts: Iterable[str], part: str) -> list[str]:
    """Return the texts of one half: a wording's half is the last bit of its SHA-256."""
    bit = part.endswith("_test")
    return [one for one in texts if hashlib.sha256(one.encode()).digest()[-1] % 2 == bit]


def whole_units(first: str, second: str, unit: str) -> int:
    """Return the whole days, weeks, months or years between two ISO dates."""
    one, other = date.fromisoformat(first), date.fromisoformat(second)
    if unit in ("day", "week"):
        return (other - one).days // (7 if unit == "week" else 1)
    months = 12 * (other.year - one.year) + other.month - one.month - (other.day < one.day)
    return months // (12 if unit == "year" else 1)


def _question(life: Life, operation: str, kind: str, wording: str, rng: random.Random) -> Question:
    make = _CASES[operation, kind]
    for _ in range(1000):
        values, answer_kind, gold, facts = make(life, rng)
        if gold:
            break
    as_of = values.pop("as_of", "2024-01-01")
    evidence = frozenset((one.object, one.since) for one in facts)
    text = wording.format(**values)
    return Question(operation, text[0].upper() + text[1:], as_of, answer_kind, gold, evidence)


def _pick(*names: str) -> Callable[[random.Random], dict[str, str]]:
    lists: dict[str, Sequence[str]] = {
        "visited": sl.VISITED, "city": sl.FLOWN, "friend": sl.FRIENDS, "thing": sl.THINGS,
        "seller": sl.SELLERS, "home": sl.HOMES, "employer": sl.EMPLOYERS, "book": sl.BOOKS,
        "film": sl.FILMS, "year": [str(year) for year in range(2014, 2024)],
    }  # fmt: skip

    def pick(rng: random.Random) -> dict[str, str]:
        values = {name: rng.choice(lists[name]) for name in names if name in lists}
        if "month" in names:
            values["iso"] = f"{rng.randrange(2014, 2024)}-{rng.randrange(1, 13):02d}"
            year, month = values["iso"].split("-")
            values["month"] = f"{MONTHS[int(month) - 1].capitalize()} {year}"
        if "last_year" in names:
            values["as_of"] = f"{int(values['year']) + 1}-06-15"
        if "last_month" in names:
            after = divmod(int(values["iso"][:4]) * 12 + int(values["iso"][5:]), 12)
            values["as_of"] = f"{after[0]}-{after[1] + 1:02d}-15"
        if "ago" in names:
            years = rng.randrange(2, 5)
            values["ago"] = ("two", "three", "four")[years - 2]
            values["as_of"] = f"{int(values['iso'][:4]) + years}-{values['iso'][5:]}-15"
        if "once" in names:
            once = rng.sample(sl.ONCE, 3)
            values |= dict(zip(("once", "once2", "once3"), once, strict=True))
        if "home2" in names:
            values |= dict(zip(("home", "home2"), rng.sample(sl.HOMES, 2), strict=True))
        return values

    return pick


def _named(facts: Iterable[Told], name: str | None) -> list[Told]:
    return [one for one in facts if name is None or one.object == name]


def _dated(facts: Iterable[Told], prefix: str) -> list[Told]:
    return [one for one in facts if (one.since or "").startswith(prefix)]


def _held(facts: Iterable[Told], month: str) -> list[Told]:
    return [
        one for one in facts
        if (one.since or "")[:7] <= month and (one.until is None or month <= one.until[:7])
    ]  # fmt: skip


def _names(facts: Iterable[Told]) -> frozenset[str]:
    return frozenset(one.object for one in facts)


def _last(facts: Sequence[Told], first: bool = False) -> list[Told]:
    """Return the facts that may be the last or the first: a partial date may be any day of it."""
    spans = [(f"{one.since}-01"[:10], f"{one.since}-31"[:10], one) for one in facts]
    if first:
        bar = min((high for _, high, _ in spans), default="")
        return [one for low, _, one in spans if low <= bar]
    bar = max((low for low, _, _ in spans), default="")
    return [one for _, high, one in spans if high >= bar]


Maker = Callable[[Life, random.Random], Case]


def _state(kind: str, *names: str) -> Maker:
    """Return a maker of what held in a month in which one thing held."""

    def make(life: Life, rng: random.Random) -> Case:
        values = _pick(*names)(rng)
        facts = _held(life.facts[kind], values["iso"])
        return values, "names", _names(facts) if len(facts) == 1 else None, facts

    return make


def _friend_home(life: Life, rng: random.Random) -> Case:
    values = _pick("friend")(rng)
    facts = [one for one in life.facts["friend_home"] if one.subject == values["friend"]]
    return values, "names", _names(facts), facts


def _some(
    kinds: str,
    names: Sequence[str],
    how: Callable[[Sequence[Told], dict[str, str]], tuple[Kind, Any, Sequence[Told]]],
    object: str | None = None,
) -> Maker:
    """Return a maker over the events of some kinds, of an object, in a time.

    Args:
        kinds: of facts.
        names: of the values of a wording; "year" and "month" limit the facts.
        how: computes kind of the answer, answer and evidence.
        object: name of the value that the facts' object is.
    """

    def make(life: Life, rng: random.Random) -> Case:
        values = _pick(*names)(rng)
        if "as_of" in names:
            values["as_of"] = f"{rng.randrange(2016, 2024)}-{rng.randrange(1, 13):02d}-28"
        facts = [one for kind in kinds.split() for one in life.facts[kind]]
        facts = _named(facts, values[object] if object else None)
        prefix = values.get("iso") or ("" if "since" in names else values.get("year", ""))
        facts = _dated(facts, prefix)
        if "as_of" in names:
            facts = [one for one in facts if f"{one.since}-01"[:10] <= values["as_of"]]
        return values, *how(facts, values)

    return make


def _all_names(facts: Sequence[Told], _: object) -> tuple[Kind, Any, Sequence[Told]]:
    return "names", _names(facts), facts


def _yes(facts: Sequence[Told], _: object) -> tuple[Kind, Any, Sequence[Told]]:
    return "yes", "yes" if facts else None, facts


def _number(facts: Sequence[Told], _: object) -> tuple[Kind, Any, Sequence[Told]]:
    return "number", (len(facts), "") if facts else None, facts


def _end(first: bool, dates: bool) -> Callable[..., tuple[Kind, Any, Sequence[Told]]]:
    def how(facts: Sequence[Told], _: object) -> tuple[Kind, Any, Sequence[Told]]:
        best = _last(facts, first) if facts else []
        if dates:
            return "dates", frozenset(one.since for one in best), best
        return "names", _names(best), best

    return how


def _most(facts: Sequence[Told], _: object) -> tuple[Kind, Any, Sequence[Told]]:
    counts = Counter(one.object for one in facts)
    top = max(counts.values(), default=0)
    names = frozenset(name for name, number in counts.items() if number == top)
    return "names", names, [one for one in facts if one.object in names]


def _rate(months: Callable[[dict[str, str]], float]) -> Callable[..., Any]:
    def how(facts: Sequence[Told], values: dict[str, str]) -> tuple[Kind, Any, Sequence[Told]]:
        return "number", (len(facts) / months(values), "") if facts else None, facts

    return how


def _rate_since(life: Life, rng: random.Random) -> Case:
    """Return visits of a city by year, from a year's begin to the end of the life."""
    values = _pick("visited")(rng) | {"year": str(rng.randrange(2014, 2022))}
    facts = _named(life.facts["visit"], values["visited"])
    facts = [one for one in facts if (one.since or "") >= values["year"]]
    return values, "number", (len(facts) / (2024 - int(values["year"])), ""), facts


def _amounts(
    how: Callable[[list[int]], float], *names: str, weight: bool = False, things: bool = False
) -> Maker:
    """Return a maker over prices or weights: their sum, mean, least or most."""

    def make(life: Life, rng: random.Random) -> Case:
        values = _pick(*names)(rng)
        groups = [[one] for one in life.facts["weight"]] if weight else _purchases(life)
        chosen = [
            group for group in groups
            if all(values[name] in _names(group) for name in ("thing", "seller") if name in names)
            and (group[0].since or "").startswith(values.get("iso") or values.get("year", ""))
        ]  # fmt: skip
        if not chosen:
            return values, "number", None, []
        found = how([group[0].amount for group in chosen])
        if how in (min, max):
            chosen = [group for group in chosen if group[0].amount == found]
        facts = [one for group in chosen for one in group if one.relation != "bought from"]
        if things:
            return values, "names", _names(group[0] for group in chosen), facts
        return values, "number", (found, "kg" if weight else "euros"), facts

    return make


def _purchases(life: Life) -> list[list[Told]]:
    kinds = (life.facts[kind] for kind in ("purchase", "price", "seller"))
    return [list(group) for group in zip(*kinds, strict=True)]


def _mean(numbers: list[int]) -> float:
    return sum(numbers) / len(numbers)


def _one(life: Life, kind: str, name: str | None = None) -> Told:
    [found] = _named(life.facts[kind], name)
    return found


def _spell(kind: str, name: str) -> Maker:
    """Return a maker of how long a state lasted."""

    def make(life: Life, rng: random.Random) -> Case:
        values = _pick(name)(rng)
        fact = _one(life, kind, values[name])
        return values, "span", (fact.since, fact.until or "2024-01-01"), [fact]

    return make


def _begin(kind: str, name: str) -> Maker:
    def make(life: Life, rng: random.Random) -> Case:
        values = _pick(name)(rng)
        fact = _one(life, kind, values[name])
        return values, "dates", frozenset([fact.since]), [fact]

    return make


def _several(kinds: Sequence[str], kind: Kind) -> Maker:
    """Return a maker over several dated facts: their order, or the time between two."""

    def make(life: Life, rng: random.Random) -> Case:
        values = _pick("once", "home2")(rng)
        names = {
            "visit": iter([values["once"], values["once2"], values["once3"]]),
            "home": iter([values["home"], values["home2"]]),
        }
        facts = [_one(life, one, next(names[one]) if one in names else None) for one in kinds]
        in_order = sorted(facts, key=lambda one: one.since or "")
        if kind == "order":
            return values, kind, [one.object for one in in_order], facts
        return values, kind, (in_order[0].since, in_order[1].since), facts

    return make


def _before(kinds: Sequence[str], after: bool = False) -> Maker:
    def make(life: Life, rng: random.Random) -> Case:
        values, _, names, facts = _several(kinds, "order")(life, rng)
        first, _ = facts
        return values, "yes", "yes" if (first.object == names[0]) != after else "no", facts

    return make


def _age(earlier: bool, told: bool = False) -> Maker:
    """Return a maker of ages: now, at an earlier time of asking, or on a day that is told."""

    def make(life: Life, rng: random.Random) -> Case:
        values = _pick("friend")(rng)
        [fact] = [one for one in life.facts["birth"] if one.subject == values["friend"]]
        then = f"{rng.randrange(2011, 2023)}-07-15" if earlier else "2024-01-01"
        values |= {"day": f"15 July {then[:4]}"} if told else {"as_of": then}
        day, month, year = fact.object.split()
        born = date(int(year), MONTHS.index(month.lower()) + 1, int(day)).isoformat()
        return values, "span", (born, then), [fact]

    return make


_YEAR, _TRIPS = ["year"], "visit flight"
_CASES: dict[tuple[str, str], Maker] = {
    ("value", "home_at"): _state("home", "month"),
    ("value", "job_at"): _state("job", "month"),
    ("value", "friend_home"): _friend_home,
    ("value", "home_ago"): _state("home", "month", "ago"),
    ("value", "job_ago"): _state("job", "month", "ago"),
    ("latest", "last_city"): _some(_TRIPS, ["as_of"], _end(False, False)),
    ("latest", "last_met_date"): _some(
        "meeting", ["friend", "as_of"], _end(False, True), "friend"
    ),
    ("latest", "last_flight_date"): _some("flight", ["city", "as_of"], _end(False, True), "city"),
    ("latest", "last_book"): _some("book", ["as_of"], _end(False, False)),
    ("latest", "last_met"): _some("meeting", ["as_of"], _end(False, False)),
    ("first", "first_visit_date"): _some("visit", ["visited"], _end(True, True), "visited"),
    ("first", "first_met_date"): _some("meeting", ["friend"], _end(True, True), "friend"),
    ("first", "first_book"): _some("book", _YEAR, _end(True, False)),
    ("first", "first_film"): _some("film", _YEAR, _end(True, False)),
    ("list", "cities"): _some(_TRIPS, ["month"], _all_names),
    ("list", "books"): _some("book", _YEAR, _all_names),
    ("list", "films"): _some("film", _YEAR, _all_names),
    ("list", "met"): _some("meeting", ["month"], _all_names),
    ("list", "bought"): _some("purchase", ["month"], _all_names),
    ("list", "books_last_year"): _some("book", ["year", "last_year"], _all_names),
    ("list", "met_last_month"): _some("meeting", ["month", "last_month"], _all_names),
    ("exists", "visited"): _some("visit", ["once"], _yes, "once"),
    ("exists", "read"): _some("book", ["book"], _yes, "book"),
    ("exists", "met_in"): _some("meeting", ["friend", "year"], _yes, "friend"),
    ("exists", "watched"): _some("film", ["film"], _yes, "film"),
    ("exists", "bought_in"): _some("purchase", ["thing", "year"], _yes, "thing"),
    ("count", "visits"): _some("visit", ["visited"], _number, "visited"),
    ("count", "met_in"): _some("meeting", ["friend", "year"], _number, "friend"),
    ("count", "books"): _some("book", _YEAR, _number),
    ("count", "flights"): _some("flight", _YEAR, _number),
    ("count", "bought"): _some("purchase", ["thing"], _number, "thing"),
    ("count", "books_last_year"): _some("book", ["year", "last_year"], _number),
    ("how-often", "visits"): _some("visit", ["visited"], _number, "visited"),
    ("how-often", "met_in"): _some("meeting", ["friend", "year"], _number, "friend"),
    ("how-often", "flights"): _some("flight", _YEAR, _number),
    ("how-often", "bought"): _some("purchase", ["thing"], _number, "thing"),
    ("how-often", "flights_last_year"): _some("flight", ["year", "last_year"], _number),
    ("sum", "spent_in"): _amounts(sum, "year"),
    ("sum", "spent_month"): _amounts(sum, "month"),
    ("sum", "spent_on"): _amounts(sum, "thing"),
    ("sum", "spent_at"): _amounts(sum, "seller", "year"),
    ("mean", "spent_in"): _amounts(_mean, "year"),
    ("mean", "weight_in"): _amounts(_mean, "year", weight=True),
    ("mean", "price_of"): _amounts(_mean, "thing"),
    ("most", "city"): _some(_TRIPS, [], _most),
    ("most", "city_in"): _some(_TRIPS, _YEAR, _most),
    ("most", "met_in"): _some("meeting", _YEAR, _most),
    ("most", "bought_in"): _some("purchase", _YEAR, _most),
    ("rate", "visits"): _rate_since,
    ("rate", "met_in"): _some("meeting", ["friend", "year"], _rate(lambda _: 12), "friend"),
    ("rate", "books"): _some("book", _YEAR, _rate(lambda _: 12)),
    ("rate", "trips"): _some(_TRIPS, _YEAR, _rate(lambda _: 12)),
    ("duration", "home"): _spell("home", "home"),
    ("duration", "job"): _spell("job", "employer"),
    ("since", "home"): _begin("home", "home"),
    ("since", "job"): _begin("job", "employer"),
    ("before", "trip_home"): _before(["visit", "home"]),
    ("before", "wedding_home"): _before(["wedding", "home"]),
    ("before", "trips"): _before(["visit", "visit"], after=True),
    ("after", "trips"): _before(["visit", "visit"], after=True),
    ("after", "trip_home"): _before(["visit", "home"], after=True),
    ("after", "wedding_home"): _before(["wedding", "home"], after=True),
    ("order", "trips"): _several(["visit"] * 2, "order"),
    ("order", "trip_home"): _several(["visit", "home"], "order"),
    ("order", "three"): _several(["visit"] * 3, "order"),
    ("age", "now"): _age(False),
    ("age", "at"): _age(True),
    ("age", "at_day"): _age(True, told=True),
    ("difference", "trips"): _several(["visit"] * 2, "span"),
    ("difference", "homes"): _several(["home"] * 2, "span"),
    ("difference", "wedding"): _several(["wedding", "home"], "span"),
    **{
        (name, kind): _amounts(how, *names, weight=weight, things=things)
        for name, how in (("min", min), ("max", max))
        for kind, names, weight, things in (
            ("thing_in", ["year"], False, True),
            ("price_of", ["thing"], False, False),
            ("weight_in", ["year"], True, False),
        )
    },
}  # fmt: skip
