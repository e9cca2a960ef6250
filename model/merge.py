"""Exports a trained model for servers of plain LMs: merged weights, prompt embeddings.

Shapes: T tokens, D LM width.
"""

from __future__ import annotations

import torch
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedModel

from turngraph.model.evidence_model import BatchLike
from turngraph.model.reader import Reader
from turngraph.model.text_lm import TextLM


@torch.no_grad()
def merged_lm(model: TextLM | Reader, dtype: torch.dtype, end_id: int) -> PreTrainedModel:
    """Merge LoRA into the LM's weights; return a plain transformers model, on CPU.

    The sum W + (alpha / r) B A is computed in float32 and rounded once, to ``dtype``.

    Args:
        model: a model without quantization; it is changed in place and not usable afterwards.
        dtype: type of the merged weights.
        end_id: token that ends a turn; the generation config, which is greedy, gets it.
    """
    assert not getattr(model.lm, "is_quantized", False), "loaded without quantization"
    lm: PreTrainedModel = model.causal_lm.cpu().float()  # in place
    config = GenerationConfig(
        bos_token_id=lm.generation_config.bos_token_id,
        eos_token_id=sorted(model.end_ids(end_id)),
        pad_token_id=end_id,
    )
    if isinstance(model.lm, PeftModel):
        _untie_adapted_head(model.lm)
        lm = model.lm.merge_and_unload()
    lm.generation_config = config
    nn.Module.to(lm, dtype)  # transformers wraps ``to`` and loses its type
    return lm


def _untie_adapted_head(lm: PeftModel) -> None:
    """Untie an adapted output head from the embeddings, which must not get its update."""
    head = lm.get_output_embeddings()
    if isinstance(head, BaseTunerLayer):
        layer = head.get_base_layer()
        assert isinstance(layer.weight, Tensor), type(layer.weight)
        layer.weight = nn.Parameter(layer.weight.clone(), requires_grad=False)


@torch.no_grad()
def prompt_embeddings(model: TextLM, batch: BatchLike) -> list[Tensor]:
    """Return the input embeddings of each prompt of a batch, without padding, [T, D], on CPU."""
    with model._autocast():
        embedded = model.input_embeddings(batch)  # [B, T, D]
    assert batch.attention_mask is not None, "packed"
    return [row[mask].cpu() for row, mask in zip(embedded, batch.attention_mask, strict=True)]
