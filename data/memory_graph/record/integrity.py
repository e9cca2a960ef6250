"""Integrity rules between the rows of a memory graph's tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from turngraph.configs.progress import track
from turngraph.data.memory_graph.memory_types import (
    EPISODIC,
    EPISODIC_EDGE,
    HYPER,
    OBJECT,
    SIMPLE,
    THESIS,
    TIME,
    TIME_EDGE,
)
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.times import start

SHOWN = 5
"""Maximum row ids in the message of a problem."""
TIMES = {
    "nodes": ("id", "said", "valid_from", "valid_to"),
    "edges": ("id", "said", "valid_from", "valid_to"),
    "supersessions": ("old", "boundary", "old_valid_to", "new_valid_from"),
}
"""Id and times of the rows of each table that has times."""
FAR, NEAR = 100, 1 << 26
"""Ids above FAR * (number of rows) + NEAR count as damage: arrays by id take memory for every id up
to the highest, including ids of forgotten rows."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Problem of a memory graph.

    Args:
        what: description, without any remembered text.
        count: number of rows.
        rows: ids of the first ones.
        derived: whether the data can be rebuilt from the record (``check --rebuild``).
        damage: whether something other than this program changed the file.
    """

    what: str
    count: int = 1
    rows: tuple[int, ...] = ()
    derived: bool = False
    damage: bool = False

    def __str__(self) -> str:
        more = ", ..." if self.count > len(self.rows) else ""
        rows = f": {self.count} ({', '.join(map(str, self.rows))}{more})" if self.rows else ""
        help = "; `check --rebuild` rebuilds it" if self.derived else ""
        return f"{self.what}{rows}{help}"


def _no_node(id: str, *types: int) -> str:
    listed = ", ".join(map(str, types))
    return f"NOT EXISTS (SELECT 1 FROM nodes t WHERE t.id = {id} AND t.type IN ({listed}))"


def _no_fact(key: str) -> str:
    edge = f"SELECT 1 FROM edges f WHERE f.id = {key} >> 1 AND f.type = {SIMPLE}"
    thesis = _no_node(f"{key} >> 1", THESIS)
    return f"CASE {key} % 2 WHEN 0 THEN {thesis} ELSE NOT EXISTS ({edge}) END"


def _ends(type: int, source: str, target: str) -> str:
    return f"SELECT e.id FROM edges e WHERE e.type = {type} AND ({source} OR {target})"


def _unjoined(pairs: str) -> str:
    """Return a query for nodes that lack an edge, given pairs of node and episode."""
    joined = f"SELECT source, target FROM edges WHERE type = {EPISODIC_EDGE}"
    return f"SELECT node FROM (SELECT {pairs} EXCEPT {joined}) GROUP BY node"


_FACT_END = "p.episode FROM provenance p JOIN edges e ON p.fact % 2 = 1 AND e.id = p.fact >> 1"


def highest_possible(num_rows: int) -> int:
    """Return the highest plausible id in a table with a number of rows."""
    return FAR * num_rows + NEAR


def make_rules(size: str, given: str) -> dict[str, str]:
    """Return the query for the ids of the rows that break each rule, by its description.

    Args:
        size: SQL for the bytes of a text, with "{}" for its column.
        given: query for the last id assigned in a table, with "{}" for the table's name.
    """
    length = size.format("n.text")

    def unknown_ids(table: str) -> str:
        """Return a query for ids that were never assigned or are implausibly high."""
        last, most = given.format(table), f"SELECT {FAR} * count(*) + {NEAR} FROM {table}"
        return f"""SELECT id FROM {table}
            WHERE id < 1 OR id > coalesce(({last}), 0) OR id > ({most})"""

    return {
        f"ids of {table} that were never assigned": unknown_ids(table)
        for table in ("nodes", "edges", "aliases", "chunks", "questions", "themes")
    } | {what: sql.replace("{length}", length) for what, sql in _RULES.items()}


_RULES = {
    "nodes of an unknown type": f"SELECT id FROM nodes WHERE type NOT BETWEEN {OBJECT} AND {TIME}",
    "edges of an unknown type": (
        f"SELECT id FROM edges WHERE type NOT BETWEEN {SIMPLE} AND {TIME_EDGE}"
    ),
    "simple edges that do not join two objects": _ends(
        SIMPLE, _no_node("e.source", OBJECT), _no_node("e.target", OBJECT)
    ),
    "hyper edges that do not join an object to a thesis": _ends(
        HYPER, _no_node("e.source", OBJECT), _no_node("e.target", THESIS)
    ),
    "episodic edges that do not join an object or a thesis to an episode": _ends(
        EPISODIC_EDGE, _no_node("e.source", OBJECT, THESIS), _no_node("e.target", EPISODIC)
    ),
    "time edges that do not join a time to a thesis or an episode": _ends(
        TIME_EDGE, _no_node("e.source", TIME), _no_node("e.target", THESIS, EPISODIC)
    ),
    "simple edges without a relation, or others with one": (
        f"SELECT id FROM edges WHERE (type = {SIMPLE}) != (relation IS NOT NULL)"
    ),
    "duplicate edges": (
        f"SELECT max(id) FROM edges WHERE type != {SIMPLE}"
        " GROUP BY source, type, target HAVING count(*) > 1"
    ),
    "episodes without their row of fields": (
        f"SELECT id FROM nodes WHERE type = {EPISODIC} AND id NOT IN (SELECT node FROM episodes)"
    ),
    "rows of episodes without an episode": (
        f"SELECT e.node FROM episodes e WHERE {_no_node('e.node', EPISODIC)}"
    ),
    "aliases of no object": f"SELECT a.id FROM aliases a WHERE {_no_node('a.node', OBJECT)}",
    "objects whose name is not among their aliases": (
        f"SELECT n.id FROM nodes n WHERE n.type = {OBJECT} AND NOT EXISTS"
        " (SELECT 1 FROM aliases a WHERE a.node = n.id AND a.spelling = n.text)"
    ),
    "sightings of no alias": (
        "SELECT alias FROM sightings WHERE alias NOT IN (SELECT id FROM aliases)"
    ),
    "sightings in no episode": (
        f"SELECT s.alias FROM sightings s WHERE {_no_node('s.episode', EPISODIC)}"
    ),
    "provenance of no fact": f"SELECT p.fact FROM provenance p WHERE {_no_fact('p.fact')}",
    "provenance in no episode": (
        f"SELECT p.fact FROM provenance p WHERE {_no_node('p.episode', EPISODIC)}"
    ),
    "provenance outside of its episode's text": (
        "SELECT p.fact FROM provenance p JOIN nodes n ON n.id = p.episode WHERE p.start < 0"
        " OR p.stop < p.start OR p.stop > {length}"
    ),
    "simple edges without provenance": (
        f"SELECT e.id FROM edges e WHERE e.type = {SIMPLE}"
        " AND NOT EXISTS (SELECT 1 FROM provenance p WHERE p.fact = 2 * e.id + 1)"
    ),
    "theses without provenance": (
        f"SELECT n.id FROM nodes n WHERE n.type = {THESIS}"
        " AND NOT EXISTS (SELECT 1 FROM provenance p WHERE p.fact = 2 * n.id)"
    ),
    "supersessions of no fact": (
        f"SELECT old FROM supersessions WHERE old = new OR {_no_fact('old')} OR {_no_fact('new')}"
    ),
    "theses that are not joined to their episodes": _unjoined(
        "fact >> 1 AS node, episode FROM provenance WHERE fact % 2 = 0"
    ),
    "subjects of triplets that are not joined to their episodes": _unjoined(
        f"e.source AS node, {_FACT_END}"
    ),
    "objects of triplets that are not joined to their episodes": _unjoined(
        f"e.target AS node, {_FACT_END}"
    ),
    "objects that are not joined to the episodes that mention them": _unjoined(
        "a.node, s.episode FROM sightings s JOIN aliases a ON a.id = s.alias"
    ),
    "chunks in no episode": f"SELECT c.id FROM chunks c WHERE {_no_node('c.episode', EPISODIC)}",
    "chunks outside of their episode's text": (
        "SELECT c.id FROM chunks c JOIN nodes n ON n.id = c.episode WHERE c.start < 0"
        " OR c.stop <= c.start OR c.stop > {length}"
    ),
    "questions of no chunk": "SELECT id FROM questions WHERE chunk NOT IN (SELECT id FROM chunks)",
    "themes of an unknown level": "SELECT id FROM themes WHERE level NOT IN (1, 2)",
    "themes without members": (
        "SELECT id FROM themes WHERE id NOT IN (SELECT theme FROM theme_members)"
    ),
    "members of no theme": (
        "SELECT theme FROM theme_members WHERE theme NOT IN (SELECT id FROM themes)"
    ),
    "themes whose members are no chunks of their source": (
        "SELECT DISTINCT t.id FROM themes t JOIN theme_members m ON m.theme = t.id"
        " WHERE t.level = 1 AND NOT EXISTS (SELECT 1 FROM chunks c JOIN episodes e"
        " ON e.node = c.episode AND e.source IS t.source WHERE c.id = m.member)"
    ),
    "themes of themes whose members are no themes": (
        "SELECT DISTINCT t.id FROM themes t JOIN theme_members m ON m.theme = t.id"
        " WHERE t.level = 2 AND NOT EXISTS"
        " (SELECT 1 FROM themes b WHERE b.id = m.member AND b.level = 1)"
    ),
    "quotations of no theme": (
        "SELECT theme FROM theme_quotes WHERE theme NOT IN (SELECT id FROM themes)"
    ),
    "quotations that no episode states": (
        "SELECT DISTINCT q.theme FROM theme_quotes q WHERE q.start < 0 OR CASE q.fact"
        " WHEN 2 * q.episode THEN NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = q.episode"
        f" AND n.type = {EPISODIC} AND q.stop <= {{length}})"
        " ELSE NOT EXISTS (SELECT 1 FROM provenance p WHERE p.fact = q.fact"
        " AND p.episode = q.episode AND p.start = q.start AND p.stop = q.stop) END"
    ),
    "sources with themes but without episodes": (
        "SELECT t.revision FROM themed t"
        " WHERE NOT EXISTS (SELECT 1 FROM episodes e WHERE e.source IS t.source)"
    ),
    "objects and times without edges": (
        f"SELECT n.id FROM nodes n WHERE n.type IN ({OBJECT}, {TIME})"
        " AND NOT EXISTS (SELECT 1 FROM edges e WHERE e.source = n.id)"
        " AND NOT EXISTS (SELECT 1 FROM edges e WHERE e.target = n.id)"
    ),
}
"""Queries as ``make_rules`` returns them, with "{length}" for the bytes of the text ``n.text``."""


def unreadable_times(db: Database) -> list[Problem]:
    """Return a problem for each table in which a column of times has a value that is no time."""
    problems = []
    for table in TIMES:
        wrong = (row[0] for row in rows_with_times(db, table) if not all(map(_is_time, row[1:])))
        problems += found_rows(f"{table} with an invalid time", wrong, damage=True)
    return problems


def rows_with_times(db: Database, table: str) -> Iterator[tuple[Any, ...]]:
    """Yield the columns ``TIMES`` of the rows in which any time is not NULL."""
    row_id, *times = TIMES[table]
    there = f"coalesce({', '.join(times)}) IS NOT NULL"
    return db.execute(f"SELECT {row_id}, {', '.join(times)} FROM {table} WHERE {there}")


def found_rows(what: str, rows: Iterable[int], damage: bool = False) -> list[Problem]:
    """Return a problem with the ids of its rows; [] without rows."""
    rows = list(rows)
    return [Problem(what, len(rows), tuple(rows[:SHOWN]), damage=damage)] if rows else []


def _is_time(text: str | None) -> bool:
    try:
        return text is None or start(text) is not None
    except ValueError:
        return False


def broken_rules(db: Database) -> list[Problem]:
    """Return the rules that a database breaks."""
    problems = []
    for what, sql in track(db.rules().items(), "check", "rules", delay=2, leave=False):
        count = db.execute(f"SELECT count(*) FROM ({sql})").fetchone()[0]
        if count:
            rows = db.execute(f"{sql} LIMIT {SHOWN}").fetchall()
            problems.append(Problem(what, count, tuple(row for (row,) in rows), damage=True))
    return problems
