"""Sizes of some language models by name, for work that needs no weights and no network."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

_MISTRAL_7B: dict[str, Any] = {
    "model_type": "mistral",
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-5,
    "sliding_window": None,
    "tie_word_embeddings": False,
}
SHAPES: dict[str, dict[str, Any]] = {
    "mistralai/Mistral-7B-Instruct-v0.2": _MISTRAL_7B,
    "mistralai/Mistral-7B-Instruct-v0.3": _MISTRAL_7B | {"vocab_size": 32768},
    "HuggingFaceTB/SmolLM2-135M-Instruct": {
        "model_type": "llama",
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
    },
}
"""Name on the hub -> fields of the model's config, as in its ``config.json``.

Mistral's fields are from Jiang et al. (2023), table 1, and from the model cards of later versions:
from v0.2 on no window, in v0.3 a vocabulary of 32,768 tokens. What changes no cost is left out.
"""


def known_config(name: str) -> PreTrainedConfig | None:
    """Return the config of a model in ``SHAPES``; None for another name."""
    if name not in SHAPES:
        return None
    settings = dict(SHAPES[name])
    config: PreTrainedConfig = AutoConfig.for_model(settings.pop("model_type"), **settings)
    return config


def random_model(
    config: PreTrainedConfig, dtype: str, attention: str, device: torch.device
) -> PreTrainedModel:
    """Make a causal LM with random weights, which are drawn on the device; no file is read."""
    auto: Any = AutoModelForCausalLM
    with device:
        model: PreTrainedModel = auto.from_config(
            config, dtype=getattr(torch, dtype), attn_implementation=attention
        )
    return model
