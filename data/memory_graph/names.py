"""When two spellings name the same object, and how a text is found again."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

from turngraph.data.memory_graph.memory_types import THESIS, TIME
from turngraph.data.normalise import fold, normalise_text, parse_date, parse_number

MAX_CACHED = 200
"""Longer spellings are not kept in memory."""


def alias(spelling: str) -> str:
    """The form under which a name is found: case, white space, Unicode form and articles folded."""
    return _cached(spelling) if len(spelling) <= MAX_CACHED else _alias(spelling)


def _alias(spelling: str) -> str:
    # as it stands in the files up to schema 3, which know no signs of values: C# is C++ to them
    number = None if "–" in fold(spelling) else parse_number(spelling)
    return parse_date(spelling) or number or normalise_text(spelling)


_cached = lru_cache(maxsize=1 << 16)(_alias)


def text_hash(type: int, text: str) -> int | None:
    """What a node is found by, a signed 64-bit number; None for objects and episodes.

    Theses that differ in case, punctuation and articles only have one hash.
    """
    if type not in (THESIS, TIME):
        return None
    plain = normalise_text(text) if type == THESIS else text
    return int.from_bytes(blake2b(plain.encode(), digest_size=8).digest(), "big", signed=True)


def well_formed(text: str) -> str:
    """Text without lone surrogates, which no file can hold: each becomes U+FFFD, in its place."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
