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
"""Selects the times at which triplets in the sentence of thesis ?2 ended those of thesis ?1."""


def supersede(db: Database, old: int, new: int, now: str, revision: int) -> list[int]:
    """Close an old fact where a new one begins, and return the keys of the changed facts.

    The boundary is the time at which the new fact begins: the time in its text, else the time at
    which it was said, else ``now``. The old fact ends at the boundary, and a new fact without a
    begin begins there.

    The two facts change roles if the new one is older: it begins before the old one, or, if a begin
    is unknown, it was said before. They also change roles if the old fact begins after the boundary
    (a plan). A hypothesis closes nothing, and neither does a fact that has ended at the boundary.

    A thesis without a time of its own takes the boundary from the triplets of its sentence: "Anna
    moved to Bergen in June", said in July, closes "Anna lives in Paris" in June.

    Args:
        db: the record, in a write transaction; for theses, the supersessions of the triplets in
            their sentences are already written.
        old, new: fact keys.
        now: ISO time.
        revision: revision of the write.

    Returns:
        [] if nothing is closed.
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
    """Return the latest time at which ``new``'s triplets ended one of ``old``'s; None: none did."""
    times = [time for (time,) in db.execute(CLOSED_BY, (old, new))]
    return max(times, key=lambda time: (start(time), time), default=None)


def _is_before(a: Holds, b: Holds) -> bool:
    """Return whether fact a, which was remembered after fact b, is older than b."""
    for one, other in ((a.valid_from, b.valid_from), (a.said, b.said)):
        if one is not None and other is not None and start(one) != start(other):
            return start(one) < start(other)
    return False


def _has_ended(times: Holds, boundary: str) -> bool:
    """Return whether a fact without a begin ended before a boundary, so cannot begin there."""
    if times.valid_from is not None or times.valid_to is None:
        return False
    return start(times.valid_to) <= start(boundary)


def _own_end(db: Database, key: int, times: Holds) -> str | None:
    """Return the end that a fact's own text states."""
    sql = "SELECT old_valid_to FROM supersessions WHERE old = ?"
    row: tuple[str | None] | None = db.execute(sql, (key,)).fetchone()
    return times.valid_to if row is None else row[0]


def _own_begin(db: Database, key: int, times: Holds) -> str | None:
    sql = "SELECT new_valid_from FROM supersessions WHERE new = ?"
    row: tuple[str | None] | None = db.execute(sql, (key,)).fetchone()
    return times.valid_from if row is None else row[0]


def own_times(db: Database, key: int) -> tuple[str | None, str | None]:
    """Return begin and end that a fact's own text states, without supersessions."""
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

    A fact stays closed if another fact also closes it. A fact that got its begin from the end of a
    deleted fact loses this begin, which would reveal the deleted fact.
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
