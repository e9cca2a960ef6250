"""Rules that complete a typed plan by the words of a question outside its clauses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from turngraph.data.memory_graph.ontology.clause_words import ASKS_NAME, LEFT, NOUNS, TOTAL
from turngraph.data.memory_graph.ontology.ontology import TG, XSD, Ontology, Property
from turngraph.data.memory_graph.ontology.question_forms import MEASURED, WHEN
from turngraph.data.memory_graph.ontology.question_terms import is_place, word_forms
from turngraph.data.memory_graph.ontology.typed_plan import NoPlan, Plan, Selection


class PlanRefiner:
    """Completes plans.

    Args:
        ontology: classes and properties, which decide what can be counted and added up.
    """

    def __init__(self, ontology: Ontology) -> None:
        self.ontology = ontology

    def refined(self, plan: Plan, text: str) -> Plan:
        """Return a plan completed by the rest of the question: date, name, count or amount.

        Raises:
            NoPlan: the question asks for something that is not computed.
        """
        plan = replace(plan, wants_date=WHEN.match(text) is not None)
        selection = plan.selections[0]
        if plan.operation == "most" and plan.wants_date:
            raise NoPlan("the time with the most events is not computed")
        if plan.operation == "duration" and selection.is_event:
            raise NoPlan("events have no duration here")
        if plan.operation == "since" and not selection.is_event and self._has_dates(selection.term):
            plan = replace(plan, operation="value")
        if plan.operation == "sum" and not selection.is_event and self._numbers_of(selection):
            plan = replace(plan, operation="value")
        plan = self._summing(plan, text)
        if plan.operation in ("value", "list", "most", "first", "latest") and not plan.wants_date:
            self._check_asked(selection, text)
        if plan.operation == "value" and selection.is_event:
            plan = replace(plan, operation="list")
        if plan.operation in MEASURED:
            return self._measuring(plan, text)
        noun = self._noun(text)
        if self._is_counted(plan, text):
            return self._counting(replace(plan, operation="count"), "times")
        if plan.operation in ("count", "rate"):
            return self._counting(plan, noun or "times")
        if noun and not plan.wants_date and plan.operation in ("latest", "first", "list", "most"):
            self._check_kind(selection, noun)
        return plan

    def _summing(self, plan: Plan, text: str) -> Plan:
        """Return the plan that sums amounts, if the question asks for that: "what did I spend in
        2020".

        Raises:
            NoPlan: the question asks for something else of a payment than its amount.
        """
        is_spending = self._is_spending(plan.selections[0]) and not LEFT.search(text)
        if plan.operation not in ("value", "list") or not is_spending:
            return plan
        if not re.match(r"(?:how|what|list)\b", text, re.IGNORECASE):
            raise NoPlan("the question does not ask for an amount")
        return replace(plan, operation="sum")

    def _measuring(self, plan: Plan, text: str) -> Plan:
        """Return the plan with the properties whose numbers the question asks for."""
        selection = plan.selections[0]
        total = TOTAL.match(text) if plan.operation == "sum" and selection.is_event else None
        if total is not None and not self.numbers(selection.term):
            return self._counting(replace(plan, operation="count"), total[1])
        noun = self._noun(text)
        names = selection.is_event and plan.operation in ("min", "max") and not selection.fills
        names = names and any(pattern.search(text) for pattern in ASKS_NAME)
        if names and noun is not None:
            self._check_kind(selection, noun)
        measures = self._numbers_of(selection)
        if selection.is_event and re.match(r"who(?:m|se)?\b", text, re.IGNORECASE):
            raise NoPlan("such an event has no person at its other end")
        if not measures:
            raise NoPlan("the events or things of the question have no amounts")
        return replace(
            plan, selections=(replace(selection, measures=measures),), wants_name=bool(names)
        )

    def _numbers_of(self, selection: Selection) -> tuple[str, ...]:
        """Return the properties of a selection whose values are numbers; for events, roles."""
        if selection.is_event:
            return self.numbers(selection.term)
        numbers = self._numeric_properties()
        return tuple(iri for iri in self.ontology.below(selection.term) if iri in numbers)

    def _numeric_properties(self) -> dict[str, Property]:
        """Return the properties whose values are numbers, by IRI."""
        return {
            iri: term for iri, term in self.ontology.properties.items()
            if term.range in (XSD + "decimal", XSD + "integer")
        }  # fmt: skip

    def numbers(self, event: str) -> tuple[str, ...]:
        """Return the roles of a class of events whose values are numbers."""
        is_a = self.ontology.is_a
        roles = [
            iri for iri, term in self._numeric_properties().items()
            if term.domain and self.ontology.object_role(term.domain)
            and (is_a(event, term.domain) or is_a(term.domain, event))
        ]  # fmt: skip
        tops = {up for up in roles if all(is_a(iri, up) for iri in roles)}
        return tuple(sorted(roles)) if tops else ()

    def _is_counted(self, plan: Plan, text: str) -> bool:
        """Return whether a question is a plural noun of events with a time: "flights in 2023"."""
        match = re.match(r"what is (?:my |the )?([a-z]+s)(?: (?:in|on|to|with|from|since) .+)?$",
                         text, re.IGNORECASE)  # fmt: skip
        selection = plan.selections[0]
        is_noun = match is not None and not self.kinds(match[1])
        is_list = plan.operation == "list" and selection.is_event
        return is_list and is_noun and not self.numbers(selection.term)

    def _is_spending(self, one: Selection) -> bool:
        """Return whether the object of a class's events is an amount."""
        role = self.ontology.object_role(one.term) if one.is_event else None
        return role is not None and self.ontology.properties[role].range == XSD + "decimal"

    def _has_dates(self, iri: str) -> bool:
        return self.ontology.properties[iri].range in (XSD + "date", XSD + "dateTime")

    def _check_asked(self, one: Selection, text: str) -> None:
        """Check that the question asks for the other end of the selected facts.

        Raises:
            NoPlan: both ends are named, or the question asks for a role that is not computed.
        """
        if one.subject is not None and one.value is not None and (one.fills or not one.is_event):
            raise NoPlan("the question asks for another role of an event")
        role = self.ontology.object_role(one.term) if one.is_event else None
        asks_place = re.match(r"(?:where|in (?:what|which))\b", text, re.IGNORECASE)
        if role is not None and asks_place and not is_place(self.ontology, role):
            raise NoPlan("the place of such an event is not computed")
        range_ = self.ontology.properties[role or one.term].range if one.value is None else None
        is_person = range_ is None or any(
            self.ontology.is_a(range_, TG + kind) or self.ontology.is_a(TG + kind, range_)
            for kind in ("Agent", "Person")
        )
        if re.match(r"who(?:m|se)?\b", text, re.IGNORECASE) and one.is_event and not is_person:
            raise NoPlan("such an event has no person at its other end")
        left = LEFT.search(text)
        if left is not None and one.is_event:
            word = left[1].lower()
            if self.ontology.role(one.term, word) != role:
                raise NoPlan("the question asks for another role of an event")

    def _counting(self, plan: Plan, noun: str) -> Plan:
        """Return the plan of "how many NOUN"; things of a class are counted by distinct names."""
        selection = plan.selections[0]
        kinds = self.kinds(noun)
        if not kinds or kinds == [TG + "Thing"]:
            return replace(plan, distinct=not selection.is_event)
        self._check_kind(selection, noun)
        return replace(plan, distinct=True)

    def _check_kind(self, one: Selection, noun: str) -> None:
        """Check that the other ends of the facts are of the class that a noun names.

        Raises:
            NoPlan: they are of another class, or their class is unknown.
        """
        kinds = self.kinds(noun)
        if kinds and TG + "Thing" not in kinds and not self.fits(one.term, one.is_event, kinds):
            raise NoPlan("the question asks for things of a class that the facts do not name")

    def fits(self, term: str, is_event: bool, kinds: Sequence[str]) -> bool:
        """Return whether the other ends of a term's facts are of a class, by the term's range."""
        role = self.ontology.object_role(term) if is_event else term
        range_ = self.ontology.properties[role].range if role else None
        if range_ is None:
            return False
        is_town = TG + "City" in kinds and range_ == TG + "Place"  # a place may be a city
        return is_town or any(self.ontology.is_a(range_, kind) for kind in kinds)

    def _noun(self, text: str) -> str | None:
        """Return the first noun of a question that names a class of things."""
        return next((noun for noun in NOUNS.findall(text) if self.kinds(noun)), None)

    def kinds(self, noun: str) -> list[str]:
        """Return the classes of things that a noun, singular or plural, names."""
        forms = word_forms(noun)
        return [
            iri for iri, one in self.ontology.classes.items()
            if not forms.isdisjoint((*one.words, *one.asked)) and not self.ontology.object_role(iri)
        ]  # fmt: skip
