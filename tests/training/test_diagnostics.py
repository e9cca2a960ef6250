"""Out of memory: the error says which settings would fit. Not finite: the report says what was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from turngraph.data.batches.collate import collate
from turngraph.tests.tiny import stir, tiny_examples, tiny_model
from turngraph.training.diagnostics import (
    memory_advice,
    memory_lines,
    not_finite_report,
    write_report,
)


@pytest.mark.parametrize(
    ("rows", "largest", "said"),
    [
        (4, 0, "training.batch_tokens {half} with training.batch_size null"),
        (4, 77, "a batch of 77 tokens did; try training.batch_tokens 77"),
        (1, 0, "model.gradient_checkpointing true, or a smaller evidence.max_nodes"),
    ],
)
def test_out_of_memory_names_settings_that_would_fit(rows: int, largest: int, said: str) -> None:
    batch = collate(tiny_examples(rows), "right", with_target=True)
    for error in (
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9 bytes"),
    ):
        with (
            pytest.raises(ValueError, match="out of memory") as raised,
            memory_advice(batch, largest),
        ):
            raise error
        assert said.format(half=batch.input_ids.numel() // 2) in str(raised.value)
        assert f"{rows} x {batch.input_ids.shape[1]} tokens did not fit" in str(raised.value)


def test_a_packed_batch_can_be_smaller() -> None:
    batch = collate(tiny_examples(3), "right", with_target=True, packed=True)
    assert batch.input_ids.shape[0] == 1
    length = -(-batch.input_ids.shape[1] // 3)
    with (
        pytest.raises(
            ValueError, match=f"batch of 3 x {length} tokens did not fit; try training.batch"
        ),
        memory_advice(batch, 0),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")


def test_other_errors_pass() -> None:
    batch = collate(tiny_examples(1), "right", with_target=True)
    with pytest.raises(RuntimeError, match="shapes"), memory_advice(batch, 0):
        raise RuntimeError("shapes do not match")


def test_the_report_says_what_was_not_finite(tmp_path: Path) -> None:
    model = stir(tiny_model())
    batches = [collate([example], "right", with_target=True) for example in tiny_examples(2)]
    model(batches[0]).total.backward()
    name = "encoder.layers.0.att"
    dict(model.named_parameters())[name].grad.view(-1)[0] = float("inf")
    write_report(not_finite_report(model, batches, [[("c", "0")], [("c", "1")]]), tmp_path / "r")
    report = json.loads((tmp_path / "r").read_text())
    assert report["not_finite_gradients"] == [name]
    assert report["not_finite_weights"] == []
    assert report["gradient_norms"][name] == "inf"
    assert [batch["questions"] for batch in report["batches"]] == [[["c", "0"]], [["c", "1"]]]
    assert all(batch["loss"] > 0 for batch in report["batches"])


def test_memory_is_counted_part_by_part() -> None:
    model = tiny_model()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trained)
    for parameter in trained:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    optimizer.state[trained[0]]["large"] = torch.zeros(1).expand(2**28)
    said = "\n".join(memory_lines(model, optimizer, 2**30))
    assert f"{sum(p.numel() for p in trained)} trainable" in said
    assert "optimizer 1.00 GiB" in said
    assert "peak before the first step: 1.00 GiB" in said
