"""Rules that read the clauses of a question as the selections of a typed plan."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from turngraph.data.memory_graph.extract.dates import find_dates
from turngraph.data.memory_graph.ontology.ontology import TG, XSD, Ontology, base_words
from turngraph.data.memory_graph.ontology.question_forms import (
    EVENTS_FIRST,
    FIRST_PERSON,
    MEASURED,
    PREPOSITIONS,
    PRONOUNS,
    SAYS_AMOUNT,
    SAYS_NOTHING,
    WHEN,
    Form,
)
from turngraph.data.memory_graph.ontology.typed_plan import (
    NoPlan,
    Operation,
    Plan,
    Selection,
)
from turngraph.data.memory_graph.record.lookup import describe
from turngraph.data.memory_graph.record.store import Store
from turngraph.data.memory_graph.turns import USER

WORD = re.compile(r"#\d+|[\w'’-]+")
MAX_NAME_WORDS = 5
_NOUNS = re.compile(
    r"(?=\b(?:how many|number of(?: my)?|(?:what|which|who) (?:are|were|is|was)|which|what|who|"
    r"last|latest|first|cheapest|all|list|name|most (?:recent|expensive))"
    r"(?: all)?(?: different)?(?: the)? (\w+))",
    re.IGNORECASE,
)
_AMOUNT = re.compile(r"\b(?:price|amount|much|least|most(?! exp)|weight)\b", re.IGNORECASE)
_LEFT = re.compile(
    rf"\b({'|'.join(sorted(PREPOSITIONS))})(?: the| in \d{{4}})*"
    r"(?: (?:most|least|first|last|often|frequently|recently))*$",
    re.IGNORECASE,
)
"""Preposition at the end of a question, which says the role that is asked for."""
_PAID_FOR = re.compile(
    r"\b(?:for|on)(?: (?:in|on|during|since) .+)?$|^what costs?\b", re.IGNORECASE
)
_AT_PRICE = re.compile(r"\bfor the (?:lowest|highest) ", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LinkedName:
    """Linked name of a question: its place in the words, and the object."""

    first: int
    stop: int
    node: int


@dataclass(frozen=True, slots=True)
class _Term:
    """Term of a question: its place in the words."""

    first: int
    stop: int
    iri: str
    is_event: bool


class PlanMaker:
    """Reads the clauses of one question."""

    def __init__(
        self, store: Store, ontology: Ontology, operation: Operation, sense: int = 0
    ) -> None:
        self.store, self.ontology, self.operation = store, ontology, operation
        self.sense, self.num_senses = sense, 1
        self.heads: dict[str, set[str]] = defaultdict(set)
        for word, iris in ontology.property_words.items():
            head, _, last = word.rpartition(" ")
            if last in PREPOSITIONS:
                self.heads[head].update(iris)
                if head.startswith("be "):  # "was Anna employed at"
                    self.heads[head.removeprefix("be ")].update(iris)

    def before(self, form: Form) -> Plan | None:
        """Return the plan of "Did A before B?"; None where B is no event but a date."""
        last = form.clauses[-1]
        if self._find_term(WORD.findall(last), last) is None and find_dates(last, None):
            return None
        operation: Operation = "before" if form.how == "before" else "after"
        self.operation = operation
        return Plan(operation, self.selections(form.clauses))

    def selections(self, clauses: Sequence[str]) -> tuple[Selection, ...]:
        """Return a selection for each clause; one without a subject has that of the first."""
        found: list[Selection] = []
        frame = ""
        for clause in clauses:
            words = WORD.findall(clause)
            term = self._find_term(words, clause) if len(clauses) > 1 else None
            if found and term is None:  # "did I visit Rome before Paris"
                clause = f"{frame} to {clause}"
            if not found and term is not None:
                frame = " ".join(words[: term.stop])
            one = self._selection(clause, found[0].subject if found else None)
            found.append(one)
        first = found[0]
        if first.subject is None and first.value is None:
            said = {word.lower() for word in WORD.findall(clauses[0])}
            if PRONOUNS & said or not first.is_event:
                raise NoPlan("the question names nothing known")
            found[0] = replace(first, subject=self.speaker())  # "how many flights were there"
        return tuple(found)

    def _selection(self, clause: str, before: int | None) -> Selection:
        """Return the selection of a clause.

        Args:
            clause: "my trip to Rome", "did Anna live in Oslo".
            before: the subject of the clause before, which "she" means, or no subject at all.
        """
        words = WORD.findall(clause)
        lower = [word.lower() for word in words]
        age = TG + "birthDate"
        if self.operation == "age":
            if age not in self.ontology.properties:
                raise NoPlan("the ontology has no birthDate")
            term: _Term | None = _Term(0, 2, age, False)
        else:
            term = self._find_term(words, clause)
        mine = self.operation in MEASURED and FIRST_PERSON & set(lower)
        if term is not None and term.iri == TG + "price" and mine:  # what I paid for mine
            term = replace(term, iri=TG + "Buy", is_event=True)
        if term is None:
            raise NoPlan("no word of the question is a property or a class of events")
        names = self._names(words, clause, term)
        self._check_rest(words, clause, term, names)
        subject = before if PRONOUNS & set(lower) else None
        subject = self.speaker() if FIRST_PERSON & set(lower) else subject
        has_subject = before is not None or any(name.first < term.first for name in names)
        has_name = any(not words[name.first].islower() for name in names)
        is_gerund = term.is_event and lower[term.first].endswith("ing")
        if is_gerund and subject is None and all(name.first >= term.stop for name in names):
            subject = self.speaker() if before is None else before  # "visiting Rome"
        value = None
        for name in names:
            word = lower[name.first - 1] if name.first > 0 else ""
            behind = word in PREPOSITIONS and not (word == "of" and name.first == term.stop + 1)
            behind = behind and self.operation != "age"
            is_object = term.is_event and name.first >= term.stop and has_subject
            is_object |= term.is_event and words[name.first].islower() and has_name
            if subject is None and not behind and not is_object:
                subject = name.node
            elif value is None:
                value = name.node
            else:
                raise NoPlan("the question names more than two things")
        subject = before if subject is None else subject
        return Selection(term.iri, term.is_event, subject, value, clause.strip())

    def _check_rest(
        self, words: Sequence[str], clause: str, term: _Term, names: Sequence[LinkedName]
    ) -> None:
        """Check that every word is linked or says nothing, so that none is left out silently."""
        spans = [(term.first, term.stop), *((name.first, name.stop) for name in names)]
        linked = {place for first, stop in spans for place in range(first, stop)}
        plain = SAYS_NOTHING | self._nouns(clause) | {w.lower() for w in _date_words(clause)}
        if self.operation in MEASURED:
            plain |= SAYS_AMOUNT
        for place, word in enumerate(words):
            if place in linked or word.lower() in plain:
                continue
            if term.is_event and any(
                self.ontology.is_a(term.iri, iri) or self.ontology.is_a(iri, term.iri)
                for iri, is_event, _ in self._terms([word], False)
                if is_event
            ):  # "pay per purchase"
                continue
            behind = [one.lower() for one in words[place + 1 : place + 2]]
            if behind == ["of"] and self._fits(term.iri, term.is_event, self._kinds(word)):
                continue  # "the city of residence"
            named = place + 1 in linked and place + 1 not in range(term.first, term.stop)
            kinds = self._kinds(word) if named else []  # "the book Dune"
            if not kinds or not self._fits(term.iri, term.is_event, kinds):
                raise NoPlan(f"a word of the question is not known here: {word!r}")

    def _find_term(self, words: Sequence[str], clause: str) -> _Term | None:
        """Return the term with the most words; events or properties first, as is asked."""
        found = []
        where = re.match(r"(?:where|in (?:what|which))\b", clause, re.IGNORECASE)
        ends = [word.lower() for word in (*words[:1], *words[-1:])]
        fronted = next((word for word in ends if word in PREPOSITIONS), "")  # "for whom"
        events_first = self.operation in EVENTS_FIRST
        for first in range(len(words)):
            for stop in range(first + 1, min(len(words), first + 5) + 1):
                for iri, is_event, is_head in self._terms(words[first:stop], bool(where), fronted):
                    other = is_event != events_first
                    size = (other, first - stop) if events_first else (first - stop, other)
                    lacks = is_head + (is_head and base_words(words[first]) == "be")
                    rank = (lacks, *size, first, iri)
                    found.append((rank, _Term(first, stop, iri, is_event)))
        if not found:
            return None
        (best, term), *others = sorted(found, key=lambda one: one[0])
        if best[0] and any(rank[:4] == best[:4] for rank, _ in others):
            raise NoPlan("a word of the question means several properties")
        return term

    def _terms(
        self, words: Sequence[str], where: bool, word: str = ""
    ) -> list[tuple[str, bool, bool]]:
        """Return the terms of some words: IRI, whether an event, whether a preposition lacks."""
        form = base_words(" ".join(words))
        forms = [form, *(base_words(form.removesuffix(ending)) for ending in ("es", "s"))]
        for one in dict.fromkeys(forms):
            events = [i for i in self.ontology.class_words.get(one, ())
                      if self.ontology.object_role(i)]  # fmt: skip
            known = [i for i in self.ontology.property_words.get(one, ())
                     if not where or self._is_place(i)]  # fmt: skip
            heads = [i for i in self.heads.get(one, ()) if not where or self._is_place(i)]
            heads = [i for i in heads if f"{one} {word}" in self.ontology.properties[i].words
                     ] or heads  # fmt: skip
            terms = [(self._sense(events), True, False)] if events else []
            terms += [(iri, False, False) for iri in known]
            terms += [(iri, False, True) for iri in sorted(heads) if iri not in known]
            if terms:
                return terms
        return []

    def _sense(self, events: Sequence[str]) -> str:
        """Return the class that a verb means: the deepest, or the next one in another sense."""
        ranked = sorted(events, key=self._depth, reverse=True)
        apart = [
            one for index, one in enumerate(ranked)
            if not any(self.ontology.is_a(deeper, one) for deeper in ranked[:index])
        ]  # fmt: skip
        self.num_senses = max(self.num_senses, len(apart))
        return apart[min(self.sense, len(apart) - 1)]

    def _depth(self, iri: str) -> tuple[int, str]:
        return sum(self.ontology.is_a(iri, up) for up in self.ontology.classes), iri

    def _is_place(self, iri: str) -> bool:
        kind = self.ontology.properties[iri].range or ""
        return any(self.ontology.is_a(kind, TG + one) for one in ("Place", "Organization"))

    def _names(self, words: Sequence[str], clause: str, term: _Term) -> list[LinkedName]:
        """Return the objects that words beside a term name."""
        taken = set(range(term.first, term.stop)) if self.operation != "age" else set()
        return self.linked(words, clause, taken)

    def linked(self, words: Sequence[str], clause: str, taken: set[int]) -> list[LinkedName]:
        """Return the objects that words name, the longest names first found.

        Args:
            words: of the clause.
            clause: of a question.
            taken: places of words that name nothing.

        Raises:
            NoPlan: several objects have one name.
        """
        dates, nouns = _date_words(clause), self._nouns(clause)
        found: list[LinkedName] = []
        for size in range(min(MAX_NAME_WORDS, len(words)), 0, -1):
            for first in range(len(words) - size + 1):
                places = set(range(first, first + size))
                text = re.sub(r"['’]s$", "", " ".join(words[first : first + size]))
                said = set(words[first : first + size])
                if places & taken or said <= dates or text in nouns or self._is_plain(text):
                    continue
                nodes = self._objects(text)
                if len(nodes) > 1:
                    listed = "; ".join(describe(self.store.db, node) for node in nodes)
                    raise NoPlan(f"{len(nodes)} objects have one name: {listed}")
                if nodes:
                    taken |= places
                    found.append(LinkedName(first, first + size, nodes[0]))
        return sorted(found, key=lambda name: name.first)

    def _nouns(self, clause: str) -> set[str]:
        """Return the nouns that say what is asked for by its class: "books" of "how many books"."""
        return {noun for noun in _NOUNS.findall(clause) if noun.islower() and self._kinds(noun)}

    def _noun(self, text: str) -> str | None:
        """Return the first noun of a question that names a class of things."""
        return next((noun for noun in _NOUNS.findall(text) if self._kinds(noun)), None)

    def _kinds(self, noun: str) -> list[str]:
        """Return the classes of things that a noun names, in singular or plural."""
        noun = noun.lower()
        forms = [noun, noun.removesuffix("s"), re.sub("ies$", "y", noun)]
        found = [iri for form in forms
                 for iri in self.ontology.class_words.get(base_words(form), ())]  # fmt: skip
        return [iri for iri in dict.fromkeys(found) if not self.ontology.object_role(iri)]

    def _is_plain(self, text: str) -> bool:
        word = text.lower()
        return (
            word in FIRST_PERSON
            or word in PREPOSITIONS
            or word in PRONOUNS
            or word in ("first", "last", "time", "times", "the", "a", "did", "make", "home")
            or (not text[:1].isupper() and bool(self._terms([text], False)))
        )

    def _objects(self, text: str) -> list[int]:
        if re.fullmatch(r"#\d{1,18}", text):
            sql = "SELECT id FROM nodes WHERE id = ? AND type = 0"
            return [node for (node,) in self.store.db.execute(sql, (int(text[1:]),))]
        found = self.store.objects(text)
        if not found and text.islower() and text.endswith("s"):
            found = self.store.objects(text.removesuffix("s"))
        return found

    def speaker(self) -> int:
        """Return the object of "I": the user, else the one speaker of all episodes."""
        found = self.store.objects(USER)
        if not found:
            sql = "SELECT DISTINCT speaker FROM episodes WHERE speaker IS NOT NULL LIMIT 2"
            speakers = [name for (name,) in self.store.db.execute(sql)]
            found = self.store.objects(speakers[0]) if len(speakers) == 1 else []
        if len(found) != 1:
            raise NoPlan("nobody is known as the speaker")
        return found[0]

    def refined(self, plan: Plan, text: str) -> Plan:
        """Return the plan with what the rest of the question says."""
        plan = replace(plan, wants_date=WHEN.match(text) is not None)
        one = plan.selections[0]
        if plan.operation == "duration" and one.is_event:
            raise NoPlan("events have no duration here")
        if plan.operation == "since" and not one.is_event and self._is_date(one.term):
            plan = replace(plan, operation="value")
        if plan.operation == "sum" and not one.is_event:
            plan = replace(plan, operation="value")
        if plan.operation in ("value", "list", "most", "first", "latest") and not plan.wants_date:
            self._check_asked(one, text)
        if plan.operation == "value" and one.is_event:
            plan = replace(plan, operation="list")
        if plan.operation in MEASURED:
            return self._measuring(plan, text)
        noun = self._noun(text)
        if plan.operation in ("count", "rate"):
            return self._counting(plan, noun or "times")
        if noun and not plan.wants_date and plan.operation in ("latest", "first", "list", "most"):
            self._check_kind(one, noun)
        return plan

    def _measuring(self, plan: Plan, text: str) -> Plan:
        """Return the plan with the properties whose numbers are asked for."""
        one = plan.selections[0]
        noun = self._noun(text)
        amount = _AMOUNT.search(text) and not _AT_PRICE.search(text) and not _PAID_FOR.search(text)
        names = one.is_event and plan.operation in ("min", "max") and not amount
        if names and noun is not None:
            self._check_kind(one, noun)
        measures = self._numbers_of(one)
        if not measures:
            raise NoPlan("what is asked about has no amounts")
        return replace(plan, selections=(replace(one, measures=measures),), wants_name=bool(names))

    def _numbers_of(self, one: Selection) -> tuple[str, ...]:
        """Return the properties of numbers of a selection; of an event, its roles."""
        numbers = {
            iri: term for iri, term in self.ontology.properties.items()
            if term.range in (XSD + "decimal", XSD + "integer")
        }  # fmt: skip
        if not one.is_event:
            return tuple(iri for iri in self.ontology.below(one.term) if iri in numbers)
        is_a = self.ontology.is_a
        roles = [
            iri for iri, term in numbers.items()
            if term.domain and self.ontology.object_role(term.domain)
            and (is_a(one.term, term.domain) or is_a(term.domain, one.term))
        ]  # fmt: skip
        tops = {up for up in roles if all(is_a(iri, up) for iri in roles)}
        return tuple(sorted(roles)) if tops else ()

    def _is_date(self, iri: str) -> bool:
        return self.ontology.properties[iri].range in (XSD + "date", XSD + "dateTime")

    def _check_asked(self, one: Selection, text: str) -> None:
        """Check that the question asks for the other end of the facts that it selects.

        Raises:
            NoPlan: both ends are named, or "where" is asked of an event that leads nowhere.
        """
        if one.subject is not None and one.value is not None:
            raise NoPlan("the question asks for another role of an event")
        role = self.ontology.object_role(one.term) if one.is_event else None
        asks_place = re.match(r"(?:where|in (?:what|which))\b", text, re.IGNORECASE)
        if role is not None and asks_place and not self._is_place(role):
            raise NoPlan("the place of such an event is not computed")
        range_ = self.ontology.properties[role or one.term].range if one.value is None else None
        is_person = range_ is None or any(
            self.ontology.is_a(range_, TG + kind) or self.ontology.is_a(TG + kind, range_)
            for kind in ("Agent", "Person")
        )
        if re.match(r"who(?:m|se)?\b", text, re.IGNORECASE) and one.is_event and not is_person:
            raise NoPlan("such an event has no person at its other end")
        left = _LEFT.search(text)
        if left is not None and one.is_event:
            word = left[1].lower()
            if self.ontology.role(one.term, word) != role:
                raise NoPlan("the question asks for another role of an event")

    def _counting(self, plan: Plan, noun: str) -> Plan:
        """Return the plan of "how many NOUN": things of a class are counted by their names."""
        one = plan.selections[0]
        kinds = self._kinds(noun)
        if not kinds or kinds == [TG + "Thing"]:
            return replace(plan, distinct=not one.is_event)
        self._check_kind(one, noun)
        return replace(plan, distinct=True)

    def _check_kind(self, one: Selection, noun: str) -> None:
        """Check that the facts tell things of the class that a noun names.

        Raises:
            NoPlan: what the facts tell is of another class, or it is not known of which.
        """
        kinds = self._kinds(noun)
        if kinds and not self._fits(one.term, one.is_event, kinds):
            raise NoPlan("what is asked for is of a class that the facts do not tell")

    def _fits(self, term: str, is_event: bool, kinds: Sequence[str]) -> bool:
        """Return whether the other ends of a term's facts are of a class, as its range says."""
        role = self.ontology.object_role(term) if is_event else term
        range_ = self.ontology.properties[role].range if role else None
        if range_ is None:
            return False
        is_town = TG + "City" in kinds and range_ == TG + "Place"  # facts seldom tell which is one
        return is_town or any(self.ontology.is_a(range_, kind) for kind in kinds)


def _date_words(clause: str) -> set[str]:
    dates = find_dates(clause, None)
    return {word for date in dates for word in WORD.findall(clause[date.start : date.stop])}
