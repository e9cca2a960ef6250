"""Convolutions of PyTorch Geometric by name in the encoder, beside our GATv2."""

from __future__ import annotations

import pytest
import torch

from turngraph.configs.schema import EncoderConfig, ModelConfig
from turngraph.data.batches.collate import collate
from turngraph.model.attribution import attribute
from turngraph.model.convolutions import PygConvolution, make_convolution
from turngraph.model.graph_encoder import GraphEncoder
from turngraph.model.make_model import make_model
from turngraph.tests.tiny import tiny_examples

WIDTH = 16
EDGES = torch.tensor([[0, 1, 2, 4], [1, 2, 3, 0]])


def states(num_nodes: int = 5) -> torch.Tensor:
    return torch.randn(num_nodes, WIDTH, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "name",
    ["GATConv", "GATv2Conv", "TransformerConv", "SAGEConv", "GCNConv", "GraphConv", "GINConv"],
)
def test_a_convolution_by_name_keeps_the_width_and_learns(name: str) -> None:
    torch.manual_seed(0)
    layer = make_convolution(WIDTH, EncoderConfig(conv=name, dropout=0.0))
    out = layer(states(), EDGES)
    assert out.shape == (5, WIDTH)
    out.square().sum().backward()
    assert all(parameter.grad is not None for parameter in layer.parameters())
    moved = layer(states(), EDGES.flip(0))
    assert not torch.allclose(moved, out)


@pytest.mark.parametrize("name", ["gatv2", "GATConv", "TransformerConv"])
def test_attention_is_dropped_as_configured_and_in_training_alone(name: str) -> None:
    for dropout, training in ((0.5, True), (0.0, True), (0.5, False)):
        torch.manual_seed(0)
        layer = make_convolution(WIDTH, EncoderConfig(conv=name, dropout=dropout)).train(training)
        same = torch.equal(layer(states(), EDGES), layer(states(), EDGES))
        assert same != (training and dropout > 0)


@pytest.mark.parametrize("heads", [1, 3])
def test_pygs_gatv2_by_name_is_ours_with_the_same_weights(heads: int) -> None:
    ours = make_convolution(WIDTH, EncoderConfig(heads=heads, dropout=0.0))
    theirs = make_convolution(WIDTH, EncoderConfig(conv="GATv2Conv", heads=heads, dropout=0.0))
    assert isinstance(theirs, PygConvolution)
    theirs.conv.load_state_dict(ours.state_dict())
    torch.testing.assert_close(theirs(states(), EDGES), ours(states(), EDGES), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("GATConvv", r"conv: 'GATConvv' given, must be .*did you mean GATConv\?"),
        ("GatConv", r"conv: 'GatConv' given, must be .*did you mean GATConv\?"),
        ("Linear", r"conv: 'Linear' given, must be gatv2"),
        ("ChebConv", r"conv: 'ChebConv' given, which needs K in addition to channels"),
    ],
)
def test_what_is_no_convolution_is_refused_by_name(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_convolution(WIDTH, EncoderConfig(conv=name))


def test_an_encoder_of_another_convolution_is_trained_and_saved() -> None:
    config = EncoderConfig(conv="TransformerConv", num_layers=2, dropout=0.0)
    encoder = GraphEncoder(torch.randn(20, WIDTH), config)
    out = encoder(torch.arange(5), EDGES)
    assert out.shape == (5, WIDTH)
    names = set(encoder.saved_state())
    assert "residual_gates" in names
    assert any("layers.1.conv" in name for name in names)


def test_only_gatv2_is_explained(tiny_folder: str) -> None:
    encoder = EncoderConfig(conv="SAGEConv")
    model = make_model(ModelConfig(tiny_folder, lora=None, encoder=encoder, dtype="float32")).eval()
    batch = collate(tiny_examples(1), "right", with_target=True)
    with pytest.raises(ValueError, match="SAGEConv: an explanation needs the attention weights"):
        attribute(model, batch)
