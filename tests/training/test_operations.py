"""The work of a batch as a device executes it, counted by hand."""

from __future__ import annotations

import pytest

from turngraph.training.operations import Work, executed


@pytest.mark.parametrize(
    ("lengths", "packed", "attention", "expected"),
    [
        ([3, 5], False, "sdpa", Work(10, 50.0, 2)),  # with padding a mask, and all pairs
        ([5, 5], False, "sdpa", Work(10, 25.0, 2)),
        ([3, 5], True, "sdpa", Work(8, 64.0, 2)),  # pairs between examples, too
        ([5], True, "sdpa", Work(5, 12.5, 2)),
        ([3, 5], True, "flash_attention_2", Work(8, 17.0, 2)),
    ],
)
def test_what_is_masked_counts_where_it_is_computed(
    lengths: list[int], packed: bool, attention: str, expected: Work
) -> None:
    assert executed(lengths, 2, packed, attention) == expected
