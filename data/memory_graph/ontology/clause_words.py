"""Tests of the words of a clause: names, passives, nouns beside names, prepositions, dates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from turngraph.data.memory_graph.extract.dates import find_dates
from turngraph.data.memory_graph.extract.word_lists import VERB_FORMS
from turngraph.data.memory_graph.ontology.question_forms import PREPOSITIONS
from turngraph.data.memory_graph.ontology.question_terms import Term, word_forms

WORD = re.compile(r"#\d+|[\w'’-]+")
_ARTICLES = frozenset("the my our a an that any".split())
NOUNS = re.compile(
    r"(?=\b(?:how many|number of(?: my)?|(?:what|which|who) (?:are|were|is|was)|which|what|who|"
    r"last|first|all|list|name|(?:highest|lowest) (?!cost)\w+)"
    r"(?: all)?(?: different)?(?: the)? (\w+))",
    re.IGNORECASE,
)
_SUM = r"(?:price|amount|sum|figure|costs?|weight|bill|total|payment|average)"
ASKS_NAME = tuple(
    re.compile(one, re.IGNORECASE) for one in (
        r"^what (?:costs?|(?:has|have|had) cost|set)\b",
        r"^(?!how\b).*\b(?:for|on)(?: (?:in|on|during|since) .+)?$",
        r"^(?!how\b).*\b(?:for|at) the (?:highest|lowest)\b",
        rf"^(?:which|whom?|what(?= (?!is\b|was\b|did\b|do\b|ha[sd]\b|have\b))) (?!{_SUM}\b)",
        rf"^(?!how\b).*\b(?:highest|lowest) \w+ (?!(?:{_SUM}|i|{'|'.join(PREPOSITIONS)})\b)[a-z]",
    )
)  # fmt: skip
"""Questions for the thing with the least or the greatest amount, not for the amount."""
TOTAL = re.compile(
    r"what (?:is|was|are|were) (?:my |the )?(?:total|sum)(?: of)? (?:my |the |all )*([a-z]+s)\b",
    re.IGNORECASE,
)
"""Phrases that ask how many events there were: "total flights in 2021"."""
LEFT = re.compile(
    rf"\b({'|'.join(sorted(PREPOSITIONS))})(?: the| in \d{{4}})*"
    r"(?: (?:most|least|first|last|often|frequently|recently))*$",
    re.IGNORECASE,
)
"""Preposition at the end of a question, which names the requested role."""


@dataclass(frozen=True, slots=True)
class LinkedName:
    """Linked name of a question: its words [first, stop), and the node id of the object."""

    first: int
    stop: int
    node: int


def is_passive(words: Sequence[str], term: Term, names: Sequence[LinkedName]) -> bool:
    """Return whether the name before a verb of events is the verb's object: "was a lamp bought"."""
    before = {place for name in names for place in range(name.first, name.stop)}
    place = term.first - 1
    while place >= 0 and (place in before or words[place] in ("a", "an", "the", "ever", "my")):
        place -= 1
    is_participle = VERB_FORMS.get(words[term.first], ("", ""))[1] in ("past", "participle")
    return place >= 0 and is_participle and "be" in word_forms(words[place])


def is_owner(words: Sequence[str], name: LinkedName, term: Term) -> bool:
    """Return whether a name before a noun of events is the agent: "Anna's trips"."""
    is_possessive = words[name.stop - 1].endswith(("'s", "’s", "s'", "s’"))
    return term.is_event and is_possessive and name.stop <= term.first


def is_compound(words: Sequence[str], name: LinkedName, term: Term) -> bool:
    """Return whether a name stands before a noun of events: "the Rome trip", "Rome trips"."""
    if name.stop != term.first or words[name.stop - 1].endswith(("'s", "’s")):
        return False
    first = words[name.first].lower()
    if first not in _ARTICLES:
        first = words[name.first - 1].lower() if name.first > 0 else ""
    noun = words[term.first].lower()
    form = VERB_FORMS.get(noun, (noun, "base"))[1]
    is_noun = form in ("base", "") or (form == "third" and term.stop == len(words))
    return is_noun and (first in _ARTICLES or noun.endswith("s"))


def preposition(words: Sequence[str], place: int) -> str:
    """Return the preposition before a name and its article; "": there is none."""
    while place > 0 and words[place - 1] in ("a", "an", "the", "my", "our", "this", "that"):
        place -= 1
    return words[place - 1] if place > 0 and words[place - 1] in PREPOSITIONS else ""


def date_words(clause: str) -> set[str]:
    """Return the words of the dates of a clause."""
    dates = find_dates(clause, None)
    return {word for date in dates for word in WORD.findall(clause[date.start : date.stop])}
