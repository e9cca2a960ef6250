"""The pretrained LM: loading it by name, LoRA on its layers, a fingerprint of its weights."""

from __future__ import annotations

import dataclasses
import hashlib

import torch
from peft import LoraConfig as PeftLoraConfig
from peft import PeftModel, get_peft_model
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from configs.models import resolve_model, where_looked
from configs.schema import LoraConfig

FINGERPRINT_SAMPLES = 256


def load_base_model(name: str, dtype: str) -> PreTrainedModel:
    """A causal LM in evaluation mode, on CPU.

    Args:
        name: a folder, a packaged model or a hub name.
        dtype: ``bfloat16`` or ``float32``.

    Raises:
        ValueError: it cannot be found or read; says where it was looked for.
    """
    path = resolve_model(name)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=getattr(torch, dtype),
            use_safetensors=True,  # no pickle is ever loaded
        )
    except (OSError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ValueError(f"model {name!r}: {where_looked(name)}: {reason}") from error
    return model.eval()


@torch.no_grad()
def all_embeddings(base: PreTrainedModel) -> Tensor:
    """What the LM reads for every token, [V, D]; some LMs scale their embeddings' weights."""
    table = base.get_input_embeddings()
    return table(torch.arange(table.num_embeddings, device=table.weight.device))


def add_lora(base: PreTrainedModel, config: LoraConfig) -> PeftModel:
    """The base model with fresh float32 adapters, which change nothing before they are trained.

    Raises:
        ValueError: a name of ``target_modules`` is no linear layer; the message lists them.
    """
    kinds = nn.Linear, Conv1D  # GPT-2's linear layers are Conv1D
    linear = {name for name, module in base.named_modules() if isinstance(module, kinds)}
    endings = {name.rpartition(".")[2] for name in linear}
    for name in config.target_modules:
        if name not in linear and not any(layer.endswith("." + name) for layer in linear):
            raise ValueError(
                f"config field model.lora.target_modules: the model has no linear layer {name!r}; "
                f"it has {', '.join(sorted(endings))}"
            )
    settings = dataclasses.asdict(config) | {"target_modules": list(config.target_modules)}
    return get_peft_model(base, PeftLoraConfig(task_type="CAUSAL_LM", **settings))


@torch.no_grad()
def fingerprint(model: PreTrainedModel) -> str:
    """SHA-256 over names, shapes and sampled values of a base model's weights.

    Depends on the weights alone, not on their path, file layout, device, or whether they were
    loaded in bfloat16 or float32. Adapters are left out.
    """
    digest = hashlib.sha256()
    parameters = {
        name.removeprefix("base_model.model.").replace(".base_layer.", "."): parameter
        for name, parameter in model.named_parameters()
        if "lora_" not in name
    }
    for name, parameter in sorted(parameters.items()):
        flat = parameter.detach().reshape(-1)
        step = max(flat.numel() // FINGERPRINT_SAMPLES, 1)
        sample = flat[::step][:FINGERPRINT_SAMPLES].to(torch.bfloat16).float().cpu()
        digest.update(f"{name} {tuple(parameter.shape)}\n".encode())
        digest.update(sample.numpy().tobytes())
    return digest.hexdigest()
