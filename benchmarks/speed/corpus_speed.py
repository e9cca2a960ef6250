"""Measures how long a corpus takes to build, and to search, and how much memory that needs.

python -m turngraph.benchmarks.speed.corpus_speed --passages 100000 1000000 [--vectors]

The passages are made up: 8 to 40 words, drawn from 400,000 by Zipf's law (exponent 1.05); queries
are 10 words drawn alike from passages, without the 50 most frequent. Vectors are random, of the
width of all-MiniLM-L6-v2, so that only their search is measured. Beside ours stand bm25s in memory
and tantivy (k1 1.2), with the same words. Every engine is asked in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import bm25s
import numpy as np
import tantivy

from turngraph.data.cli import run_cli
from turngraph.data.corpus.build import CorpusBuilder
from turngraph.data.corpus.corpus import Corpus, Retriever
from turngraph.data.corpus.segment_writer import Encoder
from turngraph.data.corpus.source_files import find_sources
from turngraph.data.json_fields import Json
from turngraph.data.normalise import words

NUM_WORDS, EXPONENT, FREQUENT = 400_000, 1.05, 50
WIDTH = 384
TOP_K = 30
WARM_UP = 5


def main(argv: Sequence[str] | None = None) -> None:
    """Build a corpus of each size, ask it, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--passages", type=int, nargs="+", default=[100_000])
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--vectors", action="store_true", help="also search by random vectors")
    parser.add_argument("--folder", help="where to build; default: a temporary folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ask", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.ask:
        print(json.dumps(ask(*args.ask)))
        return
    print("| passages | engine | build, s | disk, MB | p50 / p95, ms | memory while asking, MB |")
    print("|---|---|---|---|---|---|")
    for size in args.passages:
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            measure(Path(folder), size, args.queries, args.vectors, args.seed)


def measure(folder: Path, size: int, num_queries: int, vectors: bool, seed: int) -> None:
    """Print the rows of one size."""
    queries = write_passages(folder / "passages.jsonl", size, num_queries, seed)
    (folder / "queries.json").write_text(json.dumps(queries))
    began = time.monotonic()
    encoder = Encoder("random", random_vectors) if vectors else None
    CorpusBuilder(folder / "corpus", encoder).build(find_sources([folder / "passages.jsonl"])[0])
    built = time.monotonic() - began
    disk = size_of(folder / "corpus")
    for engine in ("bm25", "dense", "rrf") if vectors else ("bm25",):
        print_row(size, f"corpus, {engine}", built, disk, asked(folder, engine))
    ids, vocabulary = token_ids(folder / "passages.jsonl")
    began = time.monotonic()
    index = bm25s.BM25(method="bm25+", k1=1.5, b=0.75, delta=1.0, dtype="float64")
    index.index((ids, vocabulary), show_progress=False)
    built = time.monotonic() - began
    index.save(folder / "bm25s", show_progress=False)
    del index, ids
    print_row(size, "bm25s", built, size_of(folder / "bm25s"), asked(folder, "bm25s"))
    built = build_tantivy(folder)
    print_row(size, "tantivy", built, size_of(folder / "tantivy"), asked(folder, "tantivy"))


def write_passages(path: Path, size: int, num_queries: int, seed: int) -> list[str]:
    """Write passages of drawn words as JSON Lines; return queries."""
    draw = np.random.default_rng(seed)
    chance = 1 / np.arange(1, NUM_WORDS + 1) ** EXPONENT
    upto = np.cumsum(chance / chance.sum())
    vocabulary = np.array([f"w{i:x}" for i in range(NUM_WORDS)])
    lengths = draw.integers(8, 41, size)
    with open(path, "w", encoding="utf-8") as file:
        for start in range(0, size, 10_000):
            part = lengths[start : start + 10_000]
            found = vocabulary[np.searchsorted(upto, draw.random(int(part.sum())))]
            for passage in np.split(found, np.cumsum(part)[:-1]):
                file.write(json.dumps({"text": " ".join(passage)}) + "\n")
    rare = upto[FREQUENT] + draw.random((num_queries, 10)) * (1 - upto[FREQUENT])
    return [" ".join(vocabulary[row]) for row in np.searchsorted(upto, rare)]


def random_vectors(texts: Sequence[str]) -> np.ndarray:
    """Return a random unit vector for each text."""
    found = np.stack(
        [
            np.random.default_rng(zlib.crc32(text.encode())).standard_normal(WIDTH, np.float32)
            for text in texts
        ]
    )
    unit: np.ndarray = found / np.linalg.norm(found, axis=1, keepdims=True)
    return unit


def token_ids(path: Path) -> tuple[list[list[int]], dict[str, int]]:
    """Return the words of all passages as numbers, for bm25s."""
    vocabulary: dict[str, int] = {}
    with open(path, encoding="utf-8") as file:
        texts = (words(json.loads(line)["text"]) for line in file)
        ids = [[vocabulary.setdefault(word, len(vocabulary)) for word in text] for text in texts]
    return ids, vocabulary


def build_tantivy(folder: Path) -> float:
    """Build an index by tantivy with the same words; return the seconds."""
    began = time.monotonic()
    schema = tantivy.SchemaBuilder()
    schema.add_integer_field("row", stored=True)
    schema.add_text_field("text", tokenizer_name="whitespace")
    (folder / "tantivy").mkdir()
    index = tantivy.Index(schema.build(), path=str(folder / "tantivy"))
    writer = index.writer(num_threads=1)
    with open(folder / "passages.jsonl", encoding="utf-8") as file:
        for row, line in enumerate(file):
            text = " ".join(words(json.loads(line)["text"]))
            writer.add_document(tantivy.Document(row=row, text=text))
    writer.commit()
    writer.wait_merging_threads()
    return time.monotonic() - began


def asked(folder: Path, engine: str) -> Json:
    """Ask an engine in a process of its own."""
    module = "turngraph.benchmarks.speed.corpus_speed"
    argv = [sys.executable, "-m", module, "--ask", str(folder), engine, "queries.json"]
    found: Json = json.loads(subprocess.run(argv, check=True, capture_output=True).stdout)
    return found


def ask(folder: str, engine: str, queries: str) -> Json:
    """Ask all queries, and return the milliseconds of each and the largest memory in MB."""
    search = searcher(Path(folder), engine)
    times = []
    for query in json.loads((Path(folder) / queries).read_text()):
        began = time.perf_counter()
        search(query)
        times.append(1000 * (time.perf_counter() - began))
    return {"times": times[WARM_UP:], "memory": peak_memory()}


def peak_memory() -> float:
    """Return this process's largest resident memory in MB; its parent's does not count."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    [kilobytes] = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return int(kilobytes) / 1024


def searcher(folder: Path, engine: str) -> Callable[[str], object]:
    """Return what asks one engine for the best passages of a query."""
    if engine == "bm25s":
        index = bm25s.BM25.load(folder / "bm25s", mmap=False, show_progress=False)
        return lambda query: index.retrieve([words(query)], k=TOP_K, show_progress=False)
    if engine == "tantivy":
        searched = tantivy.Index.open(str(folder / "tantivy"))
        found = searched.searcher()
        return lambda query: [
            found.doc(address)["row"]
            for _, address in found.search(
                searched.parse_query(" ".join(words(query)), ["text"]), TOP_K
            ).hits
        ]
    retriever: Retriever = "dense" if engine == "dense" else "rrf" if engine == "rrf" else "bm25"
    corpus = Corpus(folder / "corpus")
    ours = corpus.index(retriever, random_vectors if corpus.version.embedder else None)
    return lambda query: ours.rank(query, TOP_K)


def size_of(folder: Path) -> float:
    """Return the size of a folder's files in MB."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 2**20


def print_row(size: int, engine: str, built: float, disk: float, found: Json) -> None:
    """Print one row of the table."""
    p50, p95 = median(found["times"]), float(np.quantile(found["times"], 0.95))
    row = f"| {size:,} | {engine} | {built:.0f} | {disk:.0f} | {p50:.1f} / {p95:.1f} |"
    print(f"{row} {found['memory']:.0f} |", flush=True)


if __name__ == "__main__":
    run_cli(main)
