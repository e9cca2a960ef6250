"""The LM that reads evidence as text.

Shapes: B examples (1 if they are packed into one row), T tokens, D LM width, V vocabulary, A answer
tokens, K columns that have some, P given answers.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from transformers import PreTrainedModel

from turngraph.model.base_model import check_device, embedding_table
from turngraph.model.evidence_model import BatchLike, EvidenceModel, Loss, cross_entropy
from turngraph.model.generation import Generated, Past, answer_logprobs, greedy
from turngraph.model.packing import check_packing


class TextLM(EvidenceModel):
    """A causal LM, with LoRA or without, that reads the evidence as text."""

    def _build(self, base: PreTrainedModel) -> None:
        self._packing_checked = False
        self.lm = self._adapt(base)

    def input_embeddings(self, batch: BatchLike) -> Tensor:
        """Embed the tokens of the prompt, for training and generation alike, [B, T, D]."""
        embedded: Tensor = embedding_table(self.causal_lm)(batch.input_ids)
        return embedded

    def logits(self, batch: BatchLike, keep: Tensor | int = 0) -> Tensor:
        """Compute next-token logits.

        Args:
            batch: a batch with padding on either side, or packed.
            keep: the columns to compute, [K], or the number of the last ones; 0: compute all.

        Returns:
            [B, K, V], or [B, T, V] for all.

        Raises:
            UserError: the batch is packed, and the LM lets packed examples see each other.
        """
        mask = batch.attention_mask
        with self._autocast():
            if mask is None and not self._packing_checked:
                check_packing(self.causal_lm)
                self._packing_checked = True
            # Under causal attention right padding needs no mask, and no mask is fastest; with a
            # mask or a cache the LM would not recognise packed examples.
            needed = None if batch.padded_right else mask
            output = self.causal_lm(
                inputs_embeds=self.input_embeddings(batch),
                attention_mask=None if needed is None else needed.long(),
                position_ids=batch.position_ids,
                use_cache=False,
                logits_to_keep=keep,
            )
        logits: Tensor = output.logits
        return logits

    def forward(self, batch: BatchLike) -> Loss:
        """Compute the cross-entropy of the answer tokens (equation 8).

        Logits are computed only where there are labels. The loss is a sum, not a mean: the training
        loop divides by the answer tokens of the whole step.

        Raises:
            UserError: the device does not support the config's dtype or attention, or packed
                examples would see each other.
        """
        check_device(self.config, self.device)
        places, length = batch.answer_places, batch.labels.shape[1]
        # every release of transformers takes one list of columns for all rows
        logits = self.logits(batch, batch.answer_columns)  # [B, K, V]
        columns = torch.searchsorted(batch.answer_columns, places % length)
        targets = batch.labels.flatten()[places + 1]
        loss = cross_entropy(logits[places // length, columns], targets)
        return Loss(loss, torch.full_like(targets.sum(), len(targets)))

    @torch.no_grad()
    def generate(
        self,
        batch: BatchLike,
        max_new_tokens: int,
        end_id: int,
        on_token: Callable[[Tensor], None] | None = None,
        past: Past | None = None,
    ) -> Generated:
        """Generate answers greedily; arguments as in ``EvidenceModel.generate``."""
        ends = torch.tensor(self.end_ids(end_id), device=batch.input_ids.device)
        assert batch.attention_mask is not None, "packed"
        with self.decoding():
            return greedy(
                self.causal_lm,
                self.input_embeddings(batch),
                batch.attention_mask,
                batch.position_ids,
                max_new_tokens,
                ends,
                on_token,
                synced=isinstance(self, FSDPModule),
                past=past,
            )

    @torch.no_grad()
    def answer_logprobs(self, batch: BatchLike, answer_ids: Tensor, num_answers: Tensor) -> Tensor:
        """Compute the LM's log-probability of given answers, [P].

        Args:
            batch: a batch padded on the left, without targets.
            answer_ids: tokens of the answers with their end token, padded on the right with
                ``IGNORED_LABEL``, grouped by example, [P, A].
            num_answers: number of answers of each example, [B].
        """
        assert batch.attention_mask is not None, "packed"
        with self.decoding():
            return answer_logprobs(
                self.causal_lm,
                self.input_embeddings(batch),
                batch.attention_mask,
                batch.position_ids,
                answer_ids,
                num_answers,
                synced=isinstance(self, FSDPModule),
            )
