"""Makes days complements of events: the day at which something takes place, begins or moves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turngraph.data.memory_graph.extract.complements import Complement
from turngraph.data.memory_graph.extract.dates import Date, name_date
from turngraph.data.memory_graph.extract.nouns import Noun, is_attribute
from turngraph.data.memory_graph.extract.sentence_mentions import Token
from turngraph.data.memory_graph.extract.verbs import Predicate
from turngraph.data.memory_graph.extract.word_lists import ADVERBS, LASTING

_SHIFTS = frozenset("postpone move delay reschedule adjourn defer schedule shift push".split())
"""Verbs whose dates are old and new days, not the time of the event."""
_SCHEDULED = frozenset("be bear take start begin end open close expire leave".split())
_HAPPENED = frozenset(
    "bear begin start end open close die resign retire expire appear erupt launch".split()
)
"""Verbs that state a fact with a day alone ("resigned on 4 May 2023")."""
_SHIFT_WORDS = {"since": "from", "until": "until"}
_YEARLY = frozenset("open close run operate".split())


def place_dates(
    words: Sequence[Token],
    predicate: Predicate,
    subject: Noun,
    complements: Sequence[Complement],
    when: Sequence[Date],
) -> tuple[list[Complement], list[Date]]:
    """Return the complements, with days that are facts about the subject, and the other dates.

    Args:
        words: tokens of a segment.
        predicate: predicate of the segment.
        subject: first subject of the segment.
        complements: complements of the predicate, without days.
        when: dates of the segment.
    """
    if predicate.base in _SHIFTS:
        return _shifted(complements, when)
    if predicate.base == "date" and when and not complements:
        return [("from", Noun(name_date(when[0].first), False, is_value=True))], []
    if not when or _is_yearly(predicate, complements, when):
        return list(complements), []
    is_present = predicate.time == "present"
    if is_present and _is_scheduled(predicate, when[0]):
        if not complements and not has_only_dates(words, predicate.stop):
            return [], list(when)
        is_of_day = not (predicate.is_copula and subject.is_name)
        if is_of_day and all(preposition for preposition, _ in complements):
            return [_day(predicate, subject, when[0]), *complements], []
    if not complements and has_only_dates(words, predicate.stop):
        if predicate.base in ("be", "bear") and when[0].word == "at":
            return [_day(predicate, subject, when[0])], []
        is_passive = predicate.text.startswith("was ") and predicate.time == "event"
        is_telling = predicate.base in _HAPPENED or (is_passive and not subject.is_common)
        is_relative = when[0].label is not None  # "was stolen last week"
        if when[0].word == "at" and is_telling and not (is_relative and is_passive):
            return [_day(predicate, subject, when[0])], list(when)
    return list(complements), list(when)


def _is_yearly(
    predicate: Predicate, complements: Sequence[Complement], when: Sequence[Date]
) -> bool:
    """Return whether months without a year recur: "is open from March to October"."""
    is_month = all(len(date.first) == 7 and date.label is not None for date in when)
    is_lasting = any(noun.text in LASTING for _, noun in complements)
    recurs = predicate.time == "present" and (is_lasting or predicate.base in _YEARLY)
    return recurs and is_month and len(when) == 2


def _is_scheduled(predicate: Predicate, date: Date) -> bool:
    """Return whether a date in the present tense is that of a future event."""
    return predicate.base in _SCHEDULED and date.word == "at" and not predicate.doubtful


def has_only_dates(words: Sequence[Token], start: int) -> bool:
    """Return whether the rest of a segment has only dates and adverbs."""
    return all(word.kind == "date" or word.lower in ADVERBS for word in words[start:])


def _day(predicate: Predicate, subject: Noun, date: Date) -> Complement:
    """Return a date as the complement: "her birthday is 3 May 1990", "was born in May 1990"."""
    is_plain = predicate.is_copula and (subject.is_attribute or is_attribute(subject.text))
    preposition = "" if is_plain else "on" if len(date.first) > 7 else "in"
    return preposition, Noun(name_date(date.first), False, is_value=True)


def _shifted(
    complements: Sequence[Complement], when: Iterable[Date]
) -> tuple[list[Complement], list[Date]]:
    """Return complements with the old and new date of a moved event, and the other dates."""
    moved = [date for date in when if date.word in ("since", "until") and date.is_exact]
    more = [
        (_SHIFT_WORDS[date.word], Noun(name_date(date.first), False, is_value=True))
        for date in moved
    ]
    return [*complements, *more], [date for date in when if date not in moved]
