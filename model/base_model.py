"""Loads the pretrained LM, adds LoRA to its layers, and fingerprints its weights.

Shapes: V vocabulary, D LM width.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import torch
from huggingface_hub.errors import StrictDataclassError
from peft import LoraConfig as PeftLoraConfig
from peft import PeftModel, get_peft_model
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig, PreTrainedModel
from transformers.pytorch_utils import Conv1D
from transformers.utils import is_flash_attn_2_available, is_flash_attn_3_available

from turngraph.configs.models import LOADING, code_hint, find_on_hub, resolve_model, where_looked
from turngraph.configs.progress import library_bars
from turngraph.configs.schema import LoraConfig, ModelConfig
from turngraph.configs.user_error import UserError

FINGERPRINT_SAMPLES = 256
"""Number of values of each weight in the fingerprint."""
QUANTIZED = "-"
"""Takes the place of the first hash of a fingerprint if the model is quantized."""
LORA = "lora_"
"""Part of the names of LoRA's weights, and of no others."""
COMPILE_BACKEND = "inductor"
FLASH_ATTENTION = {
    "flash_attention_2": (is_flash_attn_2_available, "flash-attn"),
    "flash_attention_3": (is_flash_attn_3_available, "flash-attn-3"),
}
"""Implementation -> function that tells whether it is installed, package that provides it."""


_UNREADABLE = (
    AttributeError,
    ImportError,
    KeyError,
    OSError,
    RuntimeError,
    SafetensorError,
    StrictDataclassError,
    TypeError,
    ValueError,
)
"""Exceptions that transformers raises for files that are not a model, or a damaged one."""


class NoAttentionError(UserError):
    """Raised if an attention implementation is not installed, or the model does not support it."""


def load_base_model(
    name: str,
    dtype: str,
    attn_implementation: str = "sdpa",
    quantization: str = "none",
    trusted: Collection[str] = (),
) -> PreTrainedModel:
    """Load a causal LM in evaluation mode, on CPU; on the current GPU if it is quantized.

    Args:
        name: a folder, a packaged model or a hub name.
        dtype: ``bfloat16`` or ``float32``.
        attn_implementation: one of transformers' implementations; there is no fallback.
        quantization: ``none`` or ``4bit``, which is QLoRA's (Dettmers et al., 2023): NF4 with
            quantized constants, computed in ``dtype``.
        trusted: names of models whose own Python code may run.

    Raises:
        UserError: the model cannot be found (the message says where it was searched for) or read,
            needs Python code that is not trusted, or attention or quantization are not available.
    """
    path = resolve_model(name)
    find_on_hub(name)
    available, package = FLASH_ATTENTION.get(attn_implementation, (lambda: True, ""))
    if not available():  # transformers would download a kernel from the hub
        raise _no_attention(attn_implementation, f"it needs the package {package} and a GPU")
    quantized = quantization == "4bit"
    options = {"quantization_config": four_bit(dtype)} if quantized else {}
    with _reading(name):
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=getattr(torch, dtype),
            use_safetensors=True,  # no pickle is ever loaded
            trust_remote_code=name in trusted,
            **options,
        )
    try:
        model.set_attn_implementation(attn_implementation)
    except (ImportError, ValueError) as error:
        raise _no_attention(attn_implementation, _first_line(error)) from error
    if (used := model.config._attn_implementation) != attn_implementation:
        raise _no_attention(attn_implementation, f"the model falls back to {used}")
    return model


def empty_base_model(name: str, dtype: str, trusted: Collection[str]) -> PreTrainedModel:
    """Make a causal LM on the meta device, with names and shapes of weights but no values.

    Args:
        name: name or path, as for ``load_base_model``.
        dtype: ``bfloat16`` or ``float32``.
        trusted: names of models whose own Python code may run.

    Raises:
        UserError: the model's config cannot be found or read, or the hub cannot be reached.
    """
    path, trust = resolve_model(name), name in trusted
    find_on_hub(name)
    with _reading(name), torch.device("meta"):
        config = AutoConfig.from_pretrained(path, trust_remote_code=trust)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(
            config, dtype=getattr(torch, dtype), trust_remote_code=trust
        )
    return model


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Turn a library's exception for an unreadable model into a UserError that names the model.

    One thread at a time is inside.
    """
    try:
        with LOADING, library_bars():
            yield
    except _UNREADABLE as error:
        reason = f"{_first_line(error)}{code_hint(name, error)}"
        raise UserError(f"model {name!r}: {where_looked(name)}: {reason}") from error


def four_bit(dtype: str) -> BitsAndBytesConfig:
    """Return QLoRA's quantization settings.

    Raises:
        UserError: bitsandbytes is not installed, or there is no GPU.
    """
    field = "config field model.quantization: '4bit' given"
    if importlib.util.find_spec("bitsandbytes") is None:
        raise UserError(f"{field}, which needs bitsandbytes: pip install 'turngraph[qlora]'")
    if not torch.cuda.is_available():
        # on CPUs with AVX512-BF16, bitsandbytes loses gradients after the model has generated
        raise UserError(f"{field}, which needs a GPU, and torch finds no GPU here")
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
    """Check that a device can train with the config's dtype and attention.

    Raises:
        UserError: bfloat16 on a GPU that only emulates it, or flex attention on a CPU.
    """
    if config.attn_implementation == "flex_attention" and device.type == "cpu":
        raise _no_attention("flex_attention", "it has no gradients on a CPU; sdpa has")
    if config.dtype != "bfloat16" or device.type != "cuda":
        return
    with torch.cuda.device(device):
        if not torch.cuda.is_bf16_supported(including_emulation=False):
            name = torch.cuda.get_device_name(device)
            raise UserError(
                f"config field model.dtype: 'bfloat16' given, {name} has no bf16; set it to float32"
            )


def has_bfloat16(device: torch.device) -> bool:
    """Tell whether a device has instructions for products of bfloat16 matrices.

    A CPU without them takes 3 to 8 times as long. On x86 they are AVX512-BF16 or AMX; oneDNN also
    runs with AVX-512 alone, but then converts every number. If torch is built without oneDNN, a CPU
    counts as having them.
    """
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return True
    if torch.cpu._is_avx512_supported() or torch.cpu._is_avx2_supported():
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def recompute_layers(base: PreTrainedModel) -> None:
    """Recompute the activations of decoder layers in the backward pass instead of keeping them.

    Raises:
        UserError: the model does not support it.
    """
    # the method's name in transformers before 5.23
    older = base.gradient_checkpointing_enable
    enable = getattr(base, "activation_checkpointing_enable", older)
    try:
        enable()
    except ValueError as error:
        field = "config field model.gradient_checkpointing"
        raise UserError(f"{field}: true given, {_first_line(error)}") from error


def decoder_layers(lm: PreTrainedModel) -> list[nn.Module]:
    """Return the decoder layers of a transformers LM, found by its ``_no_split_modules``.

    Those of other parts, such as an encoder of images, are left out.

    Raises:
        UserError: none are found.
    """
    kinds = set(lm._no_split_modules or ())
    layers = [module for module in lm.get_decoder().modules() if type(module).__name__ in kinds]
    if not layers:
        raise UserError(f"config field model.base_model: no decoder layers found among {kinds}")
    return layers


def compile_layers(base: PreTrainedModel) -> None:
    """Compile each decoder layer in place, for any length; parameters keep their names."""
    for layer in decoder_layers(base):
        layer.compile(backend=COMPILE_BACKEND, dynamic=True)


def embedding_table(lm: PreTrainedModel) -> nn.Embedding:
    """Return the LM's token embedding layer.

    Raises:
        UserError: it has several, or one of another kind.
    """
    table = lm.get_input_embeddings()
    if not isinstance(table, nn.Embedding):
        raise UserError(
            f"config field model.base_model: models of type {lm.config.model_type} cannot be used: "
            f"their token embeddings are a {type(table).__name__}"
        )
    return table


@torch.no_grad()
def all_embeddings(base: PreTrainedModel) -> Tensor:
    """Return the embedding of every token, [V, D], scaled where the LM scales its embeddings."""
    table = embedding_table(base)
    embeddings: Tensor = table(torch.arange(table.num_embeddings, device=table.weight.device))
    return embeddings


def add_lora(base: PreTrainedModel, config: LoraConfig) -> PeftModel:
    """Add float32 LoRA adapters to the base model; until they are trained, its output is the same.

    Hu et al. (2021), https://arxiv.org/abs/2106.09685: h = W x + (alpha / r) B A x, with B zero at
    first. Layers of the decoder and its head are adapted, not those of an encoder of images.

    Raises:
        UserError: a name in ``target_modules`` is no linear layer; the message lists the layers.
    """
    kinds = nn.Linear, Conv1D  # GPT-2's linear layers are Conv1D
    read = {*base.get_decoder().modules(), base.get_output_embeddings()}
    layers = {
        name: module in read for name, module in base.named_modules() if isinstance(module, kinds)
    }
    linear = [name for name, is_read in layers.items() if is_read]
    endings = {name.rpartition(".")[2] for name in linear}
    for name in config.target_modules:
        if not any(_is_named(layer, name) for layer in linear):
            raise UserError(
                f"config field model.lora.target_modules: the model has no linear layer {name!r}; "
                f"it has {', '.join(sorted(endings))}"
            )
    targets = list(config.target_modules)
    chosen = [layer for layer in layers if any(_is_named(layer, name) for name in targets)]
    if not all(layers[layer] for layer in chosen):
        targets = [layer for layer in chosen if layers[layer]]
    settings = dataclasses.asdict(config) | {"target_modules": targets}
    with warnings.catch_warnings():  # PEFT asks by a name that transformers has deprecated
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        return get_peft_model(base, PeftLoraConfig(task_type="CAUSAL_LM", **settings))


def _is_named(layer: str, name: str) -> bool:
    return layer == name or layer.endswith("." + name)


def cast_adapter_inputs(lm: nn.Module, enabled: bool) -> None:
    """Set whether adapters cast their inputs to their own type; by PEFT's default they do.

    Without autocast the cast is needed; under autocast the copy would be cast back at once.
    """
    for layer in lm.modules():
        if isinstance(layer, BaseTunerLayer):
            # torch types every attribute of a module as a tensor or a module
            layer.cast_input_dtype_enabled = enabled  # type: ignore[assignment]


def fingerprint(model: PreTrainedModel) -> str:
    """Return a SHA-256 over names, shapes and sampled values of a base model's weights.

    It depends on the weights alone, not on their path, file layout, device, or whether they were
    loaded in bfloat16 or float32. Adapters are left out.

    Returns:
        ``all/kept``: the hash of all weights, and that of the weights that quantization does not
        change, which are all but those of the linear layers below the head. ``all`` is ``-`` if
        the model is quantized.
    """
    parameters = {
        name.removeprefix("base_model.model.").replace(".base_layer.", "."): parameter
        for name, parameter in model.named_parameters()
        if LORA not in name
    }
    head = model.get_output_embeddings()
    linear = [m for m in model.modules() if isinstance(m, (nn.Linear, Conv1D)) and m is not head]
    below = {id(module.weight) for module in linear}
    kept = {name: p for name, p in parameters.items() if id(p) not in below}
    quantized = not all(parameter.is_floating_point() for parameter in parameters.values())
    return f"{QUANTIZED if quantized else _digest(parameters)}/{_digest(kept)}"


def same_base(one: str, other: str) -> bool:
    """Tell whether two fingerprints belong to the same base model.

    Adapters trained on a quantized base can be served on the unquantized one, and vice versa. With
    a quantized base only the weights that quantization keeps are compared: that distinguishes
    models, but not a model from its fine-tuned version with frozen embeddings and norms.
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
