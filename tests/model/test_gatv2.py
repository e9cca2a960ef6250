"""Our GATv2 layer against PyTorch Geometric's: outputs, gradients, parameters, memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.nn import GATv2Conv

from turngraph.model import gatv2
from turngraph.model.gatv2 import CPU_BLOCK, GPU_BLOCK, GATv2Layer, with_self_loops

WIDTH_IN, WIDTH = 6, 5
TOLERANCE = 1e-9
GRAPHS: dict[str, tuple[int, list[tuple[int, int]]]] = {
    "chain": (4, [(0, 1), (1, 2), (2, 3)]),
    "duplicate edges": (3, [(0, 1), (0, 1), (1, 0), (0, 1), (2, 1)]),
    "self-loops": (4, [(0, 0), (1, 2), (2, 2), (2, 2), (3, 1)]),
    "isolated nodes": (6, [(1, 4), (4, 1)]),
    "hub": (30, [*((i, 7) for i in range(30)), *((7, i) for i in range(30))]),
    "no edges": (3, []),
    "one node": (1, []),
    "no nodes": (0, []),
}
VARIANTS: dict[str, dict[str, Any]] = {
    "averaged": {"heads": 2, "concat": False},
    "side by side": {"heads": 3},
    "one head": {},
    "dropout": {"heads": 2, "concat": False, "dropout": 0.5},
}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three edges a block, so that a node's edges lie in several."""
    monkeypatch.setattr(gatv2, "CPU_BLOCK", 3 * WIDTH)


def edges_of(pairs: list[tuple[int, int]]) -> Tensor:
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T


def both_layers(**variant: Any) -> tuple[GATv2Layer, GATv2Conv]:
    """The same random float64 values in both; PyG starts one bias at zero, where it would hide."""
    torch.manual_seed(0)
    ours = GATv2Layer(WIDTH_IN, WIDTH, **variant).double()
    theirs = GATv2Conv(WIDTH_IN, WIDTH, **variant).double()
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.copy_(torch.randn_like(parameter))
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def results(layer: nn.Module, x: Tensor, edge_index: Tensor) -> list[Tensor]:
    """Return the output and the gradients of input and parameters, for one seed."""
    layer.zero_grad()
    x = x.clone().requires_grad_()
    torch.manual_seed(1)
    out = layer(x, edge_index)
    out.backward(torch.randn(out.shape, generator=torch.Generator().manual_seed(2)).to(out.dtype))
    return [out, x.grad, *(parameter.grad for parameter in layer.parameters())]


def assert_same(ours: list[Tensor], theirs: list[Tensor], tolerance: float = TOLERANCE) -> None:
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_output_and_gradients_are_pygs(
    graph: tuple[int, list[tuple[int, int]]], variant: dict[str, Any]
) -> None:
    num_nodes, pairs = graph
    ours, theirs = both_layers(**variant)
    x = torch.randn(num_nodes, WIDTH_IN, dtype=torch.float64)
    expected = results(theirs, x, edges_of(pairs))
    assert_same(results(ours, x, edges_of(pairs)), expected)


@settings(max_examples=20, deadline=None)
@given(data=st.data(), variant=st.sampled_from(list(VARIANTS)))
def test_random_graphs_agree_with_pyg(data: st.DataObject, variant: str) -> None:
    num_nodes = data.draw(st.integers(1, 8))
    node = st.integers(0, num_nodes - 1)
    edges = edges_of(data.draw(st.lists(st.tuples(node, node), max_size=24)))
    ours, theirs = both_layers(**VARIANTS[variant])
    x = torch.randn(num_nodes, WIDTH_IN, dtype=torch.float64)
    assert_same(results(ours, x, edges), results(theirs, x, edges))


def test_gradients_agree_at_the_kink_of_leaky_relu() -> None:
    ours, theirs = both_layers(heads=2)
    for layer in (ours, theirs):
        layer.lin_l.bias.data.zero_()
        layer.lin_r.bias.data.zero_()
    x = torch.randn(5, WIDTH_IN, dtype=torch.float64)
    x[:3] = 0  # pairs of these are exactly zero
    edges = edges_of([(0, 1), (1, 2), (3, 0), (0, 4), (4, 3)])
    assert_same(results(ours, x, edges), results(theirs, x, edges))


def test_large_scores_do_not_overflow() -> None:
    ours, theirs = both_layers(heads=2)
    x = 1e4 * torch.randn(6, WIDTH_IN, dtype=torch.float64)
    edges = torch.randint(0, 6, (2, 20))
    assert torch.isfinite(ours(x, edges)).all()
    torch.testing.assert_close(ours(x, edges), theirs(x, edges), rtol=TOLERANCE, atol=0)


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_a_seed_gives_pygs_initial_parameters(variant: dict[str, Any]) -> None:
    torch.manual_seed(3)
    ours = GATv2Layer(WIDTH_IN, WIDTH, **variant).state_dict()
    torch.manual_seed(3)
    theirs = GATv2Conv(WIDTH_IN, WIDTH, **variant).state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_printed_layer_names_its_sizes() -> None:
    layer = GATv2Layer(WIDTH_IN, WIDTH, heads=2, concat=False)
    assert repr(layer).startswith("GATv2Layer(\n  6, 5, heads=2, concat=False\n")


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", ["averaged", "dropout"])
def test_attention_weights_are_pygs(name: str, training: bool) -> None:
    ours, theirs = (layer.train(training) for layer in both_layers(**VARIANTS[name]))
    x = torch.randn(6, WIDTH_IN, dtype=torch.float64)
    edges = edges_of([(0, 1), (5, 1), (2, 2), (3, 4), (0, 1)])
    torch.manual_seed(4)
    out, (our_edges, ours_weights) = ours.forward_with_attention(x, edges)
    torch.manual_seed(4)
    expected, (their_edges, weights) = theirs(x, edges, return_attention_weights=True)
    assert torch.equal(our_edges, their_edges)
    assert_same([out, ours_weights], [expected, weights])
    assert not ours_weights.requires_grad
    assert bool((ours_weights == 0).any()) == (training and "dropout" in name)


def test_the_size_of_blocks_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, _ = both_layers(**VARIANTS["dropout"])
    x = torch.randn(9, WIDTH_IN, dtype=torch.float64)
    edges = torch.randint(0, 9, (2, 60))
    found = []
    for elements in (1, 4 * WIDTH, 10**6):
        monkeypatch.setattr(gatv2, "CPU_BLOCK", elements)
        found.append(results(ours, x, edges))
    assert_same(found[0], found[1], 1e-12)
    assert_same(found[0], found[2], 1e-12)


def test_a_block_has_as_many_elements_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gatv2, "CPU_BLOCK", 3 * WIDTH + 1)
    targets = torch.randint(0, 9, (8,))
    graph = gatv2._group(targets, targets, 9)
    blocks = list(gatv2._blocks(graph, torch.zeros(9, 1, WIDTH)))
    assert blocks == [slice(0, 3), slice(3, 6), slice(6, 8)]


def test_blocks_are_of_the_sizes_that_the_docstring_names() -> None:
    assert 4 * CPU_BLOCK == 2**20
    assert 4 * GPU_BLOCK == 128 * 2**20


def test_self_loops_are_not_searched_for_where_the_caller_has_none() -> None:
    edges = edges_of([(0, 0), (1, 0)])
    assert with_self_loops(edges, 2, loop_free=False).T.tolist() == [[1, 0], [0, 0], [1, 1]]
    found = with_self_loops(edges, 2, loop_free=True)
    assert found.T.tolist() == [[0, 0], [1, 0], [0, 0], [1, 1]]


def test_two_runs_have_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gatv2, "CPU_BLOCK", 2**14)
    torch.manual_seed(0)
    layer = GATv2Layer(64, 64, heads=2, concat=False, dropout=0.5)
    x, edges = torch.randn(300, 64), torch.randint(0, 300, (2, 2000))
    first = results(layer, x, edges)
    for _ in range(3):
        assert all(map(torch.equal, results(layer, x, edges), first))


class Largest(TorchDispatchMode):
    """Elements of the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.untyped_storage().nbytes() // 4)
        return result


@pytest.mark.slow
@pytest.mark.parametrize("concat", [True, False])
def test_no_tensor_has_a_row_for_each_edge(concat: bool) -> None:
    nodes, heads, width = 50, 2, 16
    layer = GATv2Layer(width, width, heads, concat=concat, dropout=0.5)
    x, edges = torch.randn(nodes, width), torch.randint(0, nodes, (2, 1000))
    with Largest() as largest:
        layer(x, edges).sum().backward()
    bound = max(nodes * heads * width, 2 * 2 * 1000 + 4 * nodes)  # [N, H, C]; [2, E] of int64
    assert largest.elements <= bound < 1000 * width


def test_what_is_kept_for_the_backward_pass_does_not_grow_with_edges_times_width() -> None:
    nodes, heads, width, kept = 20, 2, 256, []
    layer = GATv2Layer(width, width, heads, concat=False, dropout=0.5)
    for num_edges in (0, 1000):
        sizes: dict[int, int] = {}

        def pack(tensor: Tensor, sizes: dict[int, int] = sizes) -> Tensor:
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with saved_tensors_hooks(pack, lambda tensor: tensor):
            layer(torch.randn(nodes, width), torch.randint(0, nodes, (2, num_edges)))
        kept.append(sum(sizes.values()))
    an_edge = (kept[1] - kept[0]) / 1000
    assert 0 < an_edge <= 3 * 8 + 2 * heads * 4  # order and ends; weight and dropout of each head


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
def test_low_precision_rows_are_summed_in_float32(low: torch.dtype) -> None:
    layer = GATv2Layer(WIDTH, WIDTH, concat=False)
    layer.lin_l, layer.lin_r = nn.Identity(), nn.Identity()
    x, edges = torch.randn(40, WIDTH).to(low), torch.randint(0, 40, (2, 500))
    out, grad, grad_att, _ = results(layer, x, edges)
    with torch.autocast("cpu", torch.bfloat16):  # which lowers no sum inside
        assert all(map(torch.equal, results(layer, x, edges)[:3], [out, grad, grad_att]))
    expected, expected_grad, *_ = results(layer, x.float(), edges)
    assert out.dtype == torch.float32
    assert torch.equal(out, expected)
    assert grad.dtype == low
    # both ways into a row are rounded before they are added up
    torch.testing.assert_close(grad.float(), expected_grad, rtol=0.02, atol=0.02)


def test_autocast_gives_pygs_types_and_nearly_its_values() -> None:
    ours, theirs = (layer.float() for layer in both_layers(**VARIANTS["dropout"]))
    x, edges = torch.randn(9, WIDTH_IN), torch.randint(0, 9, (2, 40))
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = results(ours, x, edges), results(theirs, x, edges)
    assert [t.dtype for t in found] == [t.dtype for t in expected]
    for one, other in zip(found, expected, strict=True):
        assert (one - other).norm() <= 0.03 * other.norm()


def test_a_bfloat16_layer_gives_bfloat16() -> None:
    ours, theirs = (layer.bfloat16() for layer in both_layers(**VARIANTS["averaged"]))
    x, edges = torch.randn(9, WIDTH_IN).bfloat16(), torch.randint(0, 9, (2, 40))
    assert [t.dtype for t in results(ours, x, edges)] == [torch.bfloat16] * 8
    assert ours(x, edges).dtype == theirs(x, edges).dtype


def test_frozen_linear_maps_leave_a_gradient_for_attention() -> None:
    ours, theirs = both_layers(heads=2)
    x, edges = torch.randn(5, WIDTH_IN, dtype=torch.float64), torch.randint(0, 5, (2, 12))
    for layer in (ours, theirs):
        layer.lin_l.requires_grad_(False)
        layer.lin_r.requires_grad_(False)
        layer(x, edges).square().sum().backward()
    assert_same([ours.att.grad, ours.bias.grad], [theirs.att.grad, theirs.bias.grad])
    assert ours.lin_l.weight.grad is None


def test_a_second_derivative_is_refused() -> None:
    ours, _ = both_layers()
    x = torch.randn(3, WIDTH_IN, dtype=torch.float64, requires_grad=True)
    out = ours(x, edges_of([(0, 1)])).sum()
    with pytest.raises(RuntimeError, match="second derivative"):
        torch.autograd.grad(out, x, create_graph=True)


@pytest.mark.parametrize("pair", [(0, 3), (3, 0), (-1, 0), (0, -1)])
def test_an_edge_to_no_node_is_an_error(pair: tuple[int, int]) -> None:
    ours, _ = both_layers(heads=2)
    with pytest.raises(IndexError):
        ours(torch.randn(3, WIDTH_IN, dtype=torch.float64), edges_of([pair]))


@pytest.mark.parametrize("wrong", [{"heads": 0}, {"dropout": -0.1}, {"dropout": 1.5}])
def test_settings_out_of_range_are_named(wrong: dict[str, Any]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(ValueError, match=f"{name}={value}"):
        GATv2Layer(WIDTH_IN, WIDTH, **wrong)
