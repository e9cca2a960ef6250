"""Who is joined to whom: CSR arrays over node ids, and a small delta of what came since.

SQL is the record. The arrays show one revision of it and say which; ``refresh`` brings them to the
record's by reading only what was written or removed in between.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import NamedTuple

import numpy as np

from turngraph.data.memory_graph.memory_types import OBJECT, SIMPLE, THESIS
from turngraph.data.memory_graph.recall.csr import (
    ALWAYS,
    BOUNDED,
    EDGE_COLUMNS,
    GONE,
    LOOSE,
    NODE_COLUMNS,
    TYPE,
    Columns,
    grow,
    make_csr,
    read_columns,
    seconds,
)
from turngraph.data.memory_graph.recall.derived_files import (
    State,
    locked,
    read_arrays,
    record_state,
    shows,
    write_arrays,
)
from turngraph.data.memory_graph.recall.hub_cache import Hub, HubCache

NAME = "adjacency"
MAX_DELTA, MAX_DELTA_SHARE = 20_000, 0.1
"""The delta is folded into the CSR when it has more edges than both of these."""

Rows = tuple[np.ndarray, ...]
"""Columns of one length."""


class Moment(NamedTuple):
    """What may be walked.

    Args:
        as_of: seconds; what holds then.
        forbidden: node types that are not walked to.
        free: nodes that are walked to whatever their type.
    """

    as_of: int
    forbidden: tuple[int, ...] = ()
    free: tuple[int, ...] = ()


class Adjacency:
    """The joins of a memory graph at one revision.

    Args:
        db: the record; ``refresh`` reads it, inside the caller's read transaction.
        folder: ``<db>.derived``.
        writable: False keeps everything in memory.
    """

    def __init__(self, db: sqlite3.Connection, folder: Path, writable: bool = True) -> None:
        self.db, self.folder, self.writable = db, folder, writable
        self._state = State()
        self._hubs = HubCache()
        found = read_arrays(folder, NAME)
        if found is not None:
            manifest, arrays = found
            nodes = {name: arrays[f"node_{name}"] for name in NODE_COLUMNS}
            self._use(nodes, {name: arrays[f"edge_{name}"] for name in EDGE_COLUMNS}, arrays)
            self._state = State.told_by(manifest)

    def _use(self, nodes: Columns, edges: Columns, csr: Columns) -> None:
        self.nodes, self.edges = nodes, edges
        self._starts, self._triplets, self._others = csr["starts"], csr["triplets"], csr["others"]
        self._delta: dict[int, dict[int, int]] = {}  # node: edge: the node at its other end
        self._delta_rows: dict[int, np.ndarray] = {}  # node: edges, rising, and their other ends
        self._in_delta = np.zeros(len(nodes["type"]), dtype=bool)
        self._num_loose = 0
        self._hubs.clear()

    @property
    def revision(self) -> int:
        """Of the record, which the arrays show; -1 where there are none yet."""
        return self._state.revision

    @property
    def node_types(self) -> np.ndarray:
        """int8 by node id, -1 where there is none."""
        return self.nodes["type"]

    def refresh(self) -> int:
        """Show the record's revision, which is returned; makes the arrays where there are none."""
        state = record_state(self.db)
        if state == self._state:
            return state.revision
        if self.revision < 0 or not shows(self.db, self._state):  # none yet, or another record's
            nodes, edges = read_columns(self.db)
            self._use(nodes, edges, make_csr(len(nodes["type"]), edges))
            self._state = state
            self._write()
            return state.revision
        self._read_changes()
        self._state = state
        if self._num_loose > max(MAX_DELTA, MAX_DELTA_SHARE * len(self._triplets) / 2):
            self.fold()
        return state.revision

    def fold(self) -> None:
        """Make one CSR of CSR and delta, and write it."""
        self.edges["flags"] &= np.uint8(~LOOSE & 0xFF)
        self._use(self.nodes, self.edges, make_csr(len(self.node_types), self.edges))
        self._write()

    def _write(self) -> None:
        if not self.writable:
            return
        with locked(self.folder) as mine:
            if mine:
                arrays = {f"node_{name}": column for name, column in self.nodes.items()}
                arrays |= {f"edge_{name}": column for name, column in self.edges.items()}
                csr = {"starts": self._starts, "triplets": self._triplets, "others": self._others}
                write_arrays(self.folder, NAME, self._state._asdict(), arrays | csr)

    def _read_changes(self) -> None:
        self._hubs.clear()
        since = (self.revision,)
        sql = "SELECT kind, id FROM removed WHERE revision > ?"
        for kind, number in self.db.execute(sql, since):
            if kind == 0 and number < len(self.node_types):
                self.nodes["type"][number] = -1
                self.nodes["since"][number], self.nodes["until"][number] = ALWAYS
            elif kind == 1 and number < len(self.edges["flags"]):
                self._drop(number)
                self.edges["since"][number], self.edges["until"][number] = ALWAYS
        sql = "SELECT id, type, valid_from, valid_to FROM nodes WHERE revision > ?"
        # with ORDER BY id SQLite reads through all nodes instead of the index by revision
        changed = sorted(self.db.execute(sql, since))
        for number, kind, valid_from, valid_to in changed:
            self._put_node(number, kind, *seconds(valid_from, valid_to))
        self._read_edges("revision > ?1", self.revision)
        for number, kind, *_ in changed:
            if kind == THESIS:  # its times are those of the edges at it
                self._read_edges("source = ?1 OR target = ?1", number)

    def _put_node(self, number: int, kind: int, since: int, until: int) -> None:
        grow(self.nodes, NODE_COLUMNS, number + 1)
        grown = len(self.node_types) - len(self._in_delta)
        if grown:
            self._in_delta = np.pad(self._in_delta, (0, grown))
        self.nodes["type"][number] = kind
        self.nodes["since"][number], self.nodes["until"][number] = since, until

    def _read_edges(self, condition: str, value: int) -> None:
        sql = f"SELECT id, type, source, target, valid_from, valid_to FROM edges WHERE {condition}"
        starts, stops = self.nodes["since"], self.nodes["until"]
        for number, kind, *ends, valid_from, valid_to in self.db.execute(sql, (value,)):
            grow(self.edges, EDGE_COLUMNS, number + 1)
            since, until = seconds(valid_from, valid_to)
            since = max(since, *(int(starts[end]) for end in ends))
            until = min(until, *(int(stops[end]) for end in ends))
            self.edges["since"][number], self.edges["until"][number] = since, until
            self._put_edge(number, kind | BOUNDED * ((since, until) != ALWAYS), *ends)

    def _put_edge(self, number: int, flags: int, source: int, target: int) -> None:
        edges, old = self.edges, int(self.edges["flags"][number])
        unmoved = edges["source"][number] == source and edges["target"][number] == target
        if unmoved and not old & GONE:
            edges["flags"][number] = flags | old & LOOSE
            return
        self._drop(number)
        edges["fact"][number] = 2 * number + 1 if flags & TYPE == SIMPLE else 2 * target
        edges["flags"][number] = flags | LOOSE
        edges["source"][number], edges["target"][number] = source, target
        self._num_loose += 1
        for node, other in ((source, target), (target, source)):
            self._delta.setdefault(node, {})[number] = other
            self._delta_rows.pop(node, None)
            self._in_delta[node] = True

    def _drop(self, number: int) -> None:
        edges = self.edges
        if edges["flags"][number] & LOOSE:
            self._num_loose -= 1
            for node in {int(edges["source"][number]), int(edges["target"][number])}:
                del self._delta[node][number]
                self._delta_rows.pop(node, None)
        edges["flags"][number] = GONE

    def degrees(self, nodes: np.ndarray) -> np.ndarray:
        """How many triplets the CSR has at each node, allowed or not; int64."""
        begin, end = self._bounds(nodes)
        return end - begin

    def _bounds(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the CSR has what is at each node; nowhere if the node is newer."""
        last = len(self._starts) - 1
        return self._starts[np.minimum(nodes, last)], self._starts[np.minimum(nodes + 1, last)]

    def around_all(
        self, nodes: np.ndarray, moment: Moment
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Triplets at many nodes, their ends there and their other ends, as of ``view.View``.

        Args:
            nodes: int64, each once.
            moment: what may be walked.
        """
        found = self._allowed(self._settled(nodes), moment)
        if self._in_delta[nodes].any():
            found = _merged(found, self._allowed(self._loose(nodes), moment, GONE))
        triplets, owners, others = found
        return triplets, nodes[owners], others

    def hub(self, node: int, moment: Moment) -> Hub:
        """``around_all`` and ``fact_keys`` of one node, kept until the revision changes.

        Args:
            node: best one with many triplets.
            moment: what may be walked; what it forbids is not kept.
        """
        hub = None if moment.forbidden else self._hubs.get(node, moment.as_of)
        if hub is None:
            nodes = np.array([node])
            found = self.around_all(nodes, moment)
            hub = Hub(*found, self.fact_keys(found[0]), *self._unchanged(nodes, moment.as_of))
            if not moment.forbidden:
                self._hubs.keep(node, hub)
        return hub

    def _unchanged(self, nodes: np.ndarray, as_of: int) -> tuple[int, int]:
        """Seconds around one, between which the same triplets at nodes hold."""
        triplets = np.concatenate([self._settled(nodes)[0], self._loose(nodes)[0]])
        timed = triplets[self.edges["flags"][triplets] & BOUNDED > 0]
        changes = np.concatenate([self.edges["since"][timed], self.edges["until"][timed]])
        past = changes <= as_of
        since = changes[past].max(initial=ALWAYS[0])
        return int(since), int(changes[~past].min(initial=ALWAYS[1]))

    def _settled(self, nodes: np.ndarray) -> Rows:
        """What the CSR has: triplets, the places in ``nodes`` of their ends, their other ends."""
        begin, end = self._bounds(nodes)
        counts = end - begin
        owners = np.repeat(np.arange(len(nodes)), counts)
        if len(nodes) == 1:
            places = slice(begin[0], end[0])
        else:
            places = np.arange(counts.sum()) + (end - counts.cumsum())[owners]
        return _int64(self._triplets[places]), owners, _int64(self._others[places])

    def _loose(self, nodes: np.ndarray) -> Rows:
        """What the delta has, as ``_settled``."""
        places = np.flatnonzero(self._in_delta[nodes])
        rows = [self._loose_at(node) for node in nodes[places].tolist()]
        owners = np.repeat(places, [row.shape[1] for row in rows])
        triplets, others = np.concatenate([np.empty((2, 0), np.int64), *rows], axis=1)
        return triplets, owners, others

    def _loose_at(self, node: int) -> np.ndarray:
        """The triplets of the delta at a node, rising, and their other ends; [2, k]."""
        if node not in self._delta_rows:
            pairs = sorted(self._delta[node].items())
            self._delta_rows[node] = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        return self._delta_rows[node]

    def _allowed(self, rows: Rows, moment: Moment, end: int = LOOSE) -> Rows:
        """Of rows of triplets, ..., others those that may be walked.

        Args:
            rows: columns of one length.
            moment: what may be walked.
            end: flags from here on say that a row is not meant.
        """
        triplets, others = rows[0], rows[-1]
        flags = self.edges["flags"][triplets]
        if flags.max(initial=0) < BOUNDED and not moment.forbidden:
            return rows
        keep = flags < end
        self._keep_held(keep, triplets, flags, moment.as_of)
        if moment.forbidden:
            keep &= ~_among(self.node_types[others], moment.forbidden) | _among(others, moment.free)
        if keep.all():
            return rows
        kept = np.flatnonzero(keep)
        return tuple(column[kept] for column in rows)

    def _keep_held(
        self, keep: np.ndarray, triplets: np.ndarray, flags: np.ndarray, as_of: int
    ) -> None:
        """Of what is kept, keep only what holds at a second."""
        bounded = np.flatnonzero(flags & BOUNDED)
        timed = triplets[bounded]
        since, until = self.edges["since"][timed], self.edges["until"][timed]
        keep[bounded] &= (since <= as_of) & (as_of < until)

    def holds(self, triplets: np.ndarray, as_of: int) -> np.ndarray:
        """Whether each triplet is there and holds at a second; bool [k]."""
        flags = self.edges["flags"][triplets]
        held = flags < GONE
        self._keep_held(held, triplets, flags, as_of)
        return held

    def facts_allowed(self, keys: np.ndarray, moment: Moment) -> np.ndarray:
        """Whether each fact holds and is not forbidden; simple triplets are, where objects are."""
        simple = keys % 2 == 1
        number = keys // 2
        allowed = np.zeros(len(keys), dtype=bool)
        if OBJECT not in moment.forbidden:
            allowed[simple] = self.holds(number[simple], moment.as_of)
        nodes = number[~simple]
        since, until = self.nodes["since"][nodes], self.nodes["until"][nodes]
        held = (since <= moment.as_of) & (moment.as_of < until) & (self.node_types[nodes] >= 0)
        allowed[~simple] = held & ~_among(self.node_types[nodes], moment.forbidden)
        return allowed

    def types(self, triplets: np.ndarray) -> np.ndarray:
        """Edge type of each triplet, int8."""
        return (self.edges["flags"][triplets] & TYPE).astype(np.int8)

    def ends(self, triplets: np.ndarray) -> np.ndarray:
        """Source and target of each triplet, int64 [k, 2]."""
        pair = self.edges["source"][triplets], self.edges["target"][triplets]
        return np.stack(pair, axis=1).astype(np.int64)

    def fact_keys(self, triplets: np.ndarray) -> np.ndarray:
        """The fact that each triplet reads as, int64."""
        return self.edges["fact"][triplets].astype(np.int64)


def _int64(column: np.ndarray) -> np.ndarray:
    return column.astype(np.int64)


def _merged(one: Rows, two: Rows) -> Rows:
    """Rows of triplets, owners and others, both by owner, then by triplet; ``two`` is small."""
    orders = [owners << 32 | triplets for triplets, owners, _ in (one, two)]
    places = np.searchsorted(*orders)
    return tuple(np.insert(old, places, new) for old, new in zip(one, two, strict=True))


def _among(values: np.ndarray, few: tuple[int, ...]) -> np.ndarray:
    """Faster than ``np.isin`` for a handful."""
    found = np.zeros(len(values), dtype=bool)
    for value in few:
        found |= values == value
    return found
