"""Encodes the evidence graph: GATv2 over the LM's token embeddings (paper, section 4.4).

Shapes: N nodes, E edges, D LM width, H heads.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from turngraph.configs.schema import EncoderConfig
from turngraph.model.convolutions import make_convolution


class GraphEncoder(nn.Module):
    r"""Graph encoder: computes node states from token ids and edges.

    Equations 3 to 5 of the paper, with :math:`\psi` of Brody et al. (2022):

    .. math::
        x_i' = \sigma \Big( \sum_{j \in \mathcal{N}_i} \alpha_{ij} W x_j \Big), \quad
        \alpha_{ij} = \mathrm{softmax}_j \; a^\top \mathrm{LeakyReLU}(W [x_i \oplus x_j])

    A layer is ``model.gatv2.GATv2Layer``, or another convolution (``config.conv``). Choices that
    the paper does not state:

    - Self-loops are added: without them a chain's first token has no neighbour, and no token keeps
      its own embedding.
    - Heads have the LM's width and are averaged: concatenation would need a projection back to
      the LM's embedding space, one more matrix between it and the token embeddings.
    - :math:`\sigma` is ELU between layers, as in Velickovic et al. (2018). The last layer has none:
      LM embeddings are centred at zero, which a rectified output cannot be.
    - Dropout 0.5 acts on attention weights. Both GAT papers apply it to the input as well, where it
      would erase half of every token that the LM has to copy.

    Args:
        token_embeddings: the LM's input embeddings, [vocabulary, D]; copied and frozen.
        config: convolution, layers, heads, dropout, residual.

    Attributes:
        relative_change: mean over nodes of |state - embedding| / |embedding|, of the last call.
    """

    def __init__(self, token_embeddings: Tensor, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        width = token_embeddings.shape[1]
        copy = token_embeddings.detach().clone()
        self.embeddings: nn.Embedding = nn.Embedding.from_pretrained(copy)
        self.layers = nn.ModuleList(
            make_convolution(width, config) for _ in range(config.num_layers)
        )
        if config.residual_gate is not None:
            gates = torch.full((config.num_layers,), config.residual_gate)
            self.residual_gates = nn.Parameter(gates)
        self.relative_change: Tensor | float = 0.0

    def forward(self, node_ids: Tensor, edge_index: Tensor) -> Tensor:
        """Encode a graph, or several at once as disjoint parts of one.

        Args:
            node_ids: token ids, [N].
            edge_index: source row and target row, [2, E].

        Returns:
            Node states, [N, D], in float32 or the autocast type.
        """
        embedded = self.embeddings(node_ids).float()  # [N, D]
        states: Tensor = embedded
        for index, layer in enumerate(self.layers):
            inner = index + 1 < len(self.layers)
            change = layer(states, edge_index).float()
            change = nn.functional.elu(change) if inner else change
            if self.config.residual_gate is None:
                states = change
            else:
                states = states + self.residual_gates[index] * change
        if len(node_ids):
            difference = (states - embedded).detach().norm(dim=1)
            size = embedded.detach().norm(dim=1).clamp_min(1e-6)
            # still a tensor: for a number, the host would wait for the GPU at every batch
            self.relative_change = (difference / size).mean()
        return states

    def saved_state(self) -> dict[str, Tensor]:
        """Return the tensors to save: all but the node embeddings, which the base model has."""
        return {k: v for k, v in self.state_dict().items() if "embeddings" not in k}
