"""Reads noun phrases as subjects: names, common nouns, plurals, people with a place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from turngraph.data.memory_graph.extract.nouns import (
    IMPRECISE,
    OUR_THINGS,
    PREPOSITIONS,
    TITLES,
    Noun,
    Speakers,
    fits,
    read_noun,
    read_several,
)
from turngraph.data.memory_graph.extract.sentence_mentions import Token
from turngraph.data.memory_graph.extract.word_lists import ADVERBS, NUMBER_WORDS, VERB_FORMS

_NO = frozenset("no none nobody nothing neither nor not few hardly scarcely without".split())
_NO_SUBJECT = _NO | PREPOSITIONS
_VAGUE = frozenset("man woman person people thing way fact truth same other others one".split())
_MANY_ENDINGS = tuple(
    "ers ors ists ians ents ants ils ties ings ions ages ives oys irls ees ees ests iffs ows orts "
    "unds ands ings ines ides ails hips".split()
)
"""Endings of plurals that few names have."""
_PEOPLE = frozenset("people children men women police".split())
_OURS = frozenset(("my", "our"))


def read_subject(words: Sequence[Token], who: Speakers) -> Noun | None:
    """Return the subject of a segment; None if it is unclear."""
    if words[-1].owns or words[0].lower in _NO_SUBJECT:
        return None
    if words[0].kind == "word" and VERB_FORMS.get(words[0].lower, ("", ""))[1] not in ("", "base"):
        return None  # "Released six weeks later, ..."
    if words[0].lower in _OURS and who.me is None:  # a note without a speaker
        noun = read_several(words[1:], "") if len(words) > 1 else None
        if noun is not None and noun.is_name:  # "our guide Benicio"
            return noun
        whole = noun and f"{words[0].lower} {noun.text}"
        return (
            Noun(whole, True, "the", is_common=True)
            if whole and fits(whole) and not _inner(words)
            else None
        )
    if words[0].lower in ("all", "both") and len(words) > 1 and words[-1].lower.endswith("s"):
        return _all(words)
    noun = _with_phrase(words, who) if _inner(words) else read_noun(words, who)
    if noun is None:
        return None
    if noun.is_value and not noun.is_name:
        if _is_several(words) and who.topic is None:  # "two climbers"
            return replace(noun, is_common=True, article="the")
        return replace(noun, is_name=True) if _is_numbered(words) else None
    if noun.is_name or noun.owner is not None:
        return noun
    if words[0].kind == "name" and not noun.article and _is_kind(words):  # "Fennel bread contains"
        return replace(noun, is_name=True)
    is_ours = noun.article == "the" and noun.text.split()[-1] in OUR_THINGS
    is_described = noun.article in ("the", "a", "an") and who.topic is None
    if is_ours:
        return noun
    return replace(noun, is_common=True) if is_described and noun.text not in _VAGUE else None


def _all(words: Sequence[Token]) -> Noun | None:
    """Read "both neighbours" and "all new builds"."""
    noun = read_several(words[1:], "") if len(words) > 2 else Noun(words[1].text, False)
    whole = noun and f"{words[0].lower} {noun.text}"
    return Noun(whole, False, "the", is_common=True) if whole and not _inner(words) else None


def read_bare(words: Sequence[Token], verb: Token) -> Noun | None:
    """Return a plural without an article as a subject: "elderly villagers crossed"."""
    is_lower = all(word.kind == "word" and word.text.islower() for word in words)
    is_many = words[-1].lower.endswith(_MANY_ENDINGS) or words[-1].lower in _PEOPLE
    if not is_lower or not is_many or len(words) > 3 or words[-1].owns:
        return None
    if VERB_FORMS.get(verb.lower, ("", ""))[1] == "third" and verb.lower != "has":
        return None
    noun = read_several(words, "") if len(words) > 1 else Noun(words[0].text, False)
    is_known = not any(w.lower in VERB_FORMS or w.lower in _NO_SUBJECT for w in words)
    return replace(noun, is_common=True, article="the") if noun and is_known else None


def _is_kind(words: Sequence[Token]) -> bool:
    """Return whether nouns in lower case follow a name: "Fennel & Rye bread"."""
    return all(
        word.kind == "name"
        or (word.text.islower() and VERB_FORMS.get(word.lower, ("", "base"))[1] == "base")
        for word in words
    )


def _is_several(words: Sequence[Token]) -> bool:
    """Return whether a phrase counts things: "two climbers", "about 300,000 people"."""
    is_number = any(w.kind == "number" or w.lower in NUMBER_WORDS for w in words[:-1])
    last = words[-1].lower
    return is_number and words[-1].kind == "word" and (last.endswith("s") or last == "people")


def _is_numbered(words: Sequence[Token]) -> bool:
    """Return whether a phrase is a numbered thing: "room 204", "Lesson three"."""
    if len(words) < 2 or not all(word.kind in ("word", "name") for word in words[:-1]):
        return False
    is_number = words[-1].kind == "number" or words[-1].lower in NUMBER_WORDS
    return is_number and words[-2].lower not in ADVERBS | IMPRECISE | PREPOSITIONS | {"than"}


def _inner(words: Sequence[Token]) -> int:
    """Return where a phrase with a preposition begins ("flight to Porto"), else 0."""
    places = (i for i, word in enumerate(words) if i and word.lower in PREPOSITIONS)
    inner = next((i for i in places if words[i].lower != "of"), 0)
    return inner if inner < len(words) - 1 else 0


def _are_people(words: Sequence[Token]) -> bool:
    """Return whether a first word is a plural and no name: "Voters in Graubund"."""
    text = words[0].lower
    return len(words) == 1 and text.isalpha() and text.endswith(_MANY_ENDINGS)


def _with_phrase(words: Sequence[Token], who: Speakers) -> Noun | None:
    """Read a common noun with the phrase that belongs to it: "the old bridge in Rome"."""
    inner = _inner(words)
    head, phrase = read_noun(words[:inner], who), read_noun(words[inner + 1 :], who)
    if head is None or phrase is None:
        return None
    if head.is_name and not _are_people(words[:inner]):
        return head if _is_placed(words, inner) else None
    tail = f"{words[inner].lower} {phrase.text}"
    text = f"{head.text} {tail}"
    thing = f"{head.thing} {tail}" if head.thing else None
    return replace(head, text=text, thing=thing) if fits(text) else None


def _is_placed(words: Sequence[Token], inner: int) -> bool:
    """Return whether a place identifies a person: "Mrs Gray on the third floor"."""
    if words[inner].lower not in ("in", "on", "at", "from") or words[inner - 1].owns:
        return False
    first = words[0].text.partition(" ")
    is_titled = first[0].lower() in TITLES | {"miss", "aunt", "uncle"} and bool(first[2])
    is_pair = inner == 2 and words[0].lower == "the" and words[1].text.endswith("s")
    return is_titled or is_pair or (inner == 1 and words[inner].lower == "from")
