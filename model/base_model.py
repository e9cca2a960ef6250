"""The pretrained LM: loading it by name, LoRA on its layers, a fingerprint of its weights."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util

import torch
from peft import LoraConfig as PeftLoraConfig
from peft import PeftModel, get_peft_model
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, PreTrainedModel
from transformers.pytorch_utils import Conv1D
from transformers.utils import is_flash_attn_2_available, is_flash_attn_3_available

from turngraph.configs.models import resolve_model, where_looked
from turngraph.configs.schema import LoraConfig, ModelConfig

FINGERPRINT_SAMPLES = 256
QUANTIZED = "-"
COMPILE_BACKEND = "inductor"
FLASH_ATTENTION = {
    "flash_attention_2": (is_flash_attn_2_available, "flash-attn"),
    "flash_attention_3": (is_flash_attn_3_available, "flash-attn-3"),
}
"""Implementation -> whether it is there, the package that brings it."""


class NoAttentionError(ValueError):
    """An attention implementation is not to be had here, or not with this model."""


def load_base_model(
    name: str, dtype: str, attn_implementation: str = "sdpa", quantization: str = "none"
) -> PreTrainedModel:
    """A causal LM in evaluation mode, on CPU; on the current GPU if it is quantized.

    Args:
        name: a folder, a packaged model or a hub name.
        dtype: ``bfloat16`` or ``float32``.
        attn_implementation: one that transformers knows; no other one is taken in its place.
        quantization: ``none`` or ``4bit``, which is QLoRA's (Dettmers et al., 2023): NF4 with
            quantized constants, computed in ``dtype``.

    Raises:
        ValueError: it cannot be found or read, says where it was looked for; or attention or
            quantization are not to be had here.
    """
    path = resolve_model(name)
    available, package = FLASH_ATTENTION.get(attn_implementation, (lambda: True, ""))
    if not available():  # transformers would take a kernel from the hub
        raise _no_attention(attn_implementation, f"it needs the package {package} and a GPU")
    quantized = quantization == "4bit"
    options = {"quantization_config": four_bit(dtype)} if quantized else {}
    try:
        model = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=getattr(torch, dtype),
            use_safetensors=True,  # no pickle is ever loaded
            **options,
        )
    except (ImportError, OSError, ValueError) as error:
        raise ValueError(f"model {name!r}: {where_looked(name)}: {_first_line(error)}") from error
    try:
        model.set_attn_implementation(attn_implementation)
    except (ImportError, ValueError) as error:
        raise _no_attention(attn_implementation, _first_line(error)) from error
    if (found := model.config._attn_implementation) != attn_implementation:
        raise _no_attention(attn_implementation, f"the model would take {found}")
    return model.eval()


def four_bit(dtype: str) -> BitsAndBytesConfig:
    """The quantization of QLoRA.

    Raises:
        ValueError: there is no bitsandbytes, or no GPU.
    """
    field = "config field model.quantization: '4bit' given"
    if importlib.util.find_spec("bitsandbytes") is None:
        raise ValueError(f"{field} needs bitsandbytes: pip install 'turngraph[qlora]'")
    if not torch.cuda.is_available():
        # on CPUs with AVX512-BF16 it loses all gradients once the model has answered something
        raise ValueError(f"{field}, it needs a GPU, and torch finds none here")
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=getattr(torch, dtype),
    )


def _no_attention(name: str, reason: str) -> NoAttentionError:
    return NoAttentionError(f"config field model.attn_implementation: {name!r} given, {reason}")


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]


def check_device(config: ModelConfig, device: torch.device) -> None:
    """Whether a device can train as the config says.

    Raises:
        ValueError: bfloat16 on a GPU that has it in software only, or flex attention on a CPU.
    """
    if config.attn_implementation == "flex_attention" and device.type == "cpu":
        raise _no_attention("flex_attention", "it has no gradients on a CPU; sdpa has")
    if config.dtype != "bfloat16" or device.type != "cuda":
        return
    with torch.cuda.device(device):
        if not torch.cuda.is_bf16_supported(including_emulation=False):
            name = torch.cuda.get_device_name(device)
            raise ValueError(
                f"config field model.dtype: 'bfloat16' given, {name} has no bf16; set it to float32"
            )


def recompute_layers(base: PreTrainedModel) -> None:
    """Keep no activations inside the decoder layers, while training: the backward pass recomputes.

    Raises:
        ValueError: the model does not support it.
    """
    # the name that transformers before 5.23 knows
    older = base.gradient_checkpointing_enable
    enable = getattr(base, "activation_checkpointing_enable", older)
    try:
        # without re-entrance, adapters get their gradients although the embeddings have none
        enable({"use_reentrant": False})
    except ValueError as error:
        field = "config field model.gradient_checkpointing"
        raise ValueError(f"{field}: true given, {_first_line(error)}") from error


def decoder_layers(lm: PreTrainedModel) -> list[nn.Module]:
    """The layers of a transformers LM, from its own list of what must stay together.

    Raises:
        ValueError: it has none.
    """
    kinds = set(lm._no_split_modules or ())
    layers = [module for module in lm.modules() if type(module).__name__ in kinds]
    if not layers:
        raise ValueError(f"config field model.base_model: no decoder layers found among {kinds}")
    return layers


def compile_layers(base: PreTrainedModel) -> None:
    """Compile each decoder layer in place, for any length; names of parameters stay the same."""
    for layer in decoder_layers(base):
        layer.compile(backend=COMPILE_BACKEND, dynamic=True)


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


def cast_adapter_inputs(lm: nn.Module, enabled: bool) -> None:
    """Whether adapters bring their inputs to their own type, as PEFT has them do.

    Under autocast that is a copy which is turned back at once; without it, it is needed.
    """
    for layer in lm.modules():
        if isinstance(layer, BaseTunerLayer):
            layer.cast_input_dtype_enabled = enabled


def fingerprint(model: PreTrainedModel) -> str:
    """SHA-256 over names, shapes and sampled values of a base model's weights.

    Depends on the weights alone, not on their path, file layout, device, or whether they were
    loaded in bfloat16 or float32. Adapters are left out.

    Returns:
        ``all/kept``: of all weights, and of those that quantization would keep as they are, which
        are all but the linear layers' below the head. ``all`` is ``-`` if the model is quantized.
    """
    parameters = {
        name.removeprefix("base_model.model.").replace(".base_layer.", "."): parameter
        for name, parameter in model.named_parameters()
        if "lora_" not in name
    }
    head = model.get_output_embeddings()
    linear = [m for m in model.modules() if isinstance(m, (nn.Linear, Conv1D)) and m is not head]
    below = {id(module.weight) for module in linear}
    kept = {name: p for name, p in parameters.items() if id(p) not in below}
    quantized = not all(parameter.is_floating_point() for parameter in parameters.values())
    return f"{QUANTIZED if quantized else _digest(parameters)}/{_digest(kept)}"


def same_base(one: str, other: str) -> bool:
    """Whether two fingerprints are of the same base model.

    Adapters that were trained on a quantized base are served on the unquantized one, and the other
    way round: against a quantized base only what quantization keeps can be compared, which tells
    models apart, but not a model from a fine-tuned one whose embeddings and norms were frozen.
    """
    (all_, kept), (other_all, other_kept) = (text.partition("/")[::2] for text in (one, other))
    return kept == other_kept if QUANTIZED in (all_, other_all) else all_ == other_all


@torch.no_grad()
def _digest(parameters: dict[str, nn.Parameter]) -> str:
    digest = hashlib.sha256()
    for name, parameter in sorted(parameters.items()):
        flat = parameter.detach().reshape(-1)
        step = max(flat.numel() // FINGERPRINT_SAMPLES, 1)
        sample = flat[::step][:FINGERPRINT_SAMPLES].to(torch.bfloat16).float().cpu()
        digest.update(f"{name} {tuple(parameter.shape)}\n".encode())
        digest.update(sample.numpy().tobytes())
    return digest.hexdigest()
