"""Prepares a sentence: expands contractions, drops openings ("Well,"), finds corrections."""

from __future__ import annotations

import re
from collections.abc import Sequence

from turngraph.data.memory_graph.extract.nouns import ARTICLES, ATTRIBUTES, OWNERS, PHRASES
from turngraph.data.memory_graph.extract.sentence_mentions import Token

_THINKING = frozenset(
    "think believe guess hope suppose assume doubt bet heard imagine feel thinks believes hopes "
    "guesses supposes assumes doubts claims says said claimed suspects suspect thought denies "
    "denied".split()
)
_DENIES = frozenset("not never denies denied".split())
_SECOND_WORDS = frozenset(second for _, second in PHRASES) | {"only", "cent"}
_CONTRACTION = re.compile(r"(.+?)(n['’]t|['’](?:m|re|ve|ll|d))$")
_LONG = {"m": "am", "re": "are", "ve": "have", "ll": "will", "d": "would"}
_IS = frozenset("he she it that there here what who where".split())
_AFTER_IS = ARTICLES | frozenset(
    "in at from with on not allergic afraid fond proud pregnant vegetarian vegan allowed".split()
)
_FULL = {"ca": "can", "wo": "will", "sha": "shall", "ai": "is"}
_CORRECTIONS = (
    "actually", "correction", "no", "sorry", "wait", "i was wrong", "i was mistaken", "my mistake",
    "i misspoke", "in fact", "scratch that", "that was wrong", "that's wrong", "oops",
)  # fmt: skip
_OPENINGS = frozenset(
    (*_CORRECTIONS, "well", "yes", "yeah", "oh", "hey", "hi", "also", "now", "then", "by the way",
     "however", "today", "finally", "currently", "and", "but", "so", "btw", "fyi", "later", "hello",
     "after that", "good news", "ok", "okay", "wow", "recently", "these days", "nowadays", "again",
     "besides", "remember", "note", "guess what", "of course", "as of now", "that", "meanwhile",
     "previously", "formerly", "originally", "i mean", "you know", "in addition", "at the moment",
     "right now", "since then", "apparently", "maybe", "perhaps", "thanks", "dear")
)  # fmt: skip
_UNMARKED = frozenset(
    ["and", "but", "so", "actually", "now", "well", "by the way", "maybe", "perhaps"]
)
_CALLS = frozenset("dear hey hi hello thanks wow yeah oh yes well ok okay no".split())
_CORRECTS = re.compile(
    r"\W*(?:(?:well|oh|sorry|oops|wait|hey|hmm)\b[\W]*)*(?:actually\b|correction\b|no[,.!]\s|"
    r"i (?:was|am) (?:wrong|mistaken)|i misspoke|my mistake|scratch that|in fact\b|"
    r"that(?:'s| is| was) (?:wrong|not right)|not true|sorry\b|i meant\b)",
    re.IGNORECASE,
)


def is_correction(text: str) -> bool:
    """Return whether a sentence begins with a correction ("Actually, ...", "No, ...")."""
    return bool(_CORRECTS.match(text))


def expand(tokens: Sequence[Token]) -> list[Token]:
    """Expand contractions ("I'm" to "I am"); drop parentheses and "not only"; join "next to"."""
    words: list[Token] = []
    depth = 0
    for index, token in enumerate(tokens):
        is_mark = token.kind == "mark"
        depth += is_mark and token.text in ("(", "[")
        if depth == 0:
            if is_mark or (token.kind == "word" and not token.owns and token.text.isalnum()):
                words.append(token)  # most tokens are unchanged
            else:
                words += _expanded(token, token.owns and _is_short_is(tokens, index))
        depth -= depth > 0 and is_mark and token.text in (")", "]")
        if token.lower in _SECOND_WORDS and len(words) > 1:
            _join_pair(words)
    return words


def _join_pair(words: list[Token]) -> None:
    """Join the last two words if they are one preposition, and drop "not only"."""
    first, second = words[-2:]
    pair = (first.lower, second.lower)
    if pair in PHRASES or pair == ("per", "cent"):
        words[-2:] = [first._replace(text=" ".join(pair), lower=" ".join(pair))]
    elif pair == ("not", "only"):
        del words[-2:]


def _is_short_is(tokens: Sequence[Token], index: int) -> bool:
    """Return whether "'s" is "is": "Ravi's a vet", "Ravi's allergic to cats"."""
    following = tokens[index + 1].lower if index + 1 < len(tokens) else ""
    return following in _AFTER_IS


def _expanded(token: Token, is_verb: bool) -> list[Token]:
    if token.owns and (token.lower in _IS or is_verb):
        verb = token._replace(text="is", lower="is", kind="word", owns=False)
        return [token._replace(owns=False), verb]
    if token.kind == "name" and " of " in token.text:  # "CEO of Acme"
        role, _, name = token.text.partition(" of ")
        if role.lower() in ATTRIBUTES:
            words = [token._replace(text=t, lower=t.lower(), kind="word") for t in (role, "of")]
            return [*words, token._replace(text=name, lower=name.lower())]
    if token.kind != "word" or ("'" not in token.text and "’" not in token.text):
        return [token]
    match = _CONTRACTION.match(token.lower)
    if match is None:
        return [token]
    first, rest = match[1], match[2]
    first = _FULL.get(first, first) if rest[0] == "n" else first
    last = "not" if rest[0] == "n" else _LONG[rest[1:]]
    return [token._replace(text=first, lower=first), token._replace(text=last, lower=last)]


def without_opening(words: Sequence[Token]) -> tuple[list[Token], bool]:
    """Drop "Well," and "I think that"; return the rest, and whether the rest is only a thought.

    The rest is [] if it is denied: "I don't think that she lives in Rome".
    """
    start = 0
    while (length := _opening_length(words, start)) > 0:
        start += length
    doubtful = False
    for index in range(start + 1, min(start + 5, len(words) - 1)):
        if words[index].lower in _THINKING and _begins_clause(words, index + 1):
            before = {word.lower for word in words[start : index + 1]}
            if not before.isdisjoint(_DENIES):
                return [], True
            if index < start + 3:
                doubtful = True
                start = index + 1 + (words[index + 1].lower == "that")
            break
    return list(words[start:]), doubtful


def _opening_length(words: Sequence[Token], start: int) -> int:
    """Return the number of tokens of an opening, including the mark after it."""
    for length in (3, 2, 1):
        phrase = " ".join(word.lower for word in words[start : start + length])
        if phrase not in _OPENINGS or start + length >= len(words):
            continue
        after = words[start + length]
        if phrase in _CALLS and after.kind == "name" and _is_mark(words, start + 2):
            return 3  # "Hey Mel,"
        is_marked = after.kind == "mark" and after.text in ",:;.!—–-"
        if is_marked or phrase in _UNMARKED:
            return length + is_marked
    return 0


def _is_mark(words: Sequence[Token], index: int) -> bool:
    return index < len(words) and words[index].text in (",", "!", "-", "–", "—")


def _begins_clause(words: Sequence[Token], index: int) -> bool:
    first = words[index]
    subjects = ("i", "he", "she", "it", "that", "the", *OWNERS)
    return first.kind == "name" or first.lower in subjects
