"""Resolves the entities of one page's passages: links, and cells and values by their text.

Equal cells get one id. If the page links a cell's text to exactly one target, the id is the
target's title, so that linked and unlinked mentions are one entity. The id of a number, a date or a
text with several targets is its value ("value:1989").
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from turngraph.data.name_finder import find_names, name_automaton
from turngraph.data.normalise import (
    GERMAN_MONTHS,
    MAX_CACHED,
    MONTHS,
    normal_form,
    normalise_value,
    parse_date,
    parse_number,
)
from turngraph.data.types import Entity, Evidence, Source

VALUE = "value:"
MIN_NUMBER_LENGTH = 3
MIN_NAME_LENGTH = 3
_DISAMBIGUATION = re.compile(r"\s*\([^()]*\)$")
_MONTH = "|".join(name.capitalize() for name in (*MONTHS, *GERMAN_MONTHS))
_DATE = re.compile(
    rf"\b(?<!\d\.)(?:\d{{1,2}}\.?\s+(?:{_MONTH}),?\s+\d{{4}}|(?:{_MONTH})\s+(?:\d{{1,2}},?\s+)?\d{{4}}"
    rf"|\d{{4}}-\d\d-\d\d|\d{{1,2}}\.\d{{1,2}}\.\d{{4}})\b"
)
_YEAR = re.compile(r"\d{4}")
_NUMBER = re.compile(r"(?<![\w.,])[+−-]?\d(?:[\d,]*\d)?(?:\.\d+)?(?!\w|[.,]\d)")


_cached = lru_cache(maxsize=1 << 16)(normalise_value)  # cells and links repeat often


def _normal(text: str) -> str:
    return _cached(text) if len(text) <= MAX_CACHED else normalise_value(text)


@dataclass(slots=True)
class Passage:
    """A passage before its entities are resolved.

    Args:
        id: unique in the page.
        text: linearised.
        source: "text", "table" or "infobox".
        links: (anchor text, target title) pairs.
        values: the texts of its cells.
    """

    id: str
    text: str
    source: Source
    links: list[tuple[str, str]] = field(default_factory=list)
    values: list[str] = field(default_factory=list)


@dataclass(slots=True)
class PageNames:
    """Names of one page: ids by normalised value, and a label for each id."""

    title: str
    ids: dict[str, str]
    labels: dict[str, str]

    def value_id(self, text: str) -> str:
        """Return the entity id of a cell, an infobox value or a gold answer."""
        return self.ids.get(norm := _normal(text), VALUE + norm)


def strip_disambiguation(title: str) -> str:
    """Remove the parenthesis at a title's end ("Kyle Abbott (pitcher)" -> "Kyle Abbott")."""
    return _DISAMBIGUATION.sub("", title) or title


def resolve_entities(title: str, passages: Sequence[Passage]) -> tuple[list[Evidence], PageNames]:
    """Return the passages of a page as evidence with entities, and the page's names.

    Args:
        title: the page's title, an entity of every passage.
        passages: all passages of the page.
    """
    names = _page_names(title, passages)
    finder = _ValueFinder(names, (text for passage in passages for text in passage.values))
    return [_evidence(passage, names, finder) for passage in passages], names


def _page_names(title: str, passages: Sequence[Passage]) -> PageNames:
    anchors: dict[str, set[str]] = {}
    for passage in passages:
        for anchor, target in passage.links:
            anchors.setdefault(_normal(anchor), set()).add(target)
    targets = sorted({target for linked in anchors.values() for target in linked} | {title})
    titles: dict[str, set[str]] = {}
    for target in targets:
        for form in {target, strip_disambiguation(target)}:
            titles.setdefault(_normal(form), set()).add(target)
    ids = {
        norm: min(pages)
        for norm, pages in (titles | anchors).items()
        if len(pages) == 1 and norm and not _is_plain_value(norm)
    }
    names = PageNames(title, ids, {})
    names.labels = _labels(names, passages, targets, anchors)
    return names


def _labels(
    names: PageNames,
    passages: Sequence[Passage],
    targets: Sequence[str],
    anchors: dict[str, set[str]],
) -> dict[str, str]:
    """Return the label of each id: its most frequent cell text, else the target's title."""
    shown: dict[str, Counter[str]] = {}
    for passage in passages:
        for text in passage.values:
            shown.setdefault(names.value_id(text), Counter())[text] += 1
    labels = {id_: texts.most_common(1)[0][0] for id_, texts in shown.items()}
    for target in targets:
        short = strip_disambiguation(target)
        is_anchor = target in anchors.get(_normal(short), ())
        labels.setdefault(target, short if is_anchor else target)
    labels[names.title] = names.title
    return labels


@lru_cache(maxsize=1 << 16)
def _is_plain_value(norm: str) -> bool:
    return bool(parse_number(norm) or parse_date(norm))


def _evidence(passage: Passage, names: PageNames, finder: _ValueFinder) -> Evidence:
    mentions: dict[str, dict[str, None]] = {names.title: {}}
    for text in passage.values:
        mentions.setdefault(names.value_id(text), {})[text] = None
    for anchor, target in passage.links:
        mentions.setdefault(target, {})[anchor] = None
    if passage.source == "text":
        for id_, text in finder.find(passage.text.removeprefix(names.title)):
            mentions.setdefault(id_, {})[text] = None
    entities = []
    for id_, texts in mentions.items():
        label = names.labels[id_]
        texts.pop(label, None)
        entities.append(Entity(id_, label, tuple(texts)))
    return Evidence(passage.id, passage.text, passage.source, tuple(entities))


class _ValueFinder:
    """Finds the values of a page's cells in its sentences.

    A name must occur as whole words in the same case, a number or a date by its value. Names of
    fewer than 3 characters or without an upper-case letter or digit, and numbers of fewer than 3
    characters, are left out: they match by chance (a row's rank and "the 12 teams"). So are names
    of more than ``name_finder.MAX_NAME_CHARS``.
    """

    def __init__(self, names: PageNames, values: Iterable[str]) -> None:
        self.names = names
        self.plain: set[str] = set()
        by_form: dict[str, tuple[int, str]] = {}
        for text in dict.fromkeys(values):
            norm = _normal(text)
            if _is_plain_value(norm):
                self.plain.add(norm)
            elif _is_name(text):
                folded = normal_form("NFKC", text)
                by_form[folded] = len(folded), text
        self.automaton = name_automaton(by_form)

    def find(self, text: str) -> Iterator[tuple[str, str]]:
        """Yield (entity id, text in the sentence) of each value; longer matches take precedence."""
        text = normal_form("NFKC", text)
        taken = bytearray(len(text))
        for match in _DATE.finditer(text):
            if parse_date(match[0]) in self.plain:
                yield self.names.value_id(match[0]), match[0]
            taken[slice(*match.span())] = b"\1" * len(match[0])
            if year := _YEAR.search(text, *match.span()):  # a year by itself may be a cell
                taken[slice(*year.span())] = bytes(4)
        for start, end, name in self._names(text):
            if taken.find(1, start, end) < 0:
                taken[start:end] = b"\1" * (end - start)
                yield self.names.value_id(name), name
        for match in _NUMBER.finditer(text):
            number = parse_number(match[0])
            long_enough = len(match[0]) >= MIN_NUMBER_LENGTH
            if long_enough and number in self.plain and not any(taken[slice(*match.span())]):
                yield self.names.value_id(match[0]), match[0]

    def _names(self, text: str) -> list[tuple[int, int, str]]:
        """Yield whole-word matches of names, longest first."""
        if self.automaton is None:
            return []
        matches = []
        for last, (length, name) in find_names(self.automaton, text):
            start, end = last + 1 - length, last + 1
            before, after = text[start - 1 : start], text[end : end + 1]
            if not before.isalnum() and not after.isalnum():
                matches.append((start, end, name))
        return sorted(matches, key=lambda match: (match[0] - match[1], match[0]))


def _is_name(text: str) -> bool:
    if len(text) < MIN_NAME_LENGTH:
        return False
    return any(char.isupper() or char.isdigit() or ord(char) > 0x2E80 for char in text)
