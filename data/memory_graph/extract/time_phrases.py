"""Finds phrases that are no complements: times ("last June", "twice a week") and scores."""

from __future__ import annotations

import re
from collections.abc import Sequence

from turngraph.data.memory_graph.extract.nouns import OWNERS, PREPOSITIONS
from turngraph.data.memory_graph.extract.sentence_mentions import Token
from turngraph.data.memory_graph.extract.word_lists import NUMBER_WORDS, UNITS, WEEKDAYS
from turngraph.data.normalise import MONTHS

_NEAR = frozenset("yesterday today tonight tomorrow".split())
_WHICH = frozenset("last next this past every each all".split())
TIME_UNITS = frozenset(
    "day week weekend month quarter year morning evening afternoon night".split()
)
TIME_UNITS |= frozenset(WEEKDAYS) | frozenset(MONTHS)
TIME_UNITS |= frozenset("summer autumn winter spring".split())
_PARTS = frozenset("spring summer autumn winter morning afternoon evening".split())
_SPANS = frozenset("day days hour hours night nights".split())


def after_times(words: Sequence[Token], index: int) -> int:
    while index < len(words) and (length := time_length(words, index)):
        index += length
    return index


def time_length(words: Sequence[Token], index: int) -> int:
    """Return the number of tokens of a phrase of time at an index (a date, "last June"), else 0."""
    word = words[index]
    if word.kind == "date":
        return int(not word.text)
    if word.kind == "number":
        if re.fullmatch(r"\d{1,3}[-–]\d{1,3}", word.text):
            return 1
        return 3 if _is_score(words, index) else _frequency_length(words, index)
    if word.kind != "word":
        return 0
    if word.lower in _NEAR:
        return 1
    following = words[index + 1].lower if index + 1 < len(words) else ""
    if word.lower in ("in", "during"):  # "in the autumn", "in the morning"
        at = index + 1 + (following == "the")
        is_part = at < len(words) and words[at].lower in _PARTS
        return at + 1 - index if is_part else 0
    if word.lower in _WHICH and following.removesuffix("s") in TIME_UNITS:
        return 2
    if word.lower == "every" and index + 2 < len(words):
        is_rate = is_number(words[index + 1]) or following in ("second", "third", "other")
        if is_rate and words[index + 2].lower.removesuffix("s") in TIME_UNITS | {"hour", "minute"}:
            return 3  # "every two hours"
    if word.lower == "of" and following in OWNERS and index + 2 < len(words):
        return 3 if words[index + 2].lower == "own" else 0  # "a station of its own"
    if word.lower in NUMBER_WORDS and _is_score(words, index):
        return 3
    return _frequency_length(words, index)


def _is_score(words: Sequence[Token], index: int) -> bool:
    """Return whether "five to three" ends a segment after a noun phrase."""
    if index + 3 > len(words) or not index or words[index - 1].lower in PREPOSITIONS:
        return False
    if index + 3 < len(words) and words[index + 3].kind != "date":
        return False
    return words[index + 1].lower == "to" and is_number(words[index + 2])


def is_about_unit(words: Sequence[Token], index: int) -> bool:
    """Return whether "about an hour" begins here, whose first word is no preposition."""
    lowers = [word.lower for word in words[index : index + 3]]
    if len(lowers) < 3 or lowers[0] not in ("about", "around", "over", "under"):
        return False
    return lowers[1] in ("a", "an") and lowers[2] in UNITS


def is_number(word: Token) -> bool:
    return word.kind == "number" or word.lower in NUMBER_WORDS


def _frequency_length(words: Sequence[Token], index: int) -> int:
    """Return the number of tokens of "twice a week" or "three times a year", else 0."""
    start = index + 1
    if words[index].lower not in ("once", "twice"):
        is_count = is_number(words[index]) and index + 2 == len(words)
        if is_count and words[start].lower == "times":
            return 2
        if is_number(words[index]) and index + 3 < len(words) and words[start].lower in _SPANS:
            is_rate = words[start + 1].lower in ("a", "an", "per")
            return 4 if is_rate and words[start + 2].lower in TIME_UNITS else 0
        if start >= len(words) or words[start].lower != "times":
            return 0
        start += 1
    is_rate = start + 1 < len(words) and words[start].lower in ("a", "an", "per", "every")
    return start + 2 - index if is_rate and words[start + 1].lower in TIME_UNITS else 0
