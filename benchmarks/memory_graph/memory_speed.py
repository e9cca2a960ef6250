"""Measures speed and memory of a large memory graph.

    python -m turngraph.benchmarks.memory_graph speed [--nodes 100000 ...]

Filling: sentences per second by rules, without embedding, from an empty graph to ``--nodes`` and
into synthetic graphs of ``--fill_nodes``; embedding in batches is measured separately. Asking:
synthetic power-law graphs with one hub and clustered vectors, written straight into SQL; opening,
asking, asking while remembering, walking, and memory.

Prints Markdown tables; ``--output`` writes JSON. The full measurement is ``--nodes 1000000
--fill_nodes 30000 100000 300000 1000000 --ask_nodes 100000 1000000`` (about an hour on 2 cores).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from turngraph.benchmarks.memory_graph import asking_speed, filling_speed
from turngraph.benchmarks.memory_graph.memory_retrieval import parser_of
from turngraph.benchmarks.memory_graph.synthetic_graph import Shape
from turngraph.data.outputs import whole_file
from turngraph.model.checkpoint import commit

Json = dict[str, Any]
Result = TypeVar("Result")
COMMAND = ("python", "-m", "turngraph.benchmarks.memory_graph", "speed")
EDGES_PER_NODE = 5
MIN_HUB = 100_000


def main(argv: Sequence[str]) -> None:
    """Measure, print the tables and write the JSON file."""
    args = parse(argv)
    result: Json = {"facts": facts(args, argv), "filling": [], "into": [], "asking": []}
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        if args.nodes:
            path = Path(folder) / "filled.db"
            result["filling"] = filling_speed.measure(path, args.nodes, args.seed)
        for nodes in args.fill_nodes:
            result["into"].append(fill(Path(folder), shape_of(nodes, args.seed), args.keep))
        if args.embedder and (args.nodes or args.fill_nodes):
            result["embedding"] = filling_speed.measure_embedding(args.embedder, args.seed)
        for nodes in args.ask_nodes:
            folder_kept = Path(args.keep or folder)
            result["asking"].append(ask(folder_kept, shape_of(nodes, args.seed), args))
    if args.output:
        with whole_file(args.output) as file:
            json.dump(result, file, indent=1)
    print(markdown(result))


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = parser_of(COMMAND, __doc__)
    add = parser.add_argument
    add("--nodes", type=int, default=50_000, help="fill an empty graph up to this size; 0: do not")
    add(
        "--fill_nodes",
        type=int,
        nargs="*",
        default=[],
        help="sizes of synthetic graphs to fill into",
    )
    add(
        "--ask_nodes",
        type=int,
        nargs="*",
        default=[100_000],
        help="sizes of synthetic graphs to ask",
    )
    add("--questions", type=int, default=200, help="questions per size")
    add("--mixture", default="BeamSearch + WaterCircles")
    add("--hub", type=float, default=0.1, help="share of the questions that name the hub")
    add("--misspelt", type=float, default=0.2, help="share of names that match no alias")
    encoder = "sentence-transformers/all-MiniLM-L6-v2"
    add("--embedder", default=encoder, help="sentence encoder to measure; empty: none")
    add("--index", action="store_true", help="index all vectors too; a millisecond per vector")
    add("--folder", help="folder for temporary databases; default: the system's")
    add("--keep", help="folder that keeps the asked graphs for later runs")
    add("--seed", type=int, default=0)
    add("--output", help="JSON file")
    return parser.parse_args(argv)


def shape_of(nodes: int, seed: int) -> Shape:
    """Return the shape of the synthetic graph with a number of nodes."""
    return Shape(nodes, EDGES_PER_NODE * nodes, min(MIN_HUB, nodes), seed)


def fill(folder: Path, shape: Shape, kept: str | None) -> Json:
    """Fill one graph, made or copied from a kept one, in a separate process."""
    name = f"{shape.nodes}-{shape.edges}-{shape.seed}.db"
    made = Path(kept or folder) / f"asked-{name}"
    path = folder / f"into-{name}"
    row = alone(filling_speed.measure_into, path, shape, made if made.exists() else None)
    path.unlink()
    return row


def ask(folder: Path, shape: Shape, args: argparse.Namespace) -> Json:
    """Make and measure one graph, in separate processes, so that memory is not shared."""
    path = folder / f"asked-{shape.nodes}-{shape.edges}-{shape.seed}.db"
    found: Json = {"nodes": shape.nodes, "edges": shape.edges, "mixture": args.mixture}
    if not path.exists():
        found["making_s"] = alone(asking_speed.make, path, shape, args.index)
    found["ours"] = alone(
        asking_speed.measure,
        path,
        shape,
        count=args.questions,
        misspelt=args.misspelt,
        hub=args.hub,
        mixture=args.mixture,
    )
    return found


def alone(function: Callable[..., Result], *args: object, **keywords: object) -> Result:
    """Call a function in a separate process."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, *args, **keywords).result()


def facts(args: argparse.Namespace, argv: Sequence[str]) -> Json:
    """Return the run's metadata: command, commit, machine."""
    return {
        "command": shlex.join([*COMMAND, *argv]),
        "commit": commit(),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
        "numpy": np.__version__,
        "seed": args.seed,
        "at": time.strftime("%Y-%m-%d"),
    }


def markdown(result: Json) -> str:
    """Return the Markdown tables."""
    lines = []
    for name, rows in (("From empty", result["filling"]), ("Into synthetic", result["into"])):
        lines += _filled(name, rows) if rows else []
    if "embedding" in result:
        lines += ["", f"Embedding in batches: {result['embedding']:,.0f} sentences/s."]
    for row in result["asking"]:
        lines += ["", f"{row['nodes']:,} nodes, {row['edges']:,} edges, {row['mixture']}:", ""]
        lines += ["| | p50 ms | p95 ms | opening s | resident MB |", "|---|---:|---:|---:|---:|"]
        for name, values in _rows(row):
            cells = [f"{v:,.2f}" if v is not None else "" for v in values]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _filled(name: str, rows: Sequence[Json]) -> list[str]:
    head = ("nodes", "edges", "sentences/s", "per CPU second", "file MB")
    lines = ["", f"{name}:", "", f"| {' | '.join(head)} |", "|---:" * len(head) + "|"]
    for row in rows:
        lines.append(
            f"| {row['nodes']:,} | {row['edges']:,} | {row['per_second']:,.0f}"
            f" | {row['per_cpu_second']:,.0f} | {row['megabytes']:,.0f} |"
        )
    return lines


def _rows(row: Json) -> list[tuple[str, list[float | None]]]:
    ours = row["ours"]
    return [
        ("asking", [*ours["asking"], ours["opening_s"], ours["resident_mb"]]),
        ("asking while remembering", [*ours["remembering"], None, ours["resident_late_mb"]]),
        ("one hop", [*ours["one_hop"], None, None]),
        ("two hops", [*ours["two_hops"], None, None]),
    ]
