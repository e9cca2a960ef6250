"""The command that compares batches with one by one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from turngraph.benchmarks.quality.batch_equality import difference, differences, generate
from turngraph.data.examples import Example
from turngraph.model.graph_lm import EvidenceModel
from turngraph.tests.tiny import END_ID, stir, tiny_examples, tiny_model

EXAMPLES = tiny_examples(16)
NEW = 48


def model_of(dtype: str, seed: int = 0) -> EvidenceModel:
    model = stir(tiny_model(dtype=dtype, lora=None, seed=seed), seed)
    model.lm.to(getattr(torch, dtype))
    return model


def in_batches(
    model: EvidenceModel, examples: Sequence[Example], batch_size: int
) -> list[list[int]]:
    return generate(model, examples, batch_size=batch_size, max_new_tokens=NEW, end_id=END_ID)


def test_in_float32_no_answer_differs() -> None:
    model = model_of("float32")
    alone, in_threes, together = (in_batches(model, EXAMPLES, n) for n in (1, 3, 16))
    assert alone == in_threes == together
    assert list(differences(model, EXAMPLES, alone, together)) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 5])  # some answers differ on most machines
def test_in_bfloat16_answers_part_where_two_logits_are_nearly_equal(seed: int) -> None:
    model = model_of("bfloat16", seed)
    alone, together = (in_batches(model, EXAMPLES, n) for n in (1, 16))
    found = list(differences(model, EXAMPLES, alone, together))
    assert len(found) == sum(a != b for a, b in zip(alone, together, strict=True))
    for one in found:
        assert one.tokens[0] != one.tokens[1]
        assert one.bf16_steps <= 4, one
        assert one.gap < 0.1 * one.spread, one


def test_a_difference_that_is_none_of_rounding_is_seen() -> None:
    model = model_of("float32")
    (ids,) = in_batches(model, EXAMPLES[:1], 1)
    wrong = [*ids[:2], (ids[2] + 7) % 480]
    (found,) = differences(model, EXAMPLES[:1], [ids], [wrong])
    assert (found.position, found.tokens) == (2, (ids[2], wrong[2]))
    assert found == difference(model, EXAMPLES[0], ids[:2], (ids[2], wrong[2]))
    assert found.gap > 0.1 * found.spread
