"""Finds mentions in a sentence: names, quoted titles, links, dates, numbers with their noun."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from turngraph.data.amounts import AMOUNT, BETWEEN
from turngraph.data.entities import CONNECTORS
from turngraph.data.memory_graph.extract.dates import Date, name_date
from turngraph.data.memory_graph.extract.word_lists import (
    NOT_NAMES,
    NUMBER_WORDS,
    OPENERS,
    STOP_WORDS,
    UNITS,
    VERB_FORMS,
)
from turngraph.data.normalise import MARKS

MAX_TITLE_CHARS = 80
MAX_PHRASE_WORDS = 3
MIN_NUMBER_DIGITS = 2  # a lone single digit would be the same object in too many texts

_TOKEN = re.compile(
    rf"""(?P<quote>"[^"]{{1,{MAX_TITLE_CHARS}}}"|“[^”]{{1,{MAX_TITLE_CHARS}}}”
        |„[^“”]{{1,{MAX_TITLE_CHARS}}}[“”]|«[^»]{{1,{MAX_TITLE_CHARS}}}»
        |「[^」]{{1,{MAX_TITLE_CHARS}}}」|『[^』]{{1,{MAX_TITLE_CHARS}}}』
        |《[^》]{{1,{MAX_TITLE_CHARS}}}》|``[^`']{{1,{MAX_TITLE_CHARS}}}'')
    |(?P<address>https?://[^\s<>]*[^\s<>.,;:!?)]|(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+)
    |(?P<number>\d{{1,2}}–\d{{1,2}}(?![\w{MARKS}–]|\s[A-Z])|{BETWEEN}|{AMOUNT}
        |[+-]?(?>\d+(?:[.,:/-]\d+)*)%?(?![\w{MARKS}]|-[^\W\d]{{2}}))
    |(?P<word>(?:Dr|Mrs?|Ms|St|Prof|Gen|Col|Capt|Lt|Mt|Ft)\.(?!\w)|(?:[^\W\d_]\.)+(?!\w)
        |[€$£¥]?\d(?:[.,]?\w)*(?:['’-]\w[\w{MARKS}]*)*
        |\w[\w{MARKS}]*(?:['’-]\w[\w{MARKS}]*|\.[a-z\d]\w*|\.[A-Z]{{2,}}(?!\w))*)
    |(?P<mark>[^\w\s])""",
    re.VERBOSE,
)
_LINK = re.compile(
    r"!?\[([^\[\]]{1,200})\]\([^()\s]*(?:\s\"[^\"]*\")?\)|\[\[([^\[\]|]{1,200})(?:\|([^\[\]|]{1,200}))?\]\]"
)
_NO_PHRASE = STOP_WORDS | {
    form for form, (_, kind) in VERB_FORMS.items() if kind in ("past", "third", "participle")
}
_WHERE = frozenset("in at near into the across of".split())
_NOT_PEOPLE = frozenset(
    "university college school academy institute bank company corporation group holding media "
    "press books records studios pictures foods dairy mining shipping systems airlines airport "
    "station street road avenue square park bridge tower castle palace museum gallery library "
    "theatre theater hotel hospital church cathedral island islands river lake mountain mount "
    "sea ocean bay valley county city town festival cup prize award medal championship "
    "championships games marathon league club team orchestra band party union army council "
    "committee court ministry department association society foundation fund empire kingdom "
    "republic war treaty revolution day week airways motors inc ltd llc corp north south east "
    "west house hall centre center open district region province state states coast beach "
    "forest desert album film movie".split()
)
_POSSESSIVE = ("'s", "’s")
_CONTRACTED = re.compile(
    r"(?:[Ii]|[Yy]ou|[Ww]e|[Tt]hey|[Hh]e|[Ss]he|[Ii]t|[Tt]hat|[Ww]hat|[Ww]ho)['’]"
)


class Token(NamedTuple):
    """A word, a whole name, a date, a number, a quoted title or a mark.

    Args:
        text: text as written, without a possessive ending and quotation marks.
        lower: the text in lower case.
        start, stop: span in the sentence, in characters.
        kind: "word", "name", "date", "number", "quote", "speech" (a quoted sentence), "address" or
            "mark".
        owns: whether the word has a possessive ending.
    """

    text: str
    lower: str
    start: int
    stop: int
    kind: str
    owns: bool = False


@dataclass
class Spellings:
    """Spellings of an episode's words, to distinguish names from words that begin sentences.

    Args:
        lower: words that occur in lower case.
        inner: words that occur capitalised inside a sentence.
    """

    lower: set[str] = field(default_factory=set)
    inner: set[str] = field(default_factory=set)

    def add(self, tokens: Iterable[Token]) -> None:
        """Add the words of a sentence."""
        words = [token for token in tokens if token.kind == "word"]
        for text, lower, *_ in words[1:]:
            (self.inner if text[0].isupper() else self.lower).add(lower)


def plain_text(raw: str) -> tuple[str, list[str]]:
    """Return a sentence with the displayed texts of its links, and the names to which they link."""
    if "[" not in raw:
        return raw, []
    names = [match[2] or match[1] for match in _LINK.finditer(raw)]
    return _LINK.sub(lambda match: match[3] or match[2] or match[1], raw), names


def tokenise(text: str, dates: Sequence[Date] = ()) -> list[Token]:
    """Return the tokens of a sentence; a date is one token, the words of a name are separate."""
    if not dates:
        return [
            _token(match[0], *match.span(), match.lastgroup or "mark")
            for match in _TOKEN.finditer(text)
        ]
    tokens: list[Token] = []
    ahead = list(dates)
    for match in _TOKEN.finditer(text):
        start, stop = match.span()
        while ahead and start >= ahead[0].stop:
            ahead.pop(0)
        if ahead and start >= ahead[0].start:
            for date in ahead:  # "2010-15" is one match and two dates
                if date.start >= stop:
                    break
                if not (tokens and tokens[-1].kind == "date" and tokens[-1].start == date.start):
                    name = "" if date.word or not date.is_exact else name_date(date.first)
                    tokens.append(Token(name, name.lower(), date.start, date.stop, "date"))
            continue
        tokens.append(_token(match[0], start, stop, match.lastgroup or "mark"))
    return tokens


def _token(text: str, start: int, stop: int, kind: str) -> Token:
    if kind == "word":
        owns = text.endswith(_POSSESSIVE)
        if owns:
            text = text[:-2]
        return Token(text, text.lower(), start, stop, kind, owns)
    if kind == "quote":
        text = text[2:-2] if text[0] == "`" else text[1:-1]
        if text[-1] in ".!?" or not any(map(str.isalnum, text)):
            kind = "speech"
    return Token(text, text.lower(), start, stop, kind)


def join_names(tokens: Sequence[Token], text: str, seen: Spellings) -> list[Token]:
    """Return the tokens with every span of capitalised words as one token of kind "name"."""
    if text.isupper() and len(tokens) > 3:  # all in capitals
        return list(tokens)
    joined: list[Token] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.kind != "word" or token.text.islower() or not _is_capital(token):
            joined.append(token)
            index += 1
            continue
        stop = _run_end(tokens, index, text)
        run = list(tokens[index:stop])
        is_first = not joined or (joined[-1].kind == "mark" and joined[-1].text in ".!?:—–-*_•(")
        cut = _opening(run, seen) if is_first else 0
        joined += run[:cut]
        if run[cut:]:
            joined.append(_name(run[cut:], text, is_first and not cut, seen))
        index = stop
    return joined


def full_names(sentences: Iterable[Sequence[Token]], topic: str | None) -> dict[str, str]:
    """Map single words of people's names in a text to the full names.

    "Marta" is "Marta Kowalska" if the text has only one such full name and "Marta" is no place.

    Args:
        sentences: tokens of the text's sentences, names joined.
        topic: topic of the text, which may be a name of three words.
    """
    names: set[str] = set()
    places: set[str] = set()
    for tokens in sentences:
        for index, token in enumerate(tokens):
            if token.kind == "name":
                names.add(token.text)
                if index and tokens[index - 1].lower in _WHERE:
                    places.add(token.text)
    if len(names) < 2:
        return {}
    full_by_word: dict[str, list[str]] = {}
    for name in names:
        is_full = name.count(" ") == 1 or (name == topic and " " in name)
        if is_full and name not in places and (words := _person_words(name)):
            for word in words & names - places - {topic}:
                full_by_word.setdefault(word, []).append(name)
    return {word: full[0] for word, full in full_by_word.items() if len(full) == 1}


def _person_words(name: str) -> set[str]:
    """Return the first and the last word of a name that may be a person's; else an empty set."""
    words = name.split(" ")
    if words[-1].lower() in _NOT_PEOPLE or not all(map(str.isalpha, words)):
        return set()
    return {words[0], words[-1]} if all(word[0].isupper() for word in words) else set()


def is_no_person(name: str) -> bool:
    """Return whether a name has a word that no person's name has, such as "University"."""
    return not _NOT_PEOPLE.isdisjoint(name.lower().split())


def _is_capital(token: Token) -> bool:
    if token.kind != "word" or not token.text[0].isupper() or token.lower in ("i", "o", "a"):
        return False
    return not _CONTRACTED.match(token.text)


def _run_end(tokens: Sequence[Token], start: int, text: str) -> int:
    """Return where a capitalised run ends: "University of St. Gallen", "Apollo 11", "AT&T"."""
    stop = index = start + 1
    while index < len(tokens) and not tokens[index - 1].owns:
        token, before = tokens[index], tokens[index - 1]
        gap = text[before.stop : token.start]
        if gap != " " and not (
            gap == "" and ("." in before.text or "&" in (token.text, before.text))
        ):
            break
        if _is_capital(token) or _is_short_number(tokens, index):
            stop = index + 1
        elif token.text not in CONNECTORS and token.text != "&":
            break
        index += 1
    return stop


def _is_short_number(tokens: Sequence[Token], index: int) -> bool:
    """Return whether a number may be part of a name: "Apollo 11", but not "paid Mira 11 euros"."""
    number = tokens[index]
    if number.kind != "number" or not number.text.isdigit() or len(number.text) > 3:
        return False
    return index + 1 == len(tokens) or tokens[index + 1].lower not in UNITS


def _opening(run: Sequence[Token], seen: Spellings) -> int:
    """Return the number of words that are capitalised only because they begin a sentence."""
    cut = 0
    while cut < len(run) and _merely_opens(run[cut], len(run) - cut == 1, seen):
        cut += 1
    while 0 < cut < len(run) and not _is_capital(run[cut]):
        cut += 1
    if cut == 1 and run[0].lower == "the" and len(run) > 1:
        return 1
    return cut


def _merely_opens(token: Token, is_alone: bool, seen: Spellings) -> bool:
    if token.lower in OPENERS and not _is_short_form(token):
        return token.lower not in seen.inner or not is_alone
    if token.owns or not is_alone or token.lower in seen.inner:
        return False
    return token.lower in seen.lower or token.lower in VERB_FORMS


def _is_short_form(token: Token) -> bool:
    return len(token.text) > 1 and token.text.isupper()


def _name(run: Sequence[Token], text: str, is_first: bool, seen: Spellings) -> Token:
    start, last = run[0].start, run[-1]
    name = text[start : last.stop - 2 * last.owns]
    if len(run) == 1:
        lone = run[0].lower
        if lone in NOT_NAMES or (lone in OPENERS and lone not in seen.inner and is_first):
            return run[0]
        if len(name) == 1 or (lone in OPENERS and not is_first and lone in seen.lower):
            return run[0]
    return Token(name, name.lower(), start, last.stop, "name", last.owns)


def mentions(tokens: Sequence[Token], dates: Sequence[Date]) -> list[str]:
    """Return the names of the objects that a sentence mentions, in order, each once.

    Args:
        tokens: tokens of the sentence, names joined.
        dates: dates of the sentence.
    """
    when = {date.start: date for date in dates}
    names: list[str] = []
    is_inside = False
    for index, token in enumerate(tokens):
        if is_inside:  # of the name before it
            is_inside = False
        elif token.owns and _is_owned_name(tokens, index + 1):
            names += [f"{token.text}'s {tokens[index + 1].text}", token.text]
            is_inside = True
        elif token.kind in ("name", "quote", "address"):
            names.append(token.text)
        elif token.kind == "date":
            date = when[token.start]
            names.append(name_date(date.first) if date.is_exact else date.label or date.first)
        elif token.kind == "number" or token.lower in NUMBER_WORDS:
            names += _counted(tokens, index)
    return list(dict.fromkeys(names))


def _is_owned_name(tokens: Sequence[Token], index: int) -> bool:
    """Return whether an owner and a name form one name: "Cooper's Rest", not "Ida's Oslo flat"."""
    if index >= len(tokens) or {tokens[index - 1].kind, tokens[index].kind} != {"name"}:
        return False
    following = tokens[index + 1] if index + 1 < len(tokens) else None
    return following is None or following.kind != "word" or following.lower in _NO_PHRASE


def _counted(tokens: Sequence[Token], index: int) -> list[str]:
    """Return a number with the one or two words that it counts, or a long number alone."""
    number = tokens[index]
    words = [number.text]
    for token in tokens[index + 1 : index + 3]:
        if token.kind != "word" or token.lower in STOP_WORDS or not token.text.islower():
            break
        words.append(token.text)
    if len(words) > 1:
        return [" ".join(words)]
    is_long = sum(map(str.isdigit, number.text)) >= MIN_NUMBER_DIGITS
    return [number.text] if number.kind == "number" and is_long else []


def phrases(tokens: Sequence[Token]) -> list[str]:
    """Return approximate noun phrases in lower case: runs of at most three content words.

    Questions without capitals and conversations are about such phrases ("pottery class"). In other
    texts they are only common words.
    """
    noun_phrases: list[str] = []
    run: list[str] = []
    end = -1
    for token in tokens:
        is_content = token.kind == "word" and token.lower not in _NO_PHRASE and len(token.text) > 1
        if run and (not is_content or token.start != end + 1):
            noun_phrases += _cut(run)
            run = []
        if is_content:
            run.append(token.text)
            end = token.stop
            if token.owns:
                noun_phrases += _cut(run)
                run = []
    noun_phrases += _cut(run)
    return list(dict.fromkeys(noun_phrases))


def _cut(run: Sequence[str]) -> list[str]:
    """Cut a long run into phrases from its end, where the head of a noun phrase is."""
    if not run:
        return []
    first = len(run) % MAX_PHRASE_WORDS or MAX_PHRASE_WORDS
    edges = [0, *range(first, len(run) + 1, MAX_PHRASE_WORDS)]
    return [" ".join(run[a:b]) for a, b in itertools.pairwise(edges)]
