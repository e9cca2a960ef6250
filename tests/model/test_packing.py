"""Packed examples: each has the same result as alone, whatever is packed beside it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from turngraph.configs.schema import LoraConfig, ModelConfig
from turngraph.data.batches.collate import Batch, collate
from turngraph.data.examples import Example
from turngraph.model.evidence_model import EvidenceModel
from turngraph.model.generation import IGNORED_LABEL
from turngraph.model.make_model import make_model
from turngraph.model.packing import check_packing
from turngraph.tests.tiny import ARCHITECTURES, stir, tiny_base, tiny_examples

WINDOW = 16
SMALL = {
    "vocab_size": 480,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "initializer_range": 0.2,
}
BLIND: dict[str, dict[str, Any]] = {
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32},
    "mamba": {"state_size": 8},
    "lfm2": {"num_key_value_heads": 1, "layer_types": ["full_attention", "conv"]},
}
"""Models that do not keep packed examples apart; the last looks back by two tokens only."""


def packed_model(architecture: str, attention: str = "sdpa", **settings: Any) -> EvidenceModel:
    """Like ``tiny_model``, with random adapters, other attention and other settings of the LM."""
    base = tiny_base(architecture)
    for name, value in settings.items():
        setattr(base.config, name, value)
    base.set_attn_implementation(attention)
    lora = LoraConfig(
        r=4, lora_alpha=8, lora_dropout=0.0, target_modules=(ARCHITECTURES[architecture][1],)
    )
    return stir(make_model(ModelConfig("tiny", lora=lora, dtype="float32"), base)).eval()


def pack(examples: list[Example]) -> Batch:
    return collate(examples, "right", with_target=True, packed=True)


def loss_and_gradients(
    model: EvidenceModel, batches: list[Batch]
) -> tuple[float, dict[str, Tensor]]:
    model.zero_grad()
    losses = [model(batch).total for batch in batches]
    torch.stack(losses).sum().backward()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.requires_grad}
    return sum(loss.item() for loss in losses), gradients


CASES = [(name, attention, {}) for name in ARCHITECTURES for attention in ("sdpa", "eager")]
CASES += [("mistral", kind, {"sliding_window": WINDOW}) for kind in ("sdpa", "eager")]


@pytest.mark.parametrize(("architecture", "attention", "settings"), CASES)
def test_a_packed_batch_has_the_loss_and_gradients_of_its_examples(
    architecture: str, attention: str, settings: dict[str, Any]
) -> None:
    examples = tiny_examples(4)
    assert min(example.num_tokens for example in examples) > 2 * WINDOW
    model = packed_model(architecture, attention, **settings)
    together, gradients = loss_and_gradients(model, [pack(examples)])
    alone = [collate([example], "right", with_target=True) for example in examples]
    expected, expected_gradients = loss_and_gradients(model, alone)
    assert together == pytest.approx(expected, rel=1e-5)
    assert any(gradient.abs().max() > 1e-2 for gradient in gradients.values())
    for name, gradient in expected_gradients.items():
        assert (gradients[name] - gradient).norm() <= 1e-5 * (1 + gradient.norm()), name


def test_a_sliding_window_makes_a_difference_here() -> None:
    batch = pack(tiny_examples(2))
    narrow, wide = packed_model("mistral", sliding_window=WINDOW), packed_model("mistral")
    assert abs(narrow(batch).total.item() - wide(batch).total.item()) > 1e-2


def blind_model(architecture: str) -> PreTrainedModel:
    torch.manual_seed(0)
    config = AutoConfig.for_model(architecture, **SMALL | BLIND[architecture])
    return AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize("architecture", BLIND)
def test_a_model_that_mixes_packed_examples_is_refused(architecture: str) -> None:
    config = ModelConfig("tiny", lora=None, dtype="float32")
    lm = make_model(config, blind_model(architecture)).train()
    with pytest.raises(ValueError, match=rf"training\.packing: .*{architecture}.*set it to false"):
        lm(pack(tiny_examples(2)))
    unpacked = collate(tiny_examples(2), "right", with_target=True)
    assert torch.isfinite(lm(unpacked).total)


@pytest.mark.parametrize("size_of_logits", [1.0, 1e-3])
def test_positions_that_run_on_are_refused(
    size_of_logits: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An LM that keeps examples apart, but counts its positions through them."""
    base = tiny_base("gpt2")
    base.get_output_embeddings().weight.data *= size_of_logits
    body = base.transformer.wpe.forward
    monkeypatch.setattr(
        base.transformer.wpe, "forward", lambda ids: body(torch.arange(ids.shape[1])[None])
    )
    with pytest.raises(ValueError, match=r"training\.packing"):
        check_packing(base)
    assert not base.training


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_check_lets_the_others_pass_and_changes_nothing(
    architecture: str, dtype: torch.dtype
) -> None:
    base = tiny_base(architecture).to(dtype).train()
    state = torch.get_rng_state()
    check_packing(base)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(module.training for module in base.modules())


def test_packed_examples_get_no_mask_and_no_cache() -> None:
    lm, given = packed_model("llama"), []
    lm(pack(tiny_examples(2)))  # the check has run
    lm.lm.register_forward_pre_hook(lambda _, __, kwargs: given.append(kwargs), with_kwargs=True)
    batch = pack(tiny_examples(2))
    lm(batch)
    (kwargs,) = given
    assert kwargs["attention_mask"] is None
    assert kwargs["use_cache"] is False
    assert kwargs["position_ids"].shape == batch.labels.shape
    assert (batch.labels != IGNORED_LABEL).any()
