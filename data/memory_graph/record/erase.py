"""Deletion of episodes, and of everything that only these episodes state, from the record."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence

from turngraph.data.memory_graph.memory_types import (
    EPISODIC_EDGE,
    HYPER,
    OBJECT,
    SIMPLE,
    TIME,
    TIME_EDGE,
    node_key,
)
from turngraph.data.memory_graph.names import text_hash
from turngraph.data.memory_graph.record.database import RECOVER, Damaged, Database
from turngraph.data.memory_graph.record.episode_writer import thesis_times
from turngraph.data.memory_graph.record.facts import index_aliases, index_facts
from turngraph.data.memory_graph.record.supersede import own_times, release, settle
from turngraph.data.memory_graph.record.write_themes import erase_themes

NODE, EDGE = 0, 1
"""Values of the column ``kind`` of the table ``removed``."""


class Eraser:
    """Deletes episodes in one transaction and counts the deleted rows.

    Args:
        db: the record, in a write transaction.
        revision: revision of the write.
    """

    def __init__(self, db: Database, revision: int) -> None:
        self.db, self.revision = db, revision
        self.counts: Counter[str] = Counter()
        self._near: set[int] = set()  # nodes that may have lost their last edge

    def erase(self, episodes: Iterable[int], objects: Iterable[int] = ()) -> None:
        """Delete episodes, and objects with all their names, including names that a user gave."""
        episodes, objects = list(episodes), list(objects)
        self.db.execute("DELETE FROM journal")
        erased = erase_themes(self.db, episodes, self.revision)
        self.counts["questions"], self.counts["themes"] = erased
        gone, kept = self._facts_of(episodes)
        self._index([*gone, *map(node_key, episodes)], remove=True)
        self.counts["reopened"] = release(self.db, gone, self.revision)
        edges = [key >> 1 for key in gone if key & 1]
        nodes = [*(key >> 1 for key in gone if not key & 1), *episodes]
        self._drop_edges("id", edges)
        self._drop_edges("target", nodes)
        self._drop_rows("episodes", "node", episodes)
        self._drop_nodes(nodes)
        self.counts["episodes"], self.counts["triplets"] = len(episodes), len(edges)
        self.counts["theses"] = len(nodes) - len(episodes)
        self._forget_names(episodes, objects)
        for key in kept:
            self._restore(key)
        self._drop_lonely()

    def _index(self, keys: Sequence[int], remove: bool = False) -> None:
        """Add facts to the word index, or remove them.

        Raises:
            Damaged: a fact is missing or invalid, so its words would stay in the index.
        """
        if index_facts(self.db, keys, remove) != len(keys):
            raise Damaged(RECOVER)

    # Rows

    def _ids(self, sql: str, ids: Iterable[int]) -> list[int]:
        """Return the first column of a query over ``k.value`` of a list of ids."""
        return [row[0] for row in self.db.execute(sql, (json.dumps(list(ids)),))]

    def _drop_rows(self, table: str, column: str, ids: Iterable[int]) -> None:
        values = ((id_,) for id_ in ids)
        self.db.executemany(f"DELETE FROM {table} WHERE {column} = ?", values)

    def _note_removed(self, kind: int, ids: Iterable[int]) -> None:
        rows = ((kind, id_, self.revision) for id_ in ids)
        self.db.executemany("INSERT INTO removed VALUES (?, ?, ?)", rows)

    def _drop_edges(self, column: str, ids: list[int]) -> None:
        """Delete edges by id, source or target."""
        sql = f"""SELECT e.id, e.source, e.target FROM json_each(?) k
            JOIN edges e ON e.{column} = k.value"""
        rows = self.db.execute(sql, (json.dumps(ids),)).fetchall()
        self._drop_rows("edges", "id", [row[0] for row in rows])
        self._note_removed(EDGE, [row[0] for row in rows])
        self._near.update(end for row in rows for end in row[1:])

    def _drop_nodes(self, ids: list[int]) -> None:
        self._drop_rows("nodes", "id", ids)
        self._note_removed(NODE, ids)

    # Facts

    def _facts_of(self, episodes: list[int]) -> tuple[list[int], list[int]]:
        """Return the facts that only these episodes state, and those that others state, too."""
        sql = """SELECT DISTINCT p.fact FROM json_each(?) k
            JOIN provenance p ON p.episode = k.value ORDER BY p.fact"""
        said = self._ids(sql, episodes)
        self._drop_rows("provenance", "episode", episodes)
        sql = """SELECT k.value FROM json_each(?) k
            WHERE EXISTS (SELECT 1 FROM provenance p WHERE p.fact = k.value)"""
        kept = self._ids(sql, said)
        return sorted(set(said).difference(kept)), kept

    def _restore(self, key: int) -> None:
        """Set a fact's time and edges to those that its remaining episodes account for."""
        sql = """SELECT n.said FROM provenance p JOIN nodes n ON n.id = p.episode
            WHERE p.fact = ? AND n.said IS NOT NULL ORDER BY n.said LIMIT 1"""
        row = self.db.execute(sql, (key,)).fetchone()
        said = None if row is None else row[0]
        table = "edges" if key & 1 else "nodes"
        sql = f"UPDATE {table} SET said = ?, revision = ? WHERE id = ? AND said IS NOT ?"
        changed = self.db.execute(sql, (said, self.revision, key >> 1, said)).rowcount
        if changed and said is not None:
            sql = "UPDATE supersessions SET boundary = ? WHERE new = ? AND new_valid_from IS NULL"
            self.db.execute(sql, (said, key))
            sql = "SELECT old FROM supersessions WHERE new = ?"
            settle(self.db, [key, *(r[0] for r in self.db.execute(sql, (key,)))], self.revision)
        if not key & 1:
            self._rejoin(key >> 1, said)

    def _rejoin(self, thesis: int, said: str | None) -> None:
        """Keep only the edges to a thesis that its remaining episodes account for."""
        valid_from, valid_to = own_times(self.db, node_key(thesis))
        times = dict.fromkeys(thesis_times(said, valid_from, valid_to))
        sql = f"""SELECT e.id, n.text FROM edges e JOIN nodes n ON n.id = e.source
            WHERE e.target = ? AND e.type = {TIME_EDGE}"""
        joined = self.db.execute(sql, (thesis,)).fetchall()
        stale = [edge for edge, time in joined if time not in times]
        sql = f"""SELECT e.id FROM edges e WHERE e.target = ?1 AND e.type = {HYPER} AND NOT EXISTS
            (SELECT 1 FROM provenance p JOIN edges m ON m.target = p.episode AND m.source = e.source
            AND m.type = {EPISODIC_EDGE} WHERE p.fact = 2 * ?1)"""
        stale += [edge for (edge,) in self.db.execute(sql, (thesis,))]
        self._drop_edges("id", stale)
        for time in times.keys() - {time for _, time in joined}:
            self._join_time(time, thesis)

    def _join_time(self, iso: str, thesis: int) -> None:
        """Join the node of a time, which exists for an episode already, to a thesis."""
        sql = f"SELECT id FROM nodes WHERE hash = ? AND type = {TIME} AND text = ?"
        [time] = self.db.execute(sql, (text_hash(TIME, iso), iso)).fetchone()
        sql = "INSERT INTO edges (type, source, target, revision) VALUES (?, ?, ?, ?)"
        self.db.execute(sql, (TIME_EDGE, time, thesis, self.revision))

    # Names

    def _forget_names(self, episodes: list[int], objects: list[int]) -> None:
        """Drop spellings that occur in no other episode, and objects that then have no name."""
        sql = """SELECT DISTINCT s.alias FROM json_each(?) k
            JOIN sightings s ON s.episode = k.value"""
        seen = self._ids(sql, episodes)
        self._drop_rows("sightings", "episode", episodes)
        sql = """SELECT a.id FROM json_each(?) k JOIN aliases a ON a.id = k.value AND a.given = 0
            WHERE NOT EXISTS (SELECT 1 FROM sightings s WHERE s.alias = a.id)"""
        unseen = self._ids(sql, seen)
        sql = "SELECT a.id FROM json_each(?) k JOIN aliases a ON a.node = k.value"
        unseen = sorted({*unseen, *self._ids(sql, objects)})
        sql = "SELECT DISTINCT a.node FROM json_each(?) k JOIN aliases a ON a.id = k.value"
        nodes = self._ids(sql, unseen)
        self._drop_aliases(unseen)
        for node in nodes:
            self._rename(node)

    def _drop_aliases(self, ids: list[int]) -> None:
        index_aliases(self.db, ids, remove=True)
        self._drop_rows("aliases", "id", ids)
        self.counts["names"] += len(ids)

    def _rename(self, node: int) -> None:
        """Rename an object to a remaining spelling; drop it if there is none."""
        sql = "SELECT spelling FROM aliases WHERE node = ? ORDER BY id"
        spellings = [spelling for (spelling,) in self.db.execute(sql, (node,))]
        if not spellings:
            self._drop_edges("source", [node])
            self._drop_objects([node])
            return
        [name] = self.db.execute("SELECT text FROM nodes WHERE id = ?", (node,)).fetchone()
        if name not in spellings:
            sql = f"""SELECT 2 * id + 1 FROM edges
                WHERE type = {SIMPLE} AND (source = ?1 OR target = ?1)"""
            facts = [key for (key,) in self.db.execute(sql, (node,))]
            self._index(facts, remove=True)
            sql = "UPDATE nodes SET text = ?, revision = ? WHERE id = ?"
            self.db.execute(sql, (spellings[0], self.revision, node))
            self._index(facts)

    def _drop_objects(self, nodes: list[int]) -> None:
        self._drop_nodes(nodes)
        self.counts["objects"] += len(nodes)

    def _drop_lonely(self) -> None:
        """Drop objects and times that lost their last edge."""
        sql = """SELECT n.id FROM json_each(?) k
            JOIN nodes n ON n.id = k.value AND n.type = {type} WHERE NOT EXISTS
            (SELECT 1 FROM edges e WHERE e.source = n.id OR e.target = n.id)"""
        objects = self._ids(sql.format(type=OBJECT), self._near)
        alias = "SELECT a.id FROM json_each(?) k JOIN aliases a ON a.node = k.value"
        self._drop_aliases(self._ids(alias, objects))
        self._drop_objects(objects)
        self._drop_nodes(self._ids(sql.format(type=TIME), self._near))
