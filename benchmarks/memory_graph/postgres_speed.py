"""Measures asking and remembering in PostgreSQL with many tenants and many clients.

    python -m turngraph.tests.postgres_server SERVER_FOLDER      # prints the URL; runs on
    python -m turngraph.benchmarks.memory_graph postgres_speed --url URL --folder GRAPHS

First it fills tenants whose names begin with ``speed``: some of a thousand nodes, copies of one
synthetic graph, and one of a million. After ``--minutes`` it ends with exit code 75, and the same
command goes on; what is filled is used again by later measurements. Then 1, 8 and 32 clients, a
process each, ask, remember and ask again for some seconds: first all over the small tenants at
random, then all in the large one. Vectors are drawn (no model), so that the times are the
database's and the recall's. The first question of a process about a tenant, which reads the graph,
is counted apart. Each process has asked and remembered once before.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from turngraph.benchmarks.memory_graph.asking_speed import Given, probe
from turngraph.benchmarks.memory_graph.filling_speed import texts
from turngraph.benchmarks.memory_graph.memory_retrieval import parser_of
from turngraph.benchmarks.memory_graph.postgres_filling import (
    OutOfTimeError,
    copy_tenant,
    fill,
    in_time,
    made_graph,
    shape_of,
)
from turngraph.benchmarks.memory_graph.synthetic_graph import Shape, make_vectors, object_names
from turngraph.data.embedding import Embed
from turngraph.data.memory_graph.extract.languages import other_languages
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode
from turngraph.data.memory_graph.recall.adjacency import Adjacency
from turngraph.data.memory_graph.recall.derived_files import State
from turngraph.data.memory_graph.recall.vector_matrix import VectorMatrix
from turngraph.data.memory_graph.recall.vectors import FACTS, PROBE
from turngraph.data.memory_graph.record import postgres_schema as schema
from turngraph.data.memory_graph.record.postgres_store import administering
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
    add("--url", required=True, help="PostgreSQL database, of a superuser, whom COPY is for")
    add("--folder", type=Path, required=True, help="where the synthetic graphs are kept")
    add("--minutes", type=float, default=60.0, help="longest time to fill (60)")
    add("--tenants", type=int, default=1000, help="small tenants (1000)")
    add("--nodes", type=int, default=1000, help="nodes of each (1000)")
    add("--large", type=int, default=1_000_000, help="nodes of the large tenant; 0: none")
    add("--clients", type=int, nargs="+", default=list(CLIENTS), help="numbers of clients")
    add("--seconds", type=float, default=20.0, help="of each measurement (20)")
    add("--seed", type=int, default=0)
    add("--output", help="JSON file")
    args = parser.parse_args(argv)
    until = time.monotonic() + 60 * args.minutes
    try:
        make_tenants(args.url, args.folder, args.tenants, args.nodes, args.seed, until)
        if args.large:
            make_large(args.url, args.folder, args.large, args.seed, until)
    except OutOfTimeError:
        print("not filled yet; the same command goes on")
        raise SystemExit(75) from None
    sets = {f"{args.tenants:,} x {args.nodes:,} nodes": [small(n) for n in range(args.tenants)]}
    if args.large:
        sets[f"1 x {args.large:,} nodes"] = [large(args.large)]
    sets = {name: tenants for name, tenants in sets.items() if tenants}
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


def large(nodes: int) -> str:
    """Return the name of the large tenant."""
    return f"speed large {nodes}"


def make_tenants(url: str, folder: Path, num: int, nodes: int, seed: int, until: float) -> None:
    """Fill the small tenants that are missing: one from a file, the others as copies of its rows.

    Raises:
        OutOfTimeError: the next call goes on.
    """
    if not num:
        return
    path = made_graph(folder, nodes, seed)
    with administering(url) as db:
        schema.migrate(db)
        fill(db, small(0), path, until)
        known = set(schema.tenants(db))
        missing = [small(number) for number in range(num) if small(number) not in known]
        for name in tqdm(missing, desc="copy tenants", unit="tenant"):
            in_time(until)
            copy_tenant(db, small(0), name)
        db.execute("ANALYZE")


def make_large(url: str, folder: Path, nodes: int, seed: int, until: float) -> None:
    """Fill the large tenant, and make the arrays and vectors that are derived from it.

    Raises:
        OutOfTimeError: the next call goes on.
    """
    path = made_graph(folder, nodes, seed)
    with administering(url) as db:
        schema.migrate(db)
        fill(db, large(nodes), path, until)
        db.execute("ANALYZE")
    in_time(until)
    shape = shape_of(nodes, seed)
    with MemoryGraph.open(url, embedder(shape), tenant=large(nodes), read_only=True) as graph:
        facts = VectorMatrix(graph.store.derived / FACTS)
        if State.of(facts.manifest).revision < 0:
            with graph.store.reading():
                make_vectors(graph.store, shape, probe(), index=True)
                Adjacency(graph.store.db, graph.store.derived).refresh()
        elif facts.neighbours.is_outgrown(facts.count):  # killed while it was made
            facts.save(State.of(facts.manifest), probe(), index=True)


def embedder(shape: Shape) -> Embed:
    """Return a stand-in for a sentence encoder, which costs nothing."""
    given = Given(shape)
    given.vectors[PROBE] = probe()
    return given.embed


def measure(url: str, tenants: list[str], clients: int, args: argparse.Namespace) -> list[Json]:
    """Return the percentiles of each operation, with so many clients at once."""
    other_languages(["Zyx qwv."])  # reads the dictionary, a second of work, for all processes
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
    """Ask, remember and ask again, in tenants at random; send the seconds of each operation."""
    rng = random.Random(seed * 1000 + number)
    source = texts(object_names(Shape(1000, 0, 0, seed)), seed=int(time.time()) + number)
    embed = embedder(Shape(1000, 0, 0, seed))
    opened: OrderedDict[str, MemoryGraph] = OrderedDict()
    times: dict[str, list[float]] = {"ask": [], "first ask": [], "remember": []}
    graph = _graph(url, tenants[number % len(tenants)], embed, opened)
    _ask(graph, source)
    _remember(graph, source)
    begin.wait()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        tenant = rng.choice(tenants)
        is_open = tenant in opened
        begun = time.perf_counter()
        graph = _graph(url, tenant, embed, opened)
        _ask(graph, source)
        times["ask" if is_open else "first ask"].append(time.perf_counter() - begun)
        begun = time.perf_counter()
        _remember(graph, source)
        times["remember"].append(time.perf_counter() - begun)
        begun = time.perf_counter()
        _ask(graph, source)
        times["ask"].append(time.perf_counter() - begun)
    queue.put({operation: taken for operation, taken in times.items() if taken})
    for graph in opened.values():
        graph.close()


def _graph(
    url: str, tenant: str, embed: Embed, opened: OrderedDict[str, MemoryGraph]
) -> MemoryGraph:
    if tenant not in opened:
        if len(opened) == MAX_OPEN:
            opened.popitem(last=False)[1].close()
        opened[tenant] = MemoryGraph.open(url, embed, tenant=tenant, wait=120)
    opened.move_to_end(tenant)
    return opened[tenant]


def _ask(graph: MemoryGraph, source: Iterator[Episode]) -> None:
    first, *_ = next(source).text.split(". ")
    graph.ask(f"What about {' '.join(first.split()[:4])}?")


def _remember(graph: MemoryGraph, source: Iterator[Episode]) -> None:
    episode = next(source)
    graph.remember_many([Episode(episode.text.partition(". ")[0] + ".", time=episode.time)])


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
