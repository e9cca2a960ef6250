"""Lookup of an object by a name or an id that a user gives."""

from __future__ import annotations

import heapq
import re

from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.memory_graph.memory_types import OBJECT
from turngraph.data.memory_graph.names import alias, well_formed
from turngraph.data.memory_graph.record.database import Database

NEAR_NAMES = 5
"""Maximum similar names that an error suggests."""
NEAR = 60
"""Least similarity of a suggested name, from 0 to 100 (rapidfuzz's ``ratio``)."""
_ID = re.compile(r"#(\d{1,18})")


class UnknownNameError(UserError):
    """No object has a name."""


def find_object(db: Database, entity: str | int) -> int:
    """Return the id of the one object that a name or an id means.

    Args:
        db: the record.
        entity: a name in any spelling that folds to an alias; an id: 12 or "#12".

    Raises:
        UnknownNameError: no object has the name; the message lists similar names with ids.
        UserError: several objects have the name (the message lists them), or no object has the id.
    """
    if isinstance(entity, str) and (match := _ID.fullmatch(entity.strip())):
        entity = int(match[1])
    if isinstance(entity, int):
        sql = "SELECT 1 FROM nodes WHERE id = ? AND type = ?"
        if abs(entity) >= 2**63 or db.execute(sql, (entity, OBJECT)).fetchone() is None:
            raise UserError(f"#{entity} is not an object of this memory graph")
        return entity
    form = alias(well_formed(entity))
    sql = "SELECT DISTINCT node FROM aliases WHERE alias = ? ORDER BY node"
    nodes: list[int] = [node for (node,) in db.execute(sql, (form,))]
    if len(nodes) > 1:
        listed = "; ".join(describe(db, node) for node in nodes)
        raise UserError(f"{len(nodes)} objects are named {entity!r}: {listed}")
    if not nodes:
        raise UnknownNameError(f"no object is named {entity!r}{_near_names(db, form)}")
    return nodes[0]


def describe(db: Database, node: int) -> str:
    """Describe an object by id, name, other names and number of edges."""
    name = db.execute("SELECT text FROM nodes WHERE id = ?", (node,)).fetchone()[0]
    sql = "SELECT spelling FROM aliases WHERE node = ? AND spelling != ? ORDER BY id LIMIT 3"
    others = [spelling for (spelling,) in db.execute(sql, (node, name))]
    sql = "SELECT count(*) FROM edges WHERE source = ?1 OR target = ?1"
    edges = db.execute(sql, (node,)).fetchone()[0]
    also = f" (also {', '.join(others)})" if others else ""
    return f"#{node} {name}{also}, {plural(edges, 'edge')}"


def _near_names(db: Database, wanted: str) -> str:
    from rapidfuzz import fuzz

    rows = db.execute("SELECT alias, spelling, node FROM aliases")
    scored = ((fuzz.ratio(wanted, row[0], score_cutoff=NEAR), *row[1:]) for row in rows)
    best = heapq.nlargest(NEAR_NAMES, (row for row in scored if row[0]))
    listed = ", ".join(f"{spelling} (#{node})" for _, spelling, node in best)
    return f"; near names: {listed}" if listed else ""
