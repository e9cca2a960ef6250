"""Entity spans: where a piece of evidence mentions an entity, in characters.

The paper's "string matching against KG entities" (section 4.3): all entities known from the pieces
of E_t are searched in every piece, so that a sentence that names a table's cell is linked to it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import ahocorasick

from data.types import Evidence

# A mention shorter than this is believed only in a piece that lists its entity: "12" or "US" as
# cells of one row would otherwise be found in every other.
MIN_LETTERS, MIN_DIGITS = 3, 4


@dataclass(frozen=True, slots=True)
class EntitySpan:
    """Where a piece mentions an entity: characters ``start`` to ``end`` (exclusive) of its text."""

    entity: str
    start: int
    end: int


@lru_cache(maxsize=1 << 14)
def _fold_char(char: str) -> str:
    decomposed = unicodedata.normalize("NFKD", char.casefold())
    return "".join(c for c in decomposed.casefold() if not unicodedata.combining(c))


def _fold_with_offsets(text: str) -> tuple[str, list[int] | None]:
    """Folded text and, where characters moved, the place in ``text`` of each folded one."""
    if text.isascii():
        return text.lower(), None
    folded, offsets = [], []
    for index, char in enumerate(text):
        form = _fold_char(char)
        folded.append(form)
        offsets.extend([index] * len(form))
    offsets.append(len(text))
    return "".join(folded), offsets


@lru_cache(maxsize=1 << 16)
def _fold_mention(mention: str) -> str:
    return " ".join(_fold_with_offsets(mention)[0].split())


def _spaceless(char: str) -> bool:
    """Whether a character belongs to a script that writes words without spaces between."""
    return (
        "\u0e00" <= char <= "\u0eff" or "\u3040" <= char <= "\u9fff" or "\uf900" <= char <= "\ufaff"
    )


def _inside_word(text: str, start: int, end: int) -> bool:
    """Whether a match begins or ends in the middle of a word."""
    return any(
        0 <= outer < len(text)
        and text[outer].isalnum()
        and text[inner].isalnum()
        and not (_spaceless(text[outer]) or _spaceless(text[inner]))
        for outer, inner in ((start - 1, start), (end, end - 1))
    )


def _trusted_anywhere(mention: str) -> bool:
    letters = sum(char.isalpha() for char in mention)
    digits = sum(char.isdigit() for char in mention)
    return letters >= MIN_LETTERS or digits >= MIN_DIGITS or any(map(_spaceless, mention))


def _automaton(pieces: Sequence[Evidence]) -> ahocorasick.Automaton | None:
    """Mention -> (its length, ids of the entities of that name, in rank order)."""
    named: dict[str, list[str]] = {}
    for piece in pieces:
        for entity in piece.entities:
            for name in (entity.label, *entity.mentions):
                ids = named.setdefault(_fold_mention(name), [])
                if entity.id not in ids:
                    ids.append(entity.id)
    named.pop("", None)
    if not named:
        return None
    automaton = ahocorasick.Automaton()
    for mention, ids in named.items():
        automaton.add_word(mention, (len(mention), ids, _trusted_anywhere(mention)))
    automaton.make_automaton()
    return automaton


def entity_spans(pieces: Sequence[Evidence]) -> list[list[EntitySpan]]:
    """The entity spans of every piece, in order of their start, none overlapping.

    Whole words, longest first, case and accents folded. Where a mention names several entities, the
    piece's own comes first, then the one of the best-ranked piece.

    Args:
        pieces: E_t, best first.
    """
    automaton = _automaton(pieces)
    if automaton is None:
        return [[] for _ in pieces]
    return [_piece_spans(piece, automaton) for piece in pieces]


def _piece_spans(piece: Evidence, automaton: ahocorasick.Automaton) -> list[EntitySpan]:
    text, offsets = _fold_with_offsets(piece.text)
    own = {entity.id for entity in piece.entities}
    found = []
    for last, (length, ids, trusted) in automaton.iter(text):
        start, end = last - length + 1, last + 1
        entity = next((id_ for id_ in ids if id_ in own), ids[0] if trusted else None)
        if entity is not None and not _inside_word(text, start, end):
            found.append((start, end, entity))
    found.sort(key=lambda match: (match[0] - match[1], match[0]))
    taken = bytearray(len(text))
    spans = []
    for start, end, entity in found:
        if not any(taken[start:end]):
            taken[start:end] = b"\x01" * (end - start)
            spans.append((start, end, entity))
    spans.sort()
    if offsets is None:
        return [EntitySpan(entity, start, end) for start, end, entity in spans]
    return [
        EntitySpan(entity, offsets[start], offsets[end - 1] + 1) for start, end, entity in spans
    ]
