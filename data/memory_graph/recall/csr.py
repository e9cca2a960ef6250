"""Reads columns by database id from the record, and builds CSR arrays from them."""

from __future__ import annotations

import numpy as np

from turngraph.configs.progress import progress
from turngraph.data.memory_graph.memory_types import SIMPLE, TIME
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.record.integrity import highest_possible
from turngraph.data.memory_graph.times import start

ALWAYS = (int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max))
"""Interval, in seconds, of a node or edge without times."""
TYPE, BOUNDED, LOOSE, GONE = 3, 4, 8, 16
"""Bits of an edge's flags. ``TYPE``: its edge type; ``BOUNDED``: it has times; ``LOOSE``: it is in
the delta, not in the CSR; ``GONE``: no edge has this id."""
NODE_COLUMNS = {"type": ("i1", -1), "since": ("i8", ALWAYS[0]), "until": ("i8", ALWAYS[1])}
EDGE_COLUMNS = {
    "flags": ("u1", GONE),
    "source": ("i4", 0),
    "target": ("i4", 0),
    "fact": ("i4", 0),
    "since": ("i8", ALWAYS[0]),
    "until": ("i8", ALWAYS[1]),
}
"""Type of each column, and its value for ids without a row in the record."""
BATCH = 50_000

Columns = dict[str, np.ndarray]


def seconds(valid_from: str | None, valid_to: str | None) -> tuple[int, int]:
    """Return [since, until) in seconds; an open end is the smallest or largest int64."""
    return (
        ALWAYS[0] if valid_from is None else start(valid_from),
        ALWAYS[1] if valid_to is None else start(valid_to),
    )


def grow(columns: Columns, kinds: dict[str, tuple[str, int]], size: int) -> None:
    """Grow columns for ids below ``size``, with a tenth in reserve, so that this is rare."""
    for name, (dtype, empty) in kinds.items():
        old = columns.get(name, np.empty(0, dtype))
        if len(old) < size:
            new = np.full(size + size // 10 + 64 if len(old) else size, empty, dtype)
            new[: len(old)] = old
            columns[name] = new


def read_columns(db: Database) -> tuple[Columns, Columns]:
    """Read all nodes and edges of the record.

    An edge holds while it and the theses at its ends hold, so that no walk leads to a thesis that
    does not hold.
    """
    nodes: Columns = {}
    edges: Columns = {}
    grow(nodes, NODE_COLUMNS, _highest(db, "nodes") + 1)
    grow(edges, EDGE_COLUMNS, _highest(db, "edges") + 1)
    _read(db, "nodes", ("type",), nodes)
    _read(db, "edges", ("type", "source", "target"), edges | {"type": edges["flags"]})
    simple = edges["flags"] & TYPE == SIMPLE
    edges["fact"] = np.where(simple, 2 * np.arange(len(simple)) + 1, 2 * edges["target"])
    edges["fact"] = edges["fact"].astype(np.int32)
    _read_times(db, "nodes", nodes)
    _read_times(db, "edges", edges)
    ends = edges["source"], edges["target"]
    edges["since"] = np.maximum.reduce([edges["since"], *(nodes["since"][end] for end in ends)])
    edges["until"] = np.minimum.reduce([edges["until"], *(nodes["until"][end] for end in ends)])
    edges["flags"][(edges["since"] > ALWAYS[0]) | (edges["until"] < ALWAYS[1])] |= BOUNDED
    return nodes, edges


def _highest(db: Database, table: str) -> int:
    """Return the highest id of a table; 0 without rows.

    Raises:
        IndexError: the id is too high for the number of rows; arrays up to it would fill the
            memory.
    """
    highest, count = db.execute(f"SELECT coalesce(max(id), 0), count(*) FROM {table}").fetchone()
    if highest > highest_possible(count):
        raise IndexError(highest)
    return int(highest)


def _read(db: Database, table: str, names: tuple[str, ...], columns: Columns) -> None:
    cursor = db.scan(f"SELECT id, {', '.join(names)} FROM {table}")
    with progress(len(columns[names[0]]), f"arrays of {table}", "rows", delay=2) as bar:
        while rows := cursor.fetchmany(BATCH):
            ids, *values = np.array(rows, dtype=np.int64).T
            for name, column in zip(names, values, strict=True):
                columns[name][ids] = column
            bar.update(len(rows))


def _read_times(db: Database, table: str, columns: Columns) -> None:
    sql = f"""SELECT id, valid_from, valid_to FROM {table}
        WHERE valid_from IS NOT NULL OR valid_to IS NOT NULL"""
    cursor = db.scan(sql)
    while rows := cursor.fetchmany(BATCH):
        ids = np.array([row[0] for row in rows])
        times = np.array([seconds(*row[1:]) for row in rows], dtype=np.int64)
        columns["since"][ids], columns["until"][ids] = times.T


def fit_together(nodes: Columns, edges: Columns, csr: Columns) -> bool:
    """Return whether arrays that were read from files have fitting sizes and valid indices."""
    num_nodes, num_edges = len(nodes["type"]), len(edges["flags"])
    starts = csr["starts"]
    bounds = [
        (nodes["type"], -1, TIME),
        (edges["flags"], 0, TYPE | BOUNDED | GONE),
        (edges["flags"] & LOOSE, 0, 0),
        (edges["source"], 0, num_nodes - 1),
        (edges["target"], 0, num_nodes - 1),
        (edges["fact"], 0, 2 * max(num_nodes, num_edges) - 1),
        (csr["triplets"], 0, num_edges - 1),
        (csr["others"], 0, num_nodes - 1),
        (np.diff(starts), 0, len(csr["triplets"])),
    ]
    return (
        {len(column) for column in nodes.values()} == {num_nodes}
        and {len(column) for column in edges.values()} == {num_edges}
        and len(starts) == num_nodes + 1
        and starts[0] == 0
        and starts[-1] == len(csr["triplets"]) == len(csr["others"])
        and all(not len(c) or least <= c.min() <= c.max() <= most for c, least, most in bounds)
    )


def make_csr(num_nodes: int, edges: Columns) -> Columns:
    """Build a CSR that lists every edge at both of its ends, and a self-loop once.

    Returns:
        ``starts`` int64 [num_nodes + 1], ``triplets`` and ``others`` int32 [2 * edges], sorted by
        node, then by edge id.
    """
    there = np.flatnonzero(edges["flags"] & GONE == 0)
    source, target = edges["source"][there], edges["target"][there]
    ends = np.concatenate([source, target[source != target]]).astype(np.int64)
    order = (ends << 32) | np.concatenate([there, there[source != target]])
    order.sort()
    triplets = (order & 0xFFFFFFFF).astype(np.int32)
    owners = (order >> 32).astype(np.int32)
    others = edges["source"][triplets] + edges["target"][triplets] - owners
    starts = np.searchsorted(owners, np.arange(num_nodes + 1)).astype(np.int64)
    return {"starts": starts, "triplets": triplets, "others": others}
