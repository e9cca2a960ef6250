"""Named values of the record: its revision, pending purges, settings of the themes."""

from __future__ import annotations

import json
from typing import Any

from turngraph.data.memory_graph.record.database import Database


def read_meta(db: Database, name: str) -> Any:
    """Return a value, parsed from JSON if it is a text; None if it is missing."""
    row = db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    if row is None:
        return None
    return json.loads(row[0]) if isinstance(row[0], str) else row[0]


def write_meta(db: Database, name: str, value: int | str) -> None:
    """Write a value: a number, or a text that must be JSON."""
    if not db.execute("UPDATE meta SET value = ? WHERE name = ?", (value, name)).rowcount:
        db.execute("INSERT INTO meta (name, value) VALUES (?, ?)", (name, value))


def drop_meta(db: Database, name: str) -> None:
    """Delete a value, if it exists."""
    db.execute("DELETE FROM meta WHERE name = ?", (name,))
