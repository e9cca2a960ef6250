"""Makes the model of the kind that a config asks for."""

from __future__ import annotations

from transformers import PreTrainedModel

from turngraph.configs.schema import ModelConfig
from turngraph.model.evidence_model import EvidenceModel
from turngraph.model.graph_lm import GraphLM
from turngraph.model.node_ranker import NodeRanker
from turngraph.model.reader import Reader
from turngraph.model.text_lm import TextLM


def make_model(config: ModelConfig, base: PreTrainedModel | None = None) -> EvidenceModel:
    """Make the model that a config describes.

    Args:
        config: base model, LoRA, graph.
        base: the base model, loaded as the config says; None loads it by its name.

    Raises:
        UserError: see the class of the model.
    """
    if config.layer:
        return Reader(config, base)
    if config.answers == "nodes":
        return NodeRanker(config, base)
    return (GraphLM if config.evidence == "graph" else TextLM)(config, base)
