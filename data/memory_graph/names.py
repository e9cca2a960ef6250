"""Normalises names, and hashes theses and times for look-up."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

from turngraph.data.memory_graph.memory_types import THESIS, TIME
from turngraph.data.normalise import fold, normalise_text, parse_date, parse_number

MAX_CACHED = 200
"""Longest spelling, in characters, whose normal form is cached."""


def alias(spelling: str) -> str:
    """Return the normal form of a name: case, white space, Unicode form and articles folded."""
    return _cached(spelling) if len(spelling) <= MAX_CACHED else _alias(spelling)


def _alias(spelling: str) -> str:
    # databases store this form: "–5" (with a dash) is no number in it, and C# equals C++
    number = None if "–" in fold(spelling) else parse_number(spelling)
    return parse_date(spelling) or number or normalise_text(spelling)


_cached = lru_cache(maxsize=1 << 16)(_alias)


def text_hash(type: int, text: str) -> int | None:
    """Return the hash of a thesis or a time, a signed 64-bit number; None for other nodes.

    Theses that differ only in case, punctuation and articles have the same hash.
    """
    if type not in (THESIS, TIME):
        return None
    plain = normalise_text(text) if type == THESIS else text
    return int.from_bytes(blake2b(plain.encode(), digest_size=8).digest(), "big", signed=True)


def well_formed(text: str) -> str:
    """Replace every lone surrogate, which UTF-8 cannot encode, by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def printable(text: str) -> str:
    """Return a text on one line without control characters, which could steer a terminal."""
    return "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split()))
