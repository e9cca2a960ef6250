"""Measures planned asking: one question, a fixed plan, a revised plan by rules, and a ceiling.

    python -m turngraph.benchmarks.memory_graph plan --data FOLDER

MuSiQue-100 and HotpotQA-500 are remembered by the rules and asked, over ``ask`` (facts, scored by
the passages that state them) and ``ask_episodes`` (passages). Rows: the question alone; a plan that
is never revised, whose references stay empty; the plan by rules; and, where the file gives the
sub-questions with their answers, these, filled in: a ceiling, as no planner knows the answers. The
number of fillings is chosen on one half of the questions and reported on the other, both ways.
Intervals are 95 % by paired bootstrap. ``--benchmarks planted`` asks about invented things
(``planted_hops.py``), and gives the recall of each kind of question, too.

Prints Markdown tables; ``--output`` writes JSON. Times include the vectors of the question's texts,
unless an earlier run has left them in the user's cache folder; ``--fresh`` computes them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tqdm import tqdm

from turngraph.benchmarks.memory_graph.embedding_cache import EmbeddingCache
from turngraph.benchmarks.memory_graph.memory_retrieval import (
    EMBEDDER,
    halves,
    parser_of,
    write_reports,
)
from turngraph.benchmarks.memory_graph.planted_hops import planted_hops
from turngraph.benchmarks.memory_graph.retrieval_data import (
    Collection,
    Given,
    Question,
    given_steps,
    read,
)
from turngraph.benchmarks.memory_graph.retrievers import fill
from turngraph.configs.models import cache_folder, sentence_encoder
from turngraph.configs.user_error import UserError
from turngraph.data.embedding import Embed
from turngraph.data.memory_graph.extract.rules import RulesExtractor
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Fact
from turngraph.data.memory_graph.plan.decompose import decompose
from turngraph.data.memory_graph.plan.rules_planner import RulesPlanner
from turngraph.data.memory_graph.plan.steps import PlanSettings, Progress
from turngraph.data.memory_graph.recall.plan_trace import PlanTrace
from turngraph.data.memory_graph.recall.recall import RecallSettings
from turngraph.data.memory_graph.recall.traverse_settings import PPR, Traversal
from turngraph.data.scoring.score import bootstrap
from turngraph.inference.model_options import make_embed

Json = dict[str, Any]
Over = Literal["facts", "episodes"]
COMMAND = ("python", "-m", "turngraph.benchmarks.memory_graph", "plan")
DEPTHS, DEPTH = (2, 5, 10), 5
BENCHMARKS = ("musique", "hotpotqa", "planted")
NUM_FILLINGS = (1, 2, 3)
SINGLE, FIXED, REVISED, ORACLE = (
    "one question",
    "fixed plan",
    "revised by rules",
    "oracle (a ceiling): given sub-questions, gold answers filled in",
)
KEPT = 30
"""Passages of a ranking that are kept, of which the first ten are scored."""


@dataclass
class Row:
    """Results of one way of asking, by question.

    Args:
        passages: origins of the passages, best first.
        milliseconds: duration.
        cpu: time of the processor, in milliseconds, which others' work lengthens less.
        calls, hits, recalls: as in ``PlanTrace``; 0 without a plan.
        steps: number of steps.
        own: for each given sub-question, whether its passage is among the first 5 of the step with
            its number.
    """

    passages: list[list[str]] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    hits: list[int] = field(default_factory=list)
    recalls: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    own: list[list[bool]] = field(default_factory=list)


def recall_at(row: Row, questions: Sequence[Question], depth: int) -> np.ndarray:
    """Return the recall of each question's gold passages, float64 [questions]."""
    pairs = zip(questions, row.passages, strict=True)
    return np.array([len(one.gold.intersection(p[:depth])) / len(one.gold) for one, p in pairs])


def choose(
    tried: Sequence[Row], questions: Sequence[Question], seed: int, depth: int
) -> tuple[Row, list[int]]:
    """Return a row that takes each question from the row that is best on the other half.

    Args:
        tried: rows of one way with different settings, or of different ways.
        questions: the questions.
        seed: random seed of the halves.
        depth: depth at which rows are compared.

    Returns:
        The row, and the index of the one chosen for each half.
    """
    half = halves(len(questions), seed)
    each = [recall_at(row, questions, depth) for row in tried]
    best = [int(np.argmax([values[half == other].mean() for values in each])) for other in (1, 0)]
    row = Row()
    for name in vars(row):
        values = [getattr(one, name) for one in tried]
        if all(values):
            picked = [values[best[part]][i] for i, part in enumerate(half.tolist())]
            setattr(row, name, picked)
    return row, best


class OraclePlanner(RulesPlanner):
    """Planner of given sub-questions in which the gold answers are filled in."""

    name = "oracle"
    given: Sequence[str] = ()

    def split(self, questions: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the questions, unsplit."""
        return [(question,) for question in questions]

    def plan(self, progress: Sequence[Progress]) -> list[tuple[str, ...]]:
        """Return the given sub-questions."""
        return [tuple(self.given) for _ in progress]


def main(argv: Sequence[str]) -> None:
    """Measure, print the tables and write the JSON file."""
    args = parse(argv)
    path = cache_folder() / "embeddings" / f"{args.embedder.replace('/', '--')}.db"
    encoder = sentence_encoder(args.embedder)
    reports = []
    for name in args.benchmarks:
        planted = planted_hops(args.seed) if name == "planted" else None
        [collection] = [planted.collection] if planted else read(name, Path(args.data))
        given = given_steps(Path(args.data)) if name == "musique" else None
        with tempfile.TemporaryDirectory() as folder:
            kept = args.graphs or folder
            Path(kept).mkdir(parents=True, exist_ok=True)
            database = Path(kept) / f"{name}-rules.db"
            with open_graph(collection, database, EmbeddingCache(path, encoder)) as graph:
                if args.fresh:
                    graph._recall.embed = make_embed(args.embedder)
                for over in args.over:
                    reports.append(measure(name, graph, collection, over, given, args.seed))
                    if planted:
                        reports[-1]["kinds"] = by_kind(reports[-1], planted.kinds)
                    print(markdown(reports[-1]), flush=True)
    if args.output:
        write_reports(args.output, [*COMMAND, *argv], reports)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = parser_of(COMMAND, __doc__)
    add = parser.add_argument
    add("--data", required=True, help="folder with the benchmarks' files, at any depth")
    add("--benchmarks", nargs="+", choices=BENCHMARKS, default=["musique", "hotpotqa"])
    add("--over", nargs="+", choices=("episodes", "facts"), default=["episodes", "facts"])
    add("--embedder", default=EMBEDDER, help="sentence encoder")
    add("--fresh", action="store_true", help="embed questions anew, for times")
    add("--graphs", help="folder where filled graphs are kept for later runs; default: nowhere")
    add("--seed", type=int, default=0, help="random seed of the halves")
    add("--output", help="JSON file")
    return parser.parse_args(argv)


def by_kind(report: Json, kinds: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the mean recall at ``DEPTH`` of each kind of question, for each row."""
    named = np.array(kinds)
    return {
        row: {kind: float(np.array(values)[named == kind].mean()) for kind in dict.fromkeys(kinds)}
        for row, values in report["each"].items()
    }


def open_graph(collection: Collection, path: Path, embed: Embed) -> MemoryGraph:
    """Open the memory graph of a collection, and fill it unless an earlier run has.

    Raises:
        UserError: the file is a graph that an interrupted run left unfinished.
    """
    if path.exists():
        graph = MemoryGraph.open(path, embed, RulesExtractor(), read_only=True)
        [(num,)] = graph.store.db.execute("SELECT count(*) FROM episodes")
        if num != len(collection.episodes):
            graph.close()
            raise UserError(f"{path}: {num} of {len(collection.episodes)} passages; delete it")
        return graph
    return fill(collection, "rules", path, embed)


def measure(
    name: str,
    graph: MemoryGraph,
    collection: Collection,
    over: Over,
    given: Sequence[Sequence[Given]] | None,
    seed: int,
) -> Json:
    """Measure all rows of one benchmark over one kind of recall.

    Args:
        name: name of the benchmark.
        graph: the filled memory graph.
        collection: passages and questions.
        over: what a clue query recalls.
        given: sub-questions of every question; None: the file has none.
        seed: random seed of the halves.
    """
    questions = collection.questions
    settings = PlanSettings(over=over, recall=_recall_settings(over))
    rows = {
        SINGLE: _single(graph, questions, settings.recall, over),
        FIXED: _planned(graph, questions, replace(settings, revise=False), given),
    }
    tried = [
        _planned(graph, questions, replace(settings, num_fillings=count), given)
        for count in NUM_FILLINGS
    ]
    rows[REVISED], chosen = choose(tried, questions, seed, DEPTH)
    if given is not None:
        planner = OraclePlanner(graph._recall)
        rows[ORACLE] = _planned(graph, questions, settings, given, planner)
    report = score(rows, questions)
    fillings = [NUM_FILLINGS[i] for i in chosen]
    report |= {"benchmark": name, "over": over, "num_fillings": fillings, "rows_tried": {}}
    half = halves(len(questions), seed)
    for count, row in zip(NUM_FILLINGS, tried, strict=True):
        each = recalls(row, questions)[:, DEPTHS.index(DEPTH)]
        parts = (each, each[half == 0], each[half == 1])
        report["rows_tried"][count] = [float(part.mean()) for part in parts]
    if given is not None:
        report["decomposition"] = decomposition(rows[REVISED], questions, given)
    return report


def _recall_settings(over: Over) -> RecallSettings:
    if over == "facts":
        return RecallSettings()
    return RecallSettings(Traversal(ppr=PPR(top_k=3 * DEPTHS[-1])))


def _single(
    graph: MemoryGraph, questions: Sequence[Question], settings: RecallSettings, over: Over
) -> Row:
    def ask(question: str, index: int) -> Sequence[Fact]:
        graph.clear_recalls()
        if over == "episodes":
            return graph.ask_episodes(question, settings=settings).facts
        return graph.ask(question, settings=settings).facts

    return _asked(graph, questions, ask, SINGLE)


def _planned(
    graph: MemoryGraph,
    questions: Sequence[Question],
    settings: PlanSettings,
    given: Sequence[Sequence[Given]] | None,
    oracle: OraclePlanner | None = None,
) -> Row:
    origins = _origins(graph)
    found: list[PlanTrace] = []

    def ask(question: str, index: int) -> Sequence[Fact]:
        graph.clear_recalls()  # every row pays for its own
        if oracle is not None and given is not None:
            oracle.given = [step.text for step in given[index]]
        planned = graph.ask_planned(question, settings=settings, planner=oracle)
        assert planned.plan is not None
        found.append(planned.plan)
        return planned.facts

    row = _asked(graph, questions, ask, oracle.name if oracle else FIXED)
    for index, planned in enumerate(found):
        row.calls.append(planned.calls)
        row.hits.append(planned.hits)
        row.recalls.append(planned.recalls)
        row.steps.append(sum(len(sub.steps) for sub in planned.subs))
        if given is not None:
            steps = planned.subs[0].steps
            passages = [_passages(step.facts, origins)[:DEPTH] for step in steps]
            pairs = zip(given[index], passages, strict=False)
            row.own.append([step.passage in own for step, own in pairs])
    return row


def _asked(
    graph: MemoryGraph,
    questions: Sequence[Question],
    ask: Callable[[str, int], Sequence[Fact]],
    name: str,
) -> Row:
    row = Row()
    origins = _origins(graph)
    for index, question in enumerate(tqdm(questions, desc=name, leave=False, delay=2)):
        began, began_cpu = time.perf_counter(), time.process_time()
        facts = ask(question.text, index)
        row.cpu.append(1000 * (time.process_time() - began_cpu))
        row.milliseconds.append(1000 * (time.perf_counter() - began))
        row.passages.append(_passages(facts, origins))
    return row


def _origins(graph: MemoryGraph) -> dict[int, str]:
    return dict(graph.store.db.execute("SELECT node, origin FROM episodes"))


def _passages(facts: Sequence[Fact], origins: dict[int, str]) -> list[str]:
    """Return the passages that are facts or state them, each once, at most ``KEPT``."""
    nodes = (place.episode for fact in facts for place in fact.provenance)
    return [origins[node] for node in dict.fromkeys(nodes)][:KEPT]


def recalls(row: Row, questions: Sequence[Question]) -> np.ndarray:
    """Return the recall of gold passages, [questions, depths]."""
    return np.stack([recall_at(row, questions, depth) for depth in DEPTHS], axis=1)


def score(rows: dict[str, Row], questions: Sequence[Question]) -> Json:
    """Return the recall, cost and gains of every row, with intervals."""
    column = DEPTHS.index(DEPTH)
    each = {name: recalls(row, questions) for name, row in rows.items()}
    gains = [values[:, column] - each[SINGLE][:, column] for values in each.values()]
    over_fixed = each[REVISED][:, column] - each[FIXED][:, column]
    table = np.concatenate([np.stack([*gains, over_fixed], 1), *each.values()], axis=1)
    estimates = bootstrap(table, [str(i) for i in range(len(questions))])
    report: Json = {"questions": len(questions), "rows": {}}
    singles = (SINGLE, FIXED, REVISED)
    report["each"] = {name: each[name][:, column].tolist() for name in singles}
    report["revised over fixed"] = list(estimates[len(rows)])
    for index, (name, row) in enumerate(rows.items()):
        first = len(rows) + 1 + len(DEPTHS) * index
        report["rows"][name] = {
            "recall": {d: list(e) for d, e in zip(DEPTHS, estimates[first:], strict=False)},
            "gain": list(estimates[index]),
            "calls": float(np.mean(row.calls or [0])),
            "steps": float(np.mean(row.steps or [0])),
            "recalls": float(np.mean(row.recalls or [1])),
            "hits": float(np.mean(row.hits or [0])),
            "p50": float(np.median(row.milliseconds)),
            "p95": float(np.quantile(row.milliseconds, 0.95)),
            "cpu p50": float(np.median(row.cpu)),
            "cpu p95": float(np.quantile(row.cpu, 0.95)),
        }
    return report


def decomposition(
    row: Row, questions: Sequence[Question], given: Sequence[Sequence[Given]]
) -> Json:
    """Compare the plans with the given sub-questions: number of steps, passages of each step."""
    counts = [len(decompose(question.text)) for question in questions]
    hops = [len(steps) for steps in given]
    own = [found for each in row.own for found in each]
    total = sum(hops)
    return {
        "same number of steps": float(np.mean(np.array(counts) == np.array(hops))),
        "always two": float(np.mean(np.array(hops) == 2)),
        "own passage at 5": sum(own) / total,
    }


def markdown(report: Json) -> str:
    """Return the Markdown table of one benchmark over one kind of recall."""
    over = "ask_episodes" if report["over"] == "episodes" else "ask"
    heads = [f"recall@{d}" for d in DEPTHS]
    heads += [
        f"@{DEPTH} minus {SINGLE}",
        "steps",
        "recalls",
        "LM calls",
        "ms p50",
        "ms p95",
        "CPU ms p95",
    ]
    lines = [
        f"### {report['benchmark']}, filled by rules, over {over}, {report['questions']} questions",
        "",
        "| | " + " | ".join(heads) + " |",
        "|---" * (len(heads) + 1) + "|",
    ]
    for name, row in report["rows"].items():
        cells = [_interval(row["recall"][d]) for d in DEPTHS]
        cells += ["" if name == SINGLE else _interval(row["gain"], "+")]
        cells += [f"{row[key]:.1f}" for key in ("steps", "recalls")]
        cells += [f"{row['calls']:.0f}", f"{row['p50']:.0f}", f"{row['p95']:.0f}"]
        cells += [f"{row['cpu p95']:.0f}"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    tried = ", ".join(
        f"{count}: {mean:.3f} ({one:.3f} and {other:.3f})"
        for count, (mean, one, other) in report["rows_tried"].items()
    )
    chosen = " and ".join(map(str, report["num_fillings"]))
    lines += [
        "",
        f"Revised minus fixed plan: {_interval(report['revised over fixed'], '+')}. "
        f"Fillings of a reference: {chosen}, by the other half; "
        f"recall@{DEPTH} on all (and on each half): {tried}.",
    ]
    if "kinds" in report:
        kinds = report["kinds"]
        lines += ["", "| recall@5 | " + " | ".join(kinds) + " |", "|---" * (len(kinds) + 1) + "|"]
        for kind in kinds[SINGLE]:
            values = " | ".join(f"{kinds[row][kind]:.3f}" for row in kinds)
            lines.append(f"| {kind} | {values} |")
    if "decomposition" in report:
        parts = [f"{name} {value:.2f}" for name, value in report["decomposition"].items()]
        lines.append(f"Plans against the given sub-questions: {', '.join(parts)}.")
    return "\n".join(lines) + "\n"


def _interval(estimate: Sequence[float], sign: str = "") -> str:
    mean, low, high = estimate
    return f"{mean:{sign}.3f} ({low:{sign}.3f} to {high:{sign}.3f})"
