"""Result of asking the memory graph a question: facts, and their form as evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol

from turngraph.data.memory_graph.memory_types import Fact, Span
from turngraph.data.memory_graph.names import alias
from turngraph.data.types import Entity, Evidence

if TYPE_CHECKING:  # themes need scipy, which takes long to import
    from turngraph.data.memory_graph.recall.held_quotes import RecalledTheme
    from turngraph.data.memory_graph.recall.plan_trace import PlanTrace
    from turngraph.data.memory_graph.recall.view import QuestionEntity

DAY = len("2019-05-03")
Mode = Literal["both", "facts", "episodes", "plan", "themes"]
"""How a question is asked: by ``ask``, or by the ``ask_`` method of that name."""
MAX_PLACES = 3
"""Most places behind a marked fact from which the newer one is moved before it. Many marks are
wrong: moved from anywhere, newer facts took the first place from evidence for 8 % of LoCoMo's
questions, and gained nothing for 98 about diaries."""


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """Answer of a model to a question, read from recalled facts.

    Args:
        text: the answer; "not in the evidence" where it is withheld.
        probability: the model's probability of the answer, 0 to 1; not calibrated.
        confidence: the calibrated probability that the answer is right; None: the model is not
            calibrated.
        fact: key of the first recalled fact that contains the answer; None: none does.
        span: span of the answer in that fact's text, in characters.
        withheld: the answer, if it is withheld because the model is not sure enough.
    """

    text: str
    probability: float
    confidence: float | None = None
    fact: int | None = None
    span: Span | None = None
    withheld: str | None = None


class RecollectionReader(Protocol):
    """A model that answers questions from what was recalled for them."""

    def read(self, recollection: Recollection) -> ReadAnswer | None:
        """Return the answer to the question of ``recollection``; None: nothing was recalled."""


@dataclass(frozen=True, slots=True)
class Recollection:
    """What the memory graph recalls for a question, by any of the ways of asking.

    Args:
        question: the question, as the user wrote it.
        entities: names that the question mentions, and the objects that they mean; () if it was
            asked by a plan, whose clues have their own entities.
        facts: facts, best first, with their closeness as score, or episodes, with their share of
            the PageRank; none: no answer.
        revision: revision of the graph that was read.
        milliseconds: time of each stage.
        by_similarity: whether all facts were searched because the question names no object of the
            graph.
    """

    question: str
    entities: tuple[QuestionEntity, ...]
    facts: tuple[Fact, ...]
    revision: int
    milliseconds: dict[str, float]
    by_similarity: bool = False
    mode: Mode = "facts"
    themes: tuple[RecalledTheme, ...] = ()
    """Themes that ``ask_themes`` found, best first; ``facts`` are then theme by theme."""
    behind: tuple[str | None, ...] = ()
    """Sources whose themes are older than the record (``ask_themes`` and traversal "eigen")."""
    without_themes: bool = False
    """Whether all facts were searched because the graph has no themes."""
    plan: PlanTrace | None = None
    """Trace of ``ask_planned``; ``facts`` are then those of the question and of all steps."""
    answer: ReadAnswer | None = None
    """Answer of a reader; None: no reader was used, or nothing was recalled."""

    @property
    def no_answer(self) -> bool:
        """Whether nothing was found."""
        return not self.facts

    def evidence(self) -> list[Evidence]:
        """Return the facts as evidence; see ``evidence_of``."""
        return evidence_of(self.facts)


def dated_text(fact: Fact) -> str:
    """Return a fact's text after the day on which it was first said: "2019-05-03: I live in Cork."

    A text that begins with the time from which it holds stays as it is.
    """
    said = fact.provenance[0].said_locally if fact.provenance else None
    if said is None or (fact.valid_from and fact.text.startswith(f"{fact.valid_from}: ")):
        return fact.text
    return f"{said[:DAY]}: {fact.text}"


def evidence_of(facts: Sequence[Fact], text: Callable[[Fact], str] | None = None) -> list[Evidence]:
    """Return facts as evidence; an entity's id is its name in normal form.

    The ids of different objects with one name (two people named Anna) also hold their node id.

    Args:
        facts: the facts.
        text: returns a fact's text as evidence; None: the text is the fact's own.
    """
    objects = dict(entity for fact in facts for entity in fact.entities)
    namesakes = Counter(alias(name) for name in objects.values())
    ids = {
        node: alias(name) if namesakes[alias(name)] == 1 else f"{alias(name)} #{node}"
        for node, name in objects.items()
    }
    return [
        Evidence(
            f"memory {fact.key}",
            fact.text if text is None else text(fact),
            "memory",
            tuple(Entity(ids[node], name) for node, name in fact.entities),
        )
        for fact in facts
    ]


def each_once(facts: Sequence[Fact]) -> list[Fact]:
    """Return ranked facts without repeated statements: each keeps the rank of its best form.

    A thesis replaces the triplets of its sentence, unless a part of it has ended. A thesis or a
    triplet that covers the whole text of an episode replaces the episode.

    Args:
        facts: best first.
    """
    theses = {
        (place.episode, place.span, fact.hypothesis): fact
        for fact in reversed(facts)
        if fact.type == "thesis" and fact.partly_until is None
        for place in fact.provenance
    }
    said = {
        (place.episode, place.span): fact
        for fact in reversed(facts)
        if fact.type != "episodic"
        for place in fact.provenance
    }
    by_key: dict[int, Fact] = {}
    for fact in facts:
        places = [(place.episode, place.span, fact.hypothesis) for place in fact.provenance]
        if fact.type == "episodic":
            begin = len(fact.text) - len(fact.text.lstrip())
            whole = fact.key >> 1, (begin, len(fact.text.rstrip()))
            if whole in said:
                covering = said[whole]
                places = [(*whole, covering.hypothesis)]
                fact = replace(covering, score=fact.score)
        if fact.type == "simple":
            better = next((theses[place] for place in places if place in theses), fact)
            fact = replace(better, score=fact.score)
        by_key.setdefault(fact.key, fact)
    return list(by_key.values())


def newer_first(facts: Sequence[Fact], max_places: int | None = None) -> tuple[Fact, ...]:
    """Return facts in order, but move a fact that may have ended another directly before it.

    Args:
        facts: marked facts.
        max_places: most places behind the marked fact from which the newer one is moved; None: any.
    """
    places = {fact.key: place for place, fact in enumerate(facts)}
    ordered: dict[int, Fact] = {}
    for place, fact in enumerate(facts):
        chain, last = {fact.key: fact}, len(facts) if max_places is None else place + max_places
        newer = fact.may_have_ended
        # what was said twice may have ended what has ended it: the chain stops where it closes
        while newer in places and newer not in chain and places[newer] <= last:
            chain[newer] = facts[places[newer]]
            newer = chain[newer].may_have_ended
        ordered |= {key: chain[key] for key in reversed(chain) if key not in ordered}
    return tuple(ordered.values())


def first_facts(facts: Sequence[Fact], num: int | None) -> tuple[Fact, ...]:
    """Return the first facts; marks that name a fact behind them name its episode, if it is there.

    ``newer_first`` then orders them.

    Args:
        facts: marked facts, best first.
        num: most facts; None: all.
    """
    by_key, shown = {fact.key: fact for fact in facts}, {fact.key: fact for fact in facts[:num]}
    for fact in facts[:num]:
        newer = by_key.get(fact.may_have_ended or -1)
        if newer is not None and newer.key not in shown:
            said = (2 * place.episode for place in newer.provenance)
            if (key := next((key for key in said if key in shown), None)) is not None:
                shown[fact.key] = replace(fact, may_have_ended=key)
    return newer_first(list(shown.values()), MAX_PLACES)
