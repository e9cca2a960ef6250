"""A study's numbers: intervals over conversations and seeds, the paired test, the power."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from turngraph.benchmarks.study.plan import smallest_difference
from turngraph.benchmarks.study.row_scores import over_conversations_and_seeds, sign_flip_test
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
