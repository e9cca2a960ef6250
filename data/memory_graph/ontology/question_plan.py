"""Makes the plans of a question by rules, one for each reading of its words."""

from __future__ import annotations

import re
from dataclasses import replace

from turngraph.data.memory_graph.extract.dates import find_dates
from turngraph.data.memory_graph.ontology.ontology import Ontology
from turngraph.data.memory_graph.ontology.plain_question import plain_question
from turngraph.data.memory_graph.ontology.plan_maker import PlanMaker
from turngraph.data.memory_graph.ontology.question_forms import (
    EVENTS_FIRST,
    Form,
    check_cues,
    forms_of,
)
from turngraph.data.memory_graph.ontology.question_terms import superlatives
from turngraph.data.memory_graph.ontology.typed_plan import (
    NoPlan,
    Plan,
    Window,
)
from turngraph.data.memory_graph.record.store import Store
from turngraph.data.memory_graph.times import start


def make_plans(
    question: str, store: Store, ontology: Ontology, as_of: str | None = None
) -> list[Plan]:
    """Return the plans of a question, one for each reading of its words, by rank.

    Args:
        question: text of the question, in English.
        store: the record; its objects are linked by exact name or "#id".
        ontology: the ontology.
        as_of: ISO time from which "last year" counts; None: relative dates are not read.

    Raises:
        NoPlan: the question has no known form, no term or no subject, or an ambiguous name.
    """
    text = _as_stored(superlatives(plain_question(question, as_of), ontology), store)
    for form in forms_of(text):
        maker = PlanMaker(store, ontology, form.operation)
        if len(form.clauses) > 1 and maker.is_date(form.clauses[-1]):
            continue
        check_cues(form)
        at_moment = window_of(plain_question(question, as_of, at_moment=True))
        return _plans(maker, form, at_moment)
    raise NoPlan("the question is of no known form")


def _as_stored(text: str, store: Store) -> str:
    """Return a question with capitalised plurals in lower case, and words with hyphens split.

    "Lamps: how many" begins with a capital, but the object is "lamp". A word that is the name of an
    object is not changed.
    """

    def lowered(match: re.Match[str]) -> str:
        word, singular = match[0], match[0].lower().removesuffix("s")
        return word.lower() if not store.objects(word) and store.objects(singular) else word

    def parted(match: re.Match[str]) -> str:
        return match[0] if store.objects(match[0]) else match[0].replace("-", " ")

    text = re.sub(r"\b[A-Z][a-z]+s\b", lowered, text)
    return re.sub(r"\b[a-z]+-[a-z]+\b", parted, text)


def _plans(maker: PlanMaker, form: Form, at_moment: Window | None) -> list[Plan]:
    """Return the plans of a form; the window of a state is ``at_moment``."""
    plans: list[Plan] = []
    reasons: list[NoPlan] = []
    window = window_of(form.text) if len(form.clauses) == 1 else None
    for rank, selections in maker.selections(form):
        plan = Plan(maker.operation, selections, window, form.unit, rank=rank)
        try:
            if form.operation not in ("before", "after"):
                plan = maker.refined(plan, form.text)
        except NoPlan as reason:
            reasons.append(reason)
            continue
        if plan.operation == "value" and not selections[0].is_event:
            plan = replace(plan, window=at_moment)
        if all(replace(other, rank=rank) != plan for other in plans):
            plans.append(plan)
    if not plans:
        raise reasons[0]
    if maker.operation in EVENTS_FIRST and any(plan.selections[0].is_event for plan in plans):
        plans = [plan for plan in plans if all(each.is_event for each in plan.selections)] or plans
    return sorted(plans, key=lambda plan: plan.rank)


def window_of(text: str) -> Window | None:
    """Return the time window of a question; None: it names no time.

    Raises:
        NoPlan: the question names several times ("in 2015 and 2017").
    """
    since: int | None = None
    until: int | None = None
    for date in find_dates(text, None):
        before = text[: date.start].rstrip().lower()
        if before.endswith("before"):
            until = start(date.first)
        elif before.endswith("after"):
            since = start(date.after)
        elif date.word == "until":
            until = start(date.after)
        elif date.word == "since":
            since = start(date.first)
        elif since is not None or until is not None:
            raise NoPlan("the question names several times")
        else:
            since, until = start(date.first), start(date.after)
    return None if since is None and until is None else (since, until)
