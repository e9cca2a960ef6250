"""Theses and episodes of which a part has ended."""

from __future__ import annotations

import json
from collections.abc import Iterable

from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.times import start

ENDED_IN = """WITH said AS MATERIALIZED (SELECT t.fact, f.fact / 2 AS edge
        FROM json_each(?1) k JOIN provenance t ON t.fact = k.value
        JOIN provenance f ON f.episode = t.episode AND f.start >= t.start AND f.stop <= t.stop
        WHERE f.fact % 2 = 1),
    told AS MATERIALIZED (SELECT k.value AS fact, k.value / 2 AS episode FROM json_each(?1) k),
    held AS MATERIALIZED (SELECT told.fact, f.fact / 2 AS edge
        FROM told JOIN provenance f ON f.episode = told.episode WHERE f.fact % 2 = 1)
    SELECT said.fact, e.valid_to FROM said JOIN edges e ON e.id = said.edge
    WHERE e.valid_to IS NOT NULL
    UNION SELECT held.fact, e.valid_to FROM held JOIN edges e ON e.id = held.edge
    WHERE e.valid_to IS NOT NULL"""
"""End times of the simple triplets in the sentences of theses, and in episodes."""


def ended_parts(db: Database, keys: Iterable[int], second: int) -> dict[int, str]:
    """Return the theses and episodes of which a part has ended, with the time when the last did.

    Args:
        db: the record.
        keys: of facts.
        second: up to which they ended.
    """
    found: dict[int, str] = {}
    texts = [key for key in keys if key % 2 == 0]
    for key, end in db.execute(ENDED_IN, (json.dumps(texts),)):
        if start(end) <= second:
            found[key] = max(end, found.get(key, end))
    return found
