"""Scores predictions: metrics per question, bootstrap intervals, breakdowns, differences.

A predictions file has one line per turn; scoring needs nothing else. Questions of one conversation
are dependent, so every interval resamples whole conversations.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.json_fields import Json, Location
from turngraph.data.normalise import answer_type
from turngraph.data.outputs import is_standard_output, whole_file
from turngraph.data.scoring.console import PipedConsole
from turngraph.data.scoring.metrics import exact_match, hit, substring_match, token_f1
from turngraph.data.scoring.predictions import Prediction, read_predictions
from turngraph.data.scoring.score_tables import DIFFERENCES, METRICS, print_tables

logger = logging.getLogger(__name__)

GROUPINGS = ("source", "turn", "domain", "answer_type", "held_by")

NUM_RESAMPLES = 2000
INTERVAL = (2.5, 97.5)
_CHUNK = 200  # resamples at a time: 200 x 10,000 conversations are 16 MB


class Estimate(NamedTuple):
    """A mean with its 95 % bootstrap interval; all NaN if nothing was measured."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Scores:
    """A scored predictions file: ``values[i, j]`` is metric j (order of METRICS) of question i."""

    path: str
    predictions: tuple[Prediction, ...]
    values: np.ndarray


@dataclass(frozen=True)
class Summary:
    """The numbers of one row: counts, and an estimate per metric."""

    num_questions: int
    num_conversations: int
    num_errors: int
    estimates: dict[str, Estimate]


def score_predictions(path: str | Path) -> Scores:
    """Read a predictions file and compute every metric of every question.

    A line with an error is wrong in every metric.

    Raises:
        UserError: as ``read_predictions``.
    """
    predictions = tuple(read_predictions(path))
    rows = [[*_quality(one), one.num_tokens, one.milliseconds / 1000] for one in predictions]
    return Scores(str(path), predictions, np.array(rows, dtype=np.float64))


def _quality(one: Prediction) -> list[float]:
    """Return the metrics of one question; after an error only E_t can be right."""
    in_evidence = math.nan if one.error is None else 0.0
    if one.answer_in_evidence is not None:
        in_evidence = float(bool(one.answer_in_evidence))
    return [
        float(hit(one.answer, one.candidates, one.gold, 1, one.is_entity)),
        float(hit(one.answer, one.candidates, one.gold, 5, one.is_entity)),
        one.guess_at_1,
        one.guess_at_5,
        float(exact_match(one.answer, one.gold)),
        token_f1(one.answer, one.gold),
        float(substring_match(one.answer, one.gold)),
        in_evidence,
    ]


def bootstrap(values: np.ndarray, clusters: Sequence[str]) -> list[Estimate]:
    """Return mean and 95 % percentile interval of every column, resampling whole clusters.

    All columns use the same draws, which are the same each time.

    Args:
        values: [questions, columns]; NaN is a question without this measurement.
        clusters: the conversation of every question.
    """
    codes = np.unique(np.asarray(clusters, dtype=object).astype(str), return_inverse=True)[1]
    num_clusters = int(codes.max()) + 1
    known = ~np.isnan(values)
    sums = np.zeros((num_clusters, values.shape[1]))
    counts = np.zeros_like(sums)
    np.add.at(sums, codes, np.where(known, values, 0.0))
    np.add.at(counts, codes, known.astype(float))
    rng = np.random.default_rng(0)
    draws = np.full(num_clusters, 1 / num_clusters)
    means = []
    with np.errstate(invalid="ignore"):  # 0 / 0: no measurement in this sample
        for _ in range(NUM_RESAMPLES // _CHUNK):
            times = rng.multinomial(num_clusters, draws, size=_CHUNK).astype(float)
            means.append((times @ sums) / (times @ counts))
        mean = sums.sum(0) / counts.sum(0)
    return [estimate(*pair) for pair in zip(mean, np.concatenate(means).T, strict=True)]


def estimate(mean: float, samples: np.ndarray) -> Estimate:
    """Return a mean with the 95 % percentile interval of its resamples."""
    if math.isnan(mean):
        return Estimate(math.nan, math.nan, math.nan)
    low, high = np.nanpercentile(samples, INTERVAL)
    return Estimate(float(mean), float(low), float(high))


def summarise(scores: Scores, indices: Sequence[int] | None = None) -> Summary:
    """Summarise all questions, or those at ``indices``."""
    chosen = list(range(len(scores.predictions)) if indices is None else indices)
    predictions = [scores.predictions[i] for i in chosen]
    conversations = [one.conversation for one in predictions]
    estimates = bootstrap(scores.values[chosen], conversations)
    return Summary(
        num_questions=len(chosen),
        num_conversations=len(set(conversations)),
        num_errors=sum(one.error is not None for one in predictions),
        estimates=dict(zip(METRICS, estimates, strict=True)),
    )


def breakdown(scores: Scores, by: str) -> dict[str, Summary]:
    """Return a summary per group of questions, groups in sorted order (turns by number, from 1).

    Args:
        scores: scores of one file.
        by: one of GROUPINGS. ``answer_type`` is that of the gold labels, "string" unless all
            share one; ``held_by`` is the source of the given passages that hold the answer; a
            question without source or domain is in the group "(none)".

    Raises:
        UserError: ``by`` is unknown, or a line has no ``turn_index`` to group by.
    """
    if by not in GROUPINGS:
        raise UserError(f"--by: must be one of {', '.join(GROUPINGS)}, not {by!r}")
    groups: dict[Any, list[int]] = {}
    for index, one in enumerate(scores.predictions):
        groups.setdefault(group_of(one, by, scores.path), []).append(index)
    return {str(group): summarise(scores, groups[group]) for group in sorted(groups)}


def group_of(one: Prediction, by: str, path: str) -> str | int:
    """Return the group of a question: its turn as a number from 1, all others as text."""
    if by == "turn":
        if one.turn_index is None:
            raise Location(path, one.line, "turn_index").error("missing; --by turn needs it")
        return one.turn_index + 1
    if by == "answer_type":
        types = {answer_type(answer.label) for answer in one.gold}
        return types.pop() if len(types) == 1 else "string"
    if by == "held_by":
        held_by = one.answer_in_evidence or ("nothing",)
        return held_by[0] if len(held_by) == 1 else "several"
    return (one.source if by == "source" else one.domain) or "(none)"


def _positions(scores: Scores) -> dict[tuple[str, str], int]:
    return {(one.conversation, one.turn): i for i, one in enumerate(scores.predictions)}


def common_questions(a: Scores, b: Scores) -> list[tuple[int, int]]:
    """Return the indices in a and b of the questions that both answer, in a's order."""
    of_b = _positions(b)
    return [(i, of_b[key]) for key, i in _positions(a).items() if key in of_b]


def paired_difference(a: Scores, b: Scores, metric: str) -> Estimate:
    """Return mean and 95 % interval of b minus a on common questions, resampling conversations.

    Args:
        a: the baseline.
        b: the other row; above zero, b is better.
        metric: a key of METRICS.

    Raises:
        UserError: the metric is unknown or no question is common.
    """
    if metric not in METRICS:
        raise UserError(f"metric: must be one of {', '.join(METRICS)}, not {metric!r}")
    pairs = common_questions(a, b)
    if not pairs:
        raise UserError(f"{b.path}: no question (conversation, turn) in common with {a.path}")
    column = list(METRICS).index(metric)
    of_a, of_b = (list(side) for side in zip(*pairs, strict=True))
    difference = b.values[of_b, column] - a.values[of_a, column]
    return bootstrap(difference[:, None], [a.predictions[i].conversation for i in of_a])[0]


def score_files(
    paths: Sequence[str | Path],
    by: Sequence[str],
    output_json: str | Path | None,
) -> Json:
    """Score predictions files, print the tables, write and return the numbers.

    Args:
        paths: at least one; the first is the baseline of the differences.
        by: the breakdowns, each one of GROUPINGS.
        output_json: JSON file for the numbers, NaN as null; None: no file.

    Raises:
        UserError: a file is malformed or shares no question with the first.
    """
    if not paths:
        raise UserError("--predictions: at least one file is needed")
    scored = [score_predictions(path) for path in paths]
    files = [
        {
            "path": scores.path,
            "total": _summary_json(summarise(scores)),
            "by": {
                name: {group: _summary_json(row) for group, row in breakdown(scores, name).items()}
                for name in by
            },
        }
        for scores in scored
    ]
    report: Json = {"files": files}
    report["differences"] = [_difference_json(scored[0], other) for other in scored[1:]]
    # if the numbers go to standard output, the tables go to standard error
    console = PipedConsole(stderr=output_json is not None and is_standard_output(output_json))
    print_tables(report, console)
    if output_json is not None:
        with whole_file(output_json) as file:
            file.write(json.dumps(report, ensure_ascii=False, indent=1, allow_nan=False) + "\n")
    return report


def _summary_json(summary: Summary) -> Json:
    return {
        "questions": summary.num_questions,
        "conversations": summary.num_conversations,
        "errors": summary.num_errors,
        "metrics": {name: _estimate_json(value) for name, value in summary.estimates.items()},
    }


def _estimate_json(estimate: Estimate) -> Json:
    pairs = estimate._asdict().items()
    return {name: None if math.isnan(value) else value for name, value in pairs}


def _difference_json(baseline: Scores, other: Scores) -> Json:
    pairs = common_questions(baseline, other)
    changed = sum(baseline.predictions[i].gold != other.predictions[j].gold for i, j in pairs)
    if changed:
        logger.warning(
            "%s: %d of %s have other gold answers than in %s",
            *(other.path, changed, plural(len(pairs), "common question"), baseline.path),
        )
    return {
        "path": other.path,
        "baseline": baseline.path,
        "common": len(pairs),
        "only_in_baseline": len(baseline.predictions) - len(pairs),
        "only_here": len(other.predictions) - len(pairs),
    } | {name: _estimate_json(paired_difference(baseline, other, name)) for name in DIFFERENCES}
