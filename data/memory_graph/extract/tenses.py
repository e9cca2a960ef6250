"""Finds whether a date without a year is past or future, by the verbs of its clause."""

from __future__ import annotations

import re
from typing import Literal

from turngraph.data.memory_graph.extract.word_lists import PAST, VERB_FORMS

Tense = Literal["past", "future", ""]

_ENDS = re.compile(
    r"[;:—–]|\b(?:and|but|so|because|while|which|who|whose|where|when|that|before|after|than)\b"
)
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_FUTURE = frozenset("will shall going tomorrow he'll she'll it'll we'll they'll".split())
_COMING = frozenset("is are starts begins opens closes ends leaves takes meets expires".split())
"""Verbs whose day, in the present tense, is in the future: "the party is on 14 June"."""
_PRESENT = _COMING | frozenset(
    "am has have do does can could may might must should would every each usually always "
    "i'm you're we're they're he's she's it's that's there's don't doesn't isn't aren't if".split()
)


def tense_at(text: str, index: int) -> Tense:
    """Return the tense of the clause at an index of a sentence.

    For a clause without a verb, it is the tense of the sentence. A clause has no tense if its verbs
    differ in it or are in the present.
    """
    ends = [match.start() for match in _ENDS.finditer(text)]
    start = max((end for end in ends if end <= index), default=0)
    stop = min((end for end in ends if end > index), default=len(text))
    return _tense(text[start:stop]) or ("" if _is_told(text[start:stop]) else _tense(text))


def _tense(text: str) -> Tense:
    words = _words(text)
    if not words.isdisjoint(_FUTURE):
        return "future"
    is_past = any(map(_is_past, words))
    if not words.isdisjoint(_COMING) and not is_past and words.isdisjoint(_PRESENT - _COMING):
        return "future"
    return "past" if is_past and words.isdisjoint(_PRESENT) else ""


def _is_told(text: str) -> bool:
    """Return whether a clause has a verb."""
    words = _words(text)
    return not words.isdisjoint(_PRESENT) or any(word in VERB_FORMS for word in words)


def _words(text: str) -> set[str]:
    return {word.lower().replace("’", "'") for word in _WORD.findall(text) if word != "May"}


def _is_past(word: str) -> bool:
    base, kind = VERB_FORMS.get(word, (word, "past" if word.endswith("ed") else ""))
    return kind in ("past", "participle") or (kind == "base" and PAST.get(base, base) == base)
