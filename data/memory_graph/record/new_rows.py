"""Buffer of a transaction's new rows, which are written together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from turngraph.data.memory_graph.memory_types import Episode
from turngraph.data.memory_graph.names import text_hash
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.record.facts import index_words

INSERTS = {
    "nodes": "INSERT INTO nodes (id, type, hash, said, valid_from, valid_to, hypothesis, revision,"
    " text) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "edges": "INSERT INTO edges (id, type, source, target, relation, said, valid_from, valid_to,"
    " hypothesis, revision) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "episodes": "INSERT INTO episodes (node, source, origin, speaker, extractor, properties)"
    " VALUES (?, ?, ?, ?, ?, ?)",
    "aliases": "INSERT INTO aliases (id, alias, spelling, node) VALUES (?, ?, ?, ?)",
    "sightings": "INSERT INTO sightings VALUES (?, ?) ON CONFLICT DO NOTHING",
    "provenance": "INSERT INTO provenance VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
}
WORDS = ("name_words", "fact_words")
"""The word indexes."""
FACT_TABLES = ("nodes", "edges", "episodes", "aliases", "provenance")
"""Tables that are read to find the facts around a new fact."""
Held = tuple[str | None, str | None, str | None, bool]
"""said, valid_from, valid_to, hypothesis."""
UNTIMED: Held = (None, None, None, False)


class NewRows:
    """New rows of one transaction. It assigns their ids, as no other process writes meanwhile.

    Args:
        db: the record, in a write transaction.
        revision: revision of the write.
    """

    def __init__(self, db: Database, revision: int) -> None:
        self.db, self.revision = db, revision
        self._new: dict[str, list[tuple[Any, ...]]] = {t: [] for t in (*INSERTS, *WORDS)}
        last = db.last_ids()
        self._last = {table: last.get(table, 0) for table in ("nodes", "edges", "aliases")}
        self.first_node = self.next_id("nodes")

    def next_id(self, table: str) -> int:
        """Return the id of the table's next row."""
        return self._last[table] + 1

    def _id(self, table: str) -> int:
        self._last[table] += 1
        return self._last[table]

    def node(self, type: int, text: str, held: Held = UNTIMED) -> int:
        """Add a node and return its id."""
        node = self._id("nodes")
        row = (node, type, text_hash(type, text), *held, self.revision, text)
        self._new["nodes"].append(row)
        return node

    def edge(
        self, type: int, source: int, target: int, relation: str | None = None,
        held: Held = UNTIMED,
    ) -> int:  # fmt: skip
        """Add an edge and return its id."""
        edge = self._id("edges")
        row = (edge, type, source, target, relation, *held, self.revision)
        self._new["edges"].append(row)
        return edge

    def alias(self, alias: str, spelling: str, node: int) -> int:
        """Add a name of an object, indexed by its words, and return its id."""
        alias_id = self._id("aliases")
        self._new["aliases"].append((alias_id, alias, spelling, node))
        self._new["name_words"].append((alias_id, index_words(spelling)))
        return alias_id

    def episode(self, node: int, episode: Episode, extractor: str) -> None:
        """Add the fields of an episode other than its text."""
        properties = self.db.as_json(json.dumps(dict(episode.properties), ensure_ascii=False))
        row = (node, episode.source, episode.origin, episode.speaker, extractor, properties)
        self._new["episodes"].append(row)

    def sighting(self, alias: int, episode: int) -> None:
        """Note that an episode contains a spelling of a name."""
        self._new["sightings"].append((alias, episode))

    def provenance(self, fact: int, episode: int, start: int, stop: int) -> None:
        """Add a span of an episode that states a fact."""
        self._new["provenance"].append((fact, episode, start, stop))

    def words(self, fact: int, text: str) -> None:
        """Index the words of a fact."""
        self._new["fact_words"].append((fact, index_words(text)))

    def flush(self, tables: Sequence[str] = (*INSERTS, *WORDS)) -> None:
        """Write the buffered rows of these tables; call it before they are read."""
        for table in tables:
            if rows := self._new[table]:
                if table in WORDS:
                    self.db.words.add(table, rows)
                else:
                    self.db.executemany(INSERTS[table], rows)
                rows.clear()
        if set(WORDS) <= set(tables):  # all tables are flushed
            self.db.set_last_ids(self._last)
