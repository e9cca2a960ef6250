"""Measures the memory graph's retrieval, compared with BM25, dense retrieval and their fusion.

    python -m turngraph.benchmarks.memory_graph retrieval --data FOLDER

MuSiQue-100 and HotpotQA-500 (passages as episodes) and LoCoMo (turns as episodes) are remembered
and then queried. Rows: BM25, dense and their RRF over the same texts; each traversal, scored by the
episodes that its facts come from; and ``ask_episodes`` with its default settings, with settings
chosen on one half of the questions and reported on the other, both ways, and over shuffled edges.
All rows share one embedder.

Prints Markdown tables; ``--output`` writes JSON. Vectors are kept in the user's cache folder: the
first run computes about 150,000 (an hour on one core), later runs none.
"""

from __future__ import annotations

import argparse
import json
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from turngraph.benchmarks.embedding_cache import kept_encoder
from turngraph.benchmarks.memory_graph.retrieval_data import FILES, Collection, Question, read
from turngraph.benchmarks.memory_graph.retrievers import (
    MIXTURES,
    Filling,
    Ranking,
    episodes_ranking,
    fill,
    flat_rankings,
    mixture_ranking,
    settings_grid,
    shuffle,
)
from turngraph.data.embedding import Embed
from turngraph.data.memory_graph.recall.traverse_settings import PPR, Restart
from turngraph.data.outputs import whole_file
from turngraph.data.scoring.score import bootstrap

Json = dict[str, Any]
IntArray = npt.NDArray[np.int64]
COMMAND = ("python", "-m", "turngraph.benchmarks.memory_graph", "retrieval")
DEPTHS = (2, 5, 10)
MAIN_DEPTH = {"musique": 5, "hotpotqa": 5, "locomo": 10}
FILLINGS: dict[str, tuple[Filling, ...]] = {
    "musique": ("given", "rules", "given + rules"),
    "hotpotqa": ("rules",),
    "locomo": ("rules",),
}
OURS, SHUFFLED = "ask_episodes", "ask_episodes, edges shuffled"
DEFAULTS = "ask_episodes, default settings"
EMBEDDER = "sentence-transformers/all-MiniLM-L6-v2"


def main(argv: Sequence[str]) -> None:
    """Measure, print the tables and write the JSON file."""
    args = parse(argv)
    embed = kept_encoder(args.embedder)
    reports = []
    for name in args.benchmarks:
        collections = read(name, Path(args.data))
        for filling in FILLINGS[name]:
            reports.append(measure(name, filling, collections, embed, args.seed))
            print(markdown(reports[-1]), flush=True)
    if args.output:
        write_reports(args.output, [*COMMAND, *argv], reports)


def write_reports(path: str, command: Sequence[str], reports: Sequence[Json]) -> None:
    """Write the reports of a benchmark, with its command, as JSON."""
    with whole_file(path) as file:
        json.dump({"command": shlex.join(command), "reports": reports}, file, indent=1)


def parser_of(command: Sequence[str], description: str | None) -> argparse.ArgumentParser:
    """Return a parser of a benchmark's command, without options yet."""
    return argparse.ArgumentParser(
        prog=" ".join(command),
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = parser_of(COMMAND, __doc__)
    add = parser.add_argument
    add("--data", required=True, help="folder with the benchmarks' files, at any depth")
    add("--benchmarks", nargs="+", choices=sorted(FILES), default=list(FILES))
    add("--embedder", default=EMBEDDER, help="sentence encoder")
    add("--seed", type=int, default=0, help="random seed of the halves and of shuffling")
    add("--output", help="JSON file")
    return parser.parse_args(argv)


def measure(
    name: str, filling: Filling, collections: Sequence[Collection], embed: Embed, seed: int
) -> Json:
    """Measure all rows of one benchmark with one extractor.

    Args:
        name: name of the benchmark.
        filling: which extractor fills the memory graph.
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
            stack.enter_context(fill(one, filling, path, embed))
            for one, path in zip(collections, paths, strict=True)
        ]
        for mixture in MIXTURES:
            rows[mixture] = [mixture_ranking(graphs, collections, mixture, embed)]
        rows[DEFAULTS] = [episodes_ranking(graphs, collections, PPR(top_k=DEPTHS[-1]))]
        rows[OURS] = [episodes_ranking(graphs, collections, one) for one in grid]
        which = choose(rows[OURS], questions, MAIN_DEPTH[name], seed)
        for graph in graphs:
            shuffle(graph, seed)
        again = {n: episodes_ranking(graphs, collections, grid[n]) for n in set(which.tolist())}
        rows[SHUFFLED] = [picked(again, which)]
    found = {"benchmark": name, "filling": filling, "settings": [described(one) for one in grid]}
    return found | score(rows, questions, baselines, MAIN_DEPTH[name], seed)


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
) -> Json:
    """Return the recall of every row, with settings chosen on the other half of the questions.

    Args:
        rows: rankings of each row, one per setting.
        questions: all questions; those without gold passages count only for "no answer".
        baselines: names of the rows of flat retrieval.
        depth: depth at which settings are chosen and rows compared.
        seed: random seed of the halves.
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
    ids = [str(i) for i in with_gold]
    table = np.concatenate([np.stack(gains, 1), *recalls.values()], axis=1)
    estimates = bootstrap(table, ids)
    report: Json = {"questions": len(with_gold), "baseline": base, "depth": depth, "rows": {}}
    for index, row in enumerate(recalls):
        first = len(recalls) + len(DEPTHS) * index
        report["rows"][row] = {
            "recall": {d: list(e) for d, e in zip(DEPTHS, estimates[first:], strict=False)},
            "gain": list(estimates[index]),
            "milliseconds": times[row],
            "chosen": chosen[row],
        }
    if len(with_gold) < len(questions) and set(MIXTURES) & set(rows):
        report["no_answer"] = {
            row: no_answer(rows[row][0].closeness, questions, halves(len(questions), seed))
            for row in MIXTURES
            if row in rows
        }
    return report


def halves(count: int, seed: int) -> IntArray:
    """Assign 0 or 1 to every question at random, equally often."""
    return np.random.default_rng(seed).permutation(count) % 2


def choose(
    rankings: Sequence[Ranking], questions: Sequence[Question], depth: int, seed: int
) -> IntArray:
    """Return for every question the index of the setting that is best on the other half."""
    half = halves(len(questions), seed)
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


def no_answer(closeness: Sequence[float], questions: Sequence[Question], half: IntArray) -> Json:
    """Return how often nothing is found, with a ``min_similarity`` chosen on the other half.

    The threshold is the one with the largest gap between the two rates.

    Args:
        closeness: similarity of the closest fact to each question.
        questions: questions; for those without gold passages nothing should be found.
        half: half of each question.
    """
    close = np.array(closeness)
    should = np.array([not question.gold for question in questions])
    thresholds = np.arange(0, 1, 0.01)
    silent = close < thresholds[:, None]
    best = []
    for other in (1, 0):
        part = half == other
        gap = silent[:, part & should].mean(1) - silent[:, part & ~should].mean(1)
        best.append(int(gap.argmax()))
    decided = silent[np.array(best)[half], np.arange(len(questions))]
    return {
        "thresholds": [round(float(thresholds[i]), 2) for i in best],
        "rightly": float(decided[should].mean()),
        "wrongly": float(decided[~should].mean()),
    }


def markdown(report: Json) -> str:
    """Return the Markdown table of one benchmark."""
    depth = report["depth"]
    heads = [f"recall@{d}" for d in DEPTHS] + [f"@{depth} minus {report['baseline']}", "ms"]
    lines = [
        f"### {report['benchmark']}, filled by {report['filling']}, "
        f"{report['questions']} questions",
        "",
        "| | " + " | ".join(heads) + " |",
        "|---" * (len(heads) + 1) + "|",
    ]
    for row, found in report["rows"].items():
        cells = [_interval(found["recall"][d]) for d in DEPTHS]
        cells += [_interval(found["gain"], "+"), f"{found['milliseconds']:.1f}"]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    for row, found in report["rows"].items():
        if row == OURS:
            lines += ["", *(f"{row}: {report['settings'][one]}" for one in found["chosen"])]
    if "no_answer" in report:
        lines += [
            "",
            "| no answer | min_similarity | to unanswerable questions | to other questions |",
        ]
        lines += ["|---" * 4 + "|"]
        for row, found in report["no_answer"].items():
            rates = f"{found['rightly']:.1%} | {found['wrongly']:.1%}"
            lines.append(f"| {row} | {' and '.join(map(str, found['thresholds']))} | {rates} |")
    return "\n".join(lines) + "\n"


def _interval(estimate: Sequence[float], sign: str = "") -> str:
    mean, low, high = estimate
    return f"{mean:{sign}.3f} ({low:{sign}.3f} to {high:{sign}.3f})"
