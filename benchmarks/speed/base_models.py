"""Loads the base model and tokenizer of a speed measurement, or makes a random model."""

from __future__ import annotations

import json
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import (
    AutoConfig,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from turngraph.configs.models import resolve_model
from turngraph.configs.schema import ModelConfig
from turngraph.configs.user_error import UserError
from turngraph.model.base_model import load_base_model, recompute_layers
from turngraph.model.known_shapes import SHAPES, known_config, random_model

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
    config = known_config(model.base_model)
    if config is None:
        config = AutoConfig.from_pretrained(
            resolve_model(model.base_model), trust_remote_code=False
        )
    return random_model(config, model.dtype, model.attn_implementation, device)


def load_tokenizer(name: str, random_weights: bool) -> PreTrainedTokenizerFast:
    """Load a base model's tokenizer; architectures given here use SmolLM2's, cut."""
    cut = random_weights and name in SHAPES
    tokenizer = AutoTokenizer.from_pretrained(
        resolve_model(TOKENIZER if cut else name), trust_remote_code=False
    )
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    return cut_tokenizer(tokenizer, SHAPES[name]["vocab_size"]) if cut else tokenizer


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
