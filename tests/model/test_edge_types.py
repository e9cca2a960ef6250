"""A vector for each type of edge: beside PyTorch Geometric's edge features and a plain sum."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.nn import GATv2Conv

from turngraph.model.gatv2 import GATv2Layer

NUM_TYPES, NUM_NODES, WIDTH, HEADS = 3, 7, 5, 2
EDGES = torch.tensor([[0, 1, 2, 0, 0, 4, 5, 3], [1, 2, 3, 3, 3, 5, 4, 3]])
TYPES = torch.tensor([0, 0, 0, 1, 2, 2, 2, 1])  # two types between 0 and 3; one loop of its own


def typed_layer(seed: int = 0, **settings: object) -> GATv2Layer:
    """A layer whose types have vectors, as after training."""
    torch.manual_seed(seed)
    layer = GATv2Layer(WIDTH, 4, HEADS, num_edge_types=NUM_TYPES, **settings)
    torch.nn.init.normal_(layer.edge)
    return layer.eval()


def untyped_twin(layer: GATv2Layer) -> GATv2Layer:
    twin = GATv2Layer(WIDTH, 4, HEADS, concat=layer.concat).eval()
    twin.load_state_dict({k: v for k, v in layer.state_dict().items() if k != "edge"})
    return twin


def nodes(seed: int = 1) -> Tensor:
    return torch.randn(NUM_NODES, WIDTH, generator=torch.Generator().manual_seed(seed))


def plain_sum(layer: GATv2Layer, x: Tensor) -> tuple[Tensor, Tensor]:
    """The layer's formula, edge by edge; the attention of its edges, then of the loops."""
    left, right = (f(x).view(-1, HEADS, 4) for f in (layer.lin_l, layer.lin_r))
    vectors = layer.edge.view(-1, HEADS, 4)
    edges = [(int(j), int(i), int(t)) for (j, i), t in zip(EDGES.T, TYPES, strict=True) if j != i]
    edges += [(i, i, NUM_TYPES) for i in range(NUM_NODES)]
    messages = torch.stack([left[j] + vectors[t] for j, _, t in edges])
    targets = torch.tensor([i for _, i, _ in edges])
    scores = (functional.leaky_relu(messages + right[targets], 0.2) * layer.att).sum(-1)
    alpha = torch.cat([scores[targets == i].softmax(0) for i in range(NUM_NODES)])
    order = torch.cat([(targets == i).nonzero().flatten() for i in range(NUM_NODES)])
    alpha = torch.empty_like(alpha).index_copy(0, order, alpha)
    out = torch.zeros(NUM_NODES, HEADS, 4).index_add(0, targets, messages * alpha[:, :, None])
    return (out.flatten(1) if layer.concat else out.mean(1)) + layer.bias, alpha


@pytest.mark.parametrize("concat", [True, False])
def test_types_are_added_to_messages_and_seen_by_attention(concat: bool) -> None:
    layer, x = typed_layer(concat=concat), nodes()
    expected, alpha = plain_sum(layer, x)
    out, (edges, attention) = layer.forward_with_attention(x, EDGES, TYPES)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(attention, alpha)
    assert edges.shape[1] == 7 + NUM_NODES  # the loop that was given is replaced
    assert edges[:, :7].tolist() == EDGES[:, EDGES[0] != EDGES[1]].tolist()


def test_attention_is_that_of_geometrics_edge_features() -> None:
    layer, x = typed_layer(), nodes()
    peer = GATv2Conv(WIDTH, 4, HEADS, edge_dim=NUM_TYPES + 1, add_self_loops=False).eval()
    state = {k: v for k, v in layer.state_dict().items() if k != "edge"}
    peer.load_state_dict(state | {"lin_edge.weight": layer.edge.detach().T})
    _, (edges, attention) = layer.forward_with_attention(x, EDGES, TYPES)
    types = torch.cat([TYPES[EDGES[0] != EDGES[1]], torch.full((NUM_NODES,), NUM_TYPES)])
    features = functional.one_hot(types, NUM_TYPES + 1).float()
    _, (_, theirs) = peer(x, edges, features, return_attention_weights=True)
    torch.testing.assert_close(attention, theirs.detach())


def test_gradients_are_those_of_the_plain_sum() -> None:
    layer, x = typed_layer(), nodes().requires_grad_()
    inputs = [x, layer.edge, layer.att, layer.lin_l.weight, layer.lin_r.weight]
    weights = torch.randn(NUM_NODES, HEADS * 4, generator=torch.Generator().manual_seed(2))
    ours = torch.autograd.grad((layer(x, EDGES, TYPES) * weights).sum(), inputs)
    plain = torch.autograd.grad((plain_sum(layer, x)[0] * weights).sum(), inputs)
    for own, expected in zip(ours, plain, strict=True):
        torch.testing.assert_close(own, expected)


def test_a_fresh_layer_is_the_layer_without_types() -> None:
    layer = typed_layer(concat=False)
    torch.nn.init.zeros_(layer.edge)
    torch.testing.assert_close(layer(nodes(), EDGES, TYPES), untyped_twin(layer)(nodes(), EDGES))
    torch.manual_seed(3)
    fresh = GATv2Layer(WIDTH, 4, HEADS, num_edge_types=NUM_TYPES)
    torch.manual_seed(3)
    assert torch.equal(fresh.lin_l.weight, GATv2Layer(WIDTH, 4, HEADS).lin_l.weight)
    assert not fresh.edge.any()


@pytest.mark.parametrize("edges", [EDGES[:, :0], EDGES])
def test_graphs_without_edges_or_nodes(edges: Tensor) -> None:
    layer = typed_layer()
    types = TYPES[: edges.shape[1]]
    assert layer(nodes(), edges, types).shape == (NUM_NODES, HEADS * 4)
    assert layer(nodes()[:0], EDGES[:, :0], TYPES[:0]).shape == (0, HEADS * 4)
