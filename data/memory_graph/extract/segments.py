"""Splits a sentence into segments: the parts between marks and conjunctions."""

from __future__ import annotations

from collections.abc import Sequence

from turngraph.data.memory_graph.extract.sentence_mentions import Token
from turngraph.data.memory_graph.extract.verbs import agrees, begins_predicate
from turngraph.data.memory_graph.extract.word_lists import NUMBER_WORDS

Segment = tuple[str, list[Token]]
"""The mark or conjunction before a segment, and its tokens."""

_ENDS = frozenset(", ; : — – ( ) . ! ? / … । 。".split())
_JOINS = frozenset(
    "and but or so yet because while although though when whenever where whereas who which that "
    "after before unless if since than whose whom nor plus except until then such including "
    "despite".split()
)
_AFTER_WHOM = frozenset("named modelled modeled".split())
"""Verbs to which "after" belongs, so it begins no clause: "named after Ida"."""
_PRONOUNS = frozenset("who which that whose where".split())
_NOT_MORE = frozenset("other another rather either later earlier sooner longer fewer never".split())
_QUANTITIES = frozenset("less more fewer".split())


def split_segments(words: Sequence[Token]) -> list[Segment]:
    """Return the segments of a sentence with the mark or conjunction before each."""
    segment: list[Token] = []
    segments = [("", segment)]
    for index, word in enumerate(words):
        if word.kind == "word":
            is_end = word.lower in _JOINS and not _is_inside(words, index)
            is_end |= word.lower == "as" and _begins_clause(words, index + 1)
        else:
            is_end = word.kind == "mark" and word.text in _ENDS
        if not is_end:
            segment.append(word)
        elif not segment and word.lower == "then" and segments[-1][0] in _PRONOUNS:
            continue  # "which then closed"
        elif segment:
            segment = []
            segments.append((word.lower, segment))
        else:
            segments[-1] = (word.lower, segment)
    return [segment for segment in segments if segment[1]]


def is_comparison(words: Sequence[Token], index: int) -> bool:
    """Return whether "than" and a noun phrase follow an adjective: "is older than the house"."""
    before = words[index - 1].lower if index else ""
    is_plain = before.endswith("er") and len(before) > 4 and before not in _NOT_MORE
    if not is_plain or words[index - 1].kind != "word":
        return False
    rest = range(index + 1, min(len(words), index + 7))
    return not any(words[i].kind == "word" and begins_predicate(words, i) for i in rest)


def _is_phrase(words: Sequence[Token], index: int) -> bool:
    """Return whether "after" begins a phrase and no clause here: "resigned after a dispute"."""
    for i in range(index + 1, len(words)):
        word = words[i]
        if word.lower in _JOINS or (word.kind == "mark" and word.text in _ENDS):
            return i > index + 2
        if word.kind == "date" or begins_predicate(words, i) or word.lower.endswith("ing"):
            return False
    return False


def _is_between(words: Sequence[Token], index: int) -> bool:
    """Return whether "and" follows "between": "between us and the school"."""
    nearby = [word.lower for word in words[max(0, index - 4) : index - 1]]
    return "between" in nearby and _ENDS.isdisjoint(nearby) and "and" not in nearby


def _begins_clause(words: Sequence[Token], index: int) -> bool:
    """Return whether a name and its verb follow: "as Ida left"."""
    if index < 2 or index + 1 >= len(words) or words[index].kind != "name":
        return False
    return begins_predicate(words, index + 1) and agrees(words, index + 1)


def _is_inside(words: Sequence[Token], index: int) -> bool:
    """Return whether a conjunction joins no parts: "less than 80", "between 1 and 3", "not yet"."""
    before = words[index - 1].lower if index else ""
    if words[index].lower == "yet":
        return before == "not"
    if words[index].lower == "after":
        return before in _AFTER_WHOM or _is_phrase(words, index)
    if words[index].lower == "and" and _is_between(words, index):
        return True
    if words[index].lower == "than" and is_comparison(words, index):
        return True
    if not 0 < index < len(words) - 1:
        return False
    following = words[index + 1]
    if following.kind != "number" and following.lower not in NUMBER_WORDS:
        return False
    if words[index].lower == "than":
        return words[index - 1].lower in _QUANTITIES
    is_range = index > 1 and words[index].lower == "and" and words[index - 1].kind == "number"
    return is_range and words[index - 2].lower == "between"
