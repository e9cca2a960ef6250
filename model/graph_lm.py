"""The causal LM that reads node states as a soft prompt (paper, sections 4.5 and 4.6).

Shapes: B examples, T tokens, N nodes, E edges, D LM width, V vocabulary, K positions with logits.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from configs.schema import ModelConfig
from model.base_model import add_lora, all_embeddings, load_base_model
from model.graph_encoder import GraphEncoder

IGNORED_LABEL = -100


class BatchLike(Protocol):
    """The tensors of a batch; ``data.collate.Batch`` documents their shapes."""

    input_ids: Tensor
    attention_mask: Tensor
    node_mask: Tensor
    edge_index: Tensor
    labels: Tensor


class Loss(NamedTuple):
    """Cross-entropy summed over the answer tokens, and their number."""

    total: Tensor
    num_tokens: Tensor


class Generated(NamedTuple):
    """Generated ids, [B, new], padded behind the end of the turn; log-probability of each, [B]."""

    ids: Tensor
    logprobs: Tensor


class GraphLM(nn.Module):
    """A causal LM with LoRA, and an encoder for the evidence graph where the config asks for one.

    Args:
        config: base model, LoRA, encoder.
        base: the base model; loaded by its name where it is not given.

    Raises:
        ValueError: the base model cannot be found, or LoRA names layers that it has not got.
    """

    def __init__(self, config: ModelConfig, base: PreTrainedModel | None = None) -> None:
        super().__init__()
        self.config = config
        base = base if base is not None else load_base_model(config.base_model, config.dtype)
        base.requires_grad_(False)
        self.lm = add_lora(base, config.lora) if config.lora is not None else base
        graph = config.evidence == "graph"
        self.encoder = GraphEncoder(all_embeddings(base), config.encoder) if graph else None

    @property
    def device(self) -> torch.device:
        """Where the LM is."""
        return self.lm.get_input_embeddings().weight.device

    def input_embeddings(self, batch: BatchLike) -> Tensor:
        """H = H_prefix + H_g + H_suffix (equation 6), for training and generation alike.

        Every token is embedded by the LM; where the evidence stands, node states take the place
        of its tokens' embeddings.

        Returns:
            [B, T, D], in the LM's type.
        """
        table = self.lm.get_input_embeddings()
        embedded = table(batch.input_ids)  # [B, T, D]
        if self.encoder is None:
            return embedded
        # without nodes as well: under data parallelism every process needs the encoder's gradients
        states = self.encoder(batch.input_ids[batch.node_mask], batch.edge_index)  # [N, D]
        embedded = embedded.clone()
        embedded[batch.node_mask] = states.to(embedded.dtype)
        return embedded

    def logits(self, batch: BatchLike, keep: Tensor | int = 0) -> Tensor:
        """Next-token logits.

        Args:
            batch: with padding on either side.
            keep: positions to compute, [K]; 0 computes all.

        Returns:
            [B, K, V].
        """
        positions = (batch.attention_mask.long().cumsum(1) - 1).clamp_min(0)
        with self._autocast():
            output = self.lm(
                inputs_embeds=self.input_embeddings(batch),
                attention_mask=batch.attention_mask.long(),
                position_ids=positions,
                use_cache=False,
                logits_to_keep=keep,
            )
        return output.logits

    def _autocast(self) -> torch.autocast:
        """Compute in bf16 where the config says so; trainable weights stay in float32."""
        low = self.config.dtype == "bfloat16"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=low)

    def forward(self, batch: BatchLike) -> Loss:
        """Cross-entropy of the answer tokens (equation 8); logits only where there are labels.

        The sum is returned, not the mean: the loop divides by the answer tokens of the whole step.
        """
        targets = functional.pad(batch.labels[:, 1:], (0, 1), value=IGNORED_LABEL)  # [B, T]
        labelled = targets != IGNORED_LABEL
        keep = labelled.any(0).nonzero().squeeze(1)  # [K]
        logits = self.logits(batch, keep)[labelled[:, keep]]  # [answer tokens, V]
        total = functional.cross_entropy(logits.float(), targets[labelled], reduction="sum")
        return Loss(total, labelled.sum())

    @torch.no_grad()
    def generate(self, batch: BatchLike, max_new_tokens: int, end_id: int) -> Generated:
        """Greedy answers.

        Args:
            batch: padded on the left, without targets.
            max_new_tokens: longest answer.
            end_id: token that ends a turn; the base model's own end tokens end it as well.
        """
        known = self.lm.generation_config.eos_token_id
        known = [known] if isinstance(known, int) else list(known or [])
        ends = torch.tensor(sorted({end_id, *known}), device=batch.input_ids.device)
        with self._autocast():
            output = self.lm.generate(
                inputs_embeds=self.input_embeddings(batch),
                attention_mask=batch.attention_mask.long(),
                max_new_tokens=max_new_tokens,
                do_sample=False,
                num_beams=1,
                repetition_penalty=1.0,
                eos_token_id=ends.tolist(),
                pad_token_id=end_id,
                return_dict_in_generate=True,
                output_logits=True,
            )
        return Generated(output.sequences, _logprobs(output.sequences, output.logits, ends))

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Trainable parameters by learning rate: ``lora``, ``encoder``, ``gate``."""
        groups: dict[str, list[nn.Parameter]] = {"lora": [], "encoder": [], "gate": []}
        for name, parameter in self.named_parameters():
            if parameter.requires_grad:
                part = "gate" if name == "encoder.gates" else name.partition(".")[0]
                groups["lora" if part == "lm" else part].append(parameter)
        return {name: parameters for name, parameters in groups.items() if parameters}

    @classmethod
    def from_pretrained(cls, folder: str | Path, base_model: str | None = None) -> GraphLM:
        """A model from a checkpoint folder and the base model, nothing else.

        Args:
            folder: a checkpoint.
            base_model: where the base model is now, if not where the config says.

        Raises:
            ValueError: a file is missing or changed (by hash), or the base model's weights are
                not those that were trained on (by fingerprint).
        """
        from model.checkpoint import load_checkpoint

        return load_checkpoint(Path(folder), base_model)


def _logprobs(ids: Tensor, logits: tuple[Tensor, ...], ends: Tensor) -> Tensor:
    """Summed log-probability of generated ids up to and with the end of the turn, [B]."""
    scores = torch.stack([step.float().log_softmax(-1) for step in logits], 1)  # [B, new, V]
    chosen = scores.gather(2, ids[:, :, None]).squeeze(2)
    ended = torch.isin(ids, ends).long()
    before_or_at_end = (ended.cumsum(1) - ended) == 0
    return (chosen * before_or_at_end).sum(1)
