"""Splits a question into steps by rules, from the innermost phrase with a name outwards.

"Who leads the country where Anna was born?" becomes "country where Anna was born" and "Who leads
[1]?". Phrases of four kinds stand for something that must be found first: "X's birthplace", "the
author of X", "the country where X is", "the country containing X".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from turngraph.data.memory_graph.extract.dates import find_dates
from turngraph.data.memory_graph.extract.sentence_mentions import (
    Spellings,
    Token,
    join_names,
    plain_text,
    tokenise,
)
from turngraph.data.memory_graph.extract.word_lists import STOP_WORDS, VERB_FORMS
from turngraph.data.memory_graph.record.speaker import FIRST_PERSON

MAX_HOLES = 3
"""Largest number of phrases of a question that are steps of their own."""
MAX_NOUNS, MAX_CLAUSE = 4, 9
"""Most words of a noun phrase; most words between its relative pronoun and a name."""
RELATIVES = frozenset("where that which who whom whose when".split())

ASKING = frozenset("what which who whom whose when where why how".split())
DETERMINERS = frozenset("the a an this that its his her their both".split())
LINKS = frozenset("of by from for in at on to with as near under".split())
"""Prepositions that join a noun phrase to the name that it depends on."""
AUXILIARIES = frozenset(
    "is are was were be been being am do does did has have had can could will would shall should "
    "may might must".split()
)
OF_WHAT = frozenset("birth origin citizenship death residence nationality water".split())
"""Words behind "of" that still belong to a noun phrase: "city of birth"."""
_SPEAKER = FIRST_PERSON - {"my"}
_MODALS = frozenset("do does did can could will would shall should may might must to".split())
_SUBORDINATORS = frozenset("when while after before because".split())
_LIGHT = frozenset("name part kind type number rest east west north south end one".split())
"""Nouns that name nothing by themselves ("name of", "part of")."""
_NO_NOUNS = (
    DETERMINERS
    | LINKS
    | RELATIVES
    | ASKING
    | AUXILIARIES
    | frozenset(
        "and or but not than then if he she it they there him us considered named known".split()
    )
)


class Phrase(NamedTuple):
    """Tokens [start, stop) of a question: a phrase for something that must be found first."""

    start: int
    stop: int


def decompose(question: str) -> tuple[str, ...]:
    """Return the texts of a question's steps; the last is the question, with references to the
    others.

    Args:
        question: text of the question in English; a question in another language is the only step.
    """
    text, _ = plain_text(question)
    words = _tokens(text)
    if words and words[-1].text in "?.!":
        words.pop()
    if (parts := _asked_in_clause(words)) is not None:
        return parts
    steps: list[str] = []
    while len(steps) < MAX_HOLES:
        phrase = _innermost(words)
        if phrase is None:
            break
        start, stop = phrase
        rest = [*words[:start], _hole(len(steps) + 1, words[stop - 1].owns), *words[stop:]]
        if not _says_something(rest):
            break
        steps.append(_text(_without_article(words[start:stop])))
        words = rest
    return (*steps, _text(words)) if steps else (" ".join(question.split()),)


def _asked_in_clause(words: Sequence[Token]) -> tuple[str, str] | None:
    """Return the steps of a statement whose last relative clause asks, or None.

    "Anna works at a company that is based in what city?" becomes "company that Anna works at" and
    "[1] is based in what city". None is returned for a question of another form.
    """
    asking = [i for i, token in enumerate(words) if token.lower in ASKING]
    for relative in range(2, len(words)):
        token = words[relative]
        if token.text == "." or (token.lower in ASKING and token.lower not in RELATIVES):
            return None
        if token.lower not in ("that", "which", "who") or relative >= max(asking, default=0):
            continue
        start = relative
        while start > 0 and _is_noun(words, start - 1):
            start -= 1
        article = start - 1
        is_noun = start < relative and article > 0 and words[article].lower in ("a", "an")
        before = words[: max(article, 0)]
        if is_noun and any(map(_is_anchor, before)) and not ASKING.intersection(_lower(before)):
            clause = _text(words[relative + 1 :])
            return f"{_text(words[start:relative])} that {_text(before)}", f"[1] {clause}"
    return None


def _lower(words: Sequence[Token]) -> list[str]:
    return [token.lower for token in words]


def _tokens(text: str) -> list[Token]:
    """Return the tokens of a question; each whole name is one token."""
    return join_names(tokenise(text, find_dates(text, None)), text, Spellings())


def _hole(number: int, owns: bool) -> Token:
    text = f"[{number}]"
    return Token(text, text, -1, -1, "hole", owns)


def _text(tokens: Sequence[Token]) -> str:
    """Return tokens as text."""
    parts: list[str] = []
    for token in tokens:
        shown = token.text + ("'s" if token.owns else "")
        if token.kind == "quote":
            shown = f'"{token.text}"'
        if token.kind == "mark" and token.text in ",;:.?!)" and parts:
            parts[-1] += shown
        else:
            parts.append(shown)
    return " ".join(parts).strip(" ,")


def _without_article(tokens: Sequence[Token]) -> Sequence[Token]:
    last = tokens[-1]._replace(owns=False)
    tokens = [*tokens[:-1], last]
    return tokens[1:] if len(tokens) > 1 and tokens[0].lower in DETERMINERS else tokens


def _says_something(tokens: Sequence[Token]) -> bool:
    """Return whether a text has a content word beside its references."""
    return any(
        token.kind not in ("hole", "mark")
        and (token.kind != "word" or not (token.lower in STOP_WORDS or token.lower in DETERMINERS))
        and token.lower not in ASKING | AUXILIARIES
        for token in tokens
    )


def _innermost(words: Sequence[Token]) -> Phrase | None:
    """Return the shortest phrase that stands for something to find; of several, the last.

    If no such phrase contains a name, one with common nouns alone is returned: "the state whose
    sport is jousting".
    """
    anchors = [i for i, token in enumerate(words) if _is_anchor(token)]
    phrases = [phrase for i in anchors for phrase in _phrases(words, i)]
    if not phrases and not any(token.kind == "hole" for token in words):
        phrases = [phrase for i in range(len(words)) for phrase in _relative_clauses(words, i)]
    return min(phrases, key=lambda p: (p.stop - p.start, -p.start), default=None)


def _phrases(words: Sequence[Token], index: int) -> Iterator[Phrase]:
    """Yield the phrases around a name."""
    yield from _owned(words, index)
    yield from _linked(words, index)
    yield from _bare_clause(words, index)
    for relative in range(index - 1, max(index - MAX_CLAUSE, 0), -1):
        if words[relative].text in (",", ";"):
            break
        start = _clause_start(words, relative)
        if start is not None:
            yield Phrase(start, _clause_end(words, relative, index))
            break


def _relative_clauses(words: Sequence[Token], relative: int) -> Iterator[Phrase]:
    """Yield the phrase with the relative pronoun at an index, with or without a name."""
    if words[relative].lower in RELATIVES and relative + 2 < len(words):
        start = _clause_start(words, relative)
        if start is not None:
            yield Phrase(start, _clause_end(words, relative, relative + 1))


def _is_anchor(token: Token) -> bool:
    """Return whether a token stands for one thing: a name, a reference, or the speaker."""
    return token.kind in ("name", "quote", "hole", "address") or token.lower in _SPEAKER


def _is_noun(words: Sequence[Token], index: int) -> bool:
    """Return whether a word may be part of a noun phrase in lower case."""
    token = words[index]
    if token.kind != "word" or token.lower in _NO_NOUNS:
        return False
    if token.lower not in VERB_FORMS:
        return True
    return index > 0 and (words[index - 1].lower in DETERMINERS or words[index - 1].owns)


def _is_verb(token: Token) -> bool:
    return token.kind == "word" and (token.lower in VERB_FORMS or token.lower in AUXILIARIES)


def _owned(words: Sequence[Token], index: int) -> Iterator[Phrase]:
    """Yield the phrase "X's birthplace", "X's city of birth"."""
    if not words[index].owns:
        return
    stop = index + 1
    while stop < len(words) and stop - index <= 3 and _is_noun(words, stop):
        stop += 1
    if stop == index + 1:
        return
    if stop + 1 < len(words) and words[stop].lower == "of" and words[stop + 1].lower in OF_WHAT:
        stop += 2
    yield Phrase(_with_article(words, index), stop)


def _linked(words: Sequence[Token], index: int) -> Iterator[Phrase]:
    """Yield the phrase "the author of X"."""
    link = index - 1
    while link >= 0 and words[link].lower in DETERMINERS:
        link -= 1
    if link > 0 and words[link].lower in ("of", "by", "as", "from"):
        start = _noun_start(words, link)
        if start is not None and words[link - 1].lower not in _LIGHT:
            yield Phrase(start, index + 1)


def _bare_clause(words: Sequence[Token], index: int) -> Iterator[Phrase]:
    """Yield the phrase "the country X is from", whose clause has no relative pronoun."""
    first = _with_article(words, index)
    start = _noun_start(words, first)
    if start is None or index + 1 == len(words) or not _is_verb(words[index + 1]):
        return
    if words[start].lower in DETERMINERS:
        yield Phrase(start, _clause_end(words, first - 1, index))


def _clause_start(words: Sequence[Token], relative: int) -> int | None:
    """Return where the noun phrase before a clause starts; None if none begins at the index."""
    token = words[relative]
    if token.lower in RELATIVES:
        link = relative - (words[relative - 1].lower in LINKS)
        return _noun_start(words, link)
    base, kind = VERB_FORMS.get(token.lower, ("", ""))
    if kind in ("ing", "participle", "past") and base not in ("be", "do", "have"):
        return _noun_start(words, relative)
    return None


def _clause_end(words: Sequence[Token], relative: int, index: int) -> int:
    """Return where the clause with the word at an index ends.

    A clause ends before a comma, and before a second verb.
    """
    before = words[max(relative, 0) : index]
    has_verb = any(_is_verb(token) for token in before)
    stop = index + 1
    while stop < len(words):
        token, last = words[stop], words[stop - 1]
        if token.text in (",", ";"):
            is_place = stop + 1 < len(words) and words[stop + 1].kind == "name" and not has_verb
            if not is_place:  # "Springfield, Illinois"
                break
        elif token.lower in _SUBORDINATORS:
            has_verb = False
        elif _is_verb(token):
            goes_on = last.lower in AUXILIARIES or last.lower in ("to", "be", "been")
            if has_verb and (not goes_on or token.lower in ("do", "does", "did")):
                break
            is_base = VERB_FORMS.get(token.lower, ("", ""))[1] == "base"
            if has_verb and is_base and last.lower not in _MODALS:
                break
            has_verb = True
        stop += 1
    return stop


def _noun_start(words: Sequence[Token], stop: int) -> int | None:
    """Return the start of the noun phrase, with its article, that ends before an index, or None.

    A noun phrase without an article must follow a preposition.
    """
    start = stop
    while start > 0 and stop - start <= MAX_NOUNS and _is_noun(words, start - 1):
        start -= 1
    if start == stop or start == 0:
        return None
    if words[start - 1].lower == "the":
        return start - 1
    if words[start - 1].lower == "of" and stop - start == 1 and words[start].lower in OF_WHAT:
        return _noun_start(words, start - 1)
    is_bare = words[start - 1].lower in LINKS - {"of", "by", "as"}
    return start if is_bare and words[stop - 1].lower not in _LIGHT else None


def _with_article(words: Sequence[Token], index: int) -> int:
    return index - 1 if index and words[index - 1].lower == "the" else index


def coordinated(question: str) -> tuple[str, ...]:
    """Return one question for each of two coordinated names, or the question itself.

    "Are X and Y both rivers?" becomes "Are X rivers?" and "Are Y rivers?", since retrieval needs no
    correct grammar. In doubt the question is not split.
    """
    words = [token for token in _tokens(plain_text(question)[0]) if token.lower != "both"]
    for (i, left), (j, right) in pairwise(
        [(i, token) for i, token in enumerate(words) if _is_anchor(token)]
    ):
        between = [token.lower for token in words[i + 1 : j]]
        rest = words[:i] + words[j + 1 :]
        if left.owns or right.owns or between not in (["and"], ["or"], [",", "or"]):
            continue
        if between == ["and"] and words[0].lower not in AUXILIARIES | {"which", "who"}:
            continue
        if any(_is_anchor(token) for token in rest):
            continue
        parts = [*words[:i], left, *words[j + 1 :]], [*words[:i], right, *words[j + 1 :]]
        return tuple(_text(part) for part in parts)
    return (question,)


def wanted_kind(text: str) -> tuple[str | None, tuple[str, ...]]:
    """Return the kind of thing that a step or a question asks for, and the names in it.

    The kind is the head of the first noun phrase ("country", "birthplace"), in lower case; or a
    question word, "who", "when" or "where"; or "whether" for a yes-no question. None: the text has
    neither.

    Args:
        text: a step without references, or a question.
    """
    words = _tokens(plain_text(text)[0])
    names = tuple(token.text for token in words if _is_anchor(token))
    first = words[0] if words else None
    if first is None:
        return None, names
    if first.lower in ("who", "whom", "when", "where"):
        return "who" if first.lower == "whom" else first.lower, names
    if first.lower in AUXILIARIES:
        return "whether", names
    start = 1 if first.lower in ("what", "which") or (first.owns and _is_anchor(first)) else 0
    kind = None
    for index in range(start, len(words)):
        token = words[index]
        is_owned = start == 1 and first.owns and token.kind == "word"
        if not (_is_noun(words, index) or (is_owned and token.lower not in _NO_NOUNS)):
            break
        kind = token.lower
    return kind, names
