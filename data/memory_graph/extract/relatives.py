"""Finds the ends of relative clauses, and their antecedents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from turngraph.data.memory_graph.extract.clauses import is_named
from turngraph.data.memory_graph.extract.nouns import (
    ARTICLES,
    OWNERS,
    PREPOSITIONS,
    Noun,
    Speakers,
    read_noun,
)
from turngraph.data.memory_graph.extract.segments import Segment
from turngraph.data.memory_graph.extract.sentence_mentions import Token
from turngraph.data.memory_graph.extract.verbs import (
    MODALS,
    begins_predicate,
    is_plural,
    read_predicate,
)
from turngraph.data.memory_graph.extract.word_lists import PAST, VERB_FORMS

RELATIVE = frozenset("who which that".split())
_NO_VERB_AFTER = PREPOSITIONS | ARTICLES | OWNERS | {"to", "not", "and", "or", "no"}
_OF_CLAUSES = frozenset(
    "allow mean make cause lead help give force enable let prevent surprise delight annoy please "
    "come happen show suggest result explain".split()
)
"""Verbs whose subject "which" is often a whole clause: "which allowed larger ships to enter"."""
_NO_ANTECEDENTS = frozenset(
    "year day time way reason moment fact idea news proof hope fear claim rumour rumor belief "
    "theory evidence view sign chance feeling impression decision report result case one "
    "extent point condition".split()
)
"""Nouns after which "that" begins a content clause, or that name a time."""
_UNSURE = frozenset(
    "not never no any need needs want wants seek seeks like prefer without if".split()
)
"""Words after which the noun may not exist: "needs a room that"."""
_BE = {"is": False, "was": False, "has": False, "does": False}
_BE |= {"are": True, "were": True, "have": True, "do": True}


def split_relatives(segments: Sequence[Segment]) -> list[Segment]:
    """Split the main clause off relative clauses: "who pay by card" and "receive a receipt"."""
    clauses: list[Segment] = []
    for index, (join, words) in enumerate(segments):
        clauses.append((join, words))
        if join not in RELATIVE or not index:
            continue
        before = segments[index - 1][1]
        following = segments[index + 1] if index + 1 < len(segments) else ("", [])
        if before[-1].lower in _NO_ANTECEDENTS:
            continue
        is_open = not any(begins_predicate(before, i) for i in range(1, len(before)))
        is_closed = following[0] == "," and begins_predicate(following[1], 0)
        if is_open and not is_closed and (stop := _clause_end(words, before[-1].text)):
            clauses[-1:] = [(join, words[:stop]), (",", words[stop:])]
    return clauses


def _clause_end(words: Sequence[Token], noun: str) -> int:
    """Return the index of the main verb after a relative clause, or 0 if it is unsure."""
    verb = next((i for i in range(len(words)) if begins_predicate(words, i)), None)
    predicate = None if verb is None else read_predicate(words, verb)
    if predicate is None:
        return 0
    ends = [
        i
        for i in range(predicate.stop + (verb == 0), len(words))
        if words[i].kind == "word"
        and words[i - 1].lower not in _NO_VERB_AFTER
        and words[i - 1].lower not in MODALS
        and begins_predicate(words, i)
        and agree(words[i].lower, noun)
    ]
    firsts = [i for i in ends if i - 1 not in ends]
    return firsts[0] if len(firsts) == 1 else 0


def agree(verb: str, noun: str) -> bool:
    """Return whether a verb agrees with a noun: "runs" with a singular, "run" with a plural."""
    if verb in _BE:
        return _BE[verb] == is_plural(noun)
    base, kind = VERB_FORMS.get(verb, ("", ""))
    if kind == "base" and PAST.get(base) == base:  # "which cost"
        return True
    return kind not in ("base", "third") or (kind == "base") == is_plural(noun)


def described(noun: Noun, join: str, words: Sequence[Token], last: Token) -> Noun | None:
    """Return a common noun as the antecedent of a relative clause, or None.

    Args:
        noun: the noun phrase before the clause.
        join: "who", "which" or "that".
        words: tokens of the clause.
        last: the token before the clause.
    """
    if join != "who" and " of " in noun.text and not noun.owner:  # "a photo of the house that"
        noun = replace(noun, text=noun.text.rpartition(" of ")[2])
    text = noun.text.lower().split()
    if is_named(noun) or not text or text[-1] != last.lower or text[-1] in _NO_ANTECEDENTS:
        return None
    if noun.text.isdigit() or not PREPOSITIONS.isdisjoint(text):
        return None
    if begins_predicate(words, 0):
        is_first = words[0].lower in VERB_FORMS or len(words) == 1
        verb = words[0 if is_first else 1].lower
        if verb in VERB_FORMS and not agree(verb, text[-1]):
            return None
        if join == "which" and VERB_FORMS.get(verb, ("",))[0] in _OF_CLAUSES:
            return None
    if noun.owner is not None:
        return noun
    return replace(noun, is_common=not noun.is_name, article="the")


def last_noun(words: Sequence[Token], who: Speakers) -> Noun | None:
    """Return the common noun with an article that ends a clause: "stayed with a farmer"."""
    if any(word.lower in _UNSURE or word.lower in MODALS for word in words):
        return None
    places = [i for i, word in enumerate(words) if word.lower in ARTICLES]
    return read_noun(words[places[-1] :], who) if places else None
