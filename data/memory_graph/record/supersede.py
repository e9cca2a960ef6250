"""Supersession of facts: the old fact holds until the new one begins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.times import start


class Holds(NamedTuple):
    """First mention, validity and hypothesis flag of a fact."""

    said: str | None
    valid_from: str | None
    valid_to: str | None
    hypothesis: int


def holds(db: Database, key: int) -> Holds:
    """Return the times of a simple triplet or thesis."""
    sql = f"SELECT said, valid_from, valid_to, hypothesis FROM {_table(key)} WHERE id = ?"
    return Holds(*db.execute(sql, (key >> 1,)).fetchone())


def _table(key: int) -> str:
    return "edges" if key & 1 else "nodes"


CLOSED_BY = """SELECT s.boundary FROM supersessions s
    JOIN provenance n ON n.fact = s.new JOIN provenance t ON t.fact = ?2 AND t.episode = n.episode
    JOIN provenance o ON o.fact = s.old JOIN provenance u ON u.fact = ?1 AND u.episode = o.episode
    WHERE s.old % 2 = 1 AND n.start >= t.start AND n.stop <= t.stop
        AND o.start >= u.start AND o.stop <= u.stop"""
"""Selects when triplets of the second thesis's sentence ended triplets of the first thesis's."""


def supersede(db: Database, old: int, new: int, now: str, revision: int) -> list[int]:
    """Close an old fact where a new one begins, and return the keys of the changed facts.

    The boundary is the begin of the new fact: by its text, else when it was said, else now. A new
    fact without a begin begins at the boundary. If the new fact is older (it begins before the old
    one; or, where a begin is unknown, it was said before the old one), the old fact closes the new
    one instead. The old fact does so, too, if it begins after the boundary (a plan). A hypothesis
    closes nothing, nor does a fact that had ended at the boundary. Theses follow the triplets of
    their sentences: "Anna moved to Bergen in June", said in July, closes "Anna lives in Paris" in
    June.

    Args:
        db: inside a write, with the supersessions of the triplets if these are theses.
        old, new: fact keys.
        now: ISO time.
        revision: of the write.
    """
    begin = None if new & 1 else _begin_of_thesis(db, old, new)
    if not new & 1 and begin is None:
        begin = _begin_of_thesis(db, new, old)
        if begin is not None:
            old, new = new, old
    first, second = holds(db, old), holds(db, new)
    if begin is None and _is_before(second, first):
        old, new, first, second = new, old, second, first
    boundary = second.valid_from or begin or second.said or now
    if first.valid_from is not None and start(boundary) < start(first.valid_from):
        boundary = first.valid_from
        old, new, first, second = new, old, second, first
    if second.hypothesis or _has_ended(second, boundary):
        return []
    sql = "INSERT INTO supersessions VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
    row = (old, new, boundary, _own_end(db, old, first), _own_begin(db, new, second))
    db.execute(sql, row)
    settle(db, (old, new), revision)
    return [old, new]


def _begin_of_thesis(db: Database, old: int, new: int) -> str | None:
    """Return the latest time at which ``new``'s triplets ended a part of ``old``; None: no part."""
    times = [time for (time,) in db.execute(CLOSED_BY, (old, new))]
    return max(times, key=lambda time: (start(time), time), default=None)


def _is_before(a: Holds, b: Holds) -> bool:
    """Return whether fact a is older than fact b, which was remembered earlier."""
    for one, other in ((a.valid_from, b.valid_from), (a.said, b.said)):
        if one is not None and other is not None and start(one) != start(other):
            return start(one) < start(other)
    return False


def _has_ended(times: Holds, boundary: str) -> bool:
    """Return whether a fact whose begin is unknown ended before a time, which is then no begin."""
    if times.valid_from is not None or times.valid_to is None:
        return False
    return start(times.valid_to) <= start(boundary)


def _own_end(db: Database, key: int, times: Holds) -> str | None:
    """Return the end of a fact by its own text."""
    sql = "SELECT old_valid_to FROM supersessions WHERE old = ?"
    row: tuple[str | None] | None = db.execute(sql, (key,)).fetchone()
    return times.valid_to if row is None else row[0]


def _own_begin(db: Database, key: int, times: Holds) -> str | None:
    sql = "SELECT new_valid_from FROM supersessions WHERE new = ?"
    row: tuple[str | None] | None = db.execute(sql, (key,)).fetchone()
    return times.valid_from if row is None else row[0]


def own_times(db: Database, key: int) -> tuple[str | None, str | None]:
    """Return begin and end of a fact by its own text, without supersessions."""
    times = holds(db, key)
    return _own_begin(db, key, times), _own_end(db, key, times)


def settle(db: Database, keys: Iterable[int], revision: int) -> None:
    """Write the validity of facts from their own texts and their supersessions."""
    for key in keys:
        sql = "SELECT old_valid_to, boundary FROM supersessions WHERE old = ?"
        rows = db.execute(sql, (key,)).fetchall()
        if rows:
            ends = {time for row in rows for time in row if time is not None}
            _write(db, key, "valid_to", min(ends, key=lambda time: (start(time), time)), revision)
        sql = "SELECT new_valid_from, boundary FROM supersessions WHERE new = ? ORDER BY old"
        begins = db.execute(sql, (key,)).fetchone()
        if begins is not None:
            _write(db, key, "valid_from", begins[0] or begins[1], revision)


def _write(db: Database, key: int, column: str, time: str | None, revision: int) -> None:
    sql = f"UPDATE {_table(key)} SET {column} = ?, revision = ? WHERE id = ? AND {column} IS NOT ?"
    db.execute(sql, (time, revision, key >> 1, time))


def release(db: Database, gone: Iterable[int], revision: int) -> int:
    """Undo the supersessions of deleted facts, and return how many facts are open again.

    A fact that another one closes too stays closed. A fact that began at the end of a deleted one
    loses its begin, which would reveal the deleted fact.
    """
    gone = set(gone)
    touched, closed = set(), set()
    for key in gone:
        sql = """SELECT old, new, old_valid_to, new_valid_from FROM supersessions
            WHERE old = ?1 OR new = ?1"""
        for old, new, old_valid_to, new_valid_from in db.execute(sql, (key,)):
            if old not in gone:
                _write(db, old, "valid_to", old_valid_to, revision)
                touched.add(old)
                closed.add(old)
            if new not in gone:
                _write(db, new, "valid_from", new_valid_from, revision)
                touched.add(new)
    db.executemany("DELETE FROM supersessions WHERE old = ?1 OR new = ?1", [(k,) for k in gone])
    settle(db, touched, revision)
    return sum(holds(db, key).valid_to is None for key in closed)
