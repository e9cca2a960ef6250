"""Finds theses and episodes of which a part has ended, and facts that had not begun yet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
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


_PARTS = """SELECT t.fact, e.said, e.valid_from, e.valid_to
    FROM json_each(?1) k JOIN provenance t ON t.fact = k.value
    JOIN nodes n ON n.id = t.fact / 2
    JOIN provenance f ON f.episode = t.episode AND f.start >= t.start AND f.stop <= t.stop
    JOIN edges e ON e.id = f.fact / 2
    WHERE f.fact % 2 = 1 AND n.valid_from IS NULL"""
Interval = tuple[str | None, str | None]
"""Begin and end of a fact, [begin, end); None: unknown, open."""


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
    return _ended_by(_end_times(db, keys), second)


def _end_times(db: Database, keys: Iterable[int]) -> list[tuple[int, str | None]]:
    """Return a key and an end time for each part of theses, and each ended part of episodes."""
    texts = [key for key in keys if key % 2 == 0]
    return db.execute(ENDED_IN, (json.dumps(texts),)).fetchall()


def _ended_by(times: Iterable[tuple[int, str | None]], second: int) -> dict[int, EndedPart]:
    parts: dict[int, EndedPart] = {}
    lasting: set[int] = set()
    for key, end in times:
        if end is None or start(end) > second:
            lasting.add(key)
        else:
            last = max(end, parts[key].time) if key in parts else end
            parts[key] = EndedPart(last, is_whole=True)
    for key in lasting & parts.keys():
        parts[key] = EndedPart(parts[key].time, is_whole=False)
    return parts


def thesis_ends(db: Database, keys: Iterable[int]) -> dict[int, str]:
    """Return when theses end of which each triplet has an end, by fact key."""
    parts = ended_parts(db, keys, LAST_SECOND)
    return {key: part.time for key, part in parts.items() if part.is_whole}


def with_ends(
    db: Database, facts: Sequence[Fact], second: int, theses_only: bool = False
) -> list[Fact]:
    """Return facts with the times at which their parts ended.

    A thesis of which each triplet has an end gets the last of them as ``valid_to``, even one after
    ``second``; a fact of which a part has ended gets that time as ``partly_until``.

    Args:
        db: the record.
        facts: the facts.
        second: second, counted from 1970, by which a part must have ended.
        theses_only: whether to leave episodes as they are.
    """
    keys = [fact.key for fact in facts if fact.type == "thesis" or not theses_only]
    times = _end_times(db, keys)
    ended, at_all = _ended_by(times, second), _ended_by(times, LAST_SECOND)
    ends = {fact.key: at_all.get(fact.key) for fact in facts if fact.type == "thesis"}
    return [_with_end(fact, ended.get(fact.key), ends.get(fact.key)) for fact in facts]


def has_ended_part(fact: Fact, second: int) -> bool:
    """Return whether a part of a thesis from ``with_ends`` has ended by a second."""
    is_ended = fact.valid_to is not None and start(fact.valid_to) <= second
    return fact.type == "thesis" and (fact.partly_until is not None or is_ended)


def _with_end(fact: Fact, part: EndedPart | None, last: EndedPart | None) -> Fact:
    end = last.time if last is not None and last.is_whole else None
    if end is not None and fact.valid_to is None:
        fact = replace(fact, valid_to=end)
        if part is None or part.is_whole:
            return fact
    return fact if part is None else replace(fact, partly_until=part.time)


def begin_of(valid_from: str | None, said: str | None, valid_to: str | None) -> str | None:
    """Return when a fact begins: at its own time, else when it was said.

    None is returned if the begin is unknown, as for "lived in Cork until 2010": the fact had ended
    before it was said.
    """
    if valid_from is not None or said is None:
        return valid_from
    return said if valid_to is None or start(valid_to) > start(said) else None


def held_between(db: Database, keys: Iterable[int]) -> dict[int, list[Interval]]:
    """Return begin and end of each part of theses that have no begin and only some ended parts.

    Such a thesis holds while any of its parts does: "Bob lived in Cork until 2010, and works at
    Acme." holds until 2010, and again since it was said.
    """
    partly = {key for key, part in ended_parts(db, keys, LAST_SECOND).items() if not part.is_whole}
    intervals: dict[int, list[Interval]] = {}
    for key, said, from_, to in db.execute(_PARTS, (json.dumps(sorted(partly)),)):
        intervals.setdefault(key, []).append((begin_of(from_, said, to), to))
    return intervals


def holds_between(interval: Interval, second: int) -> bool:
    """Return whether a second is in an interval."""
    begin, end = interval
    return (begin is None or start(begin) <= second) and (end is None or second < start(end))


def not_begun(db: Database, keys: Iterable[int], second: int) -> set[int]:
    """Return the keys of undated facts that were said only after a second.

    A fact that had ended when it was said ("lived in Cork until 2010") is left out: it began at an
    unknown time before. So is a thesis while one of its parts holds (``held_between``).
    """
    rows = db.execute(_UNDATED, (json.dumps(list(keys)),)).fetchall()
    later = {key: (said, end) for key, said, end in rows if start(said) > second}
    ends = thesis_ends(db, later) if later else {}
    parts = held_between(db, later) if later else {}
    return {
        key
        for key, (said, end) in later.items()
        if (
            not any(holds_between(part, second) for part in parts[key])
            if key in parts
            else begin_of(None, said, ends.get(key, end)) is not None
        )
    }
