"""Plans that a language model writes, constrained to the ontology's terms and to linked names.

The model chooses an operation and, for each selection, a term, a subject and another end. The
schema allows only terms of the ontology and names of the question that are linked to objects; rules
read the dates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

from turngraph.data.memory_graph.extract.model_extractor import Prompt
from turngraph.data.memory_graph.extract.replies import list_schema, object_schema
from turngraph.data.memory_graph.ontology.clause_words import WORD
from turngraph.data.memory_graph.ontology.ontology import Ontology
from turngraph.data.memory_graph.ontology.plain_question import plain_question
from turngraph.data.memory_graph.ontology.plan_maker import PlanMaker
from turngraph.data.memory_graph.ontology.question_forms import check_said
from turngraph.data.memory_graph.ontology.question_plan import window_of
from turngraph.data.memory_graph.ontology.typed_plan import NoPlan, Operation, Plan, Selection
from turngraph.data.memory_graph.record.speaker import FIRST_PERSON
from turngraph.data.memory_graph.record.store import Store

Replies = Callable[[Sequence[Prompt]], Sequence[Any]]
"""Returns a value of each prompt's schema."""
NONE: Literal["none"] = "none"
_TWO: tuple[Operation, ...] = ("before", "after", "difference")
_UNITS = ("", "day", "week", "month", "year")
_SUBJECT = "I"
MAX_SELECTIONS = 3
_EXAMPLES: tuple[tuple[str, tuple[str, str, tuple[str, str, str]]], ...] = (
    ("What is Dag's shoe size?", (NONE, "", ("like", "Dag", ""))),
    ("Since when does Dag live in Turin?", ("since", "", ("live in", "Dag", "Turin"))),
    ("Who did I meet first?", ("first", "", ("meet", "I", ""))),
    ("How many years did Dag work at Fiat?", ("duration", "year", ("work at", "Dag", "Fiat"))),
    ("Did I read Emma?", ("exists", "", ("read", "I", "Emma"))),
    ("How much did I spend on tea?", ("sum", "", ("buy", "I", "tea"))),
    ("Where do I live?", ("value", "", ("live in", "I", ""))),
    ("How many times did I visit Turin?", ("count", "", ("trip", "I", "Turin"))),
    ("When did I last fly to Turin?", ("latest", "", ("fly", "I", "Turin"))),
)
_HEAD = """Write the plan that answers a question from the facts of a diary, as JSON.
operation: value, latest, first, list, exists (yes or no), count, sum, min, max, mean, most, rate \
(how often a month), duration, since, before, after, order, age, difference (time between), none.
facts: two of before, after and difference, else one. term: {terms}.

"""


class ModelPlans:
    """Planner of questions that asks a language model.

    Args:
        replies: the language model, such as ``ModelReplies``.
    """

    def __init__(self, replies: Replies) -> None:
        self.replies = replies

    def __call__(
        self, question: str, store: Store, ontology: Ontology, as_of: str | None = None
    ) -> list[Plan]:
        """Return the plan of a question, as ``make_plans`` does.

        Raises:
            NoPlan: the model gives no plan, or its plan leaves out a name of the question.
            UserError: the model does not reply.
        """
        text = plain_question(question, as_of)
        check_said(text)
        names = linked_names(text, store, ontology)
        terms = plan_terms(ontology)
        prompt = plan_prompt(question, tuple(terms), tuple(names))
        [reply] = self.replies([prompt])
        return [_plan(reply, text, names, terms, store, ontology)]


def plan_terms(ontology: Ontology) -> dict[str, tuple[str, bool]]:
    """Return (IRI, whether it is a class of events) of each term, by its first surface word."""
    by_word: dict[str, tuple[str, bool]] = {}
    events = [kind for kind in ontology.classes.values() if ontology.object_role(kind.iri)]
    for is_event, terms in ((True, events), (False, ontology.properties.values())):
        for term in terms:
            if term.words:
                by_word.setdefault(term.words[0], (term.iri, is_event))
    return by_word


def linked_names(text: str, store: Store, ontology: Ontology) -> dict[str, int]:
    """Return the objects that a question names, by their spelling in it; "I" is the speaker.

    Raises:
        NoPlan: several objects have one name.
    """
    maker, words = PlanMaker(store, ontology, "value"), WORD.findall(text)
    names = {" ".join(words[name.first : name.stop]): name.node
             for name in maker.linked(words, text, set())}  # fmt: skip
    if FIRST_PERSON & {word.lower() for word in words}:
        names[_SUBJECT] = maker.speaker()
    return names


def plan_schema(terms: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """Return the schema of a plan.

    Args:
        terms: words of the ontology's terms.
        names: names of objects in the question.
    """
    name = {"type": "string", "enum": ["", *names]}
    selection = object_schema(
        term={"type": "string", "enum": list(terms)}, subject=name, object=name
    )
    return object_schema(
        operation={"type": "string", "enum": [*get_args(Operation), NONE]},
        facts=list_schema(selection, MAX_SELECTIONS),
        unit={"type": "string", "enum": list(_UNITS)},
    )


def plan_prompt(question: str, terms: Sequence[str], names: Sequence[str]) -> Prompt:
    """Return the prompt for the plan of a question."""
    lines = [f"{asked}\n{_written(*plan)}" for asked, plan in _EXAMPLES]
    lines.append(f"Names: {', '.join(names) or NONE}\n{' '.join(question.split())}")
    text = _HEAD.format(terms=", ".join(terms)) + "\n".join(lines)
    return Prompt(text, plan_schema(terms, names), "the plan of a question")


def _written(operation: str, unit: str, fact: tuple[str, str, str]) -> str:
    """Return a plan with one selection in the form of a reply."""
    facts = [dict(zip(("term", "subject", "object"), fact, strict=True))]
    return json.dumps({"operation": operation, "facts": facts, "unit": unit}, separators=(",", ":"))


def _plan(
    reply: Mapping[str, Any],
    text: str,
    names: Mapping[str, int],
    terms: Mapping[str, tuple[str, bool]],
    store: Store,
    ontology: Ontology,
) -> Plan:
    """Return the plan of a reply, checked like the plans of the rules.

    Raises:
        NoPlan: the model gives no plan, or one that does not fit the question.
    """
    operation, facts = reply["operation"], reply["facts"]
    if operation == NONE:
        raise NoPlan("the language model finds no plan")
    if not facts or (len(facts) != 2 if operation in _TWO else
                     len(facts) < 2 if operation == "order" else len(facts) > 1):  # fmt: skip
        raise NoPlan("the plan of the language model has the wrong number of selections")
    used = {fact[end] for fact in facts for end in ("subject", "object")}
    if set(names) - used:
        raise NoPlan("the plan of the language model leaves out a name of the question")
    selections = tuple(_selection(fact, names, terms) for fact in facts)
    if all(selection.subject is None and selection.value is None for selection in selections):
        raise NoPlan("the plan of the language model selects by no name")
    window = window_of(text) if len(selections) == 1 else None
    plan = Plan(operation, selections, window, reply["unit"] or None)
    if operation in ("before", "after"):
        return plan
    return PlanMaker(store, ontology, operation).refined(plan, text)


def _selection(
    fact: Mapping[str, str], names: Mapping[str, int], terms: Mapping[str, tuple[str, bool]]
) -> Selection:
    iri, is_event = terms[fact["term"]]
    words = re.sub(r"\s+", " ", f"{fact['subject']} {fact['term']} {fact['object']}").strip()
    subject, value = (names.get(fact[end]) for end in ("subject", "object"))
    return Selection(iri, is_event, subject, value, words)
