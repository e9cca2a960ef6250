"""From predictions to a study's numbers: rows over seeds, intervals, paired tests.

Questions of one conversation hang together, and a trained row is one draw of a seed: intervals
resample conversations and seeds, the paired test flips the signs of whole conversations.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from turngraph.benchmarks.study.config import Row, Study
from turngraph.benchmarks.study.runs import Run
from turngraph.data.scoring.score import (
    METRICS,
    NUM_RESAMPLES,
    Estimate,
    Scores,
    estimate,
    score_predictions,
)

NUM_FLIPS = 10_000
ENOUGH = 100  # questions, to measure how many two rows differ on
Key = tuple[str, str]


@dataclass(frozen=True)
class RowScores:
    """A row's answers.

    Args:
        row: which.
        by_seed: scored predictions; a row that trains nothing has one seed.
        untrained: whether its answers stand for every seed.
        runs: training and answers.
    """

    row: Row
    by_seed: dict[int, Scores]
    untrained: bool
    runs: tuple[Run, ...]

    @property
    def writes(self) -> bool:
        """Whether an LM writes its answers, as the paper's do."""
        answers = self.runs[-1].config.model.answers
        return answers == "text" and self.row.proposals_of is None

    def seeds_with(self, other: RowScores) -> list[tuple[int, int]]:
        """The seeds to compare, its own and the other's."""
        mine, theirs = sorted(self.by_seed), sorted(other.by_seed)
        if self.untrained:
            return [(mine[0], seed) for seed in theirs]
        if other.untrained:
            return [(seed, theirs[0]) for seed in mine]
        return [(seed, seed) for seed in mine if seed in other.by_seed]


def load_rows(study: Study, runs: Sequence[Run]) -> dict[str, RowScores]:
    """The rows that have answers, in the study's order."""
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


def cell(value: Estimate, sign: str = "") -> str:
    """A mean with its interval, as tables show them; a sign ``+`` marks differences."""
    return f"{value.mean:{sign}.3f} [{value.low:{sign}.3f}, {value.high:{sign}.3f}]"


def values_of(scores: Scores, metric: str) -> dict[Key, float]:
    """A metric by question."""
    column = list(METRICS).index(metric)
    pairs = zip(scores.predictions, scores.values[:, column], strict=True)
    return {(one.conversation, one.turn): float(value) for one, value in pairs}


def row_estimate(
    rows: RowScores, metric: str, keep: Callable[[Key], bool] = lambda key: True
) -> Estimate:
    """A row's mean and its 95 % interval over conversations and seeds.

    Args:
        rows: of one row.
        metric: a key of ``data.score.METRICS``.
        keep: which questions.
    """
    found = [values_of(scores, metric) for scores in rows.by_seed.values()]
    return over_conversations_and_seeds([{k: v for k, v in f.items() if keep(k)} for f in found])


def difference(a: RowScores, b: RowScores, metric: str) -> tuple[Estimate, float] | None:
    """Mean of b minus a, its interval, and the p-value; None where no seed is common to them."""
    seeds = b.seeds_with(a)
    if not seeds:
        return None
    found = []
    for of_b, of_a in seeds:
        found.append(minus(values_of(b.by_seed[of_b], metric), values_of(a.by_seed[of_a], metric)))
    return over_conversations_and_seeds(found), sign_flip_test(found)


def minus(values: dict[Key, float], others: dict[Key, float]) -> dict[Key, float]:
    """What the questions have more in the one than in the other, of those that are in both."""
    return {key: value - others[key] for key, value in values.items() if key in others}


def cluster_sums(values: Sequence[dict[Key, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Sums and counts by conversation and seed, [conversations, seeds]; NaN is not measured."""
    names = sorted({key[0] for of_seed in values for key in of_seed})
    number = {name: i for i, name in enumerate(names)}
    sums = np.zeros((len(names), len(values)))
    counts = np.zeros_like(sums)
    for seed, of_seed in enumerate(values):
        for (conversation, _), value in of_seed.items():
            if not np.isnan(value):
                sums[number[conversation], seed] += value
                counts[number[conversation], seed] += 1
    return sums, counts


def over_conversations_and_seeds(
    values: Sequence[dict[Key, float]], num_resamples: int = NUM_RESAMPLES
) -> Estimate:
    """Mean and 95 % percentile interval; conversations and, of several seeds, seeds resampled.

    Args:
        values: of each seed, a value per question; NaN is a question without this measurement.
        num_resamples: how many.
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
    """Two-sided p-value of a mean difference of 0, by flipping the signs of whole conversations.

    It asks whether these trained models differ on other conversations; what other seeds would
    give is what the interval says.
    """
    sums = cluster_sums(values)[0].sum(1)
    rng = np.random.default_rng(0)
    signs = rng.integers(0, 2, (num_flips, len(sums)), dtype=np.int8) * 2 - 1
    at_least = np.abs(signs @ sums) >= abs(sums.sum()) - 1e-9
    return float((at_least.sum() + 1) / (num_flips + 1))


def discordance(study: Study, rows: dict[str, RowScores]) -> float | None:
    """Share of questions that exactly one of two trained core rows hits, whose LM writes.

    The median over pairs and seeds; None where it cannot be known: of one row, of few questions.
    """
    core = [r for r in rows.values() if r.row.core and not r.untrained and r.writes]
    shares = list(_shares(core))
    return statistics.median(shares) if shares else None


def _shares(rows: Iterable[RowScores]) -> Iterable[float]:
    for a, b in combinations(rows, 2):
        for of_a, of_b in a.seeds_with(b):
            left = values_of(a.by_seed[of_a], "hit_at_1")
            right = values_of(b.by_seed[of_b], "hit_at_1")
            common = [key for key in left if key in right]
            if len(common) >= ENOUGH:
                yield sum(left[key] != right[key] for key in common) / len(common)
