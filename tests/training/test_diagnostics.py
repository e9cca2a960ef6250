"""Out of memory: the error says which settings would fit. Not finite: the report says what was."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from turngraph.data.batches.collate import collate
from turngraph.tests.tiny import stir, tiny_examples, tiny_model
from turngraph.training import diagnostics
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


@pytest.mark.parametrize(("more", "budget"), [(-1, -1), (0, None)])
def test_a_batch_as_large_as_this_one_is_no_advice(more: int, budget: int | None) -> None:
    batch = collate(tiny_examples(2), "right", with_target=True)
    num = batch.input_ids.numel()
    said = f"training.batch_tokens {num // 2 if budget is None else num + budget} with"
    with pytest.raises(ValueError, match=said), memory_advice(batch, num + more):
        raise torch.OutOfMemoryError("CUDA out of memory")


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
    text = (tmp_path / "r").read_text()
    assert text.startswith('{\n "batches": [\n  {\n')  # a line for each number
    report = json.loads(text)
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


@pytest.mark.parametrize(("gib", "fits"), [(7, "does not fit"), (8, "fits")])
def test_what_is_no_part_of_the_model_is_activations(
    gib: int, fits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen, trained = torch.empty(2**28), torch.empty(2**27)  # of 1 and half a GiB
    parameters = [nn.Parameter(frozen, requires_grad=False), nn.Parameter(trained)]
    model: Any = SimpleNamespace(parameters=lambda: parameters, device=torch.device("cpu"))
    optimizer: Any = SimpleNamespace(state={trained: {"step": 3, "exp_avg": trained}})
    monkeypatch.setattr(diagnostics, "peak_memory", lambda _: 8 * 2**30)
    monkeypatch.setattr(diagnostics, "device_memory", lambda _: gib * 2**30)
    assert memory_lines(model, optimizer, 2**29) == [
        f"parameters    {2**27} trainable, {2**28} frozen",
        "memory        frozen 1.00 GiB, trainable 0.50 GiB, gradients 0.50 GiB, optimizer 0.50 GiB",
        "              activations and other 5.50 GiB (peak before the first step: 0.50 GiB)",
        f"              peak 8.00 GiB of {gib}.00 GiB: {fits}",
    ]
