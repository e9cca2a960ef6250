"""Words of messages."""

from __future__ import annotations


def plural(count: float, one: str, many: str | None = None) -> str:
    """Return a count with its noun: "1 file", "2 files", "2 theses"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
