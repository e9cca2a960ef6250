"""Finds the answers of a step in its facts by rules: names in close facts, of the wanted kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from turngraph.data.memory_graph.extract.sentence_mentions import is_no_person
from turngraph.data.memory_graph.extract.word_lists import CONTINENTS, COUNTRIES, STATES
from turngraph.data.memory_graph.memory_types import Fact
from turngraph.data.memory_graph.names import alias
from turngraph.data.memory_graph.plan.decompose import wanted_kind
from turngraph.data.memory_graph.plan.steps import ClueRecall, Digest, Searched

NUM_FACTS = 15
"""Number of a clue's closest facts in which answers are searched."""
NUM_ANSWERS = 8
ABOUT, KIND, LIKE, LOWER, DIGITS = 0.2, 0.2, 0.6, 0.3, 0.3
"""Weights of a name's score. Added to the closeness of its fact: ``ABOUT`` if the fact mentions a
name of the step, ``KIND`` if the name is of the wanted kind, ``LIKE`` times the cosine of the name
to the wanted kind. Subtracted: ``LOWER`` for a name in lower case, ``DIGITS`` for digits."""
PEOPLE = frozenset(
    "who author composer director performer performers producer writer singer actor actress spouse "
    "wife husband person individual founder creator artist president leader owner inventor father "
    "mother brother sister son daughter sibling child man woman".split()
)
PLACES = frozenset(
    "where birthplace city town village county state country province location place area region "
    "district residence".split()
)
CLOSED = {"country": COUNTRIES, "nation": COUNTRIES, "state": STATES, "continent": CONTINENTS}
"""Kinds of which all names are listed. Texts are searched for these names, as a text may name a
country that is no object of the graph ("Ugandan town")."""
INTO = frozenset("in of at near from to".split())

Closeness = Callable[[str, Sequence[str]], np.ndarray]
"""Returns the cosine of each name to a text."""


class _Step(NamedTuple):
    """What a clue query asks for: its normal form, the names in it, and the kind of the answer."""

    text: str
    anchors: tuple[str, ...]
    kind: str | None


class _Answer(NamedTuple):
    name: str
    score: float
    key: int


def find_answers(step: Searched, closeness: Closeness) -> Digest:
    """Return the names in a step's facts that may answer it, best first, as guesses.

    A name's score is the closeness of the closest fact that contains it, changed by the weights
    above. Names that the step itself contains are no answers.

    Args:
        step: a step and its facts.
        closeness: compares names with the kind of thing that the step asks for.
    """
    best: dict[str, _Answer] = {}
    kind = None
    for recall in step.recalls:
        asked = _asked(recall)
        if asked.kind == "whether":
            continue
        kind = asked.kind or kind
        for answer in _names(asked, recall.facts[:NUM_FACTS]):
            earlier = best.get(alias(answer.name))
            if earlier is None or earlier.score < answer.score:
                best[alias(answer.name)] = answer
    answers = list(best.values())
    if not answers:
        return Digest()
    like = closeness(kind, [answer.name for answer in answers]) if kind else np.zeros(len(answers))
    scores = [one.score + LIKE * float(cosine) for one, cosine in zip(answers, like, strict=True)]
    order = sorted(range(len(answers)), key=lambda i: (-round(scores[i], 6), answers[i].name))
    chosen = [answers[i] for i in order[:NUM_ANSWERS]]
    names, keys = tuple(one.name for one in chosen), tuple(one.key for one in chosen)
    return Digest(names, keys, guessed=True)


def _asked(recall: ClueRecall) -> _Step:
    kind, anchors = wanted_kind(recall.clue.query)
    return _Step(alias(recall.clue.query), tuple(alias(name) for name in anchors), kind)


def _names(asked: _Step, facts: Sequence[Fact]) -> list[_Answer]:
    """Return the names of facts with their scores; a name may repeat."""
    answers = []
    for fact in facts:
        text = alias(fact.text)
        score = fact.score + ABOUT * any(_within(anchor, text) for anchor in asked.anchors)
        for _, name in fact.entities:
            if _is_new(alias(name), asked):
                fits = _kind_score(asked.kind, name, fact.text)
                answers.append(_Answer(name, score + fits, fact.key))
        for name in CLOSED.get(asked.kind or "", ()):
            if _within(name, text) and _is_new(name, asked):
                answers.append(_Answer(name.title(), score + KIND, fact.key))
    return answers


def _is_new(name: str, asked: _Step) -> bool:
    """Return whether a name is not among the names in the step."""
    parts = set(name.split())
    return (
        bool(name)
        and not _within(name, asked.text)
        and not any(parts.issuperset(anchor.split()) for anchor in asked.anchors if anchor)
    )


def _kind_score(kind: str | None, name: str, text: str) -> float:
    """Return the part of a name's score for its form: a proper name of the wanted kind or not."""
    plain = alias(name)
    is_number = any(map(str.isdigit, name))
    score = -LOWER * (not name[:1].isupper() and not is_number)
    if kind == "when":
        return score + KIND * is_number
    score -= DIGITS * is_number
    if kind is None:
        return score
    if kind in CLOSED:
        score += KIND * (plain in CLOSED[kind])
    elif kind in PEOPLE:
        score += KIND * _may_be_person(name)
    elif kind in PLACES:
        before = text[: max(text.find(name), 0)].split()[-1:]
        score += KIND / 2 * bool(INTO.intersection(before))
    return score + KIND * (kind in plain.split())


def _may_be_person(name: str) -> bool:
    words, plain = name.split(), alias(name)
    return (
        name[:1].isupper()
        and 1 < len(words) < 4
        and not is_no_person(name)
        and plain not in COUNTRIES
        and plain not in STATES
    )


def _within(part: str, text: str) -> bool:
    """Return whether a text in normal form contains another as whole words."""
    return bool(part) and f" {part} " in f" {text} "
