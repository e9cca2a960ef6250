"""Finds theses and episodes of which a part has ended, and facts that had not begun yet."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from turngraph.data.memory_graph.memory_types import Fact
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
    UNION SELECT held.fact, e.valid_to FROM held JOIN edges e ON e.id = held.edge
    WHERE e.valid_to IS NOT NULL"""
"""Selects end times of simple triplets: all in the sentences of theses, ended ones in episodes."""
LAST_SECOND = 2**62
_UNDATED = """SELECT 2 * n.id, n.said, n.valid_to FROM json_each(?1) k
    JOIN nodes n ON n.id = k.value / 2
    WHERE k.value % 2 = 0 AND n.valid_from IS NULL AND n.said IS NOT NULL
    UNION ALL SELECT 2 * e.id + 1, e.said, e.valid_to FROM json_each(?1) k
    JOIN edges e ON e.id = k.value / 2
    WHERE k.value % 2 = 1 AND e.valid_from IS NULL AND e.said IS NOT NULL"""


class EndedPart(NamedTuple):
    """When the last ended part of a thesis or an episode ended, and whether all parts have."""

    time: str
    is_whole: bool


def ended_parts(db: Database, keys: Iterable[int], second: int) -> dict[int, EndedPart]:
    """Return the theses and episodes of which a part has ended.

    Args:
        db: the record.
        keys: keys of facts.
        second: second, counted from 1970, by which a part must have ended.
    """
    found: dict[int, EndedPart] = {}
    lasting: set[int] = set()
    texts = [key for key in keys if key % 2 == 0]
    for key, end in db.execute(ENDED_IN, (json.dumps(texts),)):
        if end is None or start(end) > second:
            lasting.add(key)
        else:
            last = max(end, found[key].time) if key in found else end
            found[key] = EndedPart(last, is_whole=True)
    for key in lasting & found.keys():
        found[key] = EndedPart(found[key].time, is_whole=False)
    return found


def with_end(fact: Fact, part: EndedPart | None) -> Fact:
    """Return a fact with the time at which its parts ended; a thesis ends with its last part."""
    if part is None:
        return fact
    if part.is_whole and fact.type == "thesis" and fact.valid_to is None:
        return replace(fact, valid_to=part.time)
    return replace(fact, partly_until=part.time)


def begin_of(valid_from: str | None, said: str | None, valid_to: str | None) -> str | None:
    """Return when a fact begins: at its own time, else when it was said.

    None is returned if the begin is unknown, as for "lived in Cork until 2010": the fact had ended
    before it was said.
    """
    if valid_from is not None or said is None:
        return valid_from
    return said if valid_to is None or start(valid_to) > start(said) else None


def not_begun(db: Database, keys: Iterable[int], second: int) -> set[int]:
    """Return the keys of undated facts that were said only after a second.

    A fact that had ended when it was said ("lived in Cork until 2010") is left out: it began at an
    unknown time before.
    """
    rows = db.execute(_UNDATED, (json.dumps(list(keys)),)).fetchall()
    later = {key: (said, end) for key, said, end in rows if start(said) > second}
    parts = ended_parts(db, later, LAST_SECOND) if later else {}
    ends = {key: parts[key].time if key in parts else end for key, (_, end) in later.items()}
    return {key for key, (said, _) in later.items() if begin_of(None, said, ends[key]) is not None}
