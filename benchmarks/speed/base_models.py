"""Loads the base model and tokenizer of a speed measurement, or makes a random model."""

from __future__ import annotations

import json
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    MistralConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from turngraph.configs.models import resolve_model
from turngraph.configs.schema import ModelConfig
from turngraph.configs.user_error import UserError
from turngraph.model.base_model import load_base_model, recompute_layers

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "mistralai/Mistral-7B-Instruct-v0.2": {
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 32768,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        "rms_norm_eps": 1e-5,
        "sliding_window": None,
        "tie_word_embeddings": False,
    }
}
"""Models with sizes given here, so that random weights need no download."""
TOKENIZER = "HuggingFaceTB/SmolLM2-135M-Instruct"
"""Model whose tokenizer, truncated to their vocabulary, is used for these architectures."""


def load_base(model: ModelConfig, device: torch.device, random_weights: bool) -> PreTrainedModel:
    """Load a new base model on the device.

    Args:
        model: name, dtype, attention, quantization and checkpointing.
        device: device of the model; random weights are drawn there and never pass the host.
        random_weights: draw weights for the architecture instead of loading them.
    """
    if random_weights:
        base: Any = random_base(model, device)
    else:
        name, dtype = model.base_model, model.dtype
        base = load_base_model(name, dtype, model.attn_implementation, model.quantization)
    if model.gradient_checkpointing:
        recompute_layers(base)
    loaded: PreTrainedModel = base.eval().to(device)
    return loaded


def random_base(model: ModelConfig, device: torch.device) -> PreTrainedModel:
    """Build a model with random weights and the sizes of the named one.

    Raises:
        UserError: the config asks for quantization.
    """
    if model.quantization != "none":
        given = model.quantization
        raise UserError(f"config field model.quantization: {given!r} with --random_weights")
    if model.base_model in ARCHITECTURES:
        config = MistralConfig(**ARCHITECTURES[model.base_model])
    else:
        config = AutoConfig.from_pretrained(
            resolve_model(model.base_model), trust_remote_code=False
        )
    auto: Any = AutoModelForCausalLM
    dtype, attention = getattr(torch, model.dtype), model.attn_implementation
    with device:
        base: PreTrainedModel = auto.from_config(config, dtype=dtype, attn_implementation=attention)
    return base


def load_tokenizer(name: str, random_weights: bool) -> PreTrainedTokenizerFast:
    """Load a base model's tokenizer; architectures given here use SmolLM2's, cut."""
    cut = random_weights and name in ARCHITECTURES
    tokenizer = AutoTokenizer.from_pretrained(
        resolve_model(TOKENIZER if cut else name), trust_remote_code=False
    )
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    return cut_tokenizer(tokenizer, ARCHITECTURES[name]["vocab_size"]) if cut else tokenizer


def cut_tokenizer(tokenizer: PreTrainedTokenizerFast, size: int) -> PreTrainedTokenizerFast:
    """Return a BPE tokenizer with the first ``size`` tokens and the merges among them."""
    tree = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary = {token: i for token, i in tree["model"]["vocab"].items() if i < size}
    tree["model"]["vocab"] = vocabulary
    tree["model"]["merges"] = [m for m in tree["model"]["merges"] if "".join(m) in vocabulary]
    fast: Any = PreTrainedTokenizerFast
    cut: PreTrainedTokenizerFast = fast(
        tokenizer_object=Tokenizer.from_str(json.dumps(tree)),
        bos_token=tokenizer.bos_token,
        eos_token=tokenizer.eos_token,
        pad_token=tokenizer.pad_token,
    )
    cut.chat_template = tokenizer.chat_template
    return cut
