"""Helps to word messages: counts with nouns, and similar names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def plural(count: float, one: str, many: str | None = None) -> str:
    """Return a count with its noun: "1 file", "2 files", "2 theses"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def similar(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to a name; None: none is.

    Upper and lower case do not count.

    Args:
        name: the name to compare.
        known: the names to choose from; of equally similar ones, the first in sorted order is
            returned.
    """
    folded = {one.casefold(): one for one in sorted(known, reverse=True)}
    near = difflib.get_close_matches(name.casefold(), sorted(folded), 1)
    return folded[near[0]] if near else None
