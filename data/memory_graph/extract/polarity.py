"""Finds the moods of a sentence's segments: asserted, only possible, or denied.

A statement that is denied, asked or supposed is no fact. ``verbs`` reads a negation inside a
predicate ("does not live"); this module finds the negations around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from itertools import pairwise

from turngraph.data.memory_graph.extract.sentence_mentions import Token
from turngraph.data.memory_graph.extract.word_lists import NUMBER_WORDS, VERB_FORMS


class Mood(Enum):
    """Whether a segment's statement is asserted, only possible, or denied."""

    ASSERTED = 0
    POSSIBLE = 1
    DENIED = 2


THINKING = frozenset(
    "think believe guess hope suppose assume doubt bet imagine feel claim say suspect hear "
    "allege report rumour rumor argue insist pretend dream predict expect fear suggest wonder "
    "likely possible probable unlikely claimed rumoured rumored heard felt thought said says "
    "believed believes pretended pretends alleged alleges doubted doubts wondered wonders supposed "
    "supposes assumed assumes guessed guesses suspected".split()
)
"""Verbs and adjectives whose "that" clause may be false."""
_CLAIMS = frozenset(
    "claim rumour rumor allegation suggestion theory hypothesis possibility assumption hope fear "
    "belief impression suspicion story chance idea".split()
)
_DENYING = frozenset(
    "deny refuse reject dispute refute refuted disprove disproved denied denies".split()
)
_UNTRUE = frozenset("false untrue wrong myth lie impossible incorrect fiction hoax".split())
_NEGATIVE = frozenset("not never no nobody nothing none neither nor".split())
_NOWHERE = frozenset(
    "neither nor none nobody nothing nowhere hardly scarcely barely rarely seldom".split()
)
"""Words that deny a statement, or almost, anywhere in its segment."""
_ALMOST = frozenset(("almost", "nearly"))
_WHOLE = frozenset(("all", "every", "always", "half", "everyone", *NUMBER_WORDS))
_BEFORE_NO = frozenset("at in under by on for".split())
_EMBEDS = frozenset(("that", "whether"))

_TELLING = _NOWHERE | _ALMOST | _EMBEDS | frozenset("no not nor which far".split())
"""Words of which at least one occurs in a sentence that is not asserted as a whole."""

Segment = tuple[str, Sequence[Token]]
"""The mark or conjunction before a segment, and its tokens."""


def moods(segments: Sequence[Segment]) -> list[Mood]:
    """Return the mood of every segment of a sentence.

    The segment before "that" decides the mood of the clause after it, up to the next "but"; "which
    is not true" denies all segments before it.
    """
    if all(_TELLING.isdisjoint([join, *(w.lower for w in words)]) for join, words in segments):
        return [Mood.ASSERTED] * len(segments)
    segment_moods: list[Mood] = []
    embedding = Mood.ASSERTED
    for index, (join, words) in enumerate(segments):
        lowers = [word.lower for word in words if word.kind == "word"]
        if join in _EMBEDS and not _begins_with_verb(words):
            before = [w.lower for w in segments[index - 1][1]] if index else []
            embedding = max((embedding, _embedding(before)), key=lambda mood: mood.value)
            if embedding is Mood.POSSIBLE and _is_untrue(lowers):
                embedding = Mood.DENIED
        elif join in ("but", "so", ";"):
            embedding = Mood.ASSERTED
        if join in ("which", "that") and _begins_with_verb(words) and _is_untrue(lowers):
            segment_moods = [Mood.DENIED] * len(segment_moods)
        is_denied = join == "nor" or _is_denied(lowers) or _is_near(words)
        own = Mood.DENIED if is_denied else Mood.ASSERTED
        segment_moods.append(max((embedding, own), key=lambda mood: mood.value))
    return segment_moods


def _begins_with_verb(words: Sequence[Token]) -> bool:
    kind = VERB_FORMS.get(words[0].lower, ("", ""))[1] if words else ""
    return kind not in ("", "ing") and words[0].kind == "word"


def _embedding(before: Sequence[str]) -> Mood:
    """Return the mood of a clause from the words before its "that"."""
    if not before:  # "That she lives here is a surprise"
        return Mood.POSSIBLE
    bases = {VERB_FORMS.get(word, (word,))[0] for word in before} | set(before)
    if not _DENYING.isdisjoint(bases) or _is_untrue(before):
        return Mood.DENIED
    is_open = not (THINKING | _CLAIMS).isdisjoint(bases) or not _NEGATIVE.isdisjoint(bases)
    return Mood.POSSIBLE if is_open else Mood.ASSERTED


def _is_untrue(lowers: Sequence[str]) -> bool:
    """Return whether words call something untrue: "is false", "is not true", "is not the case"."""
    text = f" {' '.join(lowers)} "
    if any(phrase in text for phrase in (" not true ", " not the case ", " not so ")):
        return True
    return not _UNTRUE.isdisjoint(lowers) and " not " not in text


def _is_denied(lowers: Sequence[str]) -> bool:
    if not _NOWHERE.isdisjoint(lowers) or lowers[:1] == ["not"]:
        return True
    for index, word in enumerate(lowers):
        if word == "no":
            following = lowers[index + 1] if index + 1 < len(lowers) else ""
            is_first = index == 0 or lowers[index - 1] in _BEFORE_NO
            if following == "one" or (is_first and following != "longer"):
                return True
    return False


def _is_near(words: Sequence[Token]) -> bool:
    """Return whether a segment says "almost" or "far from": "almost won", but not "almost 300"."""
    return any(
        (one.lower in _ALMOST and next_one.kind == "word" and next_one.lower not in _WHOLE)
        or (one.lower == "far" and next_one.lower == "from")
        for one, next_one in pairwise(words)
    )
