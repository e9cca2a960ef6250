"""Measures asking and remembering in PostgreSQL with many tenants and many clients.

    python -m turngraph.benchmarks.memory_graph postgres_speed --url postgresql://... --tenants 1000

Makes tenants of some nodes each (one is filled with generated texts, the others are copies of its
rows) and one large tenant, whose names begin with ``speed``; those that are there are used again.
Then 1, 8 and 32 clients, a process each, ask and remember for some seconds: first all over the
small tenants at random, then all in the large one. The vectors are those of words (no model), so
that the times are the database's and the recall's. The first question of a process about a tenant,
which reads the graph, is counted apart.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import islice
from multiprocessing import get_context
from typing import Any

import numpy as np
from tqdm import tqdm

from turngraph.benchmarks.memory_graph.filling_speed import texts
from turngraph.benchmarks.memory_graph.memory_retrieval import parser_of
from turngraph.benchmarks.memory_graph.synthetic_graph import Shape, object_names
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode
from turngraph.data.memory_graph.recall.word_vectors import word_vectors
from turngraph.data.outputs import whole_file

Json = dict[str, Any]
COMMAND = ("python", "-m", "turngraph.benchmarks.memory_graph", "postgres_speed")
CLIENTS = (1, 8, 32)
MAX_OPEN = 64
"""Graphs that a client keeps open."""


def main(argv: Sequence[str]) -> None:
    """Make the tenants, measure, print the table and write the JSON file."""
    parser = parser_of(COMMAND, __doc__)
    add = parser.add_argument
    add("--url", required=True, help="PostgreSQL database")
    add("--tenants", type=int, default=1000, help="small tenants (1000)")
    add("--nodes", type=int, default=1000, help="nodes of each (1000)")
    add("--large", type=int, default=1_000_000, help="nodes of the large tenant; 0: none")
    add("--clients", type=int, nargs="+", default=list(CLIENTS), help="numbers of clients")
    add("--seconds", type=float, default=20.0, help="of each measurement (20)")
    add("--seed", type=int, default=0)
    add("--output", help="JSON file")
    args = parser.parse_args(argv)
    make_tenants(args.url, args.tenants, args.nodes, args.seed)
    sets = {f"{args.tenants} x {args.nodes:,} nodes": [small(n) for n in range(args.tenants)]}
    if args.large:
        fill(args.url, "speed large", args.large, args.seed)
        sets[f"1 x {args.large:,} nodes"] = ["speed large"]
    rows = []
    for name, tenants in sets.items():
        for clients in args.clients:
            found = measure(args.url, tenants, clients, args)
            rows += [{"tenants": name, "clients": clients} | row for row in found]
    print(markdown(rows))
    if args.output:
        with whole_file(args.output) as file:
            json.dump({"command": [*COMMAND, *argv], "rows": rows}, file, indent=1)


def small(number: int) -> str:
    """Return the name of a small tenant."""
    return f"speed {number}"


def fill(url: str, tenant: str, nodes: int, seed: int) -> None:
    """Remember generated texts until a tenant has a number of nodes."""
    source = texts(object_names(Shape(max(nodes, 1000), 0, 0, seed)), seed)
    with (
        MemoryGraph.open(url, tenant=tenant) as graph,
        tqdm(total=nodes, desc=f"fill {tenant}", unit="node") as bar,
    ):
        while (there := sum(graph.stats().nodes.values())) < nodes:
            bar.update(there - bar.n)
            graph.remember_many(islice(source, max(1, min(200, (nodes - there) // 30))))


def make_tenants(url: str, num: int, nodes: int, seed: int) -> None:
    """Make the small tenants that are missing: one from texts, the others as copies of its rows."""
    from turngraph.data.memory_graph.record import postgres_schema as schema
    from turngraph.data.memory_graph.record.postgres_store import administering

    fill(url, small(0), nodes, seed)
    with administering(url) as db:
        known = set(schema.tenants(db))
        first = _number(schema.find_tenant(db, small(0)))
        for number in tqdm(range(1, num), desc="copy tenants", unit="tenant"):
            if small(number) in known:
                continue
            role = schema.make_tenant(db, small(number))
            tenant = _number(role)
            with db.transaction():
                for table in (*schema.TABLES, *schema.THEME_TABLES):
                    _copy(db, table, first, tenant)
        db.execute("ANALYZE")


def _number(role: str | None) -> int:
    assert role is not None, "made"
    return int(role.rpartition("_")[2])


def _copy(db: Any, table: str, source: int, tenant: int) -> None:
    names = [
        name
        for (name,) in db.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = 'turngraph'"
            " AND table_name = $1 AND is_identity = 'NO' AND column_name <> 'tenant'",
            (table,),
        )
    ]
    db.execute(f"DELETE FROM turngraph.{table} WHERE tenant = $1", (tenant,))
    listed = ", ".join(names)
    sql = f"""INSERT INTO turngraph.{table} ({listed}, tenant)
        SELECT {listed}, $1::integer FROM turngraph.{table} WHERE tenant = $2"""
    db.execute(sql, (tenant, source))


def measure(url: str, tenants: list[str], clients: int, args: argparse.Namespace) -> list[Json]:
    """Return the percentiles of each operation, with so many clients at once."""
    context = get_context("fork")
    queue: Any = context.Queue()
    begin = context.Barrier(clients)
    given = (url, tenants, args.seconds, queue, begin)
    processes = [
        context.Process(target=client, args=(number, args.seed, *given))
        for number in range(clients)
    ]
    for process in processes:
        process.start()
    times: dict[str, list[float]] = {}
    for _ in processes:
        for operation, taken in queue.get().items():
            times.setdefault(operation, []).extend(taken)
    for process in processes:
        process.join()
    return [
        {
            "operation": operation,
            "number": len(taken),
            "per_second": len(taken) / args.seconds,
            "p50": 1000 * float(np.percentile(taken, 50)),
            "p95": 1000 * float(np.percentile(taken, 95)),
        }
        for operation, taken in sorted(times.items())
    ]


def client(
    number: int, seed: int, url: str, tenants: list[str], seconds: float, queue: Any, begin: Any
) -> None:
    """Ask and remember in turn, in tenants at random; send the seconds of each operation."""
    rng = random.Random(seed * 1000 + number)
    source = texts(object_names(Shape(1000, 0, 0, seed)), seed=int(time.time()) + number)
    opened: OrderedDict[str, MemoryGraph] = OrderedDict()
    times: dict[str, list[float]] = {"ask": [], "first ask": [], "remember": []}
    if len(tenants) == 1:
        _ask(_graph(url, tenants[0], opened), source)
    begin.wait()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        tenant = rng.choice(tenants)
        is_open = tenant in opened
        begun = time.perf_counter()
        graph = _graph(url, tenant, opened)
        _ask(graph, source)
        times["ask" if is_open else "first ask"].append(time.perf_counter() - begun)
        episode = next(source)
        begun = time.perf_counter()
        graph.remember_many([Episode(episode.text.partition(". ")[0] + ".", time=episode.time)])
        times["remember"].append(time.perf_counter() - begun)
    queue.put({operation: taken for operation, taken in times.items() if taken})
    for graph in opened.values():
        graph.close()


def _graph(url: str, tenant: str, opened: OrderedDict[str, MemoryGraph]) -> MemoryGraph:
    if tenant not in opened:
        if len(opened) == MAX_OPEN:
            opened.popitem(last=False)[1].close()
        opened[tenant] = MemoryGraph.open(url, word_vectors, tenant=tenant, wait=120)
    opened.move_to_end(tenant)
    return opened[tenant]


def _ask(graph: MemoryGraph, source: Iterator[Episode]) -> None:
    first, *_ = next(source).text.split(". ")
    graph.ask(f"What about {' '.join(first.split()[:4])}?")


def markdown(rows: Sequence[Json]) -> str:
    """Return the table."""
    lines = [
        "| tenants | clients | operation | a second | p50 ms | p95 ms |",
        "|---|--:|---|--:|--:|--:|",
    ]
    for row in rows:
        lines.append(
            f"| {row['tenants']} | {row['clients']} | {row['operation']} |"
            f" {row['per_second']:.1f} | {row['p50']:.1f} | {row['p95']:.1f} |"
        )
    return "\n".join(lines)
