"""Computes sums, means and extremes of amounts, the most frequent thing, and rates of events.

A fact with a partial date may lie outside the time of the question; an answer that depends on such
facts is given as bounds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal

from turngraph.data.memory_graph.ontology.selected_facts import (
    EPOCH,
    Answer,
    Item,
    in_window,
    joined_dates,
    joined_names,
    quantity,
    some,
)
from turngraph.data.memory_graph.ontology.typed_plan import NoPlan, Plan

_MONTH_DAYS = 30.4375
MAY_BE = "facts whose date is partial or unknown may be in that time"


def _spelled(number: Decimal, unit: str) -> str:
    digits = f"{number.quantize(Decimal('0.01')):f}"
    digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return f"{digits} {unit}".strip()


def _between(low: Decimal, high: Decimal, unit: str) -> str:
    one, other = _spelled(low, unit), _spelled(high, unit)
    return one if one == other else f"{_spelled(low, '')} to {other}"


def _measured(plan: Plan, items: Sequence[Item]) -> tuple[list[Item], list[Item], str, list[str]]:
    """Return items with an amount that are in the time and that may be, their unit, notes."""
    certain, possible = in_window(plan, items)
    some([*certain, *possible])
    known, maybe = ([i for i in part if i.amount is not None] for part in (certain, possible))
    if not known and not maybe:
        raise NoPlan("no fact states an amount")
    units = {item.unit for item in (*known, *maybe)}
    if len(units) > 1:
        raise NoPlan("the amounts have several units")
    unknown = len(certain) + len(possible) - len(known) - len(maybe)
    notes = [f"{unknown} more without a known amount"] if unknown else []
    return known, maybe, units.pop(), [*notes, MAY_BE] if maybe else notes


def _amounts(items: Sequence[Item]) -> list[Decimal]:
    return [item.amount for item in items if item.amount is not None]


def total(plan: Plan, selected: Sequence[Sequence[Item]], moment: int) -> Answer:
    """Return the sum of the items' amounts."""
    known, maybe, unit, notes = _measured(plan, selected[0])
    low = sum(_amounts(known), Decimal())
    more = _amounts(maybe)
    least = sum((amount for amount in more if amount < 0), low)
    most = sum((amount for amount in more if amount > 0), low)
    return _between(least, most, unit), [*known, *maybe], "; ".join(notes)


def mean(plan: Plan, selected: Sequence[Sequence[Item]], moment: int) -> Answer:
    """Return the arithmetic mean of the items' amounts."""
    known, maybe, unit, notes = _measured(plan, selected[0])
    if not known:
        raise NoPlan("the dates are too coarse to tell which were in that time")
    base, more = _amounts(known), sorted(_amounts(maybe))
    low = min(_means(base, more))
    high = max(_means(base, more[::-1]))
    return _between(low, high, unit), [*known, *maybe], "; ".join(notes)


def _means(base: Sequence[Decimal], more: Sequence[Decimal]) -> list[Decimal]:
    return [
        sum([*base, *more[:stop]], Decimal()) / (len(base) + stop) for stop in range(len(more) + 1)
    ]


def extreme(plan: Plan, selected: Sequence[Sequence[Item]], moment: int) -> Answer:
    """Return the least or the greatest amount, or the name of the thing with this amount."""
    known, maybe, unit, notes = _measured(plan, selected[0])
    if not known:
        raise NoPlan("the dates are too coarse to tell which were in that time")
    bar = _best(plan, _amounts(known))
    reach = _best(plan, _amounts([*known, *maybe]))
    items = [i for i in known if i.amount == bar]
    beyond = [i for i in maybe if i.amount is not None and _best(plan, [i.amount, bar]) != bar]
    extremes = [*items, *beyond]
    if plan.wants_date:
        return joined_dates(extremes), extremes, "; ".join(notes)
    if plan.wants_name:
        return joined_names(extremes), extremes, "; ".join(notes)
    return _between(min(bar, reach), max(bar, reach), unit), extremes, "; ".join(notes)


def _best(plan: Plan, amounts: Sequence[Decimal]) -> Decimal:
    return max(amounts) if plan.operation == "max" else min(amounts)


def most_often(plan: Plan, selected: Sequence[Sequence[Item]], moment: int) -> Answer:
    """Return the name that most events have as their other end."""
    certain, possible = in_window(plan, selected[0])
    some([*certain, *possible])
    low: dict[str, int] = defaultdict(int)
    high: dict[str, int] = defaultdict(int)
    for item in certain:
        low[item.name] += quantity(item)
    for item in (*certain, *possible):
        high[item.name] += quantity(item)
    bar = max(low.values(), default=0)
    names = [name for name, number in high.items() if number >= max(bar, 1)]
    items = [item for item in (*certain, *possible) if item.name in names]
    if len(names) == 1:
        return names[0], items, ""
    exact = all(low[name] == high[name] for name in names)
    note = "equally often" if exact else f"any of these may be the answer: {MAY_BE}"
    return ", ".join(names), items, note


def rate(plan: Plan, selected: Sequence[Sequence[Item]], moment: int) -> Answer:
    """Return the number of events in a unit of time.

    The period is that of the question; without a begin, it starts with the first event. It ends on
    the day before ``moment``.
    """
    certain, possible = in_window(plan, selected[0])
    items = some([*certain, *possible])
    begins = [item.begin[0] for item in items if item.begin is not None]
    since, until = plan.window or (None, None)
    if since is None and not begins:
        raise NoPlan("no date is known")
    first = min(begins) if since is None else since
    today = moment - moment % 86400  # the day of the question is not over
    last = today if until is None else min(until, today)
    assert plan.unit is not None, "a rate has a unit"
    length = _length(first, last, plan.unit)
    if length <= 0:
        raise NoPlan("the time of the question has not begun")
    low = sum(map(quantity, certain)) / length
    high = low + sum(map(quantity, possible)) / length
    answer = _between(Decimal(str(low)), Decimal(str(high)), f"a {plan.unit}")
    return answer, items, MAY_BE if possible else ""


def _length(first: int, last: int, unit: str) -> float:
    """Return the time between two seconds in days, weeks, months or years."""
    if unit in ("day", "week"):
        return (last - first) / 86400 / (7 if unit == "week" else 1)
    begin, stop = (EPOCH + timedelta(seconds=second) for second in (first, last))
    months = 12 * (stop.year - begin.year) + stop.month - begin.month
    rest = (stop.day - begin.day + (stop.hour - begin.hour) / 24) / _MONTH_DAYS
    return (months + rest) / (12 if unit == "year" else 1)
