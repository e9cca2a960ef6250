"""Measures how long BM25 takes to index and to rank a pool, with bm25s and with rank-bm25.

python -m turngraph.benchmarks.speed.retrieval_speed [--passages 5000]
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Sequence

from tqdm import tqdm

from turngraph.benchmarks.speed.graph_speed import WORDS, make_passages
from turngraph.data import normalise
from turngraph.data.cli import run_cli
from turngraph.data.retrieval.bm25 import EvidenceIndex, Ranker
from turngraph.data.types import Evidence

PASSAGES_OF_A_PAGE = 50


def main(argv: Sequence[str] | None = None) -> None:
    """Index one pool with both libraries, rank it for the same queries, and print the times."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--passages", type=int, default=5000, help="passages in the pool")
    parser.add_argument("--queries", type=int, default=50, help="number of queries")
    parser.add_argument("--words", type=int, default=40, help="words per query, as after 3 turns")
    parser.add_argument("--top_k", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    rng = random.Random(args.seed)
    pages = -(-args.passages // PASSAGES_OF_A_PAGE)
    pool = [p for _ in range(pages) for p in make_passages(rng, PASSAGES_OF_A_PAGE, 5)][
        : args.passages
    ]
    queries = [make_query(rng, pool, args.words) for _ in range(args.queries)]
    times = {r: measure(pool, queries, r, args.top_k) for r in ("bm25s", "rank_bm25")}
    print(f"{len(pool)} passages, {len(queries)} queries of about {args.words} words")
    print(f"{'':<10}{'index ms':>10}{'rank ms, median':>18}{'slowest':>10}")
    for ranker, (index, ranks) in times.items():
        median, slowest = statistics.median(ranks), max(ranks)
        print(f"{ranker:<10}{index:>10.1f}{median:>18.2f}{slowest:>10.2f}")
    medians = {ranker: statistics.median(ranks) for ranker, (_, ranks) in times.items()}
    print(f"rank_bm25 / bm25s, ranking: {medians['rank_bm25'] / medians['bm25s']:.1f}")


def make_query(rng: random.Random, pool: Sequence[Evidence], num_words: int) -> str:
    """Make a query of common words and names from some passages, as in a conversation."""
    text: list[str] = []
    while len(text) < num_words:
        name = rng.choice(rng.choice(pool).entities).label
        text += [*name.split(), *rng.choices(WORDS, k=5)]
    return " ".join(text[:num_words])


def measure(
    pool: Sequence[Evidence], queries: Sequence[str], ranker: Ranker, top_k: int
) -> tuple[float, list[float]]:
    """Return the milliseconds to index a pool, and to rank it for each query."""
    normalise._fold_cached.cache_clear()  # else the second library reuses the first one's folds
    began = time.perf_counter()
    index = EvidenceIndex(pool, ranker)
    indexed = 1000 * (time.perf_counter() - began)
    ranks = []
    for query in tqdm(queries, desc=ranker):
        began = time.perf_counter()
        index.rank(query, top_k)
        ranks.append(1000 * (time.perf_counter() - began))
    return indexed, ranks


if __name__ == "__main__":
    run_cli(main)
