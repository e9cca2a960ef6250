"""What makes training fast or small and must change no number: the loss, recomputing, compiling."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

import turngraph.model.base_model
import turngraph.model.evidence_model
from turngraph.configs.schema import LoraConfig, ModelConfig
from turngraph.data.batches.collate import collate
from turngraph.model.attribution import attribute
from turngraph.model.base_model import cast_adapter_inputs, decoder_layers
from turngraph.model.evidence_model import EvidenceModel
from turngraph.model.make_model import make_model
from turngraph.tests.tiny import LORA, stir, text_ids, tiny_base, tiny_examples, tiny_model


def training_batch(count: int = 4, packed: bool = False) -> Any:
    return collate(tiny_examples(count), "right", with_target=True, packed=packed)


def loss_and_gradients(lm: EvidenceModel, batch: Any) -> tuple[float, dict[str, Tensor]]:
    lm.zero_grad()
    loss = lm(batch).total
    loss.backward()
    return loss.item(), {n: p.grad.clone() for n, p in lm.named_parameters() if p.requires_grad}


def assert_same(found: tuple[float, Any], expected: tuple[float, Any], tolerance: float) -> None:
    assert found[0] == pytest.approx(expected[0], rel=tolerance)
    assert found[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        assert torch.allclose(found[1][name], gradient, rtol=tolerance, atol=tolerance), name


class LargestFloat(TorchDispatchMode):
    """Notes the number of elements of the largest float32 tensor that any operation returns."""

    numel = 0

    def __torch_dispatch__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **kwargs or {})
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, Tensor) and tensor.dtype == torch.float32:
                self.numel = max(self.numel, tensor.numel())
        return result


def test_adapters_in_bfloat16_are_given_no_float32_copies() -> None:
    config = tiny_model(dtype="bfloat16").config
    lm, batch = stir(make_model(config, tiny_base().bfloat16()).eval()), training_batch()
    layers = [layer for layer in lm.modules() if isinstance(layer, BaseTunerLayer)]
    given: list[torch.dtype] = []
    for layer in layers:
        for adapter in layer.lora_A.values():
            adapter.register_forward_pre_hook(lambda _, args: given.append(args[0].dtype))
    found = loss_and_gradients(lm, batch)
    assert set(given) == {torch.bfloat16}
    cast_adapter_inputs(lm.lm, True)
    assert_same(loss_and_gradients(lm, batch), found, 0)


@pytest.mark.parametrize("rows", [1, 3, 5])
def test_the_loss_in_chunks_is_the_loss(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lm, batch = stir(tiny_model()), training_batch()
    whole = loss_and_gradients(lm, batch)
    monkeypatch.setattr(turngraph.model.evidence_model, "CHUNK_LOGITS", rows * 480 + 1)
    assert_same(loss_and_gradients(lm, batch), whole, 1e-5)


def test_the_loss_holds_one_chunk_in_float32_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, vocabulary = 4, 5000
    assert turngraph.model.evidence_model.CHUNK_LOGITS == 512 * 2**15  # as its docstring says
    monkeypatch.setattr(turngraph.model.evidence_model, "CHUNK_LOGITS", rows * vocabulary)
    logits = torch.randn(20, vocabulary).bfloat16().requires_grad_()
    targets = torch.randint(vocabulary, (20,))
    with LargestFloat() as largest:
        loss = turngraph.model.evidence_model.cross_entropy(logits, targets)
        loss.backward()
    assert largest.numel == rows * vocabulary
    expected = functional.cross_entropy(logits.float(), targets, reduction="sum")
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    (gradient,) = torch.autograd.grad(expected, logits)
    assert torch.allclose(logits.grad.float(), gradient.float(), atol=1e-5)


@pytest.mark.parametrize(("num", "logits", "chunks"), [(4, 200, 0), (5, 200, 2), (5, 49, 5)])
def test_only_several_chunks_of_the_loss_are_recomputed(
    num: int, logits: int, chunks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a state of random numbers, for which the host would wait for a GPU."""
    recompute = MagicMock(side_effect=lambda loss, *chunk, **_: loss(*chunk))
    monkeypatch.setattr(turngraph.model.evidence_model, "checkpoint", recompute)
    monkeypatch.setattr(turngraph.model.evidence_model, "CHUNK_LOGITS", logits)
    turngraph.model.evidence_model.cross_entropy(torch.randn(num, 50), torch.arange(num))
    plain = {"use_reentrant": False, "preserve_rng_state": False}
    assert [call.kwargs for call in recompute.call_args_list] == [plain] * chunks


def custom_base(architecture: str, **settings: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "vocab_size": 480,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "initializer_range": 0.2,
    }
    config = AutoConfig.for_model(architecture, **sizes | settings)
    return AutoModelForCausalLM.from_config(config).eval()


HEADS: dict[str, dict[str, Any]] = {
    "granite": {"logits_scaling": 0.25},
    "gemma2": {"head_dim": 16, "final_logit_softcapping": 5.0, "attn_logit_softcapping": None},
    "cohere": {"logit_scale": 3.0},
}
"""LMs that scale or cap the logits behind the head."""


def plain_loss(lm: EvidenceModel, count: int) -> float:
    """Summed over examples: the cross-entropy of answers from the LM's logits for all tokens."""
    total = 0.0
    for example in tiny_examples(count):
        prompt, target = text_ids(example), torch.tensor(example.target_ids)
        with torch.no_grad():
            logits = lm.lm(input_ids=torch.tensor([[*prompt, *example.target_ids]])).logits[0]
        chosen = logits[len(prompt) - 1 : -1]
        total += functional.cross_entropy(chosen, target, reduction="sum").item()
    return total


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("architecture", HEADS)
def test_what_an_lm_does_behind_its_head_is_in_the_loss(architecture: str, packed: bool) -> None:
    base = custom_base(architecture, **HEADS[architecture])
    plain = replace(tiny_model().config, evidence="text")
    lm = stir(make_model(plain, base)).eval()
    found = lm(training_batch(3, packed)).total.item()
    assert found == pytest.approx(plain_loss(lm, 3), rel=1e-5)


def test_the_head_may_be_adapted() -> None:
    lora = LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, target_modules=("lm_head", "q_proj"))
    lm = stir(tiny_model("qwen2", lora=lora, evidence="text"))
    loss, gradients = loss_and_gradients(lm, training_batch(3))
    assert loss == pytest.approx(plain_loss(lm, 3), rel=1e-5)
    head = {name: gradient for name, gradient in gradients.items() if "lm_head" in name}
    assert len(head) == 2
    assert all(gradient.abs().max() > 0 for gradient in head.values())


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("evidence", ["graph", "text"])
@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_recomputing_changes_no_gradient(architecture: str, evidence: str, packed: bool) -> None:
    batch, calls = training_batch(packed=packed), {}
    results = {}
    for recompute in (False, True):
        lm = tiny_model(architecture, evidence=evidence, gradient_checkpointing=recompute)
        stir(lm).train()
        for module in lm.modules():
            if isinstance(module, torch.nn.Dropout) or module is getattr(lm, "encoder", None):
                module.eval()
        calls[recompute] = 0

        def count(*_: Any, recompute: bool = recompute) -> None:
            calls[recompute] += 1

        lm(batch)  # packing has been checked
        layer = next(m for n, m in lm.named_modules() if n.endswith(".0.mlp"))
        layer.register_forward_pre_hook(count)
        results[recompute] = loss_and_gradients(lm, batch)
    assert calls == {False: 1, True: 2}
    assert_same(results[True], results[False], 1e-6)
    assert any(gradient.abs().max() > 1e-3 for gradient in results[True][1].values())


def test_a_model_that_cannot_recompute_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    base = tiny_base()
    monkeypatch.setattr(type(base), "supports_gradient_checkpointing", False)
    config = ModelConfig("tiny", dtype="float32", lora=LORA, gradient_checkpointing=True)
    with pytest.raises(ValueError, match=r"model\.gradient_checkpointing: true given"):
        make_model(config, base)


def test_layers_are_compiled_for_any_length_and_not_for_decoding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled, eager = list[tuple[nn.Module, dict[str, Any]]](), MagicMock()
    monkeypatch.setattr(nn.Module, "compile", lambda one, **how: compiled.append((one, how)))
    monkeypatch.setattr(torch.compiler, "set_stance", eager)
    for wanted in (False, True):
        model = tiny_model(compile=wanted)
        eager.reset_mock()
        with model.decoding():
            assert eager.called is wanted
        eager.reset_mock()
        attribute(model, training_batch(1))
        assert eager.called is wanted
        layers = decoder_layers(model.causal_lm) if wanted else []
        assert compiled == [(one, {"backend": "inductor", "dynamic": True}) for one in layers]


@pytest.mark.slow
def test_compiled_layers_compute_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        turngraph.model.base_model, "COMPILE_BACKEND", "aot_eager"
    )  # no C++ compiler
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled, plain = (stir(tiny_model(compile=c, lora=LORA)) for c in (True, False))
    assert compiled.state_dict().keys() == plain.state_dict().keys()
    names = [name for name, _ in compiled.named_parameters()]
    assert names == [name for name, _ in plain.named_parameters()]
    for lm in (compiled, plain):
        lm.train()
        lm.encoder.eval()
    for count, packed in ((2, True), (4, True)):
        batch = training_batch(count, packed)
        assert_same(loss_and_gradients(compiled, batch), loss_and_gradients(plain, batch), 1e-5)
    prompts = collate(tiny_examples(2), "left", with_target=False)
    answers = [lm.eval().generate(prompts, 4, 1).ids for lm in (compiled, plain)]
    assert torch.equal(*answers)
    # both layers and both lengths share a graph or two; answering has compiled nothing
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2
    torch._dynamo.reset()
