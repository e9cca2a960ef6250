"""Base models that cannot be used are refused when they are loaded, with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

import turngraph.model.generation
from turngraph.benchmarks.quality.base_families import reason_of, table, tiny_family
from turngraph.configs.schema import Config, LoraConfig, ModelConfig, TrainingConfig
from turngraph.configs.user_error import UserError
from turngraph.inference.load import load_builder
from turngraph.model import base_probe
from turngraph.model.base_model import LORA, add_lora, decoder_layers
from turngraph.model.base_probe import _change, _given_answers, check_base_model
from turngraph.model.generation import PreallocatedLayer, answer_logprobs, rows_of
from turngraph.model.make_model import make_model
from turngraph.tests.runs import ROOT
from turngraph.tests.tiny import ARCHITECTURES, save_tiny, tiny_base, tiny_tokenizer

REFUSED = {
    "bart": "padding changes the logits of a prompt",  # positions counted from the cache
    "bert": "a later token changes the logits before it",
    "ctrl": "embeddings in place of token ids give other logits",  # it scales them in place
    "mamba": "a cache changes the logits",
    "openai-gpt": "raises an error, when checked whether a cache changes the logits",
    "rwkv": "padding changes the logits of a prompt",
}
"""Model type -> why it is refused."""


@pytest.mark.parametrize("family", REFUSED)
def test_a_family_that_would_answer_wrongly_is_refused(family: str) -> None:
    lm = tiny_family(family)
    with pytest.raises(UserError, match=f"models of type {family} cannot be used: ") as error:
        check_base_model(lm)
    assert reason_of(str(error.value)) == REFUSED[family]
    assert "\n" not in str(error.value)


def test_token_embeddings_of_another_kind_are_refused() -> None:
    lm = tiny_base()
    lm.set_input_embeddings(torch.nn.ModuleList())  # as Musicgen's
    with pytest.raises(UserError, match="cannot be used: their token embeddings are a ModuleList"):
        check_base_model(lm)


def test_a_cache_whose_rows_cannot_move_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    keep, none = PreallocatedLayer.keep, torch.tensor([], dtype=torch.long)
    monkeypatch.setattr(
        PreallocatedLayer, "keep", lambda layer, _, __, num_rows: keep(layer, none, none, num_rows)
    )
    with pytest.raises(UserError, match="a cache changes the logits"):
        check_base_model(tiny_base())


def test_given_answers_that_follow_other_prompts_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        turngraph.model.generation, "rows_of", lambda cache, rows: rows_of(cache, 1 - rows)
    )
    with pytest.raises(UserError, match="a cache changes the log-probabilities of given answers"):
        check_base_model(tiny_base())


def test_logits_that_are_no_numbers_are_refused() -> None:
    base = tiny_base()
    base.model.norm.weight.data[0] = torch.nan
    with pytest.raises(UserError, match=r"give other logits \(by nan%\)"):
        check_base_model(base)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_check_lets_the_others_pass_and_changes_nothing(
    architecture: str, dtype: torch.dtype
) -> None:
    base = tiny_base(architecture).to(dtype)
    state, layers = torch.get_rng_state(), decoder_layers(base)
    check_base_model(base)
    assert torch.equal(torch.get_rng_state(), state)
    assert decoder_layers(base) == layers


def test_the_first_layers_of_each_type_are_run_alone() -> None:
    kinds = [*["full_attention"] * 3, "sliding_attention", *["full_attention"] * 2]
    base = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(
            "qwen2",
            **{"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}
            | {"num_key_value_heads": 1, "num_hidden_layers": 6, "vocab_size": 64}
            | {"layer_types": kinds, "use_sliding_window": True, "sliding_window": 4},
        )
    ).eval()
    ran: list[Any] = []
    for layer in decoder_layers(base):
        layer.register_forward_hook(lambda layer, *_: ran.append(layer))
    check_base_model(base)
    assert [layer in ran for layer in decoder_layers(base)] == [True] * 4 + [False] * 2


def test_a_model_is_checked_when_it_is_loaded(tmp_path: Path) -> None:
    tiny_family("bert").save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"model\.base_model: models of type bert cannot be used"):
        make_model(ModelConfig(str(tmp_path), lora=None, dtype="float32"))


@pytest.mark.parametrize("error", [TypeError("no\nsuch argument"), KeyError("layer")])
def test_an_error_of_the_model_class_is_told_in_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tiny_base()

    def fails(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(base.model, "forward", fails)
    kind = type(error).__name__
    with pytest.raises(UserError, match=f"cannot be used: {kind}: .*embeddings in place") as told:
        check_base_model(base)
    assert "\n" not in str(told.value)


def test_too_little_memory_is_no_fault_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    base = tiny_base()
    full = MagicMock(side_effect=torch.OutOfMemoryError("CUDA out of memory"))
    monkeypatch.setattr(base.model, "forward", full)
    with pytest.raises(torch.OutOfMemoryError):
        check_base_model(base)


def test_attention_that_needs_a_gpu_is_checked_as_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    base = tiny_base()
    base.config._attn_implementation = "flash_attention_2"
    asked: list[str] = []

    def ask(name: str) -> None:
        asked.append(name)
        base.config._attn_implementation = name

    monkeypatch.setattr(base, "set_attn_implementation", ask)
    check_base_model(base)
    assert asked == ["eager", "flash_attention_2"]


def seeing_model() -> PreTrainedModel:
    """A random tiny LM beside a random tiny encoder of images."""
    return tiny_family("gemma3")


def test_lora_adapts_no_layers_of_an_encoder_of_images() -> None:
    base = seeing_model()
    assert any("vision" in n and n.endswith("q_proj") for n, _ in base.named_modules())
    lm = add_lora(base, LoraConfig(r=2, target_modules=("q_proj", "lm_head")))
    adapted = [name for name, _ in lm.named_parameters() if LORA in name]
    assert len([name for name in adapted if "q_proj" in name]) == 2 * 4  # A and B of 4 layers
    assert any("lm_head" in name for name in adapted)
    assert not any("vision" in name for name in adapted)


def test_decoder_layers_are_those_of_the_text() -> None:
    base = seeing_model()
    layers = decoder_layers(base)
    assert layers == list(base.get_decoder().layers)
    with pytest.raises(UserError, match="no linear layer 'patch_embedding'"):
        add_lora(base, LoraConfig(target_modules=("patch_embedding",)))


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path)
    size = len(tiny_tokenizer())
    load_builder(Config(model=ModelConfig(folder), training=TrainingConfig(max_steps=0)))
    tiny_base(vocabulary=size - 3).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=rf"token ids up to {size - 1}, .* of {size - 3} tokens"):
        load_builder(Config(model=ModelConfig(folder), training=TrainingConfig(max_steps=0)))


def test_special_tokens_that_no_prompt_has_need_no_embedding(tmp_path: Path) -> None:
    folder, tokenizer = save_tiny(tmp_path), tiny_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    tokenizer.save_pretrained(tmp_path)
    builder = load_builder(Config(model=ModelConfig(folder), training=TrainingConfig(max_steps=0)))
    assert builder.prompt.largest_id == len(tokenizer) - 2


def test_the_table_of_the_docs_is_that_of_the_command() -> None:
    """It names each type that transformers has once; some of them are tried again."""
    page = (ROOT / "docs/training.md").read_text("utf-8")
    lines = [
        line for line in page.splitlines() if line.startswith(("| no: ", "| yes |", "| not tried"))
    ]
    named = [(name, line.split(" | ")[0]) for line in lines for name in line.split("`")[1::2]]
    assert sorted(name for name, _ in named) == sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    listed = dict(named)
    for line in table(["llama", "opt", "bert", "rwkv", "ctrl"]).splitlines()[2:]:
        assert {listed[name] for name in line.split("`")[1::2]} == {line.split(" | ")[0]}


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_a_change_is_relative_to_the_size_of_the_logits(scale: float) -> None:
    """Logits of a model may be large or small; a shift of all of them is no change."""
    logits = torch.tensor([[1.0, -1.0, 3.0, -3.0], [5.0, 1.0, -1.0, -5.0]])
    changed = logits.clone()
    changed[1] *= 1.25
    assert _change(scale * changed, scale * logits) == pytest.approx(0.25)
    assert _change(scale * (logits + 7), scale * logits) == pytest.approx(0, abs=1e-4)


def test_a_change_of_given_answers_is_relative(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log-probabilities of short answers are small, those of long ones large."""
    monkeypatch.setattr(
        base_probe, "answer_logprobs", lambda *given: 1.25 * answer_logprobs(*given)
    )
    ids = torch.randint(480, (2, 12), generator=torch.manual_seed(0))
    with torch.no_grad():
        assert float(_given_answers(tiny_base(), ids)) == pytest.approx(0.25, rel=1e-3)
