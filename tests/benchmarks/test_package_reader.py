"""Thresholds of the packaged reader, from its answers to tune questions."""

from __future__ import annotations

import pytest

from turngraph.benchmarks.package_reader import sure_from, threshold
from turngraph.configs.user_error import UserError
from turngraph.data.types import NOT_IN_EVIDENCE


def record(confidence: float, right: bool, answer: str = "Oslo") -> dict[str, object]:
    return {"confidence": confidence, "hit_at_1": right, "answer": answer}


def test_nine_in_ten_right_answers_are_kept() -> None:
    records = [record(i / 10, True) for i in range(10)] + [record(0.95, False)]
    assert threshold(records, 0.9) == 0.1
    assert threshold(records, 0.5) == 0.5
    with pytest.raises(UserError, match="no right answer"):
        threshold(records[-1:], 0.9)


def test_from_which_confidence_on_a_share_is_right() -> None:
    records = [record(0.2, True), record(0.3, False), record(0.5, True), record(0.8, True)]
    assert sure_from(records, 0.9) == 0.5
    assert sure_from(records, 0.7) == 0.2
    nothing = record(0.1, False, NOT_IN_EVIDENCE)  # no answer is given: it cannot be wrong
    assert sure_from([*records, nothing], 0.7) == 0.2
    assert sure_from([record(0.9, False)], 0.9) == 1
