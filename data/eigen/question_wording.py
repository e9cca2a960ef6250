"""Words the questions that statements, cells and entities answer, in English."""

from __future__ import annotations

import re

BE = frozenset("is are was were am".split())
_AUXILIARIES = BE | frozenset("has had have will would can could may might must should".split())
_WHERE = frozenset("in at near inside on from to into".split())
_IRREGULAR = dict(
    pair.split(":")
    for pair in (
        "began:begin bought:buy brought:bring built:build came:come chose:choose did:do drew:draw "
        "fell:fall felt:feel flew:fly found:find founded:found gave:give got:get grew:grow "
        "heard:hear held:hold kept:keep knew:know led:lead left:leave lost:lose made:make met:meet "
        "paid:pay ran:run read:read rose:rise said:say sang:sing sat:sit saw:see sent:send "
        "sold:sell spent:spend spoke:speak stood:stand taught:teach thought:think told:tell "
        "took:take was:be went:go were:be woke:wake won:win wore:wear wrote:write became:become "
        "set:set put:put"
    ).split()
)
_VOWELS = "aeiou"
_BEFORE_E = ("c", "v", "s", "z", "u", "dg", "bl", "at", "ang", "eng", "vit")
"""Ends of stems, without "ed", whose verb ends in "e": "danced" is a form of "dance"."""
_DATE = re.compile(r"[\d\W]+")


def ask_object(subject: str, relation: str, answer: str) -> str | None:
    """Return the question whose answer is a statement's object; None if the verb is not known.

    >>> ask_object("Anna", "works at", "the Louvre")
    'Where does Anna work?'
    """
    first, _, rest = relation.partition(" ")
    what = "When" if _DATE.fullmatch(answer) and rest.endswith("in") else "What"
    preposition = rest.rsplit(" ", 1)[-1]
    if preposition in ("in", "at", "near", "inside") and what == "What":
        what, rest = "Where", rest[: -len(preposition)].rstrip()
    elif what == "When":
        rest = rest[: -len("in")].rstrip()
    if first in BE:
        return _sentence(what, first, subject, rest)
    if first in _AUXILIARIES and first not in ("has", "had", "have"):
        return _sentence(what, first, subject, rest)
    tense, base = _verb(first)
    return _sentence(what, tense, subject, base, rest) if base else None


def ask_subject(relation: str, answer: str, subject: str) -> str:
    """Return the question whose answer is a statement's subject.

    >>> ask_subject("works at", "the Louvre", "Anna")
    'Who works at the Louvre?'
    """
    words = subject.split()
    may_be_person = all(word[:1].isupper() for word in words) and words[0] != "The"
    return _sentence("Who" if may_be_person and len(words) <= 3 else "What", relation, answer)


def ask_time(subject: str, relation: str, answer: str) -> str | None:
    """Return the question whose answer is a statement's time; None if the verb is not known."""
    first, _, rest = relation.partition(" ")
    if first in _AUXILIARIES - {"has", "had", "have"}:
        return _sentence("When", first, subject, rest, answer)
    tense, base = _verb(first)
    return _sentence("When", tense, subject, base, rest, answer) if base else None


def ask_cell(header: str, row: str, title: str) -> str:
    """Return the question whose answer is a table's cell or an infobox's value."""
    of = row if not title or title == row else f"{row} in {title}" if row else title
    return _sentence("What is the", header, f"of {of}" if of else "")


def ask_about(entity: str) -> str:
    """Return the question for an entity of which no statement is known."""
    return _sentence("What is said of", entity)


def _sentence(*parts: str) -> str:
    return " ".join(" ".join(part for part in parts if part).split()).rstrip("?.!") + "?"


def _verb(word: str) -> tuple[str, str]:
    """Return "does" or "did" and the base form of a verb; ("", "") if it is not known."""
    if word in _IRREGULAR:
        return "did", _IRREGULAR[word]
    if word in ("has", "have"):
        return "does", "have"
    if word == "had":
        return "did", "have"
    if word.endswith("ed") and len(word) > 4:
        return "did", _without_ed(word)
    if word.endswith("s") and not word.endswith("ss") and len(word) > 3:
        if word.endswith("ies"):
            return "does", f"{word[:-3]}y"
        if word == "goes" or word.endswith(("ches", "shes", "sses", "xes", "zzes")):
            return "does", word[:-2]
        return "does", word[:-1]
    return "", ""


def _without_ed(word: str) -> str:
    stem = word[:-2]
    if stem.endswith("i"):
        return f"{stem[:-1]}y"
    if len(stem) > 3 and stem[-1] == stem[-2] and stem[-1] not in "lsz":
        return stem[:-1]
    is_open = stem[-1] not in _VOWELS + "wxy" and stem[-2] in _VOWELS and stem[-3] not in _VOWELS
    ends_open = is_open and not stem.endswith(("en", "er", "it", "on", "el", "ain"))
    return f"{stem}e" if ends_open or stem.endswith(_BEFORE_E) else stem
