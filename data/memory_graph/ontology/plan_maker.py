"""Rules that turn the clauses of a question into the selections of a typed plan."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, product

from turngraph.data.memory_graph.extract.dates import find_dates
from turngraph.data.memory_graph.ontology.clause_words import (
    NOUNS,
    WORD,
    LinkedName,
    date_words,
    is_compound,
    is_owner,
    is_passive,
    preposition,
)
from turngraph.data.memory_graph.ontology.ontology import TG, Label, Ontology
from turngraph.data.memory_graph.ontology.plan_refiner import PlanRefiner
from turngraph.data.memory_graph.ontology.question_forms import (
    MEASURED,
    PREPOSITIONS,
    PRONOUNS,
    SAYS_AMOUNT,
    SAYS_NOTHING,
    Form,
)
from turngraph.data.memory_graph.ontology.question_terms import (
    Term,
    labels_of,
    readings,
    word_forms,
)
from turngraph.data.memory_graph.ontology.typed_plan import (
    NoPlan,
    Operation,
    Plan,
    Selection,
)
from turngraph.data.memory_graph.record.lookup import describe
from turngraph.data.memory_graph.record.speaker import FIRST_PERSON, speaker_of
from turngraph.data.memory_graph.record.store import Store

MAX_NAME_WORDS = 5
MAX_READINGS = 32


class PlanMaker:
    """Makes the selections of one question.

    Args:
        store: the record, whose objects are linked.
        ontology: the ontology.
        operation: operation of the question's form.
    """

    def __init__(self, store: Store, ontology: Ontology, operation: Operation) -> None:
        self.store, self.ontology, self.operation = store, ontology, operation
        self._refiner = PlanRefiner(ontology)

    def is_date(self, clause: str) -> bool:
        """Return whether a clause is only a date: "2020" of "before 2020"."""
        return not self._terms(clause) and bool(find_dates(clause, None))

    def selections(self, form: Form) -> Iterator[tuple[int, tuple[Selection, ...]]]:
        """Yield (rank, selections) of each reading of the clauses, the best first.

        A clause without a term takes the term of another clause; a clause without a subject takes
        the subject of the first.

        Raises:
            NoPlan: no reading links every word; the message is that of the best reading.
        """
        shown = form.clauses
        clauses, options = self._framed(
            [f"{form.frame} to {clause}" if form.frame else clause for clause in shown]
        )
        reasons: list[NoPlan] = []
        num_found = 0
        for ranked in islice(product(*options), MAX_READINGS):
            terms = [term for _, term in ranked]
            try:
                chosen = self._selected(clauses, terms)
            except NoPlan as reason:
                reasons.append(reason)
                continue
            num_found += 1
            rank = sum(rank for rank, _ in ranked)
            yield (
                rank,
                tuple(
                    replace(one, text=text.strip()) for one, text in zip(chosen, shown, strict=True)
                ),
            )
        if not num_found:
            raise reasons[0]

    def _framed(self, clauses: Sequence[str]) -> tuple[Sequence[str], list[list[tuple[int, Term]]]]:
        """Return the clauses and their terms; clauses without a term get the words of another's."""
        options = [self._terms(clause) for clause in clauses]
        frame = ""
        for clause, terms in zip(clauses, options, strict=True):
            if terms:
                words, term = WORD.findall(clause), terms[0][1]
                frame = " ".join(words[term.first : term.stop])
                break
        if not any(options):
            if len(clauses) == 1 or TG + "Action" not in self.ontology.classes:
                raise NoPlan("no word of the question is a property or a class of events")
            any_event = [(0, Term((), TG + "Action", True))]  # "was Rome before Paris"
            return [f"my to {clause}" for clause in clauses], [any_event] * len(clauses)
        texts = [  # "did I visit Rome before Paris"
            clause if terms else f"{frame} to {clause}"
            for clause, terms in zip(clauses, options, strict=True)
        ]
        return texts, [
            terms or self._terms(text) for terms, text in zip(options, texts, strict=True)
        ]

    def _terms(self, clause: str) -> list[tuple[int, Term]]:
        """Return (rank, term) of the terms that a clause may name."""
        if self.operation == "age":
            if TG + "birthDate" not in self.ontology.properties:
                raise NoPlan("the ontology has no birthDate")
            return [(0, Term((), TG + "birthDate", False))]
        is_where = re.match(r"(?:where|in (?:what|which))\b", clause, re.IGNORECASE) is not None
        levels = readings(self.ontology, WORD.findall(clause), self.operation, is_where)
        return [
            (rank, term) for rank, terms in enumerate(levels) for term in terms
            if not term.is_amount or self.operation in MEASURED
        ]  # fmt: skip

    def _selected(self, clauses: Sequence[str], terms: Sequence[Term]) -> tuple[Selection, ...]:
        """Return the selections of clauses in one reading."""
        chosen: list[Selection] = []
        for clause, term in zip(clauses, terms, strict=True):
            chosen.append(self._selection(clause, term, chosen[0].subject if chosen else None))
        first = chosen[0]
        if first.subject is None and first.value is None:
            said = {word.lower() for word in WORD.findall(clauses[0])}
            is_told = first.is_event or self.operation in MEASURED or "where" in said
            if PRONOUNS & said or not is_told:
                raise NoPlan("the question names no object of the graph")
            chosen[0] = replace(first, subject=self.speaker())  # "how many flights were there"
        return tuple(chosen)

    def _selection(self, clause: str, term: Term, before: int | None) -> Selection:
        """Return the selection of a clause.

        Args:
            clause: "my trip to Rome", "did Anna live in Oslo".
            term: term of the clause.
            before: subject of the first clause, which "she" or a missing subject means; None: this
                is the first clause.
        """
        words = WORD.findall(clause)
        lower = [word.lower() for word in words]
        names = self._names(words, clause, term)
        is_done_to = term.is_event and lower[term.stop : term.stop + 1] in (["me"], ["us"])
        if is_done_to and "i" not in lower and not self._refiner.numbers(term.iri):
            raise NoPlan("the question asks who did something to somebody")
        self._check_rest(words, clause, term, names)
        subject = before if PRONOUNS & set(lower) else None
        subject = self.speaker() if FIRST_PERSON & set(lower) else subject
        has_subject = before is not None or any(name.first < term.first for name in names)
        has_name = any(not words[name.first].islower() for name in names)
        is_gerund = term.is_event and lower[term.first].endswith("ing")
        if is_gerund and subject is None and all(name.first >= term.stop for name in names):
            subject = self.speaker() if before is None else before  # "visiting Rome"
        passive = term.is_event and is_passive(lower, term, names)
        value, fills = None, False
        for name in names:
            word = lower[name.first - 1] if name.first > 0 else ""
            behind = word in PREPOSITIONS and not (word == "of" and name.first == term.stop + 1)
            behind = behind and self.operation != "age"
            behind = behind and not is_owner(words, name, term)  # "number of Anna's trips"
            is_object = term.is_event and name.first >= term.stop and has_subject
            is_object |= term.is_event and words[name.first].islower() and has_name
            is_object |= passive and name.first < term.first
            is_object |= term.is_event and is_compound(words, name, term)
            is_object |= term.is_amount and (behind or words[name.first].islower())
            if subject is None and not behind and not is_object:
                subject = name.node
            elif value is None:
                value = name.node
                fills = self._is_object(term, preposition(lower, name.first))
            else:
                raise NoPlan("the question names more than two things")
        subject = before if subject is None else subject
        is_impersonal = subject is None and value is not None and not term.is_amount
        if term.is_event and is_impersonal and not self._asks_agent(clause):
            subject = self.speaker()  # "was the Rome trip before the Paris trip"
        return Selection(term.iri, term.is_event, subject, value, clause.strip(), (), fills)

    def _asks_agent(self, clause: str) -> bool:
        """Return whether a clause asks for the agent of events."""
        if re.match(r"(?:by )?who(?:m|se)?\b", clause, re.IGNORECASE):
            return True
        people = {TG + "Person", TG + "Agent"}
        return any(
            not people.isdisjoint(self._refiner.kinds(noun)) for noun in NOUNS.findall(clause)
        )

    def _is_object(self, term: Term, preposition: str) -> bool:
        """Return whether a name after a preposition is the object of an event or of a property."""
        if not term.is_event or preposition in ("", "on", "of", "for"):
            return True
        return self.ontology.role(term.iri, preposition) == self.ontology.object_role(term.iri)

    def _check_rest(
        self, words: Sequence[str], clause: str, term: Term, names: Sequence[LinkedName]
    ) -> None:
        """Check that every word is linked or has no meaning for the plan; raise NoPlan if not."""
        linked = {*term.places, *(p for name in names for p in range(name.first, name.stop))}
        plain = SAYS_NOTHING | self._nouns(clause) | {w.lower() for w in date_words(clause)}
        if self.operation in MEASURED:
            plain |= SAYS_AMOUNT
        for terms in readings(self.ontology, words, self.operation, False):
            for other in terms:  # "money went on shopping"
                if other.iri != term.iri and self.ontology.is_a(term.iri, other.iri):
                    linked |= set(other.places)
        for place, word in enumerate(words):
            if place in linked or word.lower() in plain:
                continue
            if any(self.ontology.is_a(term.iri, label.iri) for label in self._named(word)):
                continue  # "pay per purchase"
            if term.is_event and "pay" in word_forms(word) and not self._refiner.numbers(term.iri):
                continue  # "how many visits have I paid"
            kinds = self._refiner.kinds(word)  # "the book Dune", "the city of residence"
            if not kinds or not self._refiner.fits(term.iri, term.is_event, kinds):
                raise NoPlan(f"a word of the question is unknown: {word!r}")

    def _named(self, word: str) -> list[Label]:
        """Return the labels that consist of one word, for a word."""
        labels = labels_of(self.ontology)
        return [
            label for form in word_forms(word) for label in labels.get(form, ())
            if len(label.words) == 1
        ]  # fmt: skip

    def _names(self, words: Sequence[str], clause: str, term: Term) -> list[LinkedName]:
        """Return the objects that the words of a clause, except those of a term, name."""
        return self.linked(words, clause, set(term.places))

    def linked(self, words: Sequence[str], clause: str, taken: set[int]) -> list[LinkedName]:
        """Return the objects that the words of a clause name; longer names win.

        Args:
            words: words of the clause.
            clause: text of the clause.
            taken: indices of words that name no object; those of linked names are added.

        Raises:
            NoPlan: several objects have one name.
        """
        dates, nouns = date_words(clause), self._nouns(clause)
        names: list[LinkedName] = []
        for size in range(min(MAX_NAME_WORDS, len(words)), 0, -1):
            for first in range(len(words) - size + 1):
                places = set(range(first, first + size))
                text = re.sub(r"['’]s$", "", " ".join(words[first : first + size]))
                said = set(words[first : first + size])
                if self.operation in MEASURED and said <= SAYS_AMOUNT:
                    continue  # "how many euros"
                if places & taken or said <= dates or text in nouns or self._is_plain(text):
                    continue
                objects = self._objects(text)
                if len(objects) > 1:
                    listed = "; ".join(describe(self.store.db, node) for node in objects)
                    raise NoPlan(f"{len(objects)} objects have one name: {listed}")
                if objects:
                    taken |= places
                    names.append(LinkedName(first, first + size, objects[0]))
        return sorted(names, key=lambda name: name.first)

    def _nouns(self, clause: str) -> set[str]:
        """Return the nouns that name the class of the answer: "books" of "how many books"."""
        return {
            noun for noun in NOUNS.findall(clause) if noun.islower() and self._refiner.kinds(noun)
        }

    def _is_plain(self, text: str) -> bool:
        word = text.lower()
        return (
            word in FIRST_PERSON
            or word in PREPOSITIONS
            or word in PRONOUNS
            or word in ("first", "last", "time", "times", "the", "a", "did", "make", "home")
            or (not text[:1].isupper() and any(not label.is_asked for label in self._named(text)))
        )

    def _objects(self, text: str) -> list[int]:
        if re.fullmatch(r"#\d{1,18}", text):
            sql = "SELECT id FROM nodes WHERE id = ? AND type = 0"
            return [node for (node,) in self.store.db.execute(sql, (int(text[1:]),))]
        objects = self.store.objects(text)
        if not objects and text.islower() and text.endswith("s"):
            objects = self.store.objects(text.removesuffix("s"))
        return objects

    def speaker(self) -> int:
        """Return the object of "I"; see ``speaker_of``."""
        speaker = speaker_of(self.store.db)
        objects = [] if speaker is None else self.store.objects(speaker)
        if len(objects) != 1:
            raise NoPlan("the graph has no single speaker")
        return objects[0]

    def refined(self, plan: Plan, text: str) -> Plan:
        """Return the plan completed by the rest of the question; see ``PlanRefiner.refined``."""
        return self._refiner.refined(plan, text)
