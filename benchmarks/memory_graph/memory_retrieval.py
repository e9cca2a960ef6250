"""Measures the memory graph's retrieval, compared with BM25, dense retrieval and their fusion.

    python -m turngraph.benchmarks.memory_graph retrieval --data FOLDER

MuSiQue-100 and HotpotQA-500 (passages as episodes) and LoCoMo (turns as episodes) are remembered
by rules and then queried. Rows: BM25, dense and their RRF over the same texts, and ``ask_episodes``
with its default settings, with settings chosen on one half of the questions and reported on the
other, both ways, and over shuffled edges. All rows share one embedder.

Prints Markdown tables. Vectors are kept in the user's cache folder: the first run computes about
150,000 (an hour on one core), later runs none.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from turngraph.benchmarks.embedding_cache import kept_encoder
from turngraph.benchmarks.memory_graph.retrieval_data import FILES, Collection, Question, read
from turngraph.benchmarks.memory_graph.retrievers import (
    Ranking,
    episodes_ranking,
    fill,
    flat_rankings,
    settings_grid,
    shuffle,
)
from turngraph.benchmarks.tables import cell, parser_of, table
from turngraph.data.embedding import Embed
from turngraph.data.memory_graph.recall.traverse_settings import PPR, Restart
from turngraph.data.scoring.score import Estimate, bootstrap
from turngraph.inference.model_options import EMBEDDER

IntArray = npt.NDArray[np.int64]
DEPTHS = (2, 5, 10)
MAIN_DEPTH = {"musique": 5, "hotpotqa": 5, "locomo": 10}
"""Depth at which settings are chosen and rows compared."""
OURS, SHUFFLED = "ask_episodes", "ask_episodes, edges shuffled"
DEFAULTS = "ask_episodes, default settings"


@dataclass(frozen=True)
class Recalled:
    """Recall of one row.

    Args:
        recall: at each of ``DEPTHS``.
        gain: over the best row of flat retrieval, at the main depth.
        milliseconds: of a question, the median.
        chosen: indices of the settings that were chosen.
    """

    recall: list[Estimate]
    gain: Estimate
    milliseconds: float
    chosen: list[int]


def main(argv: Sequence[str]) -> None:
    """Measure, and print the tables."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", required=True, help="folder with the benchmarks' files")
    parser.add_argument("--benchmarks", nargs="+", choices=sorted(FILES), default=list(FILES))
    parser.add_argument("--seed", type=int, default=0, help="of the halves and of shuffling")
    args = parser.parse_args(argv)
    embed = kept_encoder(EMBEDDER)
    for name in args.benchmarks:
        print(measure(name, read(name, Path(args.data)), embed, args.seed), flush=True)


def measure(name: str, collections: Sequence[Collection], embed: Embed, seed: int) -> str:
    """Measure all rows of one benchmark, and return their table.

    Args:
        name: name of the benchmark.
        collections: the benchmark's collections.
        embed: maps texts to unit vectors.
        seed: random seed of the halves and of shuffling.
    """
    questions = [question for collection in collections for question in collection.questions]
    rows = {row: [ranking] for row, ranking in flat_rankings(collections, embed).items()}
    if collections[0].dated:
        for row, ranking in flat_rankings(collections, embed, dated=True).items():
            rows[f"{row}, dated"] = [ranking]
    baselines = list(rows)
    grid = settings_grid(collections[0].episodes[0].source is not None)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        paths = [Path(folder) / f"{collection.name}.db" for collection in collections]
        graphs = [
            stack.enter_context(fill(one, path, embed))
            for one, path in zip(collections, paths, strict=True)
        ]
        rows[DEFAULTS] = [episodes_ranking(graphs, collections, PPR(top_k=DEPTHS[-1]))]
        rows[OURS] = [episodes_ranking(graphs, collections, one) for one in grid]
        which = choose(rows[OURS], questions, MAIN_DEPTH[name], seed)
        for graph in graphs:
            shuffle(graph, seed)
        again = {n: episodes_ranking(graphs, collections, grid[n]) for n in set(which.tolist())}
        rows[SHUFFLED] = [picked(again, which)]
    found, base = score(rows, questions, baselines, MAIN_DEPTH[name], seed)
    heads = ["", *(f"recall@{depth}" for depth in DEPTHS)]
    heads += [f"@{MAIN_DEPTH[name]} minus {base}", "ms"]
    lines = [
        (row, *map(cell, one.recall), cell(one.gain, "+"), f"{one.milliseconds:.1f}")
        for row, one in found.items()
    ]
    settings = (f"{OURS}: {described(grid[index])}" for index in found[OURS].chosen)
    num = sum(bool(question.gold) for question in questions)
    return "\n".join([f"### {name}, {num} questions", "", table(heads, lines), "", *settings, ""])


def described(ppr: PPR) -> str:
    """Describe a setting in words."""
    restart = ppr.restart or Restart()
    return (
        f"damping {ppr.damping}, num_facts {restart.num_facts}, episodes {restart.episodes}, "
        f"adjacent {restart.adjacent}"
    )


def score(
    rows: dict[str, list[Ranking]],
    questions: Sequence[Question],
    baselines: Sequence[str],
    depth: int,
    seed: int,
) -> tuple[dict[str, Recalled], str]:
    """Return the recall of every row, with settings chosen on the other half of the questions.

    Args:
        rows: rankings of each row, one per setting.
        questions: all questions; those without gold passages do not count.
        baselines: names of the rows of flat retrieval.
        depth: depth at which settings are chosen and rows compared.
        seed: random seed of the halves.

    Returns:
        The rows, and the name of the best one of flat retrieval.
    """
    with_gold = [i for i, question in enumerate(questions) if question.gold]
    column = DEPTHS.index(depth)
    recalls, chosen, times = {}, {}, {}
    for row, rankings in rows.items():
        which = choose(rankings, questions, depth, seed)
        used = picked(dict(enumerate(rankings)), which)
        recalls[row] = np.array([_recalls(used.episodes[i], questions[i].gold) for i in with_gold])
        chosen[row] = list(dict.fromkeys(which.tolist()))
        times[row] = float(np.median([used.milliseconds[i] for i in with_gold]))
    base = max(baselines, key=lambda row: recalls[row][:, column].mean())
    gains = [values[:, column] - recalls[base][:, column] for values in recalls.values()]
    columns = np.concatenate([np.stack(gains, 1), *recalls.values()], axis=1)
    estimates = bootstrap(columns, [str(i) for i in with_gold])
    found = {}
    for index, row in enumerate(recalls):
        first = len(recalls) + len(DEPTHS) * index
        recall = estimates[first : first + len(DEPTHS)]
        found[row] = Recalled(recall, estimates[index], times[row], chosen[row])
    return found, base


def choose(
    rankings: Sequence[Ranking], questions: Sequence[Question], depth: int, seed: int
) -> IntArray:
    """Return for every question the index of the setting that is best on the other half."""
    half = np.random.default_rng(seed).permutation(len(questions)) % 2
    best = []
    for other in (1, 0):
        part = [i for i, one in enumerate(questions) if one.gold and half[i] == other]
        recall = [
            sum(_recalls(r.episodes[i], questions[i].gold)[DEPTHS.index(depth)] for i in part)
            for r in rankings
        ]
        best.append(int(np.argmax(recall)))
    chosen: IntArray = np.array(best)[half]
    return chosen


def picked(rankings: Mapping[int, Ranking], which: IntArray) -> Ranking:
    """Return a ranking that takes each question from the ranking of its setting."""
    each = [(rankings[setting], i) for i, setting in enumerate(which.tolist())]
    return Ranking(
        [ranking.episodes[i] for ranking, i in each],
        [ranking.milliseconds[i] for ranking, i in each],
    )


def _recalls(found: Sequence[str], gold: frozenset[str]) -> list[float]:
    return [len(gold.intersection(found[:depth])) / len(gold) for depth in DEPTHS]
