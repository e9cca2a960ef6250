"""Finds the old facts that a new statement replaces: those with another value of the same aspect.

A fact is read as claims (owner, aspect, value). A person has one home, one employer, one spouse and
one age; an aspect that may have several values at once replaces nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from turngraph.data.memory_graph.extract.aspect_words import (
    ASPECTS,
    ENDINGS,
    LEAVES_BOTH,
    LOSSES,
    POSTS,
    SPELLINGS,
    STATES,
    UNMARRIED,
    cues,
)
from turngraph.data.memory_graph.extract.nouns import is_attribute
from turngraph.data.memory_graph.extract.openings import is_correction
from turngraph.data.memory_graph.extract.statements import read_sentence
from turngraph.data.memory_graph.extract.word_lists import (
    COUNTRIES,
    MORE,
    NUMBER_WORDS,
    PAST,
    STOP_WORDS,
    VERB_FORMS,
    WEEKDAYS,
    third_person,
)
from turngraph.data.memory_graph.memory_types import Ends, Fact, Thesis, Triplet, Update
from turngraph.data.memory_graph.names import alias
from turngraph.data.normalise import parse_date
from turngraph.data.normalise import words as words_of

_NAMES_ONLY = frozenset({"home", "employer", "seat", "school", "owner", "name"})
_SYMMETRIC = frozenset({"spouse", "partner"})
_MOVES = ("moved", "relocated", "emigrated", "immigrated", "settled")
_NO_EMPLOYERS = frozenset(
    "club party church team band gym choir association society group army navy union orchestra "
    "class course league committee board community program programme expedition".split()
)
_IS = frozenset({"is", "became", "turned", "got", "is now", "is currently", "is painted", "status"})
_ROLE = re.compile(
    r"(?:is|became|was (?:appointed|elected|named)) (?:the )?(?:new |current )?(.+) of"
)
_SEAT = re.compile(r"(?:the )?headquarters of (.+)|(.+)['’]s headquarters", re.IGNORECASE)
_MEASURE = re.compile(r"([\w.,]+)(?: \w+)? (old|tall|long|high|wide|heavy|deep)")
_CLOCK = re.compile(r"\d{1,2}(?::\d\d)?(?: ?[ap]\.?m\.?)?|noon|midnight|\d{1,2} o'clock")
_DAY = re.compile(r"\d{4}(?:-\d\d){0,2}")
_COUNT = re.compile(rf"(\d[\d,]*|{'|'.join(NUMBER_WORDS)}) ((?!years?\b).+)")
_NEGATED = re.compile(
    r"(?:does not|do not|did not|no longer|used to|(?:is|was|are) (?:no longer|not))\b ?"
)
_STOPPED = re.compile(r"(?:stopped|quit|finished|ceased|gave up) (\w+ing)\b")


@dataclass(frozen=True, slots=True)
class _Claim:
    """Claim of a fact about one aspect of one person or thing.

    Args:
        owner: normal form of the name of the person or thing.
        aspect: aspect of the owner.
        value: normal form of the value; None: any value.
        holds: False if the fact denies or ends the value.
        is_single: whether the aspect has one value at a time.
        is_move: whether the fact is an event that certainly changes the value.
    """

    owner: str
    aspect: str
    value: str | None
    holds: bool = True
    is_single: bool = True
    is_move: bool = False


def find_replaced(update: Update, sentence: Sequence[Triplet] | None = None) -> tuple[int, ...]:
    """Return the keys of the known facts that a new statement replaces.

    A fact is replaced only by a statement about the same aspect, a thesis only by a thesis that
    contradicts all its triplets. The known facts are not read if the new statement cannot replace
    any.

    Args:
        update: the new statement and the known facts.
        sentence: all triplets of the new statement's sentence, which do not replace each other;
            None: they are read from its text.
    """
    new, episode = update.new, update.episode
    if sentence is None:
        sentence = () if isinstance(new, Triplet) else read_sentence(new.text)
    together = [_ends(triplet) for triplet in sentence if not triplet.hypothesis]
    ends = [_ends(new)] if isinstance(new, Triplet) else together
    if new.hypothesis or not ends:
        return ()
    text = episode.text[slice(*new.span)] if new.span else episode.text
    is_more = not MORE.isdisjoint(words_of(text))
    mine = [claim for each in ends for claim in claims(*each) if not (is_more and claim.holds)]
    corrects = is_correction(text)
    if not (corrects or any(map(_can_replace, mine))):
        return ()
    may_tell = cues(
        frozenset(claim.aspect for claim in mine), frozenset(claim.owner for claim in mine)
    )

    is_thesis = isinstance(new, Thesis)

    def is_other(old: Ends | None) -> bool:
        return (old is None) == is_thesis and old not in together

    def is_replaced(text: str, old: Ends | None) -> bool:
        return may_tell(text) and is_other(old) and _is_replaced(text, old, mine)

    def is_variant(text: str, old: Ends | None) -> bool:
        return is_other(old) and _is_variant(ends, text, old)

    old = [fact for fact in update.known_where(is_replaced) if not fact.hypothesis]
    if not old and corrects:
        same = [fact for fact in update.known_where(is_variant) if not fact.hypothesis]
        old = [max(same, key=_last_said)] if same else []
    return tuple(fact.key for fact in old)


def _ends(triplet: Triplet) -> Ends:
    return triplet.subject, triplet.relation, triplet.object


def _can_replace(claim: _Claim) -> bool:
    """Return whether a claim can contradict another; "likes" contradicts nothing."""
    return claim.is_single or not claim.holds


def _stated(text: str, ends: Ends | None) -> list[Ends]:
    """Return the ends of a triplet, or those of the triplets that a thesis states."""
    if ends is not None:
        return [ends]
    return [_ends(triplet) for triplet in read_sentence(text) if not triplet.hypothesis]


def _is_replaced(text: str, ends: Ends | None, mine: Sequence[_Claim]) -> bool:
    stated = _stated(text, ends)
    return (
        bool(stated)
        and all(_contradict(mine, claims(*each)) for each in stated)
        and not (ends is None and _says_more(text, stated))
    )


def _says_more(text: str, stated: Sequence[Ends]) -> bool:
    """Return whether a sentence has words that are in none of its triplets."""
    covered = {_base(word) for ends in stated for part in ends for word in words_of(part)}
    rest = text.partition(": ")[2] or text
    return any(
        word not in STOP_WORDS and _base(word) not in covered and not word.isdigit()
        for word in words_of(rest)
    )


def _base(word: str) -> str:
    return VERB_FORMS.get(word, (word,))[0]


def _is_variant(new: Sequence[Ends], text: str, ends: Ends | None) -> bool:
    """Return whether a fact differs from the new statement in the object alone.

    A correction ("actually, ...") replaces such a fact."""
    pairs = [(mine, old) for mine in new for old in _stated(text, ends)]
    return any(
        alias(mine[0]) == alias(old[0])
        and _plain(mine[1]) == _plain(old[1])
        and alias(mine[2]) != alias(old[2])
        for mine, old in pairs
    )


def _last_said(fact: Fact) -> tuple[str, int]:
    return max((place.said or "" for place in fact.provenance), default=""), fact.key


def _contradict(new: Sequence[_Claim], old: Sequence[_Claim]) -> bool:
    return any(
        _excludes(n, o) for n in new for o in old if (n.owner, n.aspect) == (o.owner, o.aspect)
    )


def _excludes(new: _Claim, old: _Claim) -> bool:
    if new.holds and old.holds:
        return new.is_single and not _compatible(new, old)
    if new.holds == old.holds:
        return False
    return new.value == old.value or (new.value is None and not new.holds)


def _compatible(new: _Claim, old: _Claim) -> bool:
    """Return whether two values agree: equal, one more exact, or perhaps a place in the other."""
    mine, theirs = set((new.value or "").split()), set((old.value or "").split())
    if mine <= theirs or theirs <= mine:
        return True
    if _DAY.fullmatch(new.value or "") and _DAY.fullmatch(old.value or ""):
        days = sorted((f"{new.value}-", f"{old.value}-"), key=len)
        return days[1].startswith(days[0])
    is_inside = (new.value in COUNTRIES) != (old.value in COUNTRIES)
    return new.aspect in ("home", "seat") and is_inside and not new.is_move


@lru_cache(maxsize=1 << 14)  # the same old facts are compared with many new ones
def claims(subject: str, relation: str, object_: str) -> list[_Claim]:
    """Return the claims of a triplet; spellings of its relation make no difference."""
    plain = _plain(relation)
    positive = _positive(plain)
    holds = positive == plain
    all_claims = list(_claims(subject, positive, object_))
    if not holds:
        return [replace(claim, holds=False) for claim in all_claims]
    all_claims += _ended(subject, plain, object_)
    return all_claims


def _plain(relation: str) -> str:
    words = " ".join(relation.lower().replace("_", " ").split()).removeprefix("'s ").split(" ")
    return " ".join(SPELLINGS.get(word, word) for word in words if word not in ("now", "currently"))


def _positive(relation: str) -> str:
    """Return the relation without its negation: "works at" of "no longer works at"."""
    if match := _STOPPED.match(relation):
        base = VERB_FORMS.get(match[1], (match[1],))[0]
        return third_person(base) + relation[match.end() :]
    match = _NEGATED.match(relation)
    if match is None or match.end() == len(relation):  # "did not" alone
        return relation
    rest = relation[match.end() :]
    if match[0].startswith(("is", "was", "are")):
        return f"{match[0].split()[0]} {rest}".strip()
    word, _, after = rest.partition(" ")
    base = VERB_FORMS.get(word, (word,))[0]
    form = PAST.get(base, base) if match[0].startswith("did") else third_person(base)
    return f"{form} {after}".strip()


def _claims(subject: str, relation: str, object_: str) -> Iterator[_Claim]:
    who, what = alias(subject), alias(object_)
    yield _Claim(who, f"= {relation}", what, is_single=False)
    aspect = ASPECTS.get(relation)
    if aspect and not (aspect in _NAMES_ONLY and not _may_be_name(aspect, object_)):
        if aspect == "owner" and relation in ("acquired", "owns"):
            who, what = what, who
        is_one = aspect != "name" or relation.startswith("was renamed")
        is_move = relation.startswith(_MOVES)
        yield _Claim(who, aspect, what, is_single=is_one, is_move=is_move)
        if aspect in _SYMMETRIC:
            yield _Claim(what, aspect, who)
        if aspect == "spouse":
            yield from (_Claim(person, "marriage", "married") for person in (who, what))
    elif (owned := _attribute(subject, relation)) is not None:
        owner, attribute = owned
        yield _Claim(owner, attribute, what)
    elif (match := _ROLE.fullmatch(relation)) and is_attribute(match[1]):
        yield _Claim(what, f"has {match[1]}", who)
        if match[1] in POSTS:
            yield _Claim(who, "post", what, is_single=False)
    else:
        yield from _states(subject, relation, object_)


def _may_be_name(aspect: str, object_: str) -> bool:
    """Return whether an object may be an aspect's value: "Rome" may be a home, "a house" not."""
    if aspect == "employer" and not _NO_EMPLOYERS.isdisjoint(object_.lower().split()):
        return False
    return not object_[:1].islower()


def _attribute(subject: str, relation: str) -> tuple[str, str] | None:
    """Return owner and attribute: (bob, has phone number) of "Bob has", "Bob's phone number is"."""
    if relation.startswith("has ") and is_attribute(relation[4:]):
        return alias(subject), relation
    owner, mark, thing = subject.replace("’", "'").partition("'s ")
    if mark and relation == "is" and is_attribute(thing):
        return alias(owner), f"has {_plain(thing)}"
    return (alias(subject), f"has {relation}") if is_attribute(relation) else None


def _states(subject: str, relation: str, object_: str) -> Iterator[_Claim]:
    """Yield claims about colour, age, number, day and the like, recognised by the value."""
    who, what = alias(subject), alias(object_)
    last = what.split(" ")[-1]
    if relation in _IS and last in STATES and len(what.split()) <= 2:
        yield _Claim(who, STATES[last], what)
        if what in UNMARRIED:
            yield _Claim(who, "spouse", None, holds=False)
    elif relation in (*_IS, "is aged", "age") and what.isdigit() and len(what) < 4:
        yield _Claim(who, "old", what)
    elif relation in _IS and (match := _MEASURE.fullmatch(what)):
        yield _Claim(who, match[2], _number(match[1]))
    elif relation == "has" and (match := _COUNT.fullmatch(what)):
        yield _Claim(who, f"number of {match[2].rstrip('s')}", _number(match[1]))
    elif relation == "was born on" or (relation == "was born in" and what[:4].isdigit()):
        yield _Claim(who, "birth", what)
    elif relation in ("is", "is on", "is at", "was moved to", "is scheduled for", "takes place on"):
        if what in WEEKDAYS or parse_date(what):
            yield _Claim(who, "day", what)
        elif relation != "is" and _CLOCK.fullmatch(what):
            yield _Claim(who, "clock", what)
    if relation == "is in" and (match := _SEAT.fullmatch(subject)):
        yield _Claim(alias(match[1] or match[2]), "seat", what)
    elif relation in ("is in", "is at") and "'s " in subject:
        yield _Claim(who, f"place {object_[:1].islower()}", what)


def _number(text: str) -> str:
    return str(NUMBER_WORDS.get(text, text))


def _ended(subject: str, relation: str, object_: str) -> Iterator[_Claim]:
    """Yield the claims, with ``holds`` False, of "left", "divorced" or "sold"."""
    who, what = alias(subject), alias(object_)
    if relation in ENDINGS:
        for aspect in LEAVES_BOTH.get(relation, (ENDINGS[relation],)):
            yield _Claim(who, aspect, what, holds=False)
            if aspect in _SYMMETRIC:
                yield _Claim(what, aspect, who, holds=False)
            if aspect == "employer":
                yield _Claim(who, "post", what, holds=False)
    if relation in LOSSES:
        yield from (_Claim(who, f"= {verb}", what, holds=False) for verb in ("has", "owns"))
        yield _Claim(what, "owner", who, holds=False)
