"""Finds entity spans: where a passage mentions an entity, in characters.

This is the paper's "string matching against KG entities" (section 4.3): every passage is searched
for the entities of all passages of E_t, so that a sentence that names a table's cell is linked to
it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from turngraph.data.name_finder import MAX_NAME_CHARS, Automaton, find_names, name_automaton
from turngraph.data.normalise import UNSPACED, is_accent
from turngraph.data.types import Evidence

# A shorter mention counts only in passages that list its entity: "12" or "US", as cells of one row,
# would otherwise be found in all others.
MIN_LETTERS, MIN_DIGITS = 3, 4
MIN_WITHIN = 5
"""Least characters of a mention that begins within a word."""
_UNSPACED = re.compile(f"[{UNSPACED}]")
_VARIANT = re.compile("[\ufe00-\ufe0f]")  # variation selectors, which do not change the word


@dataclass(frozen=True, slots=True)
class EntitySpan:
    """A mention of an entity: characters ``start`` to ``end`` (exclusive) of a passage's text."""

    entity: str
    start: int
    end: int


class _FoldTable(dict[int, str]):
    """Table for ``str.translate`` of characters to folded forms, which stay decomposed."""

    def __init__(self) -> None:
        super().__init__()
        self.uneven: set[str] = set()  # characters that fold to no or several characters

    def __missing__(self, code: int) -> str:
        char = chr(code)
        form = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", char).casefold())
        form = "".join(" " if c.isspace() else c for c in form if not is_accent(c))
        if len(form) != 1:
            self.uneven.add(char)
        self[code] = form
        return form


_FOLD = _FoldTable()


def _fold_with_offsets(text: str) -> tuple[str, list[int] | None]:
    """Fold a text; if offsets change, also return each folded character's index in ``text``."""
    folded = text.translate(_FOLD)
    if "  " not in folded and _FOLD.uneven.isdisjoint(text):
        return folded, None
    forms: list[str] = []
    offsets: list[int] = []
    for index, char in enumerate(text):
        form = _FOLD[ord(char)]
        if not (form == " " and forms and forms[-1] == " "):
            forms.extend(form)
            offsets.extend([index] * len(form))
    return "".join(forms), [*offsets, len(text)]


@lru_cache(maxsize=1 << 16)
def _fold_mention(mention: str) -> str:
    return " ".join(mention.translate(_FOLD).split())


def _cuts_word(text: str, offset: int) -> bool:
    """Tell whether an offset of a text is inside a word."""
    if offset in (0, len(text)):
        return False
    left, right = text[offset - 1], text[offset]
    if right.isascii():
        return right.isalnum() and _is_wordy(left) and not _UNSPACED.match(left)
    if _is_mark(right):
        return True
    spaced = not (_UNSPACED.match(left) or _UNSPACED.match(right))
    return spaced and right.isalnum() and _is_wordy(left)


def _counts_within(text: str, start: int, end: int) -> bool:
    """Tell whether a part of a word may mention an entity: its beginning, or a long part."""
    after = text[end : end + 1] or " "
    if after.isdigit() or _is_mark(after) or not any(map(str.isalpha, text[start:end])):
        return False
    return end - start >= MIN_WITHIN or not _cuts_word(text, start)


def _is_wordy(char: str) -> bool:
    return char.isalnum() or _is_mark(char)


def _is_mark(char: str) -> bool:
    """Tell whether a character is a mark, such as a vowel sign, of the letter before it."""
    return unicodedata.category(char)[0] == "M" and not _VARIANT.match(char)


def _counts_anywhere(mention: str) -> bool:
    """Tell whether a mention is long enough to count in passages that do not list its entity."""
    return (
        sum(map(str.isalpha, mention)) >= MIN_LETTERS
        or sum(map(str.isdigit, mention)) >= MIN_DIGITS
        or bool(_UNSPACED.search(mention))
    )


Mention = tuple[int, list[str], bool]
"""A mention's length, the ids of the entities with that name in rank order, and whether it counts
in passages that list none of them."""


def _mentions(passages: Sequence[Evidence]) -> dict[str, Mention]:
    """Return the ``Mention`` of each folded name."""
    named: dict[str, dict[str, None]] = {}
    for passage in passages:
        for entity in passage.entities:
            for name in (entity.label, *entity.mentions):
                if len(name) <= MAX_NAME_CHARS:
                    named.setdefault(_fold_mention(name), {})[entity.id] = None
    return {name: (len(name), list(ids), _counts_anywhere(name)) for name, ids in named.items()}


def entity_spans(passages: Sequence[Evidence]) -> list[list[EntitySpan]]:
    """Find the entity spans of every passage, in order of their start, none overlapping.

    Whole words are matched, the longest mention first, ignoring case and accents. If a mention
    names several entities, the span is of the one that the passage lists, else of the one that the
    best-ranked passage lists. If a passage lists an entity but does not have it as whole words,
    parts of words are matched: many languages write a word's endings without a space. Mentions of
    more than ``name_finder.MAX_NAME_CHARS`` are not found.

    Args:
        passages: E_t, best first.
    """
    automaton = name_automaton(_mentions(passages))
    if automaton is None:
        return [[] for _ in passages]
    return [_passage_spans(passage, automaton) for passage in passages]


def _passage_spans(passage: Evidence, automaton: Automaton) -> list[EntitySpan]:
    text, offsets = _fold_with_offsets(passage.text)
    own_ids = {entity.id for entity in passage.entities}
    matches: list[tuple[int, int, str]] = []
    within: list[tuple[int, int, str]] = []  # the passage's own entities as parts of words
    chosen: dict[int, str | None] = {}  # the entity of a mention, by the identity of its ids
    for last, (length, ids, anywhere) in find_names(automaton, text):
        start, end = last - length + 1, last + 1
        if id(ids) not in chosen:
            other = ids[0] if anywhere else None
            chosen[id(ids)] = next((id_ for id_ in ids if id_ in own_ids), other)
        entity = chosen[id(ids)]
        if entity is None:
            continue
        if offsets and (_cuts_char(offsets, start) or _cuts_char(offsets, end)):
            continue
        if not (_cuts_word(text, start) or _cuts_word(text, end)):
            matches.append((start, end, entity))
        elif entity in own_ids and _counts_within(text, start, end):
            within.append((start, end, entity))
    whole = {entity for _, _, entity in matches}
    matches += [match for match in within if match[2] not in whole]
    matches.sort(key=lambda match: (match[0] - match[1], match[0]))
    taken = bytearray(len(text))
    spans = []
    for start, end, entity in matches:
        if taken.find(1, start, end) < 0:
            taken[start:end] = b"\x01" * (end - start)
            spans.append((start, end, entity))
    spans.sort()
    if offsets is None:
        return [EntitySpan(entity, start, end) for start, end, entity in spans]
    return [EntitySpan(entity, offsets[start], offsets[end]) for start, end, entity in spans]


def _cuts_char(offsets: Sequence[int], index: int) -> bool:
    """Tell whether an index into folded text is inside one character of the text: "1" in "½"."""
    return index > 0 and offsets[index - 1] == offsets[index]
