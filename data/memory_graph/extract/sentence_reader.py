"""Reader of a sentence's statements, from left to right, a segment at a time.

A segment is a part of the sentence between marks and conjunctions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from turngraph.data.memory_graph.extract.dates import Date, name_date
from turngraph.data.memory_graph.extract.nouns import (
    ENDS,
    JOINS,
    Noun,
    Speakers,
    is_participial,
    read_complements,
    read_noun,
    read_subject,
)
from turngraph.data.memory_graph.extract.sentence_mentions import Token
from turngraph.data.memory_graph.extract.verbs import Predicate, begins_predicate, read_predicate

_RELATIVE = frozenset("who which that".split())
_GOES_ON = frozenset(["and", "but", ",", ";", "then", "or"])
_LISTS = frozenset(["", ",", "and", "&"])
_MAX_SUBJECT = 9  # tokens of the longest subject


@dataclass(frozen=True, slots=True)
class Statement:
    """Subjects, a predicate and its complements, which become one or more triplets.

    Args:
        subjects: one, or several joined by "and".
        predicate: joins them to the complements.
        complements: a preposition or "", and the noun phrase after it.
        dates: of the statement.
    """

    subjects: tuple[Noun, ...]
    predicate: Predicate
    complements: tuple[tuple[str, Noun], ...]
    dates: tuple[Date, ...] = ()


class SentenceReader:
    """Reader of one sentence.

    Args:
        who: the pronouns' referents.
        dates: of the sentence, by their first character.
    """

    def __init__(self, who: Speakers, dates: Mapping[int, Date]) -> None:
        self.statements: list[Statement] = []
        self.roles: list[tuple[str, str, str]] = []
        """Triplets of noun phrases alone: "my wife Anna"."""
        self._who, self._dates = who, dates
        self._waiting: list[Date] = []
        self._list: list[Noun] | None = []  # noun phrases in a row; None: not of this statement
        self._follows = False  # the segment before was read as a statement

    def read(self, words: Sequence[Token]) -> None:
        """Read all segments into ``statements`` and ``roles``."""
        for join, segment in _segments(words):
            when = [self._dates[token.start] for token in segment if token.kind == "date"]
            while segment and segment[0].kind == "date":
                segment = segment[1:]
            if segment:
                self._read_segment(join, segment, when)
            else:
                self._attach(when)

    def _read_segment(self, join: str, segment: Sequence[Token], when: Sequence[Date]) -> None:
        found = self._statement(join, segment, when)
        if found is not None:
            is_list = join == "and" and not self.statements
            shared = self._list or [] if is_list else []
            dates = (*self._waiting, *found.dates)
            subjects = (*shared, *found.subjects)
            self.statements.append(replace(found, subjects=subjects, dates=dates))
            self._waiting, self._list = [], []
        else:
            self._read_noun(join, segment, when)
        self._follows = found is not None

    def _attach(self, when: Sequence[Date]) -> None:
        """Attach dates between commas to the last statement, or hold them for the first one."""
        if not self.statements:
            self._waiting += when
            return
        last = self.statements[-1]
        self.statements[-1] = replace(last, dates=(*last.dates, *when))

    def _read_noun(self, join: str, segment: Sequence[Token], when: Sequence[Date]) -> None:
        """Read a noun phrase that continues a list: "has a dog", "a parrot" and "a cat"."""
        if join not in _LISTS or self._list is None:
            self._list = None
            return
        noun = read_noun(segment, self._who)
        if noun is None:
            self._list = None
            return
        self._list.append(noun)
        if self.statements and join == "and":
            self._extend(self._list, when)
            self._list = []
        elif not self.statements:
            self._waiting += when

    def _extend(self, nouns: Sequence[Noun], when: Sequence[Date]) -> None:
        last = self.statements[-1]
        more = tuple((last.complements[-1][0], noun) for noun in nouns)
        if when:  # "became a duke in 1981 and a king in 1983"
            self.statements.append(replace(last, complements=more, dates=tuple(when)))
        else:
            self.statements[-1] = replace(last, complements=(*last.complements, *more))

    def _statement(
        self, join: str, words: Sequence[Token], when: Sequence[Date]
    ) -> Statement | None:
        start, subjects = self._subject(join, words)
        lasts = any(date.word == "since" for date in when)
        predicate = read_predicate(words, start, lasts) if subjects else None
        if predicate is None:
            return None
        complements = read_complements(words, predicate.stop, self._who, predicate.is_copula)
        is_day = predicate.base == "bear" or (predicate.is_copula and subjects[0].is_attribute)
        if not complements and when and is_day:
            return Statement(tuple(subjects), predicate, (_day(predicate, when[0]),))
        if not complements and (complement := _participle(predicate)) is not None:
            complements = [("", complement)]
            predicate = replace(predicate, text=predicate.text.rpartition(" ")[0], base="be")
        for noun in (*subjects, *(noun for _, noun in complements)):
            if noun.role is not None:
                self.roles.append((noun.role[0], f"has {noun.role[1]}", noun.text))
        return (
            Statement(tuple(subjects), predicate, tuple(complements), tuple(when))
            if complements
            else None
        )

    def _subject(self, join: str, words: Sequence[Token]) -> tuple[int, Sequence[Noun]]:
        """Return where the predicate begins, and its subjects; none if they are unclear."""
        if begins_predicate(words, 0) and not is_participial(words, 0) and words[0].lower != "like":
            if join in _RELATIVE:
                return 0, self._antecedent()
            if self._follows and join in _GOES_ON:
                return 0, self.statements[-1].subjects
            if self._list and join == ",":  # "Anna, a nurse, lives"
                return 0, self._list[:1]
        if self._list and join == ",":  # "Paris, Texas is a town": the subject is unclear
            return 0, []
        for index in range(1, min(len(words), _MAX_SUBJECT)):
            if begins_predicate(words, index):
                noun = read_subject(words[:index], self._who)
                if noun is not None:
                    return index, [noun]
        return 0, []

    def _antecedent(self) -> Sequence[Noun]:
        """Return the antecedent of "who": the name before it, or the last statement's object."""
        if self._list:
            return [noun for noun in self._list[-1:] if noun.is_name]
        complements = self.statements[-1].complements if self._follows else ()
        return [noun for preposition, noun in complements[-1:] if noun.is_name and not preposition]


def _segments(words: Sequence[Token]) -> list[tuple[str, list[Token]]]:
    """Return the segments of a sentence with the mark or conjunction before each."""
    segments: list[tuple[str, list[Token]]] = [("", [])]
    for word in words:
        is_mark = word.kind == "mark" and word.text in ENDS
        if not (is_mark or (word.kind == "word" and word.lower in JOINS)):
            segments[-1][1].append(word)
        elif segments[-1][1]:
            segments.append((word.lower, []))
        else:
            segments[-1] = (word.lower, [])
    return [segment for segment in segments if segment[1]]


def _day(predicate: Predicate, date: Date) -> tuple[str, Noun]:
    """Return a date as the complement: "her birthday is 3 May 1990", "was born in May 1990"."""
    preposition = "" if predicate.is_copula else "on" if len(date.first) > 7 else "in"
    return preposition, Noun(name_date(date.first), False, is_value=True)


def _participle(predicate: Predicate) -> Noun | None:
    """Return the participle of "is divorced", without an object, as a plain complement."""
    be, _, participle = predicate.text.rpartition(" ")
    if predicate.is_copula or be.split(" ")[0] not in ("is", "was") or participle.endswith("ing"):
        return None
    return Noun(participle, False)
