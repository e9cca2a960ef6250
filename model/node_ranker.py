"""The scorer of entities over token embeddings, without an LM.

Shapes: N nodes, D LM width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from turngraph.model.base_model import all_embeddings
from turngraph.model.evidence_model import BatchLike, EvidenceModel, Loss, node_ids_of
from turngraph.model.generation import IGNORED_LABEL
from turngraph.model.node_answers import NodeAnswers, NodeScores, entity_loss, normalised


class NodeRanker(EvidenceModel):
    """A scorer of entities over frozen token embeddings; the LM itself is released."""

    writes = False

    def _build(self, base: PreTrainedModel) -> None:
        copy = all_embeddings(base).detach().clone()
        self.embeddings = nn.Embedding.from_pretrained(copy, freeze=True)
        self.scorer = NodeAnswers(copy.shape[1], self.config.scorer)

    @property
    def graph_parts(self) -> dict[str, nn.Module]:
        """The scorer."""
        return {"scorer": self.scorer}

    @property
    def device(self) -> torch.device:
        """The device of the token embeddings."""
        weight: Tensor = self.embeddings.weight
        return weight.device

    def features(self, batch: BatchLike) -> Tensor:
        """Return the features of a batch's nodes, normalised, [N, D]."""
        return normalised(self.embeddings(node_ids_of(batch)))

    def node_scores(self, batch: BatchLike, features: Tensor | None = None) -> NodeScores:
        """Score each candidate within its example.

        Args:
            batch: a batch with candidates.
            features: features of its nodes, [N, D]; None: ``features(batch)``.
        """
        assert batch.candidates is not None, "built without mentions"
        features = self.features(batch) if features is None else features
        scores: NodeScores = self.scorer(
            features, batch.edge_index, batch.edge_types, batch.candidates
        )
        return scores

    def forward(self, batch: BatchLike) -> Loss:
        """Compute the cross-entropy of the gold candidates, a sum over the examples."""
        assert batch.candidates is not None, "built without mentions"
        total = entity_loss(self.node_scores(batch).entities, batch.candidates)
        return Loss(total, (batch.labels != IGNORED_LABEL).sum())
