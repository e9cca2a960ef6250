"""The evidence graph's encoder against its equations and its promises."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from turngraph.configs.schema import EncoderConfig
from turngraph.model.gatv2 import GATv2Layer
from turngraph.model.graph_encoder import GraphEncoder

WIDTH, VOCABULARY = 6, 11
NODES = torch.tensor([3, 7, 7, 0, 10, 2])
EDGES = torch.tensor([[0, 1, 3, 4, 1, 4], [1, 2, 4, 5, 4, 1]])  # two chains joined both ways


def encoder(seed: int = 0, **settings: Any) -> GraphEncoder:
    torch.manual_seed(seed)
    embeddings = torch.randn(VOCABULARY, WIDTH)
    made = GraphEncoder(embeddings, EncoderConfig(**{"dropout": 0.0} | settings)).eval()
    with torch.no_grad():  # one bias starts at zero, where it would hide
        for layer in made.layers:
            for bias in (layer.bias, layer.lin_l.bias, layer.lin_r.bias):
                bias.copy_(torch.randn(bias.shape))
    return made


def by_hand(layer: GATv2Layer, states: Tensor, edge_index: Tensor) -> Tensor:
    """Equations 3 to 5 for one layer, node by node and head by head, in plain torch."""
    heads = layer.heads
    source = layer.lin_l(states).view(len(states), heads, WIDTH)  # W [. + x_j]
    target = layer.lin_r(states).view(len(states), heads, WIDTH)  # W [x_i + .]
    rows = []
    for i in range(len(states)):
        neighbours = [j for j, k in edge_index.T.tolist() if k == i and j != i] + [i]
        head_outputs = []
        for head in range(heads):
            scores = torch.stack(
                [
                    layer.att[0, head]
                    @ functional.leaky_relu(target[i, head] + source[j, head], 0.2)
                    for j in neighbours
                ]
            )
            weights = scores.softmax(0)
            pairs = zip(weights, neighbours, strict=True)
            head_outputs.append(sum(w * source[j, head] for w, j in pairs))
        rows.append(torch.stack(head_outputs).mean(0) + layer.bias)
    return torch.stack(rows)


@pytest.mark.parametrize("gate", [None, 0.3])
def test_whole_encoder_by_hand(gate: float | None) -> None:
    model = encoder(residual_gate=gate)
    embedded = model.embeddings.weight[NODES]
    first = functional.elu(by_hand(model.layers[0], embedded, EDGES))
    if gate is None:
        expected = by_hand(model.layers[1], first, EDGES)
    else:
        middle = embedded + 0.3 * first
        expected = middle + 0.3 * by_hand(model.layers[1], middle, EDGES)
    assert torch.allclose(model(NODES, EDGES), expected, atol=1e-5)


def test_relative_change_is_the_mean_over_nodes() -> None:
    model = encoder(residual_gate=0.2)
    states, embedded = model(NODES, EDGES), model.embeddings.weight[NODES]
    expected = ((states - embedded).norm(dim=1) / embedded.norm(dim=1)).mean()
    assert model.relative_change == pytest.approx(float(expected.detach()), rel=1e-5)
    model.embeddings.weight[NODES[0]] = 0.0
    model(NODES, EDGES)
    assert model.relative_change.isfinite()


def test_node_embeddings_have_no_gradient_and_are_not_saved() -> None:
    model = encoder()
    model(NODES, EDGES).sum().backward()
    assert model.embeddings.weight.grad is None
    assert not model.embeddings.weight.requires_grad
    assert model.residual_gates.grad is not None
    assert model.layers[0].lin_l.weight.grad.abs().sum() > 0
    assert not any("embeddings" in name for name in model.saved_state())
    assert {"residual_gates", "layers.0.att", "layers.1.lin_r.bias"} <= set(model.saved_state())


def test_node_embeddings_are_a_copy() -> None:
    of_the_lm = torch.randn(VOCABULARY, WIDTH)
    model = GraphEncoder(of_the_lm, EncoderConfig())
    with torch.no_grad():
        model.embeddings.weight.zero_()
    assert of_the_lm.abs().sum() > 0


def test_low_precision_embeddings_give_float32_states_and_parameters() -> None:
    embeddings = torch.randn(VOCABULARY, WIDTH, dtype=torch.bfloat16)
    model = GraphEncoder(embeddings, EncoderConfig()).eval()
    assert model(NODES, EDGES).dtype == torch.float32
    assert {p.dtype for p in model.parameters() if p.requires_grad} == {torch.float32}


@pytest.mark.parametrize("gate", [None, 0.1])
def test_empty_graph(gate: float | None) -> None:
    model = encoder(residual_gate=gate)
    empty = torch.empty(0, dtype=torch.long)
    states = model(empty, torch.empty(2, 0, dtype=torch.long))
    assert states.shape == (0, WIDTH)
    assert model.relative_change == 0.0  # and no mean of nothing
    states.sum().backward()
    gradients = [p.grad for p in model.parameters() if p.requires_grad]
    assert all(gradient is not None and not gradient.any() for gradient in gradients)
