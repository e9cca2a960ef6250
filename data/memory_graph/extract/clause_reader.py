"""Reads a clause: its subjects, its predicate and its complements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from turngraph.data.memory_graph.extract.clauses import (
    IS,
    Statement,
    is_agent_only,
    is_compared,
    is_inverted,
    is_named,
    is_of_name,
    is_plain_end,
    is_prospect,
    is_telling,
    is_two_roles,
    participle,
    without_makers,
)
from turngraph.data.memory_graph.extract.complements import (
    PARTICIPLE_FORMS,
    is_participial,
    read_complements,
)
from turngraph.data.memory_graph.extract.dates import Date
from turngraph.data.memory_graph.extract.nouns import (
    ARTICLES,
    OWNERS,
    PREPOSITIONS,
    Noun,
    Speakers,
    read_noun,
)
from turngraph.data.memory_graph.extract.relatives import (
    RELATIVE,
    described,
    last_noun,
)
from turngraph.data.memory_graph.extract.schedules import has_only_dates, place_dates
from turngraph.data.memory_graph.extract.sentence_mentions import Token
from turngraph.data.memory_graph.extract.subjects import read_bare, read_subject
from turngraph.data.memory_graph.extract.verbs import (
    MODALS,
    Predicate,
    agrees,
    begins_predicate,
    is_plural,
    read_predicate,
    without_any,
)
from turngraph.data.memory_graph.extract.word_lists import (
    ADVERBS,
    OPENERS,
    PAST,
    UNITS,
    VERB_FORMS,
)

CLAUSES = RELATIVE | frozenset("whose whom where".split())
_OF_WHICH = frozenset("of by".split())
"""Prepositions after which a name may be the antecedent of "which"."""
_BACKGROUND = frozenset("when while until before after since".split())
_GOES_ON = frozenset(["and", "but", ",", ";", "then"])
AFTER_VERB = PREPOSITIONS | ARTICLES | OWNERS
PLACES = frozenset("in at on near under behind above below outside inside beside between".split())
_SHOWS = frozenset("show depict portray represent".split())
"""Verbs after which "her" means a person shown: "the figure shows a girl tying her shoe"."""
_PHRASE_ENDS = ("word", "number", "date")
_TELLS = frozenset("tell ask remind".split())
_NEW_CLAUSES = frozenset("because while whereas where so but when whom".split())
_MAX_SUBJECT = 9  # tokens of the longest subject
_MEASURES = frozenset("cost weigh last take contain measure require need hold seat".split())
"""Verbs whose subject with "a" means its whole kind: "a ticket costs"."""


class ClauseReader:
    """Reads one clause of a sentence, with state from the clauses before it.

    Args:
        who: the pronouns' referents.
        dates: dates of the sentence, by the index of their first character.
    """

    def __init__(self, who: Speakers, dates: Mapping[int, Date]) -> None:
        self.statements: list[Statement] = []
        self.asides: list[Statement] = []
        """Statements of appositions: "Karin, the CEO of Acme, ..."."""
        self.roles: list[tuple[str, str, str]] = []
        """Triplets from noun phrases without a verb: "my wife Anna"."""
        self._who, self._dates = who, dates
        self._waiting: list[Date] = []
        self._list: list[Noun] | None = []  # noun phrases in a row; None: another statement's
        self._apposed: Sequence[Token] = ()  # the last noun phrase, if it may describe the first
        self._fronted: list[Sequence[Token]] = []  # "Built in 1911" before its subject
        self._is_lost = False  # the sentence begins with an unread phrase
        self._follows = False  # the segment before was read as a statement
        self._before = ""  # the mark or conjunction before that segment
        self._last: Token | None = None  # the token before the segment
        self._main: Statement | None = None  # main clause of the last relative clause
        self._clause: Sequence[Token] = ()  # the segment before, if it is not negated
        self._doing: Sequence[Noun] = ()  # subjects of a predicate without a complement
        self._done: Sequence[Noun] = ()  # the same for the segment before

    def _statement(
        self, join: str, words: Sequence[Token], when: Sequence[Date]
    ) -> Statement | None:
        if words[0].lower == "there":
            return self._existence(words, when)
        start, subjects, is_one = self._subject(join, words)
        lasts = any(date.word == "since" for date in when)
        predicate = read_predicate(words, start, lasts, is_one) if subjects else None
        if predicate is None or (join in _BACKGROUND and predicate.is_copula):
            return None
        is_open = join not in CLAUSES and is_plain_end(words, predicate.stop)
        self._doing = subjects if is_open else ()
        after = words[predicate.stop].lower if predicate.stop < len(words) else ""
        is_telling_on = predicate.base in _TELLS and after not in ("for", "about")
        if is_telling_on or is_inverted(words, start, subjects):
            return None
        has_no = predicate.stop < len(words) and words[predicate.stop].lower == "no"
        if has_no and (predicate := without_any(predicate)) is None:
            return None
        first = subjects[0]
        is_any = first.is_common and first.article != "the"
        if is_any and predicate.base not in _MEASURES and predicate.time != "event":
            return None
        is_shown = predicate.base in _SHOWS and not first.is_name
        who = self._who if is_shown else self._within(subjects, words, predicate.stop)
        complements, rest = read_complements(words, predicate.stop, who, predicate.base)
        if _is_unread(words, start, predicate, complements):
            return None
        if has_no and predicate.base != "have":  # "showed no interest in" is not "did not show in"
            complements = complements[:1]
        if len(complements) > 1:
            complements = without_makers(predicate, complements)
        if predicate.doubtful:  # "must go back in six months"
            complements = [c for c in complements if c[0] != "in" or not _is_span(c[1])]
        complements, when = place_dates(words, predicate, first, complements, when)
        is_alone = not complements and has_only_dates(words, predicate.stop)
        is_told = not first.is_common or (predicate.time == "present" and when)
        if is_alone and is_told and (complement := participle(predicate)):
            complements = [("", complement)]
            text = predicate.text.rpartition(" ")[0]
            predicate = replace(predicate, text=text, base="be")
        elif first.is_common and not (complements and is_telling(predicate, complements[0])):
            return None
        nouns = (*subjects, *(noun for _, noun in complements))
        self.roles += [(n.role[0], f"has {n.role[1]}", n.text) for n in nouns if n.role]
        return (
            Statement(tuple(subjects), predicate, tuple(complements), tuple(when), tuple(rest))
            if complements
            else None
        )

    def _within(self, subjects: Sequence[Noun], words: Sequence[Token], stop: int) -> Speakers:
        """Return the pronouns' referents after a predicate: its subject may be one of them."""
        first, who = subjects[0], self._who
        is_own = len(subjects) == 1 and (not first.owner or first.owner == who.me)
        if not first.is_name and is_of_name(words, stop):
            maker = words[stop + 1] if words[stop].lower == "by" and words[stop + 1 :] else None
            if maker and maker.kind == "name":  # "was worn by Ida at her wedding"
                who = replace(who, them=maker.text)
        elif is_own:
            thing = who.it if first.owner else first.head  # "its" is rarely of "my firm's"
            that = who.it if who.it not in (who.topic, first.head) else None
            who = Speakers(who.me, first.head, thing, who.topic, that=that)
        is_many = len(subjects) > 1 or is_plural(first.text)
        return replace(who, many=True) if is_many else who

    def _subject(self, join: str, words: Sequence[Token]) -> tuple[int, Sequence[Noun], bool]:
        """Return the index of the predicate, its subjects, and whether it surely is a predicate.

        The subjects are [] if they are unclear.
        """
        if begins_predicate(words, 0) and words[0].lower != "like":
            subjects = self._known_subjects(join, words)
            if subjects and _may_share(words[0], subjects, self._who.me):
                return 0, subjects, False
        if self._list and join == "," and (self._list[0].is_name or words[0].kind != "name"):
            return 0, [], False  # "Paris, Texas is a town": the subject is unclear
        is_many = join == "and" and bool(self._list)
        who = self._who
        if is_many and self._list and self._list[-1].is_name:  # "Ana and her husband Raul"
            who = replace(who, them=self._list[-1].text)
        for index in range(1, min(len(words), _MAX_SUBJECT)):
            if begins_predicate(words, index) and (is_many or agrees(words, index)):
                if _names(words, index):
                    continue  # "two brothers named Oltmann built"
                noun = read_subject(words[:index], who) or self._after_phrase(join, words, index)
                if noun is None and self._may_be_bare(join):
                    noun = read_bare(words[:index], words[index])
                if noun is not None:
                    is_one = not is_many and words[0].lower not in ("i", "you")
                    return index, [noun], is_one and not words[index - 1].lower.endswith("s")
        return 0, [], False

    def _existence(self, words: Sequence[Token], when: Sequence[Date]) -> Statement | None:
        """Read "there was a ferry at Hohenau" as the place of a thing."""
        start = next((i for i in range(2, len(words)) if words[i].lower not in ADVERBS), 0)
        places = (i for i, word in enumerate(words) if i > start and word.lower in PLACES)
        stop = next(places, 0)
        if words[0].lower != "there" or not (start and stop):
            return None
        be = read_predicate(words, 1)
        noun = read_noun(words[start:stop], self._who)
        if noun is None or be is None or not be.is_copula or be.doubtful or be.is_negated:
            return None
        complements, _ = read_complements(words, stop, self._who, "be")
        noun = replace(noun, is_common=not noun.is_name)
        return Statement((noun,), be, tuple(complements[:1]), tuple(when)) if complements else None

    def _may_be_bare(self, join: str) -> bool:
        """Return whether a new clause may begin, with a subject like "villagers" ("crossed")."""
        return join in _NEW_CLAUSES or (join == "," and not self.statements)

    def _after_phrase(self, join: str, words: Sequence[Token], index: int) -> Noun | None:
        """Return the pronoun or name between a phrase and its verb: "After the war he worked"."""
        is_phrase = join in ("after", "before", "since") or words[0].lower in PREPOSITIONS
        is_pronoun = index > 1 and words[index - 1].lower in ("i", "he", "she")
        before = words[index - 2]
        is_name = index > 2 and words[index - 1].kind == "name" and before.kind in _PHRASE_ENDS
        is_name = is_name and before.lower not in AFTER_VERB and not before.owns
        if self.statements or not (is_phrase and (is_pronoun or is_name)):
            return None
        return read_subject(words[index - 1 : index], self._who)

    def _known_subjects(self, join: str, words: Sequence[Token]) -> Sequence[Noun]:
        """Return the subjects, from earlier segments, of a predicate whose segment has none."""
        reduced = is_participial(words, 0)
        if join in RELATIVE:
            return self._antecedent(join, words)
        if self._follows and join in _GOES_ON:
            last = self.statements[-1].predicate
            if self._main is not None and self._is_of_main(words):
                return self._main.subjects
            reduced |= last.is_copula and words[0].lower in PARTICIPLE_FORMS
            is_passive = not last.is_copula and last.text.startswith(("is ", "was "))
            is_new = not reduced or join != "," or self._before in RELATIVE or is_passive
            return self.statements[-1].subjects if is_new else []
        if self._done and join in _GOES_ON and not reduced:
            return self._done
        if not self._list or join != ",":
            return []
        if len(self._list) == 2:  # "Anna, a nurse, lives"
            return [self._appose(*self._list)]
        if len(self._list) == 3 and self._before == "and" and is_two_roles(*self._list):
            first, role, other = self._list  # "Anna, a nurse and poet, lives"
            article = "an" if other.text[0] in "aeiou" else "a"
            roles = (role, replace(other, article=article))
            self.asides += [Statement((first,), IS, (("", noun),)) for noun in roles]
            return [first]
        return [] if reduced else self._list[:1]

    def _appose(self, first: Noun, second: Noun) -> Noun:
        """Read an apposition, and return which of its two noun phrases is the name."""
        is_role = bool(self._apposed) and self._apposed[0].lower in ARTICLES
        if is_role and (first.is_name or not second.is_name):
            self._aside(first, self._apposed, IS, 0)
        elif second.is_name and not first.is_name:
            if first.owner is not None:
                self.roles.append((first.owner, f"has {first.thing}", second.text))
            return second
        return first

    def _is_of_main(self, words: Sequence[Token]) -> bool:
        """Return whether a verb continues the main clause, by its tense: "and moved to"."""
        main, predicate = self._main, read_predicate(words, 0)
        if main is None or predicate is None:
            return False
        times = {one.time == "present" for one in (main.predicate, predicate)}
        other = self.statements[-1].predicate.time == "present"
        return len(times) == 1 and other not in times

    def _antecedent(self, join: str, words: Sequence[Token]) -> Sequence[Noun]:
        """Return the antecedent of "who": the name before it, or the last statement's object."""
        last = self._last
        if self._list:
            nouns = self._list[-1:]
            if is_named(nouns[0]) and " to " not in nouns[0].text:
                return [] if nouns[0].text.lower() in OPENERS else nouns
            noun = described(nouns[0], join, words, last) if last and len(self._list) == 1 else None
            return [noun] if noun else []
        if not self._follows:
            noun = last_noun(self._clause, self._who) if last else None
            common = described(noun, join, words, last) if noun and last else None
            return [common] if common else []
        if not self.statements[-1].is_whole or self.statements[-1].predicate.is_negated:
            return []
        [(preposition, noun)] = self.statements[-1].complements[-1:]
        if not noun.is_name:
            common = described(noun, join, words, last) if last else None
            return [common] if common else []
        is_near = join == "who" or not preposition or preposition in _OF_WHICH
        return [noun] if is_near else []

    def _aside(self, noun: Noun, words: Sequence[Token], predicate: Predicate, start: int) -> None:
        complements, _ = read_complements(words, start, self._who, predicate.base)
        when = [self._dates[token.start] for token in words if token.kind == "date"]
        if predicate is not IS:
            complements, when = place_dates(words, predicate, noun, complements, when)
        is_common = noun.article == "the" and self._who.topic is None
        if complements and (is_named(noun) or is_common):
            noun = noun if is_named(noun) else replace(noun, is_common=True)
            statement = Statement((noun,), predicate, tuple(complements), tuple(when))
            self.asides.append(statement)


def _is_span(noun: Noun) -> bool:
    return noun.is_value and noun.text.rpartition(" ")[2] in UNITS


def _names(words: Sequence[Token], index: int) -> bool:
    """Return whether "named" is here, followed by a name and the clause's verb."""
    if words[index].lower not in ("named", "called") or index + 2 >= len(words):
        return False
    return words[index + 1].kind == "name" and begins_predicate(words, index + 2)


def _may_share(verb: Token, subjects: Sequence[Noun], me: str | None) -> bool:
    """Return whether a verb may belong to subjects: not "thank goodness" to "the test"."""
    base, kind = VERB_FORMS.get(verb.lower, ("", ""))
    if (
        kind != "base"
        or PAST.get(base, base) == base
        or len(subjects) > 1
        or base in ("be", "have")
    ):
        return True
    return subjects[0].text == me or is_plural(subjects[0].text)


def _is_unread(
    words: Sequence[Token],
    start: int,
    predicate: Predicate,
    complements: Sequence[tuple[str, Noun]],
) -> bool:
    """Return whether complements state no fact of a subject: "is safe to drink", "as fast as"."""
    if is_agent_only(predicate, complements) and start > 0:
        return True
    if predicate.is_copula and complements and is_prospect(words, complements):
        return True
    return is_compared(predicate, complements)


def is_thing(noun: Noun) -> bool:
    is_plain = bool(noun.article) and not (noun.is_name or noun.is_value or noun.owner)
    return is_plain and not is_plural(noun.text)


def may_be_noun(words: Sequence[Token], index: int) -> bool:
    """Return whether a verb's form may be a noun or a participle here: "new works by Hals"."""
    word = words[index].lower
    if VERB_FORMS.get(word, ("", ""))[1] == "third":
        following = words[index + 1].lower if index + 1 < len(words) else ""
        return following not in AFTER_VERB - {"of", "for", "in", "at", "from", "with", "by"}
    return word not in MODALS and VERB_FORMS.get(word, ("", "past"))[0] not in ("be", "have")
