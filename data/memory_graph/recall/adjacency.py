"""Adjacency of the memory graph: CSR arrays over node ids and a small delta of newer edges.

The SQL database is the record; the arrays represent one revision of it. ``refresh`` brings them to
the record's revision, and reads only what was written or removed in between.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

import numpy as np

from turngraph.data.memory_graph.memory_types import EPISODIC, OBJECT, SIMPLE, THESIS
from turngraph.data.memory_graph.recall.csr import (
    ALWAYS,
    BOUNDED,
    EDGE_COLUMNS,
    GONE,
    LOOSE,
    NODE_COLUMNS,
    TYPE,
    Columns,
    fit_together,
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
from turngraph.data.memory_graph.record.database import Database

logger = logging.getLogger(__name__)

NAME = "adjacency"
NAMES = {
    *(f"node_{name}" for name in NODE_COLUMNS), *(f"edge_{name}" for name in EDGE_COLUMNS),
    "starts", "triplets", "others",
}  # fmt: skip
"""Names of the arrays."""
MAX_DELTA, MAX_DELTA_SHARE = 20_000, 0.1
"""The delta is folded into the CSR when it has more edges than both of these."""

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Three int64 columns [k]: triplets at some nodes, the node of each, and the node at its other
end."""


class Moment(NamedTuple):
    """Restrictions of a walk.

    Args:
        as_of: second, counted from 1970 in UTC, at which a fact must hold.
        forbidden: node types that are not walked to.
        free: nodes that may be walked to even if their type is forbidden.
    """

    as_of: int
    forbidden: tuple[int, ...] = ()
    free: tuple[int, ...] = ()


class Adjacency:
    """The edges of a memory graph by node, at one revision.

    Args:
        db: the record; ``refresh`` reads it, inside the caller's read transaction.
        folder: ``<db>.derived``.
        writable: whether to write the arrays to ``folder``; otherwise they stay in memory.
    """

    def __init__(self, db: Database, folder: Path, writable: bool = True) -> None:
        self.db, self.folder, self.writable = db, folder, writable
        self._state = State()
        self._hubs = HubCache()
        stored = read_arrays(folder, NAME)
        if stored is not None and stored[1].keys() >= NAMES:
            manifest, arrays = stored
            nodes = {name: arrays[f"node_{name}"] for name in NODE_COLUMNS}
            edges = {name: arrays[f"edge_{name}"] for name in EDGE_COLUMNS}
            if fit_together(nodes, edges, arrays):
                self._use(nodes, edges, arrays)
                self._state = State.of(manifest)
            else:
                logger.warning("%s: its arrays are corrupt and will be rebuilt", folder)

    def _use(self, nodes: Columns, edges: Columns, csr: Columns) -> None:
        self.nodes, self.edges = nodes, edges
        self._starts, self._triplets, self._others = csr["starts"], csr["triplets"], csr["others"]
        self._delta: dict[int, dict[int, int]] = {}  # node: edge: the node at its other end
        self._delta_rows: dict[int, np.ndarray] = {}  # node: sorted edges and their other ends
        self._in_delta = np.zeros(len(nodes["type"]), dtype=bool)
        self._num_loose = 0
        self._unchanging = 0, 0  # seconds in which no row begins or ceases to hold
        self._hubs.clear()

    @property
    def revision(self) -> int:
        """Revision of the record that the arrays represent; -1 before the first ``refresh``."""
        return self._state.revision

    @property
    def state(self) -> State:
        """State of the record that the arrays represent."""
        return self._state

    def holds_until(self, second: int) -> float:
        """Return a second until which the same nodes and edges hold as at ``second``.

        This is the next second at which a node or an edge begins or ceases to hold; it may be
        earlier if rows were removed. The result is cached, and ``refresh`` adapts it to new rows,
        so all rows are seldom read.
        """
        since, until = self._unchanging
        if not since <= second < until:
            columns = (
                rows[name] for rows in (self.nodes, self.edges) for name in ("since", "until")
            )
            until = int(min(np.min(c, where=c > second, initial=ALWAYS[1]) for c in columns))
            self._unchanging = second, until
        return float("inf") if until == ALWAYS[1] else float(until)

    def _note_times(self, interval: tuple[int, int]) -> None:
        """Shorten the interval without changes if a row's interval begins or ends within it."""
        since, until = self._unchanging
        within = (time for time in interval if since < time < until)
        self._unchanging = since, min(within, default=until)

    @property
    def node_types(self) -> np.ndarray:
        """Type of each node by id, int8; -1 where there is none."""
        return self.nodes["type"]

    def refresh(self) -> int:
        """Bring the arrays to the record's revision and return it; build them if need be."""
        state = record_state(self.db)
        if state == self._state:
            return state.revision
        if self.revision < 0 or not shows(self.db, self._state):  # not built, or another record's
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
        """Merge the delta into the CSR and write it."""
        self.edges["flags"] &= np.uint8(~LOOSE & 0xFF)
        self._use(self.nodes, self.edges, make_csr(len(self.node_types), self.edges))
        self._write()

    def _write(self) -> None:
        if not self.writable:
            return
        with locked(self.folder) as is_mine:
            if is_mine:
                arrays = {f"node_{name}": column for name, column in self.nodes.items()}
                arrays |= {f"edge_{name}": column for name, column in self.edges.items()}
                csr = {"starts": self._starts, "triplets": self._triplets, "others": self._others}
                try:
                    write_arrays(self.folder, NAME, self._state._asdict(), arrays | csr)
                except OSError as error:
                    reason = error.strerror
                    logger.warning("%s: the arrays stay in memory: %s", self.folder, reason)

    def _read_changes(self) -> None:
        self._hubs.clear()
        since = (self.revision,)
        sql = "SELECT kind, id FROM removed WHERE revision > ?"
        for kind, i in self.db.execute(sql, since):
            if kind == 0 and i < len(self.node_types):
                self.nodes["type"][i] = -1
                self.nodes["since"][i], self.nodes["until"][i] = ALWAYS
            elif kind == 1 and i < len(self.edges["flags"]):
                self._drop(i)
                self.edges["since"][i], self.edges["until"][i] = ALWAYS
        sql = "SELECT id, type, valid_from, valid_to FROM nodes WHERE revision > ?"
        # with ORDER BY id SQLite reads through all nodes instead of the index by revision
        changed = sorted(self.db.execute(sql, since))
        for i, kind, valid_from, valid_to in changed:
            self._put_node(i, kind, seconds(valid_from, valid_to))
        self._read_edges("revision > ?1", self.revision)
        for i, kind, *_ in changed:
            if kind == THESIS:  # a thesis passes its times on to its edges
                self._read_edges("source = ?1 OR target = ?1", i)

    def _put_node(self, i: int, kind: int, interval: tuple[int, int]) -> None:
        grow(self.nodes, NODE_COLUMNS, i + 1)
        grown = len(self.node_types) - len(self._in_delta)
        if grown:
            self._in_delta = np.pad(self._in_delta, (0, grown))
        self.nodes["type"][i] = kind
        self.nodes["since"][i], self.nodes["until"][i] = interval
        self._note_times(interval)

    def _read_edges(self, condition: str, value: int) -> None:
        sql = f"SELECT id, type, source, target, valid_from, valid_to FROM edges WHERE {condition}"
        starts, stops = self.nodes["since"], self.nodes["until"]
        for i, kind, source, target, valid_from, valid_to in self.db.execute(sql, (value,)):
            grow(self.edges, EDGE_COLUMNS, i + 1)
            since, until = seconds(valid_from, valid_to)
            since = max(since, int(starts[source]), int(starts[target]))
            until = min(until, int(stops[source]), int(stops[target]))
            self.edges["since"][i], self.edges["until"][i] = since, until
            self._note_times((since, until))
            flags = kind | BOUNDED * ((since, until) != ALWAYS)
            self._put_edge(i, flags=flags, source=source, target=target)

    def _put_edge(self, i: int, *, flags: int, source: int, target: int) -> None:
        edges, old = self.edges, int(self.edges["flags"][i])
        unmoved = edges["source"][i] == source and edges["target"][i] == target
        if unmoved and not old & GONE:
            edges["flags"][i] = flags | old & LOOSE
            return
        self._drop(i)
        edges["fact"][i] = 2 * i + 1 if flags & TYPE == SIMPLE else 2 * target
        edges["flags"][i] = flags | LOOSE
        edges["source"][i], edges["target"][i] = source, target
        self._num_loose += 1
        for node, other in ((source, target), (target, source)):
            self._delta.setdefault(node, {})[i] = other
            self._delta_rows.pop(node, None)
            self._in_delta[node] = True

    def _drop(self, i: int) -> None:
        edges = self.edges
        if edges["flags"][i] & LOOSE:
            self._num_loose -= 1
            for node in {int(edges["source"][i]), int(edges["target"][i])}:
                del self._delta[node][i]
                self._delta_rows.pop(node, None)
        edges["flags"][i] = GONE

    def degrees(self, nodes: np.ndarray) -> np.ndarray:
        """Return the degree of each node in the CSR, including triplets that do not hold; int64."""
        begin, end = self._bounds(nodes)
        return np.asarray(end - begin)

    def _bounds(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the CSR range of each node, which is empty for a node newer than the CSR."""
        last = len(self._starts) - 1
        return self._starts[np.minimum(nodes, last)], self._starts[np.minimum(nodes + 1, last)]

    def around_all(self, nodes: np.ndarray, moment: Moment) -> Rows:
        """Return the triplets at many nodes as ``view.View.around_all`` does.

        Args:
            nodes: int64, each once.
            moment: restrictions of the walk.
        """
        rows = self._allowed(self._settled(nodes), moment)
        if self._in_delta[nodes].any():
            rows = _merged(rows, self._allowed(self._loose(nodes), moment, first_excluded=GONE))
        triplets, owners, others = rows
        return triplets, nodes[owners], others

    def hub(self, node: int, moment: Moment) -> Hub:
        """Return ``around_all`` and ``fact_keys`` of one node, cached until the revision changes.

        Args:
            node: a node with many triplets, for which the cache is worthwhile.
            moment: restrictions of the walk; a hub with forbidden node types is not cached.
        """
        hub = None if moment.forbidden else self._hubs.get(node, moment.as_of)
        if hub is None:
            nodes = np.array([node])
            triplets, ends, others = self.around_all(nodes, moment)
            since, until = self._unchanged(nodes, moment.as_of)
            keys = self.fact_keys(triplets)
            hub = Hub(triplets, ends, others, keys, since=since, until=until)
            if not moment.forbidden:
                self._hubs.keep(node, hub)
        return hub

    def _unchanged(self, nodes: np.ndarray, as_of: int) -> tuple[int, int]:
        """Return the interval around a second in which the same triplets at the nodes hold."""
        triplets = np.concatenate([self._settled(nodes)[0], self._loose(nodes)[0]])
        timed = triplets[self.edges["flags"][triplets] & BOUNDED > 0]
        changes = np.concatenate([self.edges["since"][timed], self.edges["until"][timed]])
        past = changes <= as_of
        since = changes[past].max(initial=ALWAYS[0])
        return int(since), int(changes[~past].min(initial=ALWAYS[1]))

    def _settled(self, nodes: np.ndarray) -> Rows:
        """Return the CSR's triplets, the index in ``nodes`` of each one's end, the other ends."""
        begin, end = self._bounds(nodes)
        counts = end - begin
        owners = np.repeat(np.arange(len(nodes)), counts)
        index: slice | np.ndarray
        if len(nodes) == 1:
            index = slice(begin[0], end[0])
        else:
            index = np.arange(counts.sum()) + (end - counts.cumsum())[owners]
        return _int64(self._triplets[index]), owners, _int64(self._others[index])

    def _loose(self, nodes: np.ndarray) -> Rows:
        """Return the delta's triplets in the form of ``_settled``."""
        index = np.flatnonzero(self._in_delta[nodes])
        rows = [self._loose_at(node) for node in nodes[index].tolist()]
        owners = np.repeat(index, [row.shape[1] for row in rows])
        triplets, others = np.concatenate([np.empty((2, 0), np.int64), *rows], axis=1)
        return triplets, owners, others

    def _loose_at(self, node: int) -> np.ndarray:
        """Return the delta's triplets at a node, sorted, and their other ends; int64 [2, k]."""
        if node not in self._delta_rows:
            pairs = sorted(self._delta[node].items())
            self._delta_rows[node] = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        return self._delta_rows[node]

    def _allowed(self, rows: Rows, moment: Moment, first_excluded: int = LOOSE) -> Rows:
        """Return the rows that may be walked.

        Args:
            rows: triplets and their ends.
            moment: restrictions of the walk.
            first_excluded: a triplet whose flags are at least this is left out.
        """
        triplets, owners, others = rows
        flags = self.edges["flags"][triplets]
        if flags.max(initial=0) < BOUNDED and not moment.forbidden:
            return rows
        keep = flags < first_excluded
        self._keep_held(keep, triplets, flags, moment.as_of)
        if moment.forbidden:
            keep &= ~_among(self.node_types[others], moment.forbidden) | _among(others, moment.free)
        if keep.all():
            return rows
        kept = np.flatnonzero(keep)
        return triplets[kept], owners[kept], others[kept]

    def _keep_held(
        self, keep: np.ndarray, triplets: np.ndarray, flags: np.ndarray, as_of: int
    ) -> None:
        """Clear ``keep`` in place where a triplet does not hold at a second."""
        bounded = np.flatnonzero(flags & BOUNDED)
        timed = triplets[bounded]
        since, until = self.edges["since"][timed], self.edges["until"][timed]
        keep[bounded] &= (since <= as_of) & (as_of < until)

    def holds(self, triplets: np.ndarray, as_of: int) -> np.ndarray:
        """Return whether each triplet exists and holds at a second; bool [k]."""
        flags = self.edges["flags"][triplets]
        held = np.asarray(flags < GONE)
        self._keep_held(held, triplets, flags, as_of)
        return held

    def facts_allowed(self, keys: np.ndarray, moment: Moment) -> np.ndarray:
        """Return whether each key is that of a fact which holds and may be recalled; bool [k].

        A fact may be recalled if its kind is not forbidden. Where objects are forbidden, simple
        triplets are, too.
        """
        ids = keys // 2
        allowed = np.zeros(len(keys), dtype=bool)
        if OBJECT not in moment.forbidden:
            simple = np.flatnonzero((keys % 2 == 1) & (ids < len(self.edges["flags"])))
            edges = ids[simple]
            allowed[simple] = self.holds(edges, moment.as_of) & (self.types(edges) == SIMPLE)
        others = np.flatnonzero((keys % 2 == 0) & (ids < len(self.node_types)))
        nodes = ids[others]
        since, until = self.nodes["since"][nodes], self.nodes["until"][nodes]
        kinds = self.node_types[nodes]
        held = (since <= moment.as_of) & (moment.as_of < until) & _among(kinds, (THESIS, EPISODIC))
        allowed[others] = held & ~_among(kinds, moment.forbidden)
        return allowed

    def types(self, triplets: np.ndarray) -> np.ndarray:
        """Return the edge type of each triplet, int8."""
        return np.asarray(self.edges["flags"][triplets] & TYPE, dtype=np.int8)

    def ends(self, triplets: np.ndarray) -> np.ndarray:
        """Return source and target of each triplet, int64 [k, 2]."""
        pair = self.edges["source"][triplets], self.edges["target"][triplets]
        return np.stack(pair, axis=1).astype(np.int64)

    def fact_keys(self, triplets: np.ndarray) -> np.ndarray:
        """Return the key of the fact whose text each triplet has, int64 [k]."""
        return _int64(self.edges["fact"][triplets])


def _int64(column: np.ndarray) -> np.ndarray:
    return column.astype(np.int64)


def _merged(rows: Rows, few: Rows) -> Rows:
    """Merge a few rows into many; both are sorted by owner, then by triplet."""
    order, few_order = (owners << 32 | triplets for triplets, owners, _ in (rows, few))
    at = np.searchsorted(order, few_order)
    triplets, owners, others = (np.insert(old, at, new) for old, new in zip(rows, few, strict=True))
    return triplets, owners, others


def _among(values: np.ndarray, few: tuple[int, ...]) -> np.ndarray:
    """Return whether each value is one of a few; faster than ``np.isin`` for a handful."""
    is_among = np.zeros(len(values), dtype=bool)
    for value in few:
        is_among |= values == value
    return is_among
