"""The LM that reads the graph's node states in its prompt (paper, sections 4.5 and 4.6).

Shapes: B examples (1 if they are packed into one row), T tokens, N nodes, D LM width.
"""

from __future__ import annotations

from torch import Tensor, nn
from transformers import PreTrainedModel

from turngraph.model.base_model import all_embeddings
from turngraph.model.evidence_model import BatchLike, node_ids_of
from turngraph.model.graph_encoder import GraphEncoder
from turngraph.model.text_lm import TextLM


class GraphLM(TextLM):
    """A causal LM that reads node states as a soft prompt (paper, sections 4.5 and 4.6)."""

    def _build(self, base: PreTrainedModel) -> None:
        super()._build(base)
        self.encoder = GraphEncoder(all_embeddings(base), self.config.encoder)

    @property
    def graph_parts(self) -> dict[str, nn.Module]:
        """The graph encoder."""
        return {"encoder": self.encoder}

    def input_embeddings(self, batch: BatchLike) -> Tensor:
        """Compute H = H_prefix + H_g + H_suffix (equation 6), for training and generation alike.

        The LM embeds every token; node states then replace the embeddings of the evidence tokens.

        Returns:
            [B, T, D], in the LM's type.
        """
        embedded = super().input_embeddings(batch)  # [B, T, D]
        # even without nodes: data parallelism needs the encoder's gradients in every process
        states = self.encoder(node_ids_of(batch), batch.edge_index)  # [N, D]
        if batch.in_prompt is not None:
            states = states[batch.in_prompt]
        rows = embedded.flatten(0, 1)  # [B * T, D]
        return rows.index_copy(0, batch.node_places, states.to(rows.dtype)).view_as(embedded)
