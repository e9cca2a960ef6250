"""Two models' answers put together: each question gets the answer whose model is surer of it.

``python benchmarks/combine.py FIRST.jsonl SECOND.jsonl ...`` reads predictions of the same
questions and puts each later file together with the first. The second answer is taken where

    log p(second) - w log p(first) >= limit.

w and the limit are found on one half of the conversations and used on the other, both ways, over
several splits, so no question has a say in its own answer. Combining gains by itself: lay a pair
beside one of two models of the same kind before anything is said of either.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from turngraph.benchmarks.study_numbers import (
    Key,
    cell,
    over_conversations_and_seeds,
    sign_flip_test,
    values_of,
)
from turngraph.data.cli import run_cli
from turngraph.data.scoring.predictions import Prediction
from turngraph.data.scoring.score import score_predictions

METRICS = ("hit_at_1", "hit_at_5")
WEIGHTS = (0.0, 0.25, 0.5, 1.0)
NUM_LIMITS = 41
NUM_SPLITS = 20
NEVER = -1e9
"""Nats of what is no answer: the other one is taken."""
Rule = tuple[float, float]
"""w and the limit."""


@dataclass(frozen=True)
class Answers:
    """Of the questions that two files have in common, by file.

    Args:
        keys: conversation and turn of each question.
        logprobs: nats of each answer, [2, questions].
        hits: of each answer, by metric, [2, questions].
    """

    keys: list[Key]
    logprobs: np.ndarray
    hits: dict[str, np.ndarray]


def main(argv: Sequence[str] | None = None) -> None:
    """Print a table: each file beside the first, and both put together."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("first", help="predictions of infer.py answer")
    parser.add_argument("others", nargs="+", help="predictions of the same questions")
    parser.add_argument("--seed", type=int, default=0, help="of the splits")
    args = parser.parse_args(argv)
    heads = "questions|H@1 first|H@1 second|H@1 either|H@1 together|to first|p|to second|p"
    heads = ("put together with", *heads.split("|"), "H@5 together", "to first", "p")
    print(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}")
    for other in args.others:
        answers = read(args.first, other)
        print(f"| {' | '.join([Path(other).parent.name, *row(answers, args.seed)])} |", flush=True)


def read(first: str | Path, second: str | Path) -> Answers:
    """The answers to the questions that both files have.

    Raises:
        ValueError: they have none in common, or an answer has no log-probability.
    """
    scores = [score_predictions(path) for path in (first, second)]
    ours = [{(p.conversation, p.turn): p for p in each.predictions} for each in scores]
    keys = sorted(ours[0].keys() & ours[1].keys())
    if not keys:
        raise ValueError(f"{second}: has no question of {first}")
    hits = [{metric: values_of(each, metric) for metric in METRICS} for each in scores]
    pairs = zip((first, second), ours, strict=True)
    return Answers(
        keys,
        np.array([[_logprob(path, mine[key]) for key in keys] for path, mine in pairs]),
        {m: np.array([[each[m][key] for key in keys] for each in hits]) for m in METRICS},
    )


def _logprob(path: str | Path, prediction: Prediction) -> float:
    if prediction.error is not None:
        return NEVER
    if math.isnan(prediction.logprob):
        raise ValueError(f"{path}, line {prediction.line}, field logprob: none is there to compare")
    return prediction.logprob


def put_together(
    answers: Answers, seed: int, num_splits: int = NUM_SPLITS
) -> dict[str, np.ndarray]:
    """Hits of the answers that are chosen, by metric: means over splits, [questions]."""
    rng = np.random.default_rng(seed)
    names, number = np.unique([key[0] for key in answers.keys], return_inverse=True)
    if len(names) < 2:
        raise ValueError("the files share questions of one conversation only: two are needed")
    taken = np.zeros(len(answers.keys))  # how often the second answer is
    for _ in range(num_splits):
        half = rng.permutation(len(names))[number] % 2
        for side in (0, 1):
            rule = best_rule(answers, half != side)
            taken += (half == side) & _is_second(answers, rule)
    share = taken / num_splits
    return {m: hits[1] * share + hits[0] * (1 - share) for m, hits in answers.hits.items()}


def best_rule(answers: Answers, chosen: np.ndarray) -> Rule:
    """The rule with most hits at one on some questions; of equal ones the first.

    Args:
        answers: of both models.
        chosen: which questions, bool [questions].
    """
    best, most = (0.0, np.inf), -1.0
    for weight in WEIGHTS:
        surer = (answers.logprobs[1] - weight * answers.logprobs[0])[chosen]
        for limit in (np.inf, *np.quantile(surer, np.linspace(1, 0, NUM_LIMITS)), -np.inf):
            rule = (weight, float(limit))
            second = _is_second(answers, rule)
            hits = answers.hits["hit_at_1"]
            found = np.where(second, hits[1], hits[0])[chosen].sum()
            if found > most:
                best, most = rule, found
    return best


def _is_second(answers: Answers, rule: Rule) -> np.ndarray:
    weight, limit = rule
    return answers.logprobs[1] - weight * answers.logprobs[0] >= limit


def row(answers: Answers, seed: int) -> list[str]:
    """A row of the table."""
    together = put_together(answers, seed)
    hits, hits_5 = answers.hits["hit_at_1"], answers.hits["hit_at_5"]

    def over(values: np.ndarray, sign: str = "") -> str:
        by_key = dict(zip(answers.keys, values.tolist(), strict=True))
        return cell(over_conversations_and_seeds([by_key]), sign)

    def beside(values: np.ndarray) -> list[str]:
        p = sign_flip_test([dict(zip(answers.keys, values.tolist(), strict=True))])
        return [over(values, "+"), f"{p:.3f}" if p >= 0.001 else "< 0.001"]

    one, five = together["hit_at_1"], together["hit_at_5"]
    cells = [over(hits[0]), over(hits[1]), f"{hits.max(0).mean():.3f}", over(one)]
    cells += [*beside(one - hits[0]), *beside(one - hits[1])]
    return [str(len(answers.keys)), *cells, over(five), *beside(five - hits_5[0])]


if __name__ == "__main__":
    run_cli(main)
