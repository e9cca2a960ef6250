"""What a trained model gives to servers that only know plain LMs: merged weights, embeddings.

Shapes: T tokens, D LM width.
"""

from __future__ import annotations

import torch
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedModel

from turngraph.model.graph_lm import BatchLike, GraphLM


@torch.no_grad()
def merged_lm(model: GraphLM, dtype: torch.dtype, end_id: int) -> PreTrainedModel:
    """The LM with LoRA added to its weights, on CPU, as transformers saves and loads it.

    The sum W + (alpha / r) B A is taken in float32 and rounded once, to ``dtype``.

    Args:
        model: used up; its base model must not be quantized.
        dtype: of the merged weights.
        end_id: token that ends a turn; it enters the generation config, which is greedy.
    """
    assert not getattr(model.lm, "is_quantized", False), "loaded without quantization"
    lm = model.lm.cpu().float()
    config = GenerationConfig(
        bos_token_id=lm.generation_config.bos_token_id,
        eos_token_id=_end_ids(lm, end_id),
        pad_token_id=end_id,
    )
    if isinstance(lm, PeftModel):
        _untie_adapted_head(lm)
        lm = lm.merge_and_unload()
    lm.generation_config = config
    return lm.to(dtype)


def _end_ids(lm: PreTrainedModel, end_id: int) -> list[int]:
    """The token that ends a turn, and the base model's own end tokens."""
    known = lm.generation_config.eos_token_id
    return sorted({end_id, *([known] if isinstance(known, int) else known or [])})


def _untie_adapted_head(lm: PeftModel) -> None:
    """What is added to a tied head must not reach the embeddings, which were trained without it."""
    head = lm.get_output_embeddings()
    if isinstance(head, BaseTunerLayer):
        layer = head.get_base_layer()
        layer.weight = nn.Parameter(layer.weight.clone(), requires_grad=False)


@torch.no_grad()
def prompt_embeddings(model: GraphLM, batch: BatchLike) -> list[Tensor]:
    """What the LM reads of each prompt of a batch, without padding: [T, D], on CPU."""
    with model._autocast():
        embedded = model.input_embeddings(batch)  # [B, T, D]
    return [row[mask].cpu() for row, mask in zip(embedded, batch.attention_mask, strict=True)]
