"""Scores answers that may be withheld: how many are right, and whether a checkpoint knows which.

An answer is right if one of the accepted spellings says so; to a question that the evidence does
not answer, "not in the evidence" is right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from turngraph.benchmarks.quality.unseen.questions import Accepted, Asked
from turngraph.benchmarks.tables import cell
from turngraph.benchmarks.tables import table as markdown
from turngraph.data.json_fields import Json
from turngraph.data.jsonlines import join_pools
from turngraph.data.scoring.confidence import expected_error
from turngraph.data.scoring.metrics import answer_in_evidence, answer_value, hit, token_f1
from turngraph.data.scoring.score import NUM_RESAMPLES, Estimate, bootstrap, estimate
from turngraph.data.types import NOT_IN_EVIDENCE, Entity

KEPT = 0.9
"""Share of the right answers that the threshold of withholding keeps."""
COVERAGE = 0.5
NAMES = ("H@1", "F1", "withheld", "calibration error", f"risk at {COVERAGE}")


@dataclass(frozen=True)
class Scored:
    """Answers of one checkpoint; all arrays are [questions].

    Args:
        answerable: whether the evidence answers the question.
        right: whether the answer is right.
        f1: of the words of the answer and the best accepted spelling.
        abstains: whether the answer is "not in the evidence".
        confidence: the calibrated one, or where there is none the LM's probability of its answer.
        in_evidence: whether the passages that were read hold an accepted spelling.
        seconds: that the answer took.
        conversations: id of each question's conversation.
        groups: domain of each question's conversation.
        calibrated: whether the confidence is.
    """

    answerable: np.ndarray
    right: np.ndarray
    f1: np.ndarray
    abstains: np.ndarray
    confidence: np.ndarray
    in_evidence: np.ndarray
    seconds: np.ndarray
    conversations: list[str]
    groups: list[str]
    calibrated: bool


def score(asked: Asked, records: Sequence[Json]) -> Scored:
    """Score prediction records.

    Args:
        asked: the questions.
        records: of one checkpoint, one a question.
    """
    pools = {
        (c.id, turn.id): join_pools(c.evidence, turn.evidence)
        for c in asked.conversations
        for turn in c.turns
    }
    by_id = {id(pool): {passage.id: passage for passage in pool} for pool in pools.values()}
    domains = {conversation.id: conversation.domain for conversation in asked.conversations}
    rows = []
    for record in records:
        accepted = asked.accepted[record["conversation"], record["turn"]]
        passages = by_id[id(pools[record["conversation"], record["turn"]])]
        read = [passages[one["id"]] for one in record["evidence"]]
        abstains = answer_value(record["answer"]) == answer_value(NOT_IN_EVIDENCE)
        sure = record["confidence"]
        rows.append(
            (
                bool(accepted),
                _is_right(record, accepted) if accepted else abstains,
                max((token_f1(record["answer"], gold) for gold in accepted), default=0.0),
                abstains,
                math.exp(record["logprob"]) if sure is None else sure,
                any(answer_in_evidence(gold, read) for gold in accepted),
                record["milliseconds"] / 1000,
            )
        )
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    ids = [record["conversation"] for record in records]
    calibrated = all(record["confidence"] is not None for record in records)
    groups = [domains[id_] for id_ in ids]
    values: list[Any] = [*columns, ids, groups, calibrated]
    return Scored(*values)


def _is_right(record: Json, accepted: Accepted) -> bool:
    candidates = [Entity(one["id"], one["label"]) for one in record["candidates"]]
    is_entity = any("logprob" in one for one in record["candidates"])
    return any(hit(record["answer"], candidates, gold, 1, is_entity) for gold in accepted)


def threshold(scored: Scored, chosen: np.ndarray) -> float:
    """Return the highest confidence that keeps ``KEPT`` of the right answers; NaN: none is right.

    Args:
        scored: answers.
        chosen: indices of the questions that count.
    """
    right = scored.answerable[chosen] & scored.right[chosen]
    sure = np.sort(scored.confidence[chosen][right])
    return float(sure[len(sure) - math.ceil(KEPT * len(sure))]) if len(sure) else math.nan


def measures(scored: Scored, chosen: np.ndarray, least: float | None = None) -> list[float]:
    """Return the measures of some questions, in the order of ``NAMES``.

    Args:
        scored: answers.
        chosen: indices of the questions.
        least: confidence below which answers are withheld; None: ``threshold`` of the questions.
    """
    least = threshold(scored, chosen) if least is None else least
    answerable = scored.answerable[chosen]
    right, sure = scored.right[chosen], scored.confidence[chosen]
    withheld = (scored.abstains[chosen] | ~(sure >= least))[~answerable].astype(float)
    pairs = sure.tolist(), right.tolist()
    curve = risk_coverage(*pairs)
    return [
        _mean(right[answerable].astype(float)),
        _mean(scored.f1[chosen][answerable]),
        _mean(withheld) if not math.isnan(least) else math.nan,
        expected_error(*pairs),
        next((risk for seen, risk in curve if seen >= COVERAGE), math.nan),
    ]


def perfect_error(probabilities: np.ndarray, num_draws: int = 400) -> float:
    """Return the mean calibration error of a perfect calibration: few answers have one, too.

    Args:
        probabilities: of the answers, [questions]; each is drawn to be right as often as it says.
        num_draws: number of draws.
    """
    rng, sure = np.random.default_rng(0), probabilities.tolist()
    draws = rng.random((num_draws, len(sure))) < probabilities
    return float(np.mean([expected_error(sure, draw.tolist()) for draw in draws]))


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else math.nan


def estimates(
    scored: Scored, chosen: np.ndarray, least: float | None = None, seed: int = 0
) -> list[Estimate]:
    """Return the measures of some questions with 95 % intervals, resampling conversations.

    Args:
        scored, chosen, least: as in ``measures``.
        seed: random seed.
    """
    of = np.unique(np.array(scored.conversations)[chosen], return_inverse=True)[1]
    members = [chosen[of == index] for index in range(of.max() + 1)]
    rng = np.random.default_rng(seed)
    draws = rng.integers(len(members), size=(NUM_RESAMPLES, len(members)))
    samples = np.array(
        [measures(scored, np.concatenate([members[i] for i in draw]), least) for draw in draws]
    )
    means = measures(scored, chosen, least)
    return [estimate(*pair) for pair in zip(means, samples.T, strict=True)]


def table(rows: dict[str, Scored]) -> str:
    """Return a Markdown table of all questions, and of the questions of each domain.

    Args:
        rows: answers to the same questions, by the checkpoint's name; H@1 is compared with the
            first one's.
    """
    heads = ["asked about", "checkpoint", "questions", "answer in E_t", *NAMES, "seconds"]
    heads += ["calibration error if perfect", "H@1 minus the first"]
    lines: list[list[str]] = []
    first = next(iter(rows.values()))
    groups = list(dict.fromkeys(first.groups))
    everything = np.arange(len(first.groups))
    for group in ("all", *groups):
        for name, scored in rows.items():
            chosen = everything
            if group != "all":
                chosen = np.flatnonzero(np.array(scored.groups) == group)
            least = None if group == "all" else threshold(scored, everything)
            answerable = chosen[scored.answerable[chosen]]
            cells = [
                *(group, name, f"{len(answerable)} + {len(chosen) - len(answerable)}"),
                f"{_mean(scored.in_evidence[answerable].astype(float)):.3f}",
                *(cell(one) for one in estimates(scored, chosen, least)),
                f"{scored.seconds[chosen].mean():.2f}",
                f"{perfect_error(scored.confidence[chosen]):.3f}",
                "" if scored is first else _difference(scored, first, answerable),
            ]
            lines.append(cells)
    bare = [name for name, scored in rows.items() if not scored.calibrated]
    note = f"\n\nNot calibrated, the LM's own probability: {', '.join(bare)}" if bare else ""
    return markdown(heads, lines) + note


def _difference(scored: Scored, first: Scored, chosen: np.ndarray) -> str:
    if not len(chosen):
        return ""
    gains = scored.right[chosen].astype(float) - first.right[chosen]
    [found] = bootstrap(gains[:, None], [scored.conversations[index] for index in chosen])
    return cell(found, "+")


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
