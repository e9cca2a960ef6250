"""Computes the answers of plans: SPARQL selects facts, and Python computes.

A date such as "2020-04" may be any second of that month. An answer that depends on it is computed
for the first and the last second; if the two differ, both are given ("17 to 29 months").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import partial
from itertools import groupby, pairwise

from turngraph.configs.extras import extra
from turngraph.data.amounts import read_amount
from turngraph.data.memory_graph.memory_types import Fact
from turngraph.data.memory_graph.ontology.aggregate import (
    MAY_BE,
    extreme,
    mean,
    most_often,
    rate,
    total,
)
from turngraph.data.memory_graph.ontology.endpoint_query import PushedGraph
from turngraph.data.memory_graph.ontology.lens import Lens
from turngraph.data.memory_graph.ontology.ontology import PREFIXES, TG, Ontology, short
from turngraph.data.memory_graph.ontology.question_plan import make_plans
from turngraph.data.memory_graph.ontology.rdf import moment_of
from turngraph.data.memory_graph.ontology.selected_facts import (
    EPOCH,
    Answer,
    Bounds,
    Item,
    bounds_of,
    difference_words,
    holding,
    in_window,
    joined_dates,
    joined_names,
    leading,
    overlapping,
    quantity,
    relevant,
    some,
)
from turngraph.data.memory_graph.ontology.shapes import contradicts_range
from turngraph.data.memory_graph.ontology.typed_plan import NoPlan, Plan, Selection, sparql_of
from turngraph.data.memory_graph.record.store import Store
from turngraph.data.memory_graph.times import end, now, parse_time, start

with extra("rdf", "typed memory graphs need"):
    from pyoxigraph import QuerySolutions


@dataclass(frozen=True, slots=True)
class Computed:
    """Computed answer.

    Args:
        operation: operation of the plan.
        answer: answer in words: "4", "17 to 29 months", "Oslo".
        items: facts that were counted or compared.
        note: limits of the answer; "": none.
        queries: SPARQL queries that selected the facts.
        revision: revision of the record.
        plan: plan in words, with the names of objects.
    """

    operation: str
    answer: str
    items: tuple[Item, ...]
    note: str
    queries: tuple[str, ...]
    revision: int
    plan: str = ""

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The facts that are counted or compared, each once."""
        by_key = {fact.key: fact for item in self.items for fact in item.facts}
        return tuple(by_key.values())


Planner = Callable[[str, Store, Ontology, str | None], list[Plan]]
"""Returns the plans of a question (question, record, ontology, as_of), or raises NoPlan."""

Mark = Callable[[Sequence[Fact]], Sequence[Fact]]
"""Returns facts with ``may_have_ended`` where a newer fact suggests it."""


def compute(
    lens: Lens,
    question: str,
    as_of: str | None = None,
    planner: Planner | None = None,
    pushed: PushedGraph | None = None,
    mark: Mark | None = None,
) -> Computed:
    """Answer a question by a plan.

    No answer is computed from a value whose class the range of its property excludes, nor, about
    now, from a state that a newer statement may have ended: such facts can only be recalled.

    Args:
        lens: lens of the record; it is refreshed.
        question: text of the question, in English.
        as_of: ISO time at whose end facts hold; None: now.
        planner: planner for questions that the rules cannot plan, such as ``ModelPlans``; None:
            such questions have no plan.
        pushed: copy of the graph on a server, which selects the facts; classes of values are then
            not checked. None: the lens selects.
        mark: marks facts that newer ones may have ended (``MemoryGraph.marked``); None: no fact is
            marked.

    Raises:
        NoPlan: there is no plan, no fact matches, the facts do not decide the answer, or one of
            them is in doubt; the message says which.
        UserError: the server fails, or has another revision (``pushed``).
    """
    with lens.store.reading():
        if pushed is not None:  # the graph is not loaded
            pushed.check(lens.store.revision)
        revision = lens.store.revision if pushed is not None else lens.refresh()
        asked = question, lens.store, lens.ontology, as_of or now()[:10]
        try:
            plans = make_plans(*asked)
        except NoPlan:
            if planner is None:
                raise
            plans = planner(*asked)
        for _, equal in groupby(plans, key=lambda plan: plan.rank):
            readings = [_selected(lens, plan, moment_of(as_of), pushed) for plan in equal]
            if told := [reading for reading in readings if all(reading.selected)]:
                break
    if len(told) != 1:
        raise NoPlan(
            "a verb of the question has several meanings"
            if told
            else "no fact is of the kind asked for"
        )
    plan, queries, selected = told[0].plan, told[0].queries, told[0].selected
    answer, items, note = _COMPUTE.get(plan.operation, _compare)(plan, selected, moment_of(as_of))
    if pushed is None and any(
        contradicts_range(lens, fact.key, moment_of(as_of)) for item in items for fact in item.facts
    ):
        raise NoPlan("a value is of a class that does not fit its property")
    states = [] if all(one.is_event for one in plan.selections) else [item.fact for item in items]
    marked = mark(states) if mark is not None and as_of is None and plan.window is None else ()
    if any(fact.may_have_ended is not None for fact in marked):
        raise NoPlan("a newer statement may have ended what would be counted")
    words = plan_words(plan, lens.store)
    return Computed(plan.operation, answer, tuple(items), note, queries, revision, words)


def plan_words(plan: Plan, store: Store) -> str:
    """Return a plan in words: "count of tg:Trip, subject #3 Anna, from 2023-01-01"."""
    selections = []
    for selection in plan.selections:
        ends = (("subject", selection.subject), ("with", selection.value))
        names = [f"{end} #{node} {_label(store, node)}" for end, node in ends if node is not None]
        measures = [short(iri) for iri in selection.measures]
        selections.append(", ".join([short(selection.term), *names, *measures]))
    since, until = plan.window or (None, None)
    times = [
        f"{word} {(EPOCH + timedelta(seconds=second)).date().isoformat()}"
        for word, second in (("from", since), ("before", until)) if second is not None
    ]  # fmt: skip
    unit = [f"in {plan.unit}s"] if plan.unit else []
    return "; ".join([f"{plan.operation} of {' and '.join(selections)}", *times, *unit])


def _label(store: Store, node: int) -> str:
    [name] = store.db.execute("SELECT text FROM nodes WHERE id = ?", (node,)).fetchone()
    return str(name)


@dataclass(frozen=True, slots=True)
class _Selected:
    """A plan with its queries, and the facts that each query selects."""

    plan: Plan
    queries: tuple[str, ...]
    selected: list[list[Item]]


def _selected(lens: Lens, plan: Plan, moment: int, pushed: PushedGraph | None) -> _Selected:
    places = (TG, None) if pushed is None else (pushed.base, pushed.record)
    queries = tuple(sparql_of(one, lens.ontology, moment, *places) for one in plan.selections)
    select = partial(_select, lens) if pushed is None else pushed.select
    selected = [
        _items(lens.store, one, select(query), places[0])
        for one, query in zip(plan.selections, queries, strict=True)
    ]
    return _Selected(plan, queries, selected)


def _select(lens: Lens, query: str) -> list[dict[str, str]]:
    """Return the rows of a query: values of the bound variables, by name."""
    solutions = lens.rdf.query(query, prefixes=PREFIXES)
    assert isinstance(solutions, QuerySolutions), "a selection is a SELECT"
    names = [variable.value for variable in solutions.variables]
    return [{name: row[name].value for name in names if row[name] is not None} for row in solutions]


def _items(
    store: Store, selection: Selection, rows: Sequence[dict[str, str]], base: str
) -> list[Item]:
    names: dict[int, str] = {}
    told: dict[int, tuple[int, Decimal]] = {}
    for row in rows:
        key = _key(row["f"], base)
        names[key] = row["s" if selection.subject is None else "o"].removeprefix(f"{base}o")
        if "n" in row:
            amount = _key(row["a"], base), Decimal(row["n"])
            if told.setdefault(key, amount) != amount:
                raise NoPlan("one event has several amounts")
    facts = {
        fact.key: fact for fact in store.facts(sorted({*names, *(a for a, _ in told.values())}))
    }
    items = []
    for key in sorted(names):
        item = Item(facts[key], _name(facts[key], names[key]))
        if key in told:
            other_key, number = told[key]
            item = _with_amount(item, facts[other_key], number)
        items.append(item)
    return items


def _key(iri: str, base: str) -> int:
    return int(iri.removeprefix(f"{base}f"))


def _with_amount(item: Item, teller: Fact, number: Decimal) -> Item:
    text = teller.entities[-1][1]
    amount = read_amount(text)
    unit = "" if amount is None else amount.unit
    other = None if teller.key == item.fact.key else teller
    return Item(item.fact, item.name, number, unit, other)


def _name(fact: Fact, node_or_value: str) -> str:
    return next((name for node, name in fact.entities if str(node) == node_or_value), node_or_value)


def _value(plan: Plan, selected: Sequence[list[Item]], moment: int) -> Answer:
    items = some(relevant(plan, selected[0], moment))
    return joined_names(items), items, ""


def _list(plan: Plan, selected: Sequence[list[Item]], moment: int) -> Answer:
    items = selected[0] if plan.window is None else relevant(plan, selected[0], moment)
    if not plan.selections[0].is_event and plan.operation == "list":
        items = relevant(plan, selected[0], moment)
    return joined_names(some(items)), items, ""


def _exists(plan: Plan, selected: Sequence[list[Item]], moment: int) -> Answer:
    """Return yes if a fact matches; raise NoPlan otherwise, as a memory is incomplete."""
    return "yes", some(relevant(plan, selected[0], moment)), ""


def _count(plan: Plan, selected: Sequence[list[Item]], moment: int) -> Answer:
    items = selected[0]
    if plan.selections[0].is_event:
        certain, possible = in_window(plan, items)
    else:
        certain, possible = overlapping(plan, items, moment), []
    if plan.distinct:
        low = sum(map(leading, {item.name for item in certain}))
        high = sum(map(leading, {item.name for item in (*certain, *possible)}))
    else:
        low = sum(map(quantity, certain))
        high = low + sum(map(quantity, possible))
    notes = [] if items and (certain or possible) else ["no fact is about that time"]
    if possible:
        notes.append(MAY_BE)
    if any(item.begin is None for item in items) and plan.selections[0].is_event:
        notes.append("a repeated event without a date counts once: at least this many")
    answer = str(low) if low == high else f"{low} to {high}"
    return answer, [*certain, *possible], "; ".join(notes)


def _ends_of(plan: Plan, items: Sequence[Item], last: bool) -> tuple[list[Item], str]:
    """Return the dated items that may be the first, or the last, and a note."""
    certain, possible = in_window(plan, items)
    dated = [item for item in (*certain, *possible) if item.begin is not None]
    if not dated:
        raise NoPlan("no date is known")
    pairs = [(item.begin or (0, 0), item) for item in dated]
    if last:
        bar = max(begin[0] for begin, _ in pairs)
        best = [item for begin, item in pairs if begin[1] >= bar]
    else:
        bar = min(begin[1] for begin, _ in pairs)
        best = [item for begin, item in pairs if begin[0] <= bar]
    note = (
        "the dates are partial: any of these may be the answer"
        if len({i.fact.valid_from for i in best}) > 1
        else ""
    )
    if len(dated) < len(certain) + len(possible):
        note = "; ".join(filter(None, [note, "facts without a date are left out"]))
    return best, note


def _extreme(plan: Plan, selected: Sequence[list[Item]], moment: int) -> Answer:
    best, note = _ends_of(plan, selected[0], plan.operation == "latest")
    if plan.wants_date:
        return joined_dates(best), best, note
    return joined_names(best), best, note


def _since(plan: Plan, selected: Sequence[list[Item]], moment: int) -> Answer:
    items = selected[0] if plan.selections[0].is_event else holding(selected[0], moment)
    items = [item for item in items or selected[0] if item.fact.valid_from is not None]
    if plan.window is not None:
        certain, possible = in_window(plan, items)
        items = certain or possible
    if not items:
        raise NoPlan("no date is known")
    items.sort(key=lambda item: item.begin or (0, 0))
    return joined_dates(items), items, ""


def _duration(plan: Plan, selected: Sequence[list[Item]], moment: int) -> Answer:
    items = selected[0]
    low = high = timedelta()
    spans: list[tuple[Bounds, Bounds]] = []
    for item in items:
        if item.begin is None:
            raise NoPlan("the begin of a fact is not known")
        stop = bounds_of(item.fact.valid_to) or (moment, moment)
        spans.append((item.begin, (min(stop[0], moment), min(stop[1], moment))))
    if len(spans) == 1:
        return difference_words(*spans[0], plan.unit), items, ""
    for (first, last), (begins, ends) in spans:
        low += timedelta(seconds=max(0, begins - last))
        high += timedelta(seconds=max(0, ends - first))
    zero = (0, 0)
    span = (int(low.total_seconds()), int(high.total_seconds()))
    return difference_words(zero, span, plan.unit), items, f"the sum of {len(spans)} times"


def _age(plan: Plan, selected: Sequence[list[Item]], moment: int) -> Answer:
    births = {item.fact.key: item for item in selected[0]}
    if len(births) != 1:
        raise NoPlan("several dates of birth are known")
    [item] = births.values()
    try:
        born = parse_time(item.name)
    except ValueError:
        raise NoPlan("the date of birth is no date") from None
    bounds = start(born), end(born) - 1
    since, until = plan.window or (None, None)
    if (since is None) != (until is None):
        raise NoPlan("an age needs a single point in time")
    then = (moment, moment) if since is None or until is None else (since, until - 1)
    return difference_words(bounds, then, plan.unit or "year"), [item], ""


def _one(items: Sequence[Item]) -> tuple[Item, Bounds]:
    """Return the dated item of a selection and its bounds; raise NoPlan unless it is unique."""
    dated = [(item, item.begin) for item in items if item.begin is not None]
    if not dated:
        raise NoPlan("no date is known")
    if len({begin for _, begin in dated}) > 1:
        raise NoPlan("an event of the question happened at several times")
    item, begin = dated[0]
    assert begin is not None
    return item, begin


def _difference(plan: Plan, selected: Sequence[list[Item]], moment: int) -> Answer:
    (first, one), (second, other) = sorted(map(_one, selected), key=lambda pair: pair[1])
    return difference_words(one, other, plan.unit), [first, second], ""


def _compare(plan: Plan, selected: Sequence[list[Item]], moment: int) -> Answer:
    """Compute before, after and order; raise NoPlan if dates overlap."""
    pairs = [(one.text, *_one(items)) for one, items in zip(plan.selections, selected, strict=True)]
    if plan.operation == "order":
        pairs.sort(key=lambda pair: pair[2])
        if any(a[2][1] >= b[2][0] for a, b in pairwise(pairs)):
            raise NoPlan("the dates are too coarse to tell which came first")
        return ", then ".join(text for text, _, _ in pairs), [item for _, item, _ in pairs], ""
    (_, first, one), (_, second, other) = pairs
    if plan.operation == "after":
        one, other = other, one
    if one[1] < other[0]:
        answer = "yes"
    elif other[1] < one[0]:
        answer = "no"
    else:
        raise NoPlan("the dates are too coarse to tell which came first")
    return answer, [first, second], ""


_COMPUTE = {
    "value": _value,
    "list": _list,
    "exists": _exists,
    "count": _count,
    "latest": _extreme,
    "first": _extreme,
    "since": _since,
    "duration": _duration,
    "age": _age,
    "difference": _difference,
    "sum": total,
    "min": extreme,
    "max": extreme,
    "mean": mean,
    "most": most_often,
    "rate": rate,
}
