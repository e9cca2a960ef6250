"""Random writes to a record, straight into its tables, and what they mean, told by plain SQL."""

from __future__ import annotations

import random
from pathlib import Path

from turngraph.data.memory_graph.memory_types import (
    EPISODIC,
    EPISODIC_EDGE,
    HYPER,
    OBJECT,
    SIMPLE,
    THESIS,
    TIME,
    TIME_EDGE,
    edge_key,
    node_key,
)
from turngraph.data.memory_graph.names import alias
from turngraph.data.memory_graph.record.facts import index_aliases, index_facts
from turngraph.data.memory_graph.record.store import Store
from turngraph.data.memory_graph.times import start

WORDS = "anna bruno clara paris berlin cat dog red blue runs sings reads".split()


class RandomRecord:
    """A store and a hand that writes into it.

    Args:
        path: of the database.
        seed: of everything drawn.
    """

    def __init__(self, path: Path, seed: int = 0) -> None:
        self.store, self.rng = Store(path), random.Random(seed)
        self.db = self.store.db

    def text(self) -> str:
        return " ".join(self.rng.choices(WORDS, k=3)) + f" {self.rng.randrange(1000)}"

    def span(self) -> tuple[str | None, str | None]:
        if self.rng.random() < 0.6:
            return None, None
        first = self.rng.randrange(1990, 2010)
        return self.rng.choice([(str(first), None), (None, f"{first}-06"), (f"{first}", "2015")])

    def node(self, revision: int, type: int, text: str | None = None) -> int:
        span = self.span() if type == THESIS else (None, None)
        sql = (
            "INSERT INTO nodes (type, text, valid_from, valid_to, revision) VALUES (?, ?, ?, ?, ?)"
            " RETURNING id"
        )
        text = self.text() if text is None else text
        [number] = self.db.execute(sql, (type, text, *span, revision)).fetchone()
        if type in (THESIS, EPISODIC):
            index_facts(self.db, [node_key(number)])
        if type == EPISODIC:
            sql = "INSERT INTO episodes (node, extractor) VALUES (?, 'none')"
            self.db.execute(sql, (number,))
        if type == OBJECT:
            self.alias(number, text)
        return number

    def alias(self, node: int, name: str) -> None:
        sql = "INSERT INTO aliases (alias, spelling, node) VALUES (?, ?, ?) RETURNING id"
        index_aliases(self.db, self.db.execute(sql, (alias(name), name, node)).fetchone())

    def edge(self, revision: int, type: int, source: int, target: int) -> int:
        simple = type == SIMPLE
        span = self.span() if simple else (None, None)
        sql = """INSERT INTO edges (type, source, target, relation, valid_from, valid_to, revision)
            VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id"""
        row = (type, source, target, "likes" if simple else None, *span, revision)
        [number] = self.db.execute(sql, row).fetchone()
        if simple:
            index_facts(self.db, [edge_key(number)])
        return number

    def some(self, *types: int) -> int | None:
        sql = f"SELECT id FROM nodes WHERE type IN ({','.join(map(str, types))})"
        found = [number for (number,) in self.db.execute(sql)]
        return self.rng.choice(found) if found else None

    def add(self, revision: int) -> None:
        for type in (OBJECT, OBJECT, THESIS, EPISODIC, TIME):
            self.node(revision, type)
        for _ in range(3):
            self.edge(revision, SIMPLE, self.some(OBJECT), self.some(OBJECT))
            self.edge(revision, HYPER, self.some(OBJECT), self.some(THESIS))
            self.edge(revision, EPISODIC_EDGE, self.some(OBJECT, THESIS), self.some(EPISODIC))
            self.edge(revision, TIME_EDGE, self.some(TIME), self.some(THESIS, EPISODIC))

    def close(self, revision: int) -> None:
        """A thesis and a simple triplet stop holding."""
        sql = "UPDATE nodes SET valid_to = '2005', revision = ? WHERE id = ?"
        self.db.execute(sql, (revision, self.some(THESIS)))
        sql = f"""UPDATE edges SET valid_to = '2005', revision = ? WHERE type = {SIMPLE} AND id IN
            (SELECT id FROM edges WHERE type = {SIMPLE} ORDER BY (id * ?) % 17 LIMIT 1)"""
        self.db.execute(sql, (revision, self.rng.randrange(17)))

    def drop_edge(self, revision: int, number: int) -> None:
        if (
            self.db.execute("SELECT type FROM edges WHERE id = ?", (number,)).fetchone()[0]
            == SIMPLE
        ):
            index_facts(self.db, [edge_key(number)], remove=True)
        self.db.execute("DELETE FROM edges WHERE id = ?", (number,))
        self.db.execute("INSERT INTO removed VALUES (1, ?, ?)", (number, revision))

    def drop_node(self, revision: int, number: int) -> None:
        """A thesis or an episode is forgotten, and what is joined to it."""
        sql = "SELECT id FROM edges WHERE source = ?1 OR target = ?1"
        for (edge,) in self.db.execute(sql, (number,)).fetchall():
            self.drop_edge(revision, edge)
        index_facts(self.db, [node_key(number)], remove=True)
        self.db.execute("DELETE FROM episodes WHERE node = ?", (number,))
        self.db.execute("DELETE FROM nodes WHERE id = ?", (number,))
        self.db.execute("INSERT INTO removed VALUES (0, ?, ?)", (number, revision))

    def forget(self, revision: int) -> None:
        self.drop_node(revision, self.some(THESIS, EPISODIC))

    def merge(self, revision: int) -> None:
        """Everything at one object goes to another; the one is removed."""
        keep, other = self.some(OBJECT), self.some(OBJECT)
        if keep == other:
            return
        sql = "SELECT 2 * id + 1 FROM edges WHERE type = 0 AND (source = ?1 OR target = ?1)"
        keys = [key for (key,) in self.db.execute(sql, (other,))]
        index_facts(self.db, keys, remove=True)
        for end in ("source", "target"):
            sql = f"UPDATE edges SET {end} = ?, revision = ? WHERE {end} = ?"
            self.db.execute(sql, (keep, revision, other))
        self.db.execute("UPDATE aliases SET node = ? WHERE node = ?", (keep, other))
        self.db.execute("DELETE FROM nodes WHERE id = ?", (other,))
        self.db.execute("INSERT INTO removed VALUES (0, ?, ?)", (other, revision))
        index_facts(self.db, keys)

    def rename(self, revision: int) -> None:
        node, name = self.some(OBJECT), self.text()
        sql = "SELECT 2 * id + 1 FROM edges WHERE type = 0 AND (source = ?1 OR target = ?1)"
        keys = [key for (key,) in self.db.execute(sql, (node,))]
        index_facts(self.db, keys, remove=True)
        sql = "UPDATE nodes SET text = ?, revision = ? WHERE id = ?"
        self.db.execute(sql, (name, revision, node))
        index_facts(self.db, keys)

    def write(self, times: int = 1) -> None:
        """Some random writes, each a revision."""
        for _ in range(times):
            action = self.rng.choice(
                [self.add, self.add, self.close, self.forget, self.merge, self.rename]
            )
            if self.some(EPISODIC) is None or self.some(THESIS) is None:
                action = self.add
            with self.store.writing() as revision:
                action(revision)

    def around(
        self, node: int, as_of: int, forbidden: tuple[int, ...] = ()
    ) -> list[tuple[int, int]]:
        """Triplets at a node and their other ends, as the definition says: one row at a time."""
        found = []
        sql = "SELECT id, source, target, valid_from, valid_to FROM edges ORDER BY id"
        for edge, source, target, *span in self.db.execute(sql).fetchall():
            if node not in (source, target):
                continue
            other = target if source == node else source
            ends = [self._row(source), self._row(target)]
            spans = [span, *(row[1:] for row in ends)]
            if self._row(other)[0] not in forbidden and all(_holds(s, as_of) for s in spans):
                found.append((edge, other))
        return found

    def _row(self, node: int) -> tuple[int, str | None, str | None]:
        sql = "SELECT type, valid_from, valid_to FROM nodes WHERE id = ?"
        return self.db.execute(sql, (node,)).fetchone()


def _holds(span: tuple[str | None, str | None], second: int) -> bool:
    since, until = span
    return (since is None or start(since) <= second) and (until is None or second < start(until))
