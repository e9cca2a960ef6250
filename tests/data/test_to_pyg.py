"""The evidence graph as PyTorch Geometric's data."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATv2Conv

from turngraph.configs.schema import EDGE_TYPES
from turngraph.tests.tiny import tiny_builder, tiny_conversation


def example(number: int = 0, **evidence: Any) -> Any:
    return tiny_builder(**evidence).conversation(tiny_conversation(number))[0]


@pytest.mark.parametrize("graph", ["paper", "reader"])
def test_nodes_know_their_passage_and_their_position(graph: str) -> None:
    builder = tiny_builder(graph=graph)
    found = builder.conversation(tiny_conversation(0))[0]
    data = found.to_pyg()
    assert data.validate()
    sizes = [len(t.ids) for t in builder.tokenise([i.evidence for i in found.evidence])[1]]
    expected = [index for index, size in enumerate(sizes) for _ in range(size)]
    assert data.passage.tolist() == expected + [-1] * found.graph.num_hidden
    positions = [position for size in sizes for position in range(size)]
    assert data.pos.tolist() == positions + list(range(found.graph.num_hidden))
    assert data.input_id.tolist() == found.graph.node_ids.tolist()
    assert torch.equal(data.edge_index, torch.from_numpy(found.graph.edge_index))
    names = {EDGE_TYPES[kind] for kind in data.edge_type.tolist()}
    assert names >= {"entity", "forward"} | ({"backward"} if graph == "reader" else set())


def test_a_batch_of_two_goes_through_a_convolution_of_pyg() -> None:
    examples = [example(0), example(1)]
    [batch] = DataLoader([one.to_pyg() for one in examples], batch_size=2)
    assert batch.num_graphs == 2
    states = torch.nn.Embedding(480, 8)(batch.input_id)
    out = GATv2Conv(8, 8)(states, batch.edge_index)
    assert out.shape == (sum(len(one.graph.node_ids) for one in examples), 8)


def test_without_evidence_there_are_no_nodes() -> None:
    from dataclasses import replace

    bare = tiny_builder().conversation(replace(tiny_conversation(0), evidence=()))[0]
    data = bare.to_pyg()
    assert data.num_nodes == 0
    assert data.edge_index.shape == (2, 0)
