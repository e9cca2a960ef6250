"""Selected facts of a plan: their begins, tests of time windows, and lengths of time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from turngraph.configs.words import plural
from turngraph.data.memory_graph.extract.word_lists import NUMBER_WORDS
from turngraph.data.memory_graph.memory_types import Fact
from turngraph.data.memory_graph.ontology.typed_plan import NoPlan, Plan
from turngraph.data.memory_graph.record.ended_parts import begin_of
from turngraph.data.memory_graph.times import end, start

Bounds = tuple[int, int]
"""First and last possible second of a partial date."""
_LEADING = re.compile(rf"(\d{{1,4}}|{'|'.join(NUMBER_WORDS)}) [a-z]\w*", re.IGNORECASE)
_TIMES = re.compile(rf"(.*?) (once|twice|(\d{{1,4}}|{'|'.join(NUMBER_WORDS)}) times)")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS = {"day": 1, "week": 7}
_MONTHS = {"month": 1, "year": 12}


@dataclass(frozen=True, slots=True)
class Item:
    """Selected fact.

    Args:
        fact: the fact, with its provenance.
        name: name of its other end: the object, or the subject if the question asks for it.
        amount: its amount, if the question asks for one and it is known.
        unit: unit of the amount.
        amount_fact: fact that states the amount, if it is another fact.
    """

    fact: Fact
    name: str
    amount: Decimal | None = None
    unit: str = ""
    amount_fact: Fact | None = None

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The fact, and the fact that states the amount."""
        return (self.fact,) if self.amount_fact is None else (self.fact, self.amount_fact)

    @property
    def since(self) -> int | None:
        """First second at which the fact may hold; for an undated fact, when it was first said."""
        said = [place.said for place in self.fact.provenance if place.said is not None]
        first = min(said, key=start, default=None)
        begin = begin_of(self.fact.valid_from, first, self.fact.valid_to)
        return None if begin is None else start(begin)

    @property
    def begin(self) -> Bounds | None:
        """Bounds of the fact's begin; None: unknown."""
        return bounds_of(self.fact.valid_from)


Answer = tuple[str, Sequence[Item], str]


def bounds_of(iso: str | None) -> Bounds | None:
    """Return the bounds of a date; None: unknown."""
    return None if iso is None else (start(iso), end(iso) - 1)


def holding(items: Sequence[Item], moment: int) -> list[Item]:
    """Return the states that hold at a moment."""
    return [
        item for item in items
        if (item.since is None or item.since <= moment)
        and (item.fact.valid_to is None or moment < start(item.fact.valid_to))
    ]  # fmt: skip


def in_window(plan: Plan, items: Sequence[Item]) -> tuple[list[Item], list[Item]]:
    """Return the items that certainly begin in the plan's window, and those that may."""
    if plan.window is None:
        return list(items), []
    since, until = plan.window
    certain, possible = [], []
    for item in items:
        if item.begin is None:
            possible.append(item)
            continue
        low, high = item.begin
        if (since is None or since <= low) and (until is None or high < until):
            certain.append(item)
        elif (since is None or since <= high) and (until is None or low < until):
            possible.append(item)
    return certain, possible


def overlapping(plan: Plan, items: Sequence[Item], moment: int) -> list[Item]:
    """Return the states that hold in the plan's window, or at the moment."""
    if plan.window is None:
        return holding(items, moment)
    since, until = plan.window
    return [
        item for item in items
        if (until is None or item.since is None or item.since < until)
        and (since is None or item.fact.valid_to is None or since < start(item.fact.valid_to))
    ]  # fmt: skip


def relevant(plan: Plan, items: Sequence[Item], moment: int) -> list[Item]:
    """Return the items of the plan's time: states that hold in it, events that begin in it."""
    if not plan.selections[0].is_event:
        return overlapping(plan, items, moment)
    certain, possible = in_window(plan, items)
    return certain or possible


def joined_names(items: Sequence[Item]) -> str:
    """Return the different names of items."""
    return ", ".join(dict.fromkeys(item.name for item in items))


def joined_dates(items: Sequence[Item]) -> str:
    """Return the different dates at which items begin."""
    return ", ".join(dict.fromkeys(str(item.fact.valid_from) for item in items))


def some(items: Sequence[Item]) -> Sequence[Item]:
    """Return the given items, if there are any.

    Raises:
        NoPlan: there are none.
    """
    if not items:
        raise NoPlan("no fact matches at that time")
    return items


def quantity(item: Item) -> int:
    """Return the number of things of an item: 3 of "three books", 2 of "London twice"."""
    if match := _TIMES.fullmatch(item.name):
        return {"once": 1, "twice": 2}.get(match[2]) or _number(match[3])
    return leading(item.name)


def leading(name: str) -> int:
    """Return the number with which a name begins: 3 of "three books"; else 1."""
    match = _LEADING.fullmatch(name)
    return _number(match[1]) if match else 1


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else NUMBER_WORDS[text.lower()]


# Lengths of time


def difference_words(first: Bounds, second: Bounds, unit: str | None) -> str:
    """Return the least and the most whole units between two dates: "17 to 29 months"."""
    if unit is None:
        days = (second[1] - first[0]) // 86400
        unit = "day" if days < 61 else "month" if days < 5 * 365 else "year"
    low = max(0, units_between(first[1], second[0], unit))
    high = max(low, units_between(first[0], second[1], unit))
    return plural(low, unit) if low == high else f"{low} to {high} {unit}s"


def units_between(first: int, second: int, unit: str) -> int:
    """Return the whole days, weeks, months or years from one second to another."""
    if second < first:
        return 0
    begins, ends = EPOCH + timedelta(seconds=first), EPOCH + timedelta(seconds=second)
    if unit in _DAYS:
        return (ends.date() - begins.date()).days // _DAYS[unit]
    months = 12 * (ends.year - begins.year) + ends.month - begins.month
    months -= ends.day < begins.day
    return months // _MONTHS[unit]
