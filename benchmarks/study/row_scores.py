"""Turns predictions into a study's numbers: scores of rows over seeds, intervals and paired tests.

Questions of one conversation are correlated, and a trained row is one draw of a random seed:
intervals resample conversations and seeds; the paired test flips the signs of whole conversations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from turngraph.benchmarks.study.config import Row, Study
from turngraph.benchmarks.study.runs import Run
from turngraph.data.scoring.score import (
    NUM_RESAMPLES,
    Estimate,
    Scores,
    estimate,
    score_predictions,
)
from turngraph.data.scoring.score_tables import METRICS

NUM_FLIPS = 10_000
Key = tuple[str, str]


@dataclass(frozen=True)
class RowScores:
    """Scored predictions of a row.

    Args:
        row: the row.
        by_seed: scored predictions by random seed; an untrained row has one.
        untrained: whether nothing is trained, so that its answers are used for every seed.
        runs: its trainings and answers.
    """

    row: Row
    by_seed: dict[int, Scores]
    untrained: bool
    runs: tuple[Run, ...]

    def seeds_with(self, other: RowScores) -> list[tuple[int, int]]:
        """Return the pairs of seeds to compare, own seed first."""
        own, others = sorted(self.by_seed), sorted(other.by_seed)
        if self.untrained:
            return [(own[0], seed) for seed in others]
        if other.untrained:
            return [(seed, others[0]) for seed in own]
        return [(seed, seed) for seed in own if seed in other.by_seed]


def load_rows(study: Study, runs: Sequence[Run]) -> dict[str, RowScores]:
    """Return the rows that have answers, in the study's order."""
    found = {}
    for row in study.rows:
        own = [run for run in runs if run.kind == "answer" and run.row.name == row.name]
        done = [run for run in own if run.state["done"]]
        if done:
            by_seed = {run.seed: score_predictions(run.predictions) for run in done}
            untrained = done[0].config.training.max_steps == 0
            trainings = [r for r in runs if r.folder in {run.trained for run in done}]
            found[row.name] = RowScores(row, by_seed, untrained, (*trainings, *done))
    return found


def values_of(scores: Scores, metric: str) -> dict[Key, float]:
    """Return a metric's value for every question."""
    column = list(METRICS).index(metric)
    pairs = zip(scores.predictions, scores.values[:, column], strict=True)
    return {(one.conversation, one.turn): float(value) for one, value in pairs}


def row_estimate(
    rows: RowScores, metric: str, keep: Callable[[Key], bool] = lambda key: True
) -> Estimate:
    """Return a row's mean and its 95 % interval over conversations and seeds.

    Args:
        rows: scores of one row.
        metric: a key of ``data.scoring.score.METRICS``.
        keep: whether a question counts.
    """
    found = [values_of(scores, metric) for scores in rows.by_seed.values()]
    return over_conversations_and_seeds([{k: v for k, v in f.items() if keep(k)} for f in found])


def difference(a: RowScores, b: RowScores, metric: str) -> tuple[Estimate, float] | None:
    """Return the mean of b minus a, its interval and p-value; None without common seeds."""
    seeds = b.seeds_with(a)
    if not seeds:
        return None
    found = [
        minus(values_of(b.by_seed[of_b], metric), values_of(a.by_seed[of_a], metric))
        for of_b, of_a in seeds
    ]
    return over_conversations_and_seeds(found), sign_flip_test(found)


def minus(values: dict[Key, float], others: dict[Key, float]) -> dict[Key, float]:
    """Return the differences of the questions that are in both."""
    return {key: value - others[key] for key, value in values.items() if key in others}


def cluster_sums(values: Sequence[dict[Key, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Return sums and counts, each [conversations, seeds]; NaN values are skipped."""
    names = sorted({key[0] for of_seed in values for key in of_seed})
    index = {name: i for i, name in enumerate(names)}
    sums = np.zeros((len(names), len(values)))
    counts = np.zeros_like(sums)
    for seed, of_seed in enumerate(values):
        for (conversation, _), value in of_seed.items():
            if not np.isnan(value):
                sums[index[conversation], seed] += value
                counts[index[conversation], seed] += 1
    return sums, counts


def over_conversations_and_seeds(
    values: Sequence[dict[Key, float]], num_resamples: int = NUM_RESAMPLES
) -> Estimate:
    """Return the mean and its 95 % percentile interval over resampled conversations and seeds.

    Args:
        values: for each seed, a value per question; NaN: not measured.
        num_resamples: number of bootstrap resamples.
    """
    sums, counts = cluster_sums(values)
    if not counts.sum():
        return Estimate(np.nan, np.nan, np.nan)
    rng = np.random.default_rng(0)
    conversations, seeds = sums.shape
    times = rng.multinomial(conversations, np.full(conversations, 1 / conversations), num_resamples)
    draws = rng.multinomial(seeds, np.full(seeds, 1 / seeds), num_resamples)
    with np.errstate(invalid="ignore"):
        samples = ((times @ sums) * draws).sum(1) / ((times @ counts) * draws).sum(1)
    return estimate(float(sums.sum() / counts.sum()), samples)


def sign_flip_test(values: Sequence[dict[Key, float]], num_flips: int = NUM_FLIPS) -> float:
    """Return the two-sided p-value of a mean difference of 0, by flipping signs of conversations.

    The test is about other conversations with the same trained models; the intervals also cover
    other seeds.
    """
    sums = cluster_sums(values)[0].sum(1)
    rng = np.random.default_rng(0)
    signs = rng.integers(0, 2, (num_flips, len(sums)), dtype=np.int8) * 2 - 1
    at_least = np.abs(signs @ sums) >= abs(sums.sum()) - 1e-9
    return float((at_least.sum() + 1) / (num_flips + 1))
