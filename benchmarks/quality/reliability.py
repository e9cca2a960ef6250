"""Is an answer as often right as its confidence says? The calibrated one beside the model's own.

    python -m turngraph.benchmarks.quality.reliability test.jsonl --figure reliability.svg

Reads the output of ``answer``, without ``--abstain_below``, of a checkpoint with a calibration, on
questions that it was not fitted on. The figure is the reliability diagram beside the risk-coverage
curve: the share of wrong answers among the surest ones.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence

from turngraph.configs.user_error import UserError
from turngraph.data.cli import run_cli
from turngraph.data.json_fields import Json, iter_lines
from turngraph.data.scoring.confidence import expected_error

BINS = 10
MEASURES: dict[str, Callable[[Json], float]] = {
    "calibrated confidence": lambda record: float(record["confidence"]),
    "the model's probability": lambda record: math.exp(record["logprob"]),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table, and draw the reliability diagram and the risk-coverage curve."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("predictions", help="output of answer")
    parser.add_argument("--figure", help="file for diagram and curve")
    args = parser.parse_args(argv)
    records = read_records(args.predictions)
    right = [bool(record["hit_at_1"]) for record in records]
    print(f"{len(records)} questions, {sum(right) / len(right):.3f} of the answers are right\n")
    heads = ("", "calibration error", "risk, mean over coverages", "at 25 %", "at 50 %", "at 75 %")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name, measure in MEASURES.items():
        shares = [measure(record) for record in records]
        curve = risk_coverage(shares, right)
        risks = [next(risk for seen, risk in curve if seen >= c) for c in (0.25, 0.5, 0.75)]
        mean = sum(risk for _, risk in curve) / len(curve)
        cells = [expected_error(shares, right, BINS), mean, *risks]
        print(f"| {name} | {' | '.join(f'{cell:.3f}' for cell in cells)} |")
    if args.figure:
        draw(records, right, args.figure)


def risk_coverage(
    probabilities: Sequence[float], right: Sequence[bool]
) -> list[tuple[float, float]]:
    """Return the share of wrong answers among the surest, for each number of them.

    Returns:
        Coverage and risk after each question, the surest first (El-Yaniv and Wiener, 2010).
    """
    order = sorted(range(len(right)), key=lambda i: -probabilities[i])
    wrong, found = 0, list[tuple[float, float]]()
    for num, index in enumerate(order, 1):
        wrong += not right[index]
        found.append((num / len(order), wrong / num))
    return found


def read_records(path: str) -> list[Json]:
    """Read the answered questions with gold answers.

    Raises:
        UserError: there is none, or an answer has no confidence or was withheld; names the line.
    """
    found = []
    for location, record in iter_lines(path):
        if record.get("error") or "hit_at_1" not in record:
            continue
        if record.get("confidence") is None or "withheld" in record:
            raise location.error("no calibrated confidence, or the answer was withheld")
        found.append(record)
    if not found:
        raise UserError(f"{path}: no answer to a question with a gold answer")
    return found


def draw(records: Sequence[Json], right: Sequence[bool], path: str) -> None:
    """Draw the share of right answers in each bin, and that of wrong ones among the surest."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4))
    axes, beside = figure.subplots(1, 2)
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    beside.axhline(1 - sum(right) / len(right), color="0.7", linewidth=1)
    for (name, measure), marker in zip(MEASURES.items(), "os", strict=True):
        bins: dict[int, list[tuple[float, bool]]] = {}
        shares = [measure(record) for record in records]
        for share, is_right in zip(shares, right, strict=True):
            bins.setdefault(min(int(share * BINS), BINS - 1), []).append((share, is_right))
        points = sorted(
            (sum(s for s, _ in pairs) / len(pairs), sum(r for _, r in pairs) / len(pairs))
            for pairs in bins.values()
        )
        axes.plot(*zip(*points, strict=True), marker=marker, label=name)
        beside.plot(*zip(*risk_coverage(shares, right), strict=True), label=name)
    axes.set(xlabel="how sure", ylabel="share that is right", xlim=(0, 1), ylim=(0, 1))
    axes.legend()
    risk = "share of them that is wrong"
    beside.set(xlabel="share answered, the surest first", ylabel=risk, xlim=(0, 1), ylim=(0, 1))
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    run_cli(main)
