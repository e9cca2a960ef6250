"""Answers of one model, ranked by two."""

from __future__ import annotations

import numpy as np
import pytest

from turngraph.data.scoring.proposals import Proposal, chosen
from turngraph.data.types import Entity


def proposals(*logprobs: float) -> list[Proposal]:
    return [Proposal(Entity(f"Q{i}", f"label {i}"), logprob) for i, logprob in enumerate(logprobs)]


@pytest.mark.parametrize(
    ("weight", "order"), [(0.0, [2, 1, 0]), (1.0, [1, 0, 2]), (9.0, [0, 1, 2])]
)
def test_a_score_is_that_of_the_lm_and_the_weighted_one_of_the_graph(
    weight: float, order: list[int]
) -> None:
    graph, written = [-0.5, -1.0, -4.0], [-3.0, -2.0, -1.0]
    found = chosen(proposals(*graph), written, weight)
    assert [one.entity.id for one in found] == [f"Q{i}" for i in order]
    assert [(one.written, one.proposed) for one in found] == [(written[i], graph[i]) for i in order]
    products = np.exp([written[i] + weight * graph[i] for i in order])
    assert np.exp([one.logprob for one in found]) == pytest.approx(products / products.sum())


def test_equal_answers_stay_in_order() -> None:
    found = chosen(proposals(*[-1.0, -2.0] * 20), [-2.0] * 40, 0.5)
    order = [*range(0, 40, 2), *range(1, 40, 2)]
    assert [one.entity.id for one in found] == [f"Q{i}" for i in order]
