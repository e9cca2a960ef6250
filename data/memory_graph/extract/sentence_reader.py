"""Reads a sentence's statements segment by segment, from left to right.

A segment is a part of the sentence between marks and conjunctions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from turngraph.data.memory_graph.extract.clause_reader import (
    AFTER_VERB,
    CLAUSES,
    ClauseReader,
    is_thing,
    may_be_noun,
)
from turngraph.data.memory_graph.extract.clauses import (
    IS,
    OF_DOING,
    Statement,
    doubted,
    is_counted,
    is_kin_of_subject,
    is_manner,
    is_reduced,
    is_unaccounted,
    participial,
    split_roles,
    with_year,
)
from turngraph.data.memory_graph.extract.complements import (
    is_participial,
    read_complements,
)
from turngraph.data.memory_graph.extract.dates import Date
from turngraph.data.memory_graph.extract.nouns import (
    ARTICLES,
    OWNERS,
    PREPOSITIONS,
    Noun,
    read_noun,
)
from turngraph.data.memory_graph.extract.polarity import Mood, moods
from turngraph.data.memory_graph.extract.relatives import (
    RELATIVE,
    described,
    split_relatives,
)
from turngraph.data.memory_graph.extract.schedules import has_only_dates
from turngraph.data.memory_graph.extract.segments import split_segments
from turngraph.data.memory_graph.extract.sentence_mentions import Token
from turngraph.data.memory_graph.extract.verbs import (
    MODALS,
    agrees,
    begins_predicate,
    is_plural,
    read_predicate,
)
from turngraph.data.memory_graph.extract.word_lists import (
    ADVERBS,
    DOUBT,
    NUMBER_WORDS,
    VERB_FORMS,
)

_LIMITS = frozenset("after before unless until when if while since except that who".split())
_COMPANY = frozenset("together along with".split())
_DOUBTS = DOUBT & MODALS
_LISTS = frozenset(["", ",", "and", "&"])


class SentenceReader(ClauseReader):
    """Reader of one sentence.

    Args:
        who: the pronouns' referents.
        dates: dates of the sentence, by the index of their first character.
    """

    @property
    def thing(self) -> str | None:
        """Referent of "it" after the sentence."""
        return self._who.it

    def read(self, words: Sequence[Token], may_doubt: bool = True) -> None:
        """Read all segments into ``statements``, ``asides`` and ``roles``.

        Args:
            words: tokens of the sentence.
            may_doubt: whether the sentence may contain a word like "might".
        """
        segments = split_relatives(split_segments(words))
        self._look_ahead(segments)
        is_open = False  # "may" or "could" came before
        ends = pairwise([*segments, ("", [])])
        for ((join, segment), (following, _)), mood in zip(ends, moods(segments), strict=True):
            segment = list(with_year(segment))
            when = [self._dates[token.start] for token in segment if token.kind == "date"]
            while segment and (segment[0].kind == "date" or segment[0].lower in ADVERBS):
                segment = segment[1:]
            self._doing, self._done = (), self._doing
            if mood is Mood.DENIED:
                self._list, self._follows = None, False
            elif join == "or":
                self._be_unsure()
            elif segment:
                num, num_asides = len(self.statements), len(self.asides)
                self._read_segment(join, segment, when, following)
                is_doubt = may_doubt and any(
                    w.lower in _DOUBTS and w.text != "May" for w in segment
                )
                is_open |= is_doubt and join not in CLAUSES
                if mood is Mood.POSSIBLE or is_doubt or is_open:
                    self.statements[num:] = map(doubted, self.statements[num:])
                    self.asides[num_asides:] = map(doubted, self.asides[num_asides:])
            else:
                self._attach(when)
            self._before = join
            self._last = segment[-1] if segment else None
            self._clause = segment if mood is Mood.ASSERTED else ()

    def _look_ahead(self, segments: Sequence[tuple[str, Sequence[Token]]]) -> None:
        """Let a pronoun of the first clause refer to a name in the next: "When she left, Ida"."""
        if self._who.them is not None or len(segments) < 2 or segments[0][0] == ",":
            return
        if not segments[0][0] and segments[0][1][0].lower not in _COMPANY:
            return
        (_, clause), (_, main) = segments[:2]
        pairs = zip([None, *clause], clause, strict=False)
        if main[0].kind == "name" and not any(
            word.kind == "name" and (before is None or before.lower not in PREPOSITIONS)
            for before, word in pairs
        ):
            self._who = replace(self._who, them=main[0].text)

    def _be_unsure(self) -> None:
        """Make the statement before "or" a possibility, and skip the segment after it."""
        if self._follows and not self.statements[-1].predicate.is_negated:
            self.statements[-1] = doubted(self.statements[-1])
        self._list, self._follows = None, False

    def _read_segment(
        self, join: str, segment: Sequence[Token], when: Sequence[Date], following: str
    ) -> None:
        if self._read_apart(join, segment, when):
            return
        is_about = join in RELATIVE and bool(self.statements) and self._follows
        main = self.statements[-1] if is_about else None
        is_as = following == "as" and any(word.lower == "as" for word in segment)
        is_more = following == "than" or is_as
        statement = None if is_more else self._statement(join, segment, when)
        is_limited = statement and statement.predicate.is_negated and following in _LIMITS
        if statement and (is_limited or is_unaccounted(statement)):
            statement = None  # "never drinks coffee after noon"
            self._list = self._list if join in RELATIVE else None
        elif statement is not None:
            is_list = join == "and" and not self.statements
            shared, roles = split_roles(self._list or []) if is_list else ([], [])
            self.asides += roles
            dates = (*self._waiting, *statement.dates)
            subjects = (*shared, *statement.subjects)
            if shared or self._waiting:
                statement = replace(statement, subjects=subjects, dates=dates)
            self.statements.append(statement)
            self._waiting, self._apposed = [], ()
            if join == "," and len(subjects) == 1:
                for words in self._fronted:
                    self._aside(subjects[0], words, participial(words[0]), 1)
            self._fronted = []
            self._list = [] if statement.is_whole else None
            if is_participial(statement.rest, 0):
                self._read_reduced(statement, segment[-len(statement.rest) - 1])
            self._main = main
            self._remember(self.statements[-1])
        elif self._read_more(join, segment, when):
            return
        elif not self._read_aside(join, segment, when, following):
            self._read_noun(join, segment, when, following)
        self._follows = statement is not None
        if statement is None and len(self._doing) == 1:
            self._close(self._doing[0], join, segment)

    def _read_apart(self, join: str, segment: Sequence[Token], when: Sequence[Date]) -> bool:
        """Read a segment without a statement of its own; return whether it is such a segment."""
        if not join and segment[0].lower in _COMPANY:
            self._read_company(segment)
            return False
        if join == "whose":
            return self._read_whose(segment, when)
        if join in ("until", "since"):
            return self._read_end(join, segment, when)
        return join in RELATIVE and self._read_object_clause(join, segment, when)

    def _read_end(self, join: str, words: Sequence[Token], when: Sequence[Date]) -> bool:
        """Read the date of "until his arrest in 1941"; return whether it is such a segment."""
        if not (self._follows and len(when) == 1 and when[0].word == "at"):
            return False
        is_clause = any(begins_predicate(words, i) for i in range(1, len(words)))
        is_event = words[0].lower in OWNERS or words[0].lower in ARTICLES
        if is_event and (join == "until" or not is_clause):
            self._attach([replace(when[0], word=join)])
        return is_event and not is_clause

    def _read_company(self, words: Sequence[Token]) -> None:
        """Read "with his brother Emil" before the name to which "his" refers."""
        start = next((i for i, word in enumerate(words) if word.lower in OWNERS), 0)
        noun = read_noun(words[start:], self._who) if start and words[-1].kind == "name" else None
        if noun is not None and noun.role is not None:
            self.roles.append((noun.role[0], f"has {noun.role[1]}", noun.text))

    def _close(self, noun: Noun, join: str, words: Sequence[Token]) -> None:
        """Remember the subject of an unread clause, for pronouns that refer to it."""
        if join == ",":
            for fronted in self._fronted:
                self._aside(noun, fronted, participial(fronted[0]), 1)
        self._fronted = []
        is_only = sum(word.kind == "name" for word in words) == 1
        if noun.is_name and not noun.article and noun.text != self._who.me and is_only:
            self._who = replace(self._who, them=noun.text)
        elif noun.article == "the" and not is_plural(noun.text):
            self._who = replace(self._who, it=noun.head)

    def _read_reduced(self, statement: Statement, last: Token) -> None:
        """Read "presented by Queen Sofia" after the object that it describes."""
        preposition, noun = statement.complements[-1]
        rest = statement.rest
        if noun.is_name or preposition or statement.predicate.doubtful:
            return
        if (thing := described(noun, "that", rest, last)) is not None:
            self._aside(thing, rest, participial(rest[0]), 1)

    def _remember(self, statement: Statement) -> None:
        """Remember the referents of "she" and "it" in the rest of the sentence."""
        subject, *others = statement.subjects
        direct = [noun for preposition, noun in statement.complements if not preposition]
        is_copula = statement.predicate.is_copula
        if others or (not is_copula and any(noun.is_name for noun in direct)):
            return
        if subject.is_name and not subject.article and subject.text != self._who.them:
            self._who = replace(self._who, them=subject.text)
        things = [noun.text for _, noun in statement.complements if is_thing(noun)]
        if subject.is_name and not is_copula and len(things) == 1:
            self._who = replace(self._who, it=things[0])
        is_referent = subject.is_attribute or subject.article == "the"
        is_referent |= subject.owner is not None and subject.owner == self._who.me
        if is_referent and all(n.is_value or is_copula for n in direct):
            self._who = replace(self._who, it=subject.text)

    def _attach(self, when: Sequence[Date]) -> None:
        """Attach dates between commas to the last statement, or keep them for the first."""
        if not self.statements:
            self._waiting += when
            return
        last = self.statements[-1]
        self.statements[-1] = replace(last, dates=(*last.dates, *when))

    def _read_more(self, join: str, segment: Sequence[Token], when: Sequence[Date]) -> bool:
        """Read "and to Oslo in 2018" after "moved to Rome"; return whether it is such a segment."""
        if not self._follows or join not in (",", "and"):
            return False
        last = self.statements[-1]
        if segment[0].lower not in {preposition for preposition, _ in last.complements}:
            return False
        more, _ = read_complements(segment, 0, self._who, last.predicate.base)
        if more:
            dates = tuple(when) or last.dates
            self.statements.append(replace(last, complements=tuple(more), dates=dates))
        return bool(more)

    def _read_aside(
        self, join: str, segment: Sequence[Token], when: Sequence[Date], following: str
    ) -> bool:
        """Read a segment that interrupts a statement; return whether it is such a segment."""
        if join in CLAUSES and self._list and len(self._list) == 1:
            if join == "whom":
                self._read_whom(self._list[0], segment, when)
            return True  # "Brae Castle, which is old, belongs": its subject is still open
        if is_reduced(segment) and (not join or (join == "and" and self._fronted)):
            self._fronted, self._list = [*self._fronted, segment], None
            return True
        if join != ",":
            return False
        is_first = not self.statements and bool(self._list) and len(self._list or ()) == 1
        if self._list and is_first and is_reduced(segment):
            self._aside(self._list[0], segment, participial(segment[0]), 1)
            return True
        if not self.statements or self._list is None or self._list:
            return False
        last = self.statements[-1]
        if self._follows and last.predicate.is_copula and is_reduced(segment):
            self._aside(last.subjects[0], segment, participial(segment[0]), 1)
            return True
        if segment[0].lower in ARTICLES and last.complements[-1][1].is_name:
            if following in ("and", "or") or not (self._follows or self._apposed):
                return False
            self._apposed = segment
            preposition, noun = last.complements[-1]
            is_place = is_kin_of_subject(preposition, segment)
            self._aside(last.subjects[0] if is_place else noun, segment, IS, 0)
            return True
        if self._apposed and segment[0].lower in PREPOSITIONS:
            more, _ = read_complements(segment, 0, self._who, last.predicate.base)
            complements, dates = (*last.complements, *more), (*last.dates, *when)
            self.statements[-1] = replace(last, complements=complements, dates=dates)
            return True
        return False

    def _read_whose(self, words: Sequence[Token], when: Sequence[Date]) -> bool:
        """Read "whose chairman is Ida" after a name; return whether it was possible."""
        nouns = self._antecedent("whose", words)
        if not nouns or nouns[0].owner:
            return False
        who, self._who = self._who, replace(self._who, them=nouns[0].text)
        his = words[0]._replace(text="his", lower="his", kind="word", owns=False)
        listed, self._list = self._list, None
        statement = self._statement("whose", [his, *words], when)
        self._who, self._list = who, listed
        if statement is not None and statement.is_whole and not is_unaccounted(statement):
            self.asides.append(statement)
        return True

    def _read_whom(self, noun: Noun, words: Sequence[Token], when: Sequence[Date]) -> None:
        """Read "whom Acme hired in 2019" after a name."""
        start, subjects, is_one = self._subject("whom", words)
        predicate = read_predicate(words, start, is_one=is_one) if subjects else None
        if predicate is None or not (noun.is_name and has_only_dates(words, predicate.stop)):
            return
        self.asides.append(Statement(tuple(subjects), predicate, (("", noun),), tuple(when)))

    def _read_noun(
        self, join: str, segment: Sequence[Token], when: Sequence[Date], following: str
    ) -> None:
        """Read a noun phrase that continues a list: "has a dog", "a parrot" and "a cat"."""
        is_named = self._is_lost and join == "," and len(segment) == 1
        if is_named and segment[0].kind == "name" and not self.statements:
            self._list, self._is_lost = [], False  # "her grandson, Emil, became"
        is_clause = self._is_new_clause(segment) or self._has_verb(segment, following)
        if join not in _LISTS or self._list is None or is_clause:
            self._list = None
            return
        owner = self._list[-1].text if self._list and self._list[-1].is_name else self._who.them
        while len(segment) > 1 and segment[-1].kind == "date":
            segment = segment[:-1]
        cut = ""
        if self.statements and segment[0].kind == "name" and is_counted(self.statements[-1]):
            self._list = None  # "got two cats, Biscuit and Gravy"
            return
        if self.statements:  # "parts and labour for two years"
            places = (i for i, w in enumerate(segment) if i and w.lower in PREPOSITIONS - {"of"})
            stop = next(places, len(segment))
            cut = segment[stop].lower if stop < len(segment) else ""
            segment = segment[:stop]
        noun = read_noun(segment, replace(self._who, them=owner))
        is_one_name = not self.statements and [n.is_name for n in self._list] == [True]
        if noun is None:
            if join == "," and segment[0].lower in OWNERS and is_one_name:
                return  # "Victor, our new intern, comes": whose is not known
            self._list = None
            self._is_lost = not join and all(word.kind == "word" for word in segment)
            return
        self._list.append(noun)
        if noun.role is not None:
            self.roles.append((noun.role[0], f"has {noun.role[1]}", noun.text))
        self._apposed = segment
        if cut and noun.text in NUMBER_WORDS:
            self._list = None  # "for the motion and three against"
        elif self.statements and join == "and":
            self._extend(self._list, when, cut)
            self._list = []
        elif not self.statements:
            self._waiting += when

    def _has_verb(self, words: Sequence[Token], following: str) -> bool:
        """Return whether an unread clause begins here, after a statement."""
        if not self.statements:
            return False
        first = words[0].lower
        if following == "," and first in OWNERS:
            return True  # "and its last owner, Ida, left"
        if first in ("never", "not") or (VERB_FORMS.get(first, ("", ""))[1] == "ing" and words[1:]):
            return self.statements[-1].predicate.base not in OF_DOING
        is_gap = len(words) > 1 and words[0].kind == "name" and words[1].lower in PREPOSITIONS
        *before, last = self.statements[-1].complements
        is_same = words[1:] and (
            (words[1].lower == last[0] and not before) or f" {words[1].lower} " in last[1].text
        )  # but "borders A in the west and B in the south"
        if is_gap and is_same:
            return True  # "is in charge of stores and Ulf of the fleet"
        subject = 1 + (first in ARTICLES or first in OWNERS)
        return any(
            begins_predicate(words, i) and agrees(words, i) and not may_be_noun(words, i)
            for i in range(subject, len(words))
        )

    def _is_new_clause(self, words: Sequence[Token]) -> bool:
        """Return whether a list ends here: "and ended on Monday", ", starring Ida Falk"."""
        kind = VERB_FORMS.get(words[0].lower, ("", ""))[1]
        if kind == "ing" and len(words) > 1:
            return bool(self.statements) and self.statements[-1].predicate.is_copula
        is_unknown = not kind and words[0].text.islower() and words[0].lower.endswith("ed")
        is_verb = kind in ("past", "third", "participle") or is_unknown
        if words[0].kind != "word" or not is_verb:
            return False
        following = next((word for word in words[1:] if not is_manner(word)), None)
        if following is None or following is not words[1]:
            return True
        return following.kind == "date" or following.lower in AFTER_VERB

    def _extend(self, nouns: Sequence[Noun], when: Sequence[Date], cut: str) -> None:
        last = self.statements[-1]
        prepositions = [preposition for preposition, _ in last.complements]
        if len(prepositions) > 1 and prepositions[-1] == cut:  # "borders A in the west and B ..."
            prepositions.pop()
        if " of " in last.complements[-1][1].text:  # "islands of Mor and Eel"
            nouns = [noun for noun in nouns if not noun.is_name or noun.article]
        more = tuple((prepositions[-1], noun) for noun in nouns)
        if when and not last.dates:  # "signed by Ostria and Taskia in 1954"
            more = (*last.complements, *more)
            self.statements[-1] = replace(last, complements=more, dates=tuple(when))
        elif when:  # "became a duke in 1981 and a king in 1983"
            self.statements.append(replace(last, complements=more, dates=tuple(when)))
        else:
            self.statements[-1] = replace(last, complements=(*last.complements, *more))

    def _read_object_clause(self, join: str, words: Sequence[Token], when: Sequence[Date]) -> bool:
        """Read "that I bought" after a noun; return whether the segment is finished."""
        if begins_predicate(words, 0) or join == "who":
            return False
        nouns = self._antecedent(join, words)
        start, subjects, is_one = self._subject("whom", words) if nouns else (0, [], False)
        predicate = read_predicate(words, start, is_one=is_one) if subjects else None
        if predicate is None or predicate.is_copula or (join == "that" and nouns[0].is_name):
            return join == "which" and bool(nouns)
        stop = predicate.stop
        preposition = words[stop].lower if stop < len(words) else ""
        is_open = preposition in PREPOSITIONS and has_only_dates(words, stop + 1)
        more, rest = read_complements(words, stop, self._who, predicate.base)
        if is_open:  # "that she works for"
            complements: tuple[tuple[str, Noun], ...] = ((preposition, nouns[0]),)
        elif rest or any(not before for before, _ in more):
            return join == "which"
        else:
            complements = (("", nouns[0]), *more)
        self.asides.append(Statement(tuple(subjects), predicate, complements, tuple(when)))
        return True
