"""Measures what Ray gains on the cores of this machine: whole commands, with and without it.

    python -m turngraph.benchmarks.speed.ray_speed [--graphs 16 --sentences 4000]

``turngraph memory remember_all`` reads made-up texts into memory graphs, and ``turngraph corpus
build`` reads folders of made-up pages; each runs as one process and with ``--ray local``, in turn,
and the start of Ray counts. What both have written is compared.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from statistics import median

from turngraph.benchmarks.memory_graph.filling_speed import SENTENCES_PER_TEXT, texts
from turngraph.benchmarks.memory_graph.synthetic_graph import Shape, object_names
from turngraph.data.cli import run_cli
from turngraph.data.corpus.corpus import Corpus
from turngraph.data.memory_graph.record.store import Store
from turngraph.data.memory_graph.upkeep.transfer import export_jsonl

RAY = ("--ray", "local")
QUESTIONS = ("Who met whom at the station?", "What was paid in 1999?", "after the long winter")


def main(argv: Sequence[str] | None = None) -> None:
    """Run both commands in both ways, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--graphs", type=int, default=16, help="files for remember_all (16)")
    add("--sentences", type=int, default=4000, help="sentences of each (4000)")
    add("--pages", type=int, default=4000, help="pages for corpus build (4000)")
    add("--rounds", type=int, default=3, help="runs of each; the median counts (3)")
    add("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    print(f"{os.cpu_count()} cores\n\n| command | one process, s | --ray local, s | ratio |")
    print("|---|--:|--:|--:|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        files = write_files(Path(folder, "said"), args.graphs, args.sentences, args.seed)
        pages = write_pages(Path(folder, "pages"), args.pages, args.seed)
        said = ("--time", "2020-01-01", "--input", *map(str, files))
        remember = ("memory", "remember_all", *said, "--db_dir")
        build = ("corpus", "build", "--input", str(pages), "--output")
        compare(f"remember_all, {args.graphs} x {args.sentences:,}", remember, graphs, args.rounds)
        compare(f"corpus build, {args.pages:,} pages", build, found, args.rounds)


def write_files(folder: Path, num: int, sentences: int, seed: int) -> list[Path]:
    """Write files of sentences, each for a memory graph of its own."""
    folder.mkdir()
    names = object_names(Shape(1000, 0, 0, seed))
    paths = [folder / f"memory{number}.txt" for number in range(num)]
    for number, path in enumerate(paths):
        said = islice(texts(names, seed + number), sentences // SENTENCES_PER_TEXT)
        path.write_text("\n\n".join(one.text for one in said) + "\n", encoding="utf-8")
    return paths


def write_pages(folder: Path, num: int, seed: int) -> Path:
    """Write pages of HTML, a hundred to a folder."""
    source = texts(object_names(Shape(1000, 0, 0, seed)), seed)
    for number in range(num):
        path = folder / str(number // 100) / f"{number}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        body = "\n".join(f"<p>{one.text}</p>" for one in islice(source, 5))
        title = f"<title>Page {number}</title>"
        path.write_text(f"<html><head>{title}</head><body>{body}</body></html>", encoding="utf-8")
    return folder


def compare(
    name: str, command: Sequence[str], written: Callable[[Path], object], rounds: int
) -> None:
    """Run a command in both ways, in turn, and print a row.

    Args:
        name: of the row.
        command: of turngraph; its last option takes a new folder.
        written: reads what the command has written.
        rounds: runs of each way.

    Raises:
        AssertionError: the two have written something else.
    """
    seconds: dict[tuple[str, ...], list[float]] = {(): [], RAY: []}
    for _ in range(rounds):
        results = []
        with tempfile.TemporaryDirectory() as folder:
            for number, (ray, taken) in enumerate(seconds.items()):
                output, begun = Path(folder, str(number)), time.perf_counter()
                argv = [sys.executable, "-m", "turngraph", *command, str(output), *ray]
                done = subprocess.run(argv, check=False, capture_output=True, text=True)
                if done.returncode:
                    raise RuntimeError(f"{' '.join(argv[:5])}: {done.stderr.strip()[-500:]}")
                taken.append(time.perf_counter() - begun)
                results.append(written(output))
        if results[0] != results[1]:
            raise AssertionError(f"{name}: with Ray something else was written")
    alone, together = map(median, seconds.values())
    print(f"| {name} | {alone:.1f} | {together:.1f} | {alone / together:.2f} |", flush=True)


def graphs(folder: Path) -> dict[str, str]:
    """Return the export of every memory graph of a folder."""
    exports, target = {}, folder / "export.jsonl"
    for path in sorted(folder.glob("*.db")):
        with Store(path) as store:
            export_jsonl(store, target)
        exports[path.name] = target.read_text(encoding="utf-8")
    return exports


def found(folder: Path) -> list[list[tuple[str, float]]]:
    """Return what a corpus finds for some questions."""
    index = Corpus(str(folder)).index("bm25")
    return [
        [(one.evidence.text, one.score) for one in index.rank(question, 20, 0)]
        for question in QUESTIONS
    ]


if __name__ == "__main__":
    run_cli(main)
