"""Plans of a question by the rules, one for each meaning of its verb."""

from __future__ import annotations

from dataclasses import replace

from turngraph.data.memory_graph.extract.dates import find_dates
from turngraph.data.memory_graph.ontology.ontology import Ontology
from turngraph.data.memory_graph.ontology.plain_question import plain_question
from turngraph.data.memory_graph.ontology.plan_maker import PlanMaker
from turngraph.data.memory_graph.ontology.question_forms import (
    forms_of,
)
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
    """Return the plans of a question, one for each class of events that its verb may mean.

    Args:
        question: in English.
        store: whose objects are linked, exactly by name or "#id".
        ontology: its terms.
        as_of: ISO time at which "last year" is said; None: relative dates are not read.

    Raises:
        NoPlan: the question is of no known form, has no term or subject, or an ambiguous name.
    """
    plans: list[Plan] = []
    reasons: list[NoPlan] = []
    sense, num_senses = 0, 1
    while sense < num_senses:
        try:
            plan, num_senses = _plan_of(question, store, ontology, as_of, sense)
        except _Unplanned as error:
            reasons.append(error.reason)
            num_senses = error.num_senses
        else:
            plans.append(plan)
        sense += 1
    if not plans:
        raise reasons[0]
    return plans


class _Unplanned(Exception):
    """There is no plan in one sense of a verb; it may have others."""

    def __init__(self, reason: NoPlan, num_senses: int) -> None:
        super().__init__(str(reason))
        self.reason, self.num_senses = reason, num_senses


def _plan_of(
    question: str, store: Store, ontology: Ontology, as_of: str | None, sense: int
) -> tuple[Plan, int]:
    """Return the plan in one sense of the verbs, and how many senses they have."""
    text = plain_question(question, as_of)
    for form in forms_of(text):
        maker = PlanMaker(store, ontology, form.operation, sense)
        try:
            if form.operation == "before":
                plan = maker.before(form)
                if plan is None:
                    continue
                return plan, maker.num_senses
            selections = maker.selections(form.clauses)
            window = window_of(form.text) if len(selections) == 1 else None
            plan = maker.refined(Plan(form.operation, selections, window, form.unit), form.text)
            if plan.operation == "value" and not selections[0].is_event:  # a state held then
                plan = replace(
                    plan, window=window_of(plain_question(question, as_of, at_moment=True))
                )
            return plan, maker.num_senses
        except NoPlan as reason:
            raise _Unplanned(reason, maker.num_senses) from None
    raise NoPlan("the question is of no known form")


def window_of(text: str) -> Window | None:
    """Return the time that a question limits itself to.

    Raises:
        NoPlan: it names several times ("in 2015 and 2017").
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
