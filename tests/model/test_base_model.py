"""Loading the base model as the config asks: attention, quantization, what the device can do."""

from __future__ import annotations

import importlib.util
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import turngraph.model.base_model
import turngraph.model.evidence_model
from turngraph.configs.schema import Config, ModelConfig, TrainingConfig
from turngraph.data.batches.collate import collate
from turngraph.model.base_model import check_device, fingerprint, load_base_model, same_base
from turngraph.model.checkpoint import load_checkpoint, save_checkpoint
from turngraph.model.make_model import make_model
from turngraph.tests.tiny import LORA, stir, tiny_base, tiny_examples, tiny_model

TRAINING = TrainingConfig(max_steps=0)


def folder_config(folder: str, **settings: Any) -> Config:
    given: dict[str, Any] = {"dtype": "float32", "lora": LORA}
    return Config(model=ModelConfig(folder, **given | settings), training=TRAINING)


@pytest.mark.parametrize("name", ["sdpa", "eager", "flex_attention"])
def test_the_lm_computes_with_the_attention_that_the_config_names(
    name: Any, tiny_folder: str
) -> None:
    lm = make_model(folder_config(tiny_folder, attn_implementation=name).model)
    assert lm.lm.config._attn_implementation == name


@pytest.mark.parametrize("name", ["flash_attention_2", "flash_attention_3"])
def test_attention_that_is_not_there_is_an_error_and_no_other_is_taken(
    name: Any, tiny_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = turngraph.model.base_model.FLASH_ATTENTION[name][1]
    monkeypatch.setitem(turngraph.model.base_model.FLASH_ATTENTION, name, (lambda: False, package))
    with pytest.raises(ValueError, match=rf"model\.attn_implementation: '{name}'.*{package}"):
        make_model(folder_config(tiny_folder, attn_implementation=name).model)


def test_attention_that_the_model_does_not_support_is_an_error(
    tiny_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(tiny_base()), "_supports_flex_attn", False)
    with pytest.raises(ValueError, match=r"model\.attn_implementation: 'flex_attention'.*Llama"):
        load_base_model(tiny_folder, "float32", "flex_attention")
    monkeypatch.setattr(type(tiny_base()), "set_attn_implementation", lambda *_: None)
    with pytest.raises(
        ValueError, match=r"model\.attn_implementation: 'eager'.*falls back to sdpa"
    ):
        load_base_model(tiny_folder, "float32", "eager")


def test_flex_attention_cannot_be_trained_on_a_cpu() -> None:
    lm = tiny_model(attn_implementation="flex_attention")
    with pytest.raises(ValueError, match=r"model\.attn_implementation: 'flex_attention'.*CPU"):
        lm(collate(tiny_examples(1), "right", with_target=True))


@pytest.mark.parametrize(
    ("trained_with", "missing", "expected"),
    [("eager", "", "eager"), ("flex_attention", "", "sdpa"), ("flex_attention", "sdpa", "eager")],
)
def test_a_checkpoint_is_answered_where_its_attention_is_missing(
    trained_with: Any,
    missing: str,
    expected: str,
    tiny_folder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = folder_config(tiny_folder, attn_implementation=trained_with)
    save_checkpoint(stir(make_model(config.model)), config, {}, tmp_path / "best")
    known = type(tiny_base()).set_attn_implementation

    def without_missing(model: Any, name: str) -> None:
        if name == missing:
            raise ValueError(f"LlamaForCausalLM does not support {name}")
        known(model, name)

    monkeypatch.setattr(type(tiny_base()), "set_attn_implementation", without_missing)
    loaded = load_checkpoint(tmp_path / "best")
    assert loaded.lm.config._attn_implementation == expected


@pytest.mark.parametrize("has_it", [True, False])
def test_bfloat16_on_a_gpu_without_it_is_an_error(
    has_it: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def supported(including_emulation: bool = True) -> bool:
        return has_it or including_emulation

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Tesla T4")
    device, config = torch.device("cuda", 0), ModelConfig("tiny", dtype="bfloat16")
    message = r"model\.dtype: 'bfloat16' given, Tesla T4 has no bf16"
    with nullcontext() if has_it else pytest.raises(ValueError, match=message):
        check_device(config, device)
    check_device(replace(config, dtype="float32"), device)
    check_device(config, torch.device("cpu"))


def pretend(monkeypatch: pytest.MonkeyPatch, package: bool, cuda: bool) -> None:
    find = importlib.util.find_spec
    spec = object() if package else None

    def found(name: str, *rest: Any) -> Any:
        return spec if name == "bitsandbytes" else find(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", found)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)


@pytest.mark.parametrize(
    ("package", "cuda", "message"),
    [(False, True, r"pip install 'turngraph\[qlora\]'"), (True, False, "needs a GPU")],
)
def test_quantization_that_cannot_be_is_an_error(
    package: bool, cuda: bool, message: str, tiny_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, package, cuda)
    with pytest.raises(ValueError, match=rf"model\.quantization: '4bit' given, .*{message}"):
        make_model(folder_config(tiny_folder, quantization="4bit").model)


def test_quantization_is_qloras(tiny_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, package=True, cuda=True)
    monkeypatch.setattr(
        turngraph.model.base_model.BitsAndBytesConfig, "post_init", lambda _: None, raising=True
    )
    given: dict[str, Any] = {}

    def load(path: str, **options: Any) -> Any:
        given.update(options)
        return tiny_base()

    monkeypatch.setattr(turngraph.model.base_model.AutoModelForCausalLM, "from_pretrained", load)
    load_base_model(tiny_folder, "bfloat16", quantization="4bit")
    settings = given["quantization_config"].to_dict()
    assert settings["load_in_4bit"] is True
    assert settings["bnb_4bit_quant_type"] == "nf4"
    assert settings["bnb_4bit_use_double_quant"] is True
    assert settings["bnb_4bit_compute_dtype"] == "bfloat16"
    given.clear()
    load_base_model(tiny_folder, "bfloat16")
    assert "quantization_config" not in given


def quantized(seed: int = 0) -> Any:
    """A model whose linear layers hold integers, as with bitsandbytes; its head does not."""
    base = tiny_base(seed=seed)
    for name, module in base.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            packed = torch.zeros(module.weight.numel() // 2, 1, dtype=torch.uint8)
            module.weight = torch.nn.Parameter(packed, requires_grad=False)
    return base


def test_a_quantized_base_is_recognised_by_what_quantization_keeps() -> None:
    whole, packed, other = fingerprint(tiny_base()), fingerprint(quantized()), tiny_base(seed=1)
    assert whole != packed
    assert same_base(whole, packed)
    assert same_base(packed, whole)
    assert same_base(packed, fingerprint(quantized()))
    assert not same_base(packed, fingerprint(other))
    assert not same_base(fingerprint(quantized(seed=1)), whole)
    assert not same_base(whole, fingerprint(other))


def test_two_unquantized_bases_are_compared_whole() -> None:
    base = tiny_base()
    before = fingerprint(base)
    with torch.no_grad():
        base.model.layers[0].mlp.up_proj.weight.mul_(1.1)
    assert not same_base(before, fingerprint(base))
    assert before.partition("/")[2] == fingerprint(base).partition("/")[2]


@pytest.mark.parametrize("trained_on", ["none", "4bit"])
def test_a_checkpoint_fits_the_base_quantized_or_not(
    trained_on: Any, tiny_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fingerprint represents the weights of a quantized base model."""
    bases = {"none": fingerprint(tiny_base()), "4bit": fingerprint(quantized())}
    config = folder_config(tiny_folder, evidence="text")
    lm = stir(make_model(config.model))
    lm.base_fingerprint = bases[trained_on]
    save_checkpoint(lm, config, {}, tmp_path / "best")
    served_on = "none" if trained_on == "4bit" else "4bit"
    monkeypatch.setattr(turngraph.model.evidence_model, "fingerprint", lambda _: bases[served_on])
    loaded = load_checkpoint(tmp_path / "best", quantization="none")
    name = next(n for n, p in lm.named_parameters() if p.requires_grad)
    assert torch.equal(dict(loaded.named_parameters())[name], dict(lm.named_parameters())[name])


def test_the_quantization_of_a_loaded_checkpoint_may_be_chosen(
    tiny_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = folder_config(tiny_folder, evidence="text")
    lm = stir(make_model(config.model))
    save_checkpoint(
        lm, replace(config, model=replace(config.model, quantization="4bit")), {}, tmp_path / "q"
    )
    pretend(monkeypatch, package=True, cuda=False)
    with pytest.raises(ValueError, match=r"model\.quantization: '4bit' given"):
        load_checkpoint(tmp_path / "q")
    assert load_checkpoint(tmp_path / "q", quantization="none").config.quantization == "none"
