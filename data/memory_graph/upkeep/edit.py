"""Edits of objects: merge, split, rename, add an alias.

Every edit is one transaction and can be undone (journal.py). An object is given by its name or, if
several objects have the name, by its id: 12 or "#12".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.memory_types import EPISODIC_EDGE, HYPER, OBJECT, SIMPLE, edge_key
from turngraph.data.memory_graph.names import alias, well_formed
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.record.lookup import find_object
from turngraph.data.memory_graph.record.store import Store, tried_again
from turngraph.data.memory_graph.times import start
from turngraph.data.memory_graph.upkeep.journal import edit, simple_keys_at

Statements = dict[int, set[int]]
"""Episodes that state a fact, by fact key."""


@tried_again
def merge(store: Store, keep: str | int, other: str | int) -> int:
    """Merge two objects that are one thing, and return the id of the remaining object.

    All names, sightings and edges of ``other`` move to ``keep``. Edges that become equal are
    joined, with the provenance of both. A simple edge between the two objects becomes a loop, since
    a text states it.

    Raises:
        UserError: a name is unknown or ambiguous, or both are the same object.
    """
    db = store.db
    with store.writing() as revision:
        kept, gone = find_object(db, keep), find_object(db, other)
        if kept == gone:
            raise UserError(f"{keep!r} and {other!r} are the same object already, #{kept}")
        with edit(db, revision, f"merge #{kept} #{gone}", simple_keys_at(db, gone)):
            sql = "SELECT id FROM edges WHERE source = ?1 OR target = ?1"
            moved = {edge for (edge,) in db.execute(sql, (gone,))}
            for end in ("source", "target"):
                db.execute(f"UPDATE edges SET {end} = ? WHERE {end} = ?", (kept, gone))
            _join_equal_edges(db, kept, moved)
            _move_aliases(db, gone, kept)
            db.execute("DELETE FROM nodes WHERE id = ?", (gone,))
    return kept


_EDGES_TO_JOIN = """
WITH e AS MATERIALIZED (SELECT *, 2 * id + 1 AS fact FROM edges WHERE source = ?1 OR target = ?1)
SELECT DISTINCT e.id, e.said, e.type, e.source, e.target, e.relation, e.valid_from, e.valid_to,
    e.hypothesis, CASE WHEN b.new IS NULL THEN e.valid_from ELSE b.new_valid_from END,
    CASE WHEN c.old IS NULL THEN e.valid_to ELSE c.old_valid_to END
FROM e
LEFT JOIN supersessions b ON e.type = 0 AND b.new = e.fact
LEFT JOIN supersessions c ON e.type = 0 AND c.old = e.fact ORDER BY e.id"""
"""Selects the edges of an object. Two edges are equal if all columns from the third on are equal;
the last two columns are the validity that the edge's own text states."""


def _join_equal_edges(db: Database, node: int, moved: set[int]) -> None:
    """Join equal edges; of each group, an edge that the object had before remains."""
    rows = db.execute(_EDGES_TO_JOIN, (node,)).fetchall()
    first: dict[tuple[object, ...], tuple[int, str | None]] = {}
    for edge, said, *rest in sorted(rows, key=lambda row: row[0] in moved):
        kept, earlier = first.setdefault(tuple(rest), (edge, said))
        if kept != edge:
            _move_fact(db, edge_key(edge), edge_key(kept))
            db.execute("DELETE FROM edges WHERE id = ?", (edge,))
            times = [time for time in (earlier, said) if time is not None]
            first[tuple(rest)] = kept, min(times, key=start, default=None)
            db.execute("UPDATE edges SET said = ? WHERE id = ?", (first[tuple(rest)][1], kept))


def _move_fact(db: Database, old: int, new: int) -> None:
    """Move provenance and supersessions of a fact to another, without duplicates."""
    _move_rows(db, "provenance", "fact", old, new, "episode", "start", "stop")
    _move_rows(db, "supersessions", "old", old, new, "new")
    _move_rows(db, "supersessions", "new", old, new, "old")
    db.execute("DELETE FROM supersessions WHERE old = new")


def _move_rows(db: Database, table: str, column: str, old: int, new: int, *others: str) -> None:
    """Set a key column of rows to another value; drop rows that exist with this value already.

    Args:
        db: the record, in a write transaction.
        table, column: table and column to change.
        old, new: old and new value.
        others: the other columns of the key.
    """
    same = " AND ".join(f"t.{name} = {table}.{name}" for name in others)
    sql = f"""UPDATE {table} SET {column} = ?1 WHERE {column} = ?2
        AND NOT EXISTS (SELECT 1 FROM {table} t WHERE t.{column} = ?1 AND {same})"""
    db.execute(sql, (new, old))
    db.execute(f"DELETE FROM {table} WHERE {column} = ?", (old,))


def _move_aliases(db: Database, old: int, new: int) -> None:
    same = (
        "SELECT b.id FROM aliases a JOIN aliases b ON b.alias = a.alias AND b.spelling = a.spelling"
        " WHERE a.id = ? AND b.node = ?"
    )
    for (alias_id,) in db.execute("SELECT id FROM aliases WHERE node = ?", (old,)).fetchall():
        equal_alias = db.execute(same, (alias_id, new)).fetchone()
        if equal_alias is None:
            db.execute("UPDATE aliases SET node = ? WHERE id = ?", (new, alias_id))
            continue
        _move_rows(db, "sightings", "alias", alias_id, equal_alias[0], "episode")
        db.execute("DELETE FROM aliases WHERE id = ?", (alias_id,))


@tried_again
def rename(store: Store, entity: str | int, name: str) -> int:
    """Rename an object, and return its id; the old name stays an alias.

    Raises:
        UserError: the object is unknown or ambiguous, or the new name is blank.
    """
    name, db = _new_name(name), store.db
    with store.writing() as revision:
        node = find_object(db, entity)
        with edit(db, revision, f"rename #{node}", simple_keys_at(db, node)):
            db.execute("UPDATE nodes SET text = ? WHERE id = ?", (name, node))
            _give_alias(db, node, name)
    return node


@tried_again
def add_alias(store: Store, entity: str | int, name: str) -> int:
    """Add a name by which an object is found, and return its id.

    Raises:
        UserError: the object is unknown or ambiguous, or the name is blank or another object's.
    """
    name, db = _new_name(name), store.db
    with store.writing() as revision:
        node = find_object(db, entity)
        sql = "SELECT node FROM aliases WHERE alias = ? AND node != ?"
        other = db.execute(sql, (alias(name), node)).fetchone()
        if other is not None:
            raise UserError(f"{name!r} names #{other[0]} already; `merge` joins the two")
        with edit(db, revision, f"alias #{node}", ()):
            _give_alias(db, node, name)
    return node


def _new_name(name: str) -> str:
    if not name.strip():
        raise UserError("the new name is blank")
    return well_formed(" ".join(name.split()))


def _give_alias(db: Database, node: int, name: str) -> None:
    """Add a name that an object keeps even if no episode contains it."""
    values = (alias(name), name, node)
    sql = "UPDATE aliases SET given = 1 WHERE alias = ? AND spelling = ? AND node = ?"
    if not db.execute(sql, values).rowcount:
        sql = "INSERT INTO aliases (alias, spelling, node, given) VALUES (?, ?, ?, 1)"
        db.execute(sql, values)


def split(
    store: Store,
    entity: str | int,
    new_name: str,
    episodes: Iterable[int] = (),
    facts: Iterable[int] = (),
) -> int:
    """Split an object that stands for two things, and return the new object's id.

    The given facts move to a new object. A fact that other episodes state, too, becomes a fact of
    both objects. An episode that still states a fact of the old object mentions both objects, under
    the names that it contains; in every other episode the new object replaces the old one.

    Args:
        store: the graph.
        entity: the object, by name or id.
        new_name: name of the new object; another object may have it, too.
        episodes: node ids of episodes; all facts of the object that they state move.
        facts: keys of simple triplets and theses, which move for all episodes that state them.

    Raises:
        UserError: the object is unknown or ambiguous, the new name is blank, an episode or fact is
            unrelated to the object, or the object would lose all its edges.
    """
    return _split(store, entity, _new_name(new_name), set(episodes), set(facts))


@tried_again
def _split(store: Store, entity: str | int, name: str, episodes: set[int], facts: set[int]) -> int:
    db = store.db
    with store.writing() as revision:
        old = find_object(db, entity)
        statements = _statements(db, old)
        moved = _chosen(db, old, statements, episodes, facts)
        with edit(db, revision, f"split #{old}", (key for key in moved if key & 1)):
            sql = "INSERT INTO nodes (type, revision, text) VALUES (?, ?, ?) RETURNING id"
            new = int(db.execute(sql, (OBJECT, revision, name)).fetchone()[0])
            _give_alias(db, new, name)
            for key, said_in in moved.items():
                _give_fact(db, key, said_in, said_in == statements[key], old, new)
            left = {e for key in statements for e in statements[key] - moved.get(key, set())}
            for episode in sorted(episodes.union(*moved.values())):
                _give_mention(db, episode, episode in left, old, new)
            if not db.execute("SELECT 1 FROM edges WHERE ? IN (source, target)", (old,)).fetchone():
                raise UserError(f"nothing would be left of #{old}; `rename` changes its name")
    return new


def _statements(db: Database, node: int) -> Statements:
    """Return the facts of an object with the episodes that state them."""
    statements: Statements = defaultdict(set)
    sql = (
        "SELECT p.fact, p.episode FROM edges e JOIN provenance p ON p.fact ="
        f" CASE e.type WHEN {SIMPLE} THEN 2 * e.id + 1 ELSE 2 * e.target END"
        f" WHERE e.type IN ({SIMPLE}, {HYPER}) AND (e.source = ?1 OR e.target = ?1)"
    )
    for key, episode in db.execute(sql, (node,)):
        statements[key].add(episode)
    return dict(sorted(statements.items()))


def _chosen(
    db: Database, node: int, known: Statements, episodes: set[int], facts: set[int]
) -> Statements:
    """Select statements of an object by episode or by fact."""
    sql = f"SELECT target FROM edges WHERE type = {EPISODIC_EDGE} AND source = ?"
    said_in = {episode for (episode,) in db.execute(sql, (node,))}
    for given, possible, kind in ((episodes, said_in, "episode"), (facts, known.keys(), "fact")):
        if given - possible:
            raise UserError(f"{kind} {min(given - possible)} does not mention #{node}")
    if not episodes and not facts:
        raise UserError(f"name the episodes or facts of #{node} that belong to the new object")
    chosen = {key: said if key in facts else said & episodes for key, said in known.items()}
    return {key: said for key, said in chosen.items() if said}


def _give_fact(db: Database, key: int, said_in: set[int], whole: bool, old: int, new: int) -> None:
    """Move a fact to the new object; unless ``whole``, the old object keeps a copy."""
    edge = _edge_of(db, key, old)
    if not whole:
        sql = (
            "INSERT INTO edges (type, source, target, relation, said, valid_from, valid_to,"
            " hypothesis, revision) SELECT type, source, target, relation, said, valid_from,"
            " valid_to, hypothesis, revision FROM edges WHERE id = ? RETURNING id"
        )
        copy = db.execute(sql, (edge,)).fetchone()[0]
        if key & 1:
            _give_provenance(db, key, edge_key(copy), said_in)
            _write_first_said(db, edge)
            _write_first_said(db, copy)
        edge = copy
    for end in ("source", "target"):
        db.execute(f"UPDATE edges SET {end} = ? WHERE id = ? AND {end} = ?", (new, edge, old))


def _edge_of(db: Database, key: int, node: int) -> int:
    """Return the edge by which an object takes part in a fact."""
    if key & 1:
        return key >> 1
    sql = f"SELECT id FROM edges WHERE type = {HYPER} AND source = ? AND target = ?"
    return int(db.execute(sql, (node, key >> 1)).fetchone()[0])


def _give_provenance(db: Database, key: int, copy: int, said_in: set[int]) -> None:
    """Move episodes of a triplet to its copy; both keep all supersessions."""
    moves = [(copy, key, episode) for episode in said_in]
    db.executemany("UPDATE provenance SET fact = ? WHERE fact = ? AND episode = ?", moves)
    rest = "boundary, old_valid_to, new_valid_from FROM supersessions WHERE"
    db.execute(f"INSERT INTO supersessions SELECT ?, new, {rest} old = ?", (copy, key))
    db.execute(f"INSERT INTO supersessions SELECT old, ?, {rest} new = ?", (copy, key))


def _write_first_said(db: Database, edge: int) -> None:
    """Set the time at which a simple triplet was first said, from its episodes."""
    sql = (
        "SELECT n.said FROM provenance p JOIN nodes n ON n.id = p.episode"
        " WHERE p.fact = ? AND n.said IS NOT NULL"
    )
    times = [said for (said,) in db.execute(sql, (edge_key(edge),))]
    said = min(times, key=start, default=None)
    db.execute("UPDATE edges SET said = ? WHERE id = ?", (said, edge))


def _give_mention(db: Database, episode: int, both: bool, old: int, new: int) -> None:
    """Join the new object to an episode, with the old one's names that the episode contains."""
    joined = (EPISODIC_EDGE, old, episode)
    if both:
        sql = "INSERT INTO edges (type, source, target, revision) VALUES (?, ?, ?, 0)"
        db.execute(sql, (EPISODIC_EDGE, new, episode))
    else:
        sql = "UPDATE edges SET source = ? WHERE type = ? AND source = ? AND target = ?"
        db.execute(sql, (new, *joined))
    sql = (
        "SELECT a.id, a.alias, a.spelling FROM sightings s JOIN aliases a ON a.id = s.alias"
        " WHERE s.episode = ? AND a.node = ?"
    )
    for alias_id, *name in db.execute(sql, (episode, old)).fetchall():
        sql = """INSERT INTO aliases (alias, spelling, node) VALUES (?, ?, ?)
            ON CONFLICT DO NOTHING"""
        db.execute(sql, (*name, new))
        db.execute(
            "INSERT INTO sightings SELECT id, ? FROM aliases"
            " WHERE alias = ? AND spelling = ? AND node = ?",
            (episode, *name, new),
        )
        if not both:
            db.execute("DELETE FROM sightings WHERE alias = ? AND episode = ?", (alias_id, episode))
            _drop_unused(db, alias_id, old)


def _drop_unused(db: Database, alias_id: int, node: int) -> None:
    """Drop an alias without sightings, unless a user gave it or the object's name is the alias."""
    db.execute(
        "DELETE FROM aliases WHERE id = ?1 AND given = 0"
        " AND NOT EXISTS (SELECT 1 FROM sightings WHERE alias = ?1)"
        " AND spelling != (SELECT text FROM nodes WHERE id = ?2)",
        (alias_id, node),
    )
