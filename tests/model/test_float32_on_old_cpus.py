"""A CPU without bfloat16 instructions computes a bfloat16 model in float32."""

from __future__ import annotations

import logging
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from turngraph.data.batches.collate import collate
from turngraph.model import distributed
from turngraph.model.base_model import fingerprint, has_bfloat16
from turngraph.model.evidence_model import EvidenceModel
from turngraph.model.make_model import make_model
from turngraph.tests.tiny import LORA, stir, tiny_base, tiny_examples, tiny_model

CPU = torch.device("cpu")


def low_model() -> EvidenceModel:
    config = replace(tiny_model().config, lora=LORA, dtype="bfloat16")
    return stir(make_model(config, tiny_base().bfloat16())).eval()


def test_without_the_instructions_a_model_computes_in_float32(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(distributed, "has_bfloat16", lambda device: False)
    low = low_model()
    exact = make_model(replace(low.config, dtype="float32"), tiny_base().bfloat16().float()).eval()
    exact.load_state_dict(low.state_dict())
    before = fingerprint(low.causal_lm)
    with caplog.at_level(logging.INFO):
        placed = distributed.place(low, CPU)
    assert "no bfloat16 instructions: computing in float32" in caplog.text
    assert {p.dtype for p in placed.parameters()} == {torch.float32}
    assert fingerprint(placed.causal_lm) == before == placed.base_fingerprint
    batch = collate(tiny_examples(2), "right", with_target=True)
    loss, expected = placed(batch).total, exact(batch).total
    assert torch.equal(loss, expected)
    loss.backward()
    assert all(p.grad is not None for p in placed.parameters() if p.requires_grad)


def test_with_the_instructions_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "has_bfloat16", lambda device: True)
    model = distributed.place(low_model(), CPU)
    assert model.config.dtype == "bfloat16"
    assert next(iter(model.causal_lm.get_input_embeddings().parameters())).dtype == torch.bfloat16


def test_only_a_cpu_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_bfloat16(torch.device("cuda"))
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert has_bfloat16(CPU)


@pytest.mark.parametrize(("has_bf16", "has_amx"), [(False, False), (True, False), (False, True)])
def test_avx512_alone_only_emulates(
    has_bf16: bool, has_amx: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"_is_avx512_supported": True, "_is_avx512_bf16_supported": has_bf16,
                        "_is_amx_tile_supported": has_amx}.items():  # fmt: skip
        monkeypatch.setattr(torch.cpu, name, lambda value=value: value)
    assert has_bfloat16(CPU) == (has_bf16 or has_amx)


@pytest.mark.parametrize("has_it", [False, True])
def test_a_cpu_without_avx_is_asked_through_onednn(
    has_it: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_is_avx512_supported", "_is_avx2_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: False)
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: not has_it)
    asked = SimpleNamespace(_is_mkldnn_bf16_supported=lambda: has_it)
    monkeypatch.setattr(torch.ops, "mkldnn", asked)
    assert has_bfloat16(CPU) is has_it
    monkeypatch.setattr(torch.cpu, "_is_avx2_supported", lambda: True)
    assert has_bfloat16(CPU) is not has_it
