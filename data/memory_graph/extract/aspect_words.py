"""Tables of the relations and states of each aspect, and a fast test for texts about an aspect."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import lru_cache

from turngraph.data.entities import FUNCTION_WORDS
from turngraph.data.memory_graph.extract.word_lists import (
    PARTICIPLES,
    PAST,
    VERB_FORMS,
    third_person,
)
from turngraph.data.normalise import fold


def _table(lines: str) -> dict[str, str]:
    pairs = (line.split(":") for line in lines.strip().splitlines())
    return {name.strip(): aspect.strip() for aspect, names in pairs for name in names.split(",")}


ASPECTS = _table(
    """
    home: lives in, lives at, resides in, resides at, settled in, settled down in, home, residence
    home: moved to, relocated to, emigrated to, immigrated to, is living in
    home: has home, place of residence
    home: moved back to, moved into
    employer: works at, works for, joined, is employed by, is employed at, was hired by, employer
    employer: started working at, started working for, began working at, began working for
    employer: started at
    employer: got job at, got new job at, took job at, accepted job at, found job at, has job at
    employer: is working at, is working for, started job at, started new job at, has new job at
    job: works as, is working as, job, occupation, profession, has job, has occupation
    job: started working as
    spouse: married, is married to, got married to, spouse, wife, husband, has wife, has husband
    spouse: has spouse, wed
    partner: is dating, dates, has boyfriend, has girlfriend, has partner, is engaged to
    partner: has fiancé, has fiancée, has fiance, has fiancee
    seat: is based in, is headquartered in, has headquarters, headquarters
    school: studies at, is studying at
    owner: acquired, owns, is owned by, belongs to
    price: costs, has price, price
    weight: weighs, has weight
    begins: starts at, begins at, starts on, begins on
    ends: ends at, ends on
    opens: opens at
    closes: closes at
    name: was renamed, was renamed to, is called, is named, was called, was named
    """
)
ENDINGS = _table(
    """
    home: left, moved from, moved out of, moved away from
    employer: left, quit, resigned from, retired from, was fired from, was fired by, lost job at
    employer: quit job at, left job at, was laid off by, was laid off from
    spouse: divorced, separated from, split up with, is divorced from, split from
    partner: broke up with, split up with, separated from, split from
    """
)
LEAVES_BOTH = {"left": ("home", "employer"), "separated from": ("spouse", "partner")}
POSTS = frozenset("ceo cto cfo president chairman chairwoman chair director head manager".split())
"""Roles "of" an employer, which end when a person leaves it."""
LOSSES = frozenset({"sold", "lost", "gave away", "gave up"})
STATES = _table(
    """
    colour: red, blue, green, yellow, black, white, grey, gray, brown, orange, purple, pink, silver
    colour: golden, beige, violet, turquoise, blond, blonde
    marriage: single, married, engaged, divorced, widowed, unmarried
    life: alive, dead
    access: open, closed
    repair: broken, fixed, repaired, working
    filling: full, empty
    switch: on, off
    health: sick, ill, healthy, well, injured
    work: employed, unemployed, retired
    size: small, medium, large, big, tiny, huge
    warmth: hot, cold, warm
    diet: vegetarian, vegan, omnivore
    availability: available, unavailable, sold out
    """
)
UNMARRIED = frozenset({"single", "divorced", "widowed", "unmarried"})
SPELLINGS = {"favorite": "favourite", "color": "colour", "telephone": "phone", "cell": "phone"}

_SAYS_LITTLE = FUNCTION_WORDS | frozenset("get got new".split()) | set(SPELLINGS.values())


def _spoken() -> dict[str, set[str]]:
    """Map each form of a verb, as relations have it, to the forms that a text may have."""
    forms = defaultdict(set)
    for said, (base, _) in VERB_FORMS.items():
        for form in (said, base, third_person(base), PAST.get(base), PARTICIPLES.get(base)):
            if form is not None:
                forms[form].add(said)
    return forms


_SPOKEN = _spoken()


def cues(aspects: frozenset[str], owners: frozenset[str]) -> Callable[[str], bool]:
    """Return a test of whether a text may make a claim about some aspects of some owners.

    The test is a hundred times faster than reading a text. A text that fails the test makes no such
    claim; a text that passes must be read.

    Args:
        aspects, owners: aspects and owners of claims (``aspects.claims``).
    """
    find = _find_any(frozenset(map(_cue_words, aspects)))
    names = [max(owner.split(), key=len, default="") for owner in owners]
    if any(char.isdigit() for name in names for char in name):  # dates are written in many ways
        names = [""]

    def may_tell(text: str) -> bool:
        plain = text.lower() if text.isascii() else fold(text)  # equal for ASCII, except for spaces
        for name in names:
            if name in plain:
                return find(plain) is not None
        return False

    return may_tell


@lru_cache(maxsize=1 << 12)
def _find_any(words: frozenset[frozenset[str]]) -> Callable[[str], object]:
    """Return a search for any form of any word; it matches every text if a set is empty."""
    vocabulary = frozenset().union(*words) if all(words) else [""]
    forms = {fold(form) for word in vocabulary for form in (*_SPOKEN.get(word, ()), _stem(word))}
    short = [form for form in forms if not any(other in form for other in forms - {form})]
    return re.compile("|".join(map(re.escape, sorted(short)))).search


def _stem(word: str) -> str:
    """Return the stem of a verb in the third person: "work" of "works"."""
    for ending in ("ies", "es", "s"):
        if word.endswith(ending):
            return word[: -len(ending)]
    return word


@lru_cache(maxsize=1 << 12)
def _cue_words(aspect: str) -> frozenset[str]:
    """Return words of which each text about an aspect contains at least one, in some form.

    The set is empty if there are no such words.
    """
    own = aspect.removeprefix("= ")
    if own != aspect or aspect.startswith("has "):
        phrases = [] if own in ("has", "owns") else [own]  # "sold" ends both
    else:
        phrases = list(_phrases(aspect))
    words = [max(filter(_tells, phrase.split()), key=len, default="") for phrase in phrases]
    return frozenset(words) if all(words) else frozenset()


def _phrases(aspect: str) -> Iterator[str]:
    """Yield the relations and states that claim or end an aspect; none if others may, too."""
    named = {aspect, "spouse"} if aspect == "marriage" else {aspect}
    yield from (relation for relation, about in ASPECTS.items() if about in named)
    yield from (relation for relation, about in ENDINGS.items() if about in named)
    yield from (relation for relation, about in LEAVES_BOTH.items() if named & set(about))
    yield from (state for state, about in STATES.items() if about in named)
    yield from UNMARRIED if aspect == "spouse" else ()
    yield from LOSSES if aspect == "owner" else ()
    yield from (*POSTS, *_phrases("employer")) if aspect == "post" else ()


def _tells(word: str) -> bool:
    """Return whether a text about an aspect must contain a word of its name.

    The claim "Bob's job" may come from "his job", which does not contain "Bob's".
    """
    is_plain = word.isalnum() and word not in _SAYS_LITTLE
    return is_plain and VERB_FORMS.get(word, ("",))[0] not in ("be", "have", "do")
