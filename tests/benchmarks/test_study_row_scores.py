"""A study's numbers: intervals over conversations and seeds, the paired test, the power."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from turngraph.benchmarks.study.config import Row, Size
from turngraph.benchmarks.study.plan import minutes_left, smallest_difference
from turngraph.benchmarks.study.row_scores import over_conversations_and_seeds, sign_flip_test
from turngraph.configs.schema import DataConfig, TrainingConfig
from turngraph.data.scoring.score import bootstrap

Values = dict[tuple[str, str], float]


def questions(make: Callable[[int, int], float], num: int = 60, per: int = 3) -> Values:
    """Values of questions, some to a conversation."""
    return {(f"c{c}", str(t)): make(c, t) for c in range(num) for t in range(per)}


def test_one_seed_gives_the_interval_of_scoring() -> None:
    rng = np.random.default_rng(1)
    values = questions(lambda c, t: float(rng.random() < 0.3))
    array = np.array(list(values.values()))[:, None]
    expected = bootstrap(array, [key[0] for key in values])[0]
    found = over_conversations_and_seeds([values])
    assert found.mean == pytest.approx(expected.mean)
    assert found.low == pytest.approx(expected.low, abs=0.02)
    assert found.high == pytest.approx(expected.high, abs=0.02)


def test_seeds_that_differ_widen_the_interval() -> None:
    values = questions(lambda c, t: 0.5)
    flat = over_conversations_and_seeds([values] * 3)
    assert flat == (0.5, 0.5, 0.5)
    apart = [questions(lambda c, t, m=mean: m) for mean in (0.4, 0.5, 0.6)]
    found = over_conversations_and_seeds(apart)
    assert found.mean == pytest.approx(0.5)
    assert (found.low, found.high) == (pytest.approx(0.4, abs=0.02), pytest.approx(0.6, abs=0.02))


def test_a_question_that_was_not_measured_counts_nowhere() -> None:
    values = questions(lambda c, t: math.nan if t else 1.0)
    assert over_conversations_and_seeds([values]) == (1.0, 1.0, 1.0)
    nothing = over_conversations_and_seeds([questions(lambda c, t: math.nan)])
    assert math.isnan(nothing.mean)


def test_the_sign_flip_test() -> None:
    rng = np.random.default_rng(0)
    nothing = [
        sign_flip_test([questions(lambda c, t: rng.choice([-1, 0, 1]))], 500) for _ in range(40)
    ]
    assert 0.3 < np.mean(nothing) < 0.7
    assert sign_flip_test([questions(lambda c, t: float(rng.random() < 0.2))]) < 0.001
    # the questions of a conversation are no independent ones
    one = sign_flip_test([{("c", str(t)): 1.0 for t in range(50)}])
    assert one == pytest.approx(1.0)


def test_the_smallest_difference_is_found_four_times_in_five() -> None:
    num, discordant = 600, 0.12
    difference = smallest_difference(num, discordant)
    rng = np.random.default_rng(0)
    shares = [(discordant + difference) / 2, (discordant - difference) / 2, 1 - discordant]
    better, worse, _ = rng.multinomial(num, shares, 20_000).T
    # McNemar's test, two-sided at 5 %
    found = np.abs(better - worse) / np.sqrt(better + worse) > 1.959964
    assert found.mean() == pytest.approx(0.8, abs=0.02)
    assert smallest_difference(2400, 0.12) == pytest.approx(difference / 2, rel=0.02)


def plan_run(minutes: float | None = None, begun: float = 0.0, **changes: Any) -> Any:
    """A run as the plan sees it: done in so many minutes, or begun."""
    model = SimpleNamespace(
        evidence="text", answers=changes.pop("answers", "text"), layer=changes.pop("layer", 0)
    )
    data = DataConfig(max_train_questions=changes.pop("questions", 400))
    config = SimpleNamespace(training=TrainingConfig(), model=model, data=data)
    state = {"done": minutes is not None, "seconds": 60 * (minutes or begun)}
    run = {"kind": "train", "row": Row("a", "a"), "uninterruptible": False}
    return SimpleNamespace(config=config, state=state, **(run | changes))


def test_only_what_goes_on_has_less_left_for_the_minutes_it_had() -> None:
    def left(uninterruptible: bool) -> float:
        run = plan_run(begun=20, uninterruptible=uninterruptible)
        return minutes_left(run, Size(train_minutes=60.0), [run])

    assert left(uninterruptible=False) == 40.0
    assert left(uninterruptible=True) == 60.0


def test_a_training_of_more_questions_takes_longer() -> None:
    run, size = plan_run(questions=1600), Size(train_minutes=60.0)
    assert minutes_left(run, size, [plan_run(13), run]) == 52
    assert minutes_left(plan_run(), size, [plan_run(52, questions=1600), run]) == 13


def test_a_run_takes_what_those_took_that_answer_as_it_does() -> None:
    def answers(minutes: float | None = None, **changes: Any) -> Any:
        return plan_run(minutes, kind="answer", **changes)

    chosen = {"layer": 18}
    done = [answers(16), answers(0.5, answers="nodes"), answers(20, **chosen)]
    size = Size(answer_minutes=9.0)
    for expected, changes in ((16, {}), (0.5, {"answers": "nodes"}), (20, chosen)):
        run = answers(**changes)
        assert minutes_left(run, size, [*done, run]) == expected
    run = answers(row=Row("a", "a", trainer="gretriever"))
    assert minutes_left(run, size, [*done, run]) == 16  # no such one: the median of all
    assert minutes_left(run, size, [run]) == 9
