"""Examples with candidate entities for tiny models that answer from nodes, and their scores."""

from __future__ import annotations

from dataclasses import replace

import torch

from turngraph.data.batches.collate import collate
from turngraph.data.examples import Example
from turngraph.model.graph_lm import GraphLM
from turngraph.tests.tiny import tiny_builder, tiny_conversation

EVIDENCE = {"chain": "both", "question_nodes": "query", "structure_edges": "table"}


def examples(count: int = 6, **evidence: object) -> list[Example]:
    builder = replace(tiny_builder(**EVIDENCE | evidence), mentions=True)
    found = [e for n in range(-(-count // 3)) for e in builder.conversation(tiny_conversation(n))]
    return found[:count]


def scored(model: GraphLM, batch: list[Example]) -> list[list[float]]:
    tensors = collate(batch, "left", with_target=False)
    assert tensors.candidates is not None
    with torch.no_grad():
        parts = model.entity_logprobs(tensors).split(tensors.candidates.num_candidates.tolist())
    return [part.tolist() for part in parts]
