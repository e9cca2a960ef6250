"""A memory-lean GATv2 layer (Brody et al., 2022), which stores no edge features for backward.

Other implementations keep three tensors of E x H x C from forward to backward. Here an edge's score
or gradient is computed from the rows of its two nodes when it is needed, one block of edges at a
time: memory is O(N x H x C + E x H). Sums over edges run node by node in a fixed order, without
atomics, so that the same input gives the same bits.

Shapes: N nodes, E edges (with self-loops), H heads, C width of a head, F width of the input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

SLOPE = 0.2
"""Negative slope of LeakyReLU."""
CPU_BLOCK, GPU_BLOCK = 2**18, 2**25
"""Elements in a block of edges. A CPU's block fits into its cache. A GPU's block, 128 MiB in
float32, holds all edges of one ConvMix question, so that the host need not wait for the GPU."""


class GATv2Layer(nn.Module):
    r"""One layer of graph attention, with the parameters of PyTorch Geometric's ``GATv2Conv``.

    .. math::
        x_i' = \sum_{j \in \mathcal{N}_i} \alpha_{ij} W_l x_j + b, \quad
        \alpha_{ij} = \mathrm{softmax}_j \; a^\top \mathrm{LeakyReLU}(W_l x_j + W_r x_i)

    (equation 7 of Brody et al., 2022), per head. Names, shapes and initial values of the
    parameters are those of ``GATv2Conv``, and so are the weights that a random seed drops out.

    Args:
        in_channels: F.
        out_channels: C.
        heads: H.
        concat: concatenate the heads; False averages them.
        dropout: fraction of the attention weights that are set to zero in training.
        num_edge_types: number of edge types, 0: no types. Each type has a vector, initially zero,
            that is added to W_l x_j in attention and message; self-loops are one more type.
        loop_free: the caller promises that no input has self-loops. They are then not searched for,
            which would make the host wait for a GPU.

    Raises:
        ValueError: heads or dropout are out of range.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        dropout: float = 0.0,
        num_edge_types: int = 0,
        loop_free: bool = False,
    ) -> None:
        super().__init__()
        if heads < 1:
            raise ValueError(f"GATv2Layer: heads={heads}, must be at least 1")
        if not 0 <= dropout <= 1:
            raise ValueError(f"GATv2Layer: dropout={dropout}, must lie between 0 and 1")
        self.in_channels, self.out_channels, self.heads = in_channels, out_channels, heads
        self.concat, self.dropout, self.loop_free = concat, dropout, loop_free
        self.lin_l = nn.Linear(in_channels, heads * out_channels)
        self.lin_r = nn.Linear(in_channels, heads * out_channels)
        self.att = nn.Parameter(torch.empty(1, heads, out_channels))
        self.num_edge_types = num_edge_types
        if num_edge_types:
            self.edge = nn.Parameter(torch.empty(num_edge_types + 1, heads * out_channels))
        self.bias = nn.Parameter(torch.empty(heads * out_channels if concat else out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise weights by Glorot, b by zero, and linear biases as ``nn.Linear`` does."""
        bound = self.in_channels**-0.5
        for linear in (self.lin_l, self.lin_r):
            _glorot(linear.weight)
            nn.init.uniform_(linear.bias, -bound, bound)
        _glorot(self.att)
        if self.num_edge_types:
            nn.init.zeros_(self.edge)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, edge_index: Tensor, edge_types: Tensor | None = None) -> Tensor:
        """Compute new node states.

        Args:
            x: node states, [N, F].
            edge_index: source row and target row, [2, edges].
            edge_types: type of each edge, from 0, [edges]; unused if ``num_edge_types`` is 0.

        Returns:
            [N, C], or [N, H * C] for ``concat``.

        Raises:
            IndexError: an edge refers to a node that does not exist (on a CPU).
        """
        return self._attend(x, edge_index, edge_types)[0]

    def forward_with_attention(
        self, x: Tensor, edge_index: Tensor, edge_types: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Compute new node states and the attention weight of each edge.

        Returns:
            The output of ``forward``, and (edges with self-loops, [2, E]; attention weights after
            dropout, [E, H], without gradient).
        """
        out, attention, edges = self._attend(x, edge_index, edge_types)
        return out, (edges, attention)

    def _attend(
        self, x: Tensor, edge_index: Tensor, edge_types: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return output, attention weights, and edges with self-loops."""
        shape = (-1, self.heads, self.out_channels)
        left = self.lin_l(x).view(shape)  # [N, H, C]
        right = self.lin_r(x).view(shape)
        edges = with_self_loops(edge_index, len(x), self.loop_free)
        kept = None
        if self.training and self.dropout:
            ones = torch.ones(edges.shape[1], self.heads, dtype=_exact(left.dtype), device=x.device)
            kept = functional.dropout(ones, self.dropout)  # 0 or 1 / (1 - dropout), [E, H]
        between = edges
        if self.num_edge_types:
            assert edge_types is not None, "edges without types"
            left, right, between = self._add_types(left, right, edges, edge_index, edge_types)
        out, attention = _Attention.apply(  # type: ignore[no-untyped-call]  # torch's is untyped
            left, right, self.att[0], kept, between, self.concat
        )
        return out[: len(x)] + self.bias, attention, edges

    def _add_types(
        self, left: Tensor, right: Tensor, edges: Tensor, edge_index: Tensor, types: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Make one source row for each pair of a node and a type of its outgoing edges.

        Returns:
            Rows of sources, [E, H, C]; rows of targets, [E, H, C], the first N for the nodes and
            the others padding; edges between these rows, [2, E].
        """
        kinds = self.num_edge_types + 1
        if not self.loop_free:
            types = types[edge_index[0] != edge_index[1]]
        loops = types.new_full((edges.shape[1] - len(types),), self.num_edge_types)
        keys, rows = _distinct(edges[0] * kinds + torch.cat([types, loops]))
        # a matrix product: the backward pass of self.edge[...] would add edge by edge
        is_type = keys[:, None] % kinds == torch.arange(kinds, device=keys.device)
        vectors = is_type.to(self.edge.dtype) @ self.edge
        typed = left[keys // kinds] + vectors.view(-1, *left.shape[1:])
        right = functional.pad(right, (0, 0, 0, 0, 0, len(typed) - len(right)))
        return typed, right, torch.stack([rows, edges[1]])

    def extra_repr(self) -> str:
        """Return the sizes, for ``print``."""
        return f"{self.in_channels}, {self.out_channels}, heads={self.heads}, concat={self.concat}"


def with_self_loops(edge_index: Tensor, num_nodes: int, loop_free: bool) -> Tensor:
    """Return the edges between different nodes, then one self-loop for each node.

    Args:
        edge_index: source row and target row, [2, edges].
        num_nodes: N.
        loop_free: there are no self-loops among the edges.

    Returns:
        [2, E].
    """
    between = edge_index if loop_free else edge_index[:, edge_index[0] != edge_index[1]]
    loops = torch.arange(num_nodes, device=edge_index.device).expand(2, -1)
    return torch.cat([between, loops], dim=1)


def _distinct(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the different values, ascending, and the place of each value among them, [E].

    The result is padded to E values with zeros that no place refers to. ``torch.unique`` pads
    nothing, and so the host waits for a GPU to count the values.
    """
    ordered, order = values.sort(stable=True)
    is_new = torch.ones_like(ordered, dtype=torch.bool)
    is_new[1:] = ordered[1:] != ordered[:-1]
    at = is_new.cumsum(0) - 1
    places = torch.empty_like(at).index_copy_(0, order, at)
    return torch.zeros_like(ordered).index_copy_(0, at, ordered), places


def _glorot(parameter: Tensor) -> None:
    bound = math.sqrt(6 / (parameter.shape[-2] + parameter.shape[-1]))
    nn.init.uniform_(parameter, -bound, bound)


def _exact(kind: torch.dtype) -> torch.dtype:
    """Return the type in which sums and softmax are computed: at least float32."""
    return torch.promote_types(kind, torch.float32)


class _Grouped(NamedTuple):
    """Edges sorted by one of their nodes, the owner."""

    order: Tensor  # index of each edge before sorting, [E]
    owners: Tensor  # ascending, [E]
    others: Tensor  # the other node of each edge, [E]
    starts: Tensor  # first edge of each owner, and E at the end, [N + 1]


def _group(owners: Tensor, others: Tensor, num_nodes: int) -> _Grouped:
    owners, order = owners.sort(stable=True)
    nodes = torch.arange(num_nodes + 1, device=owners.device)
    return _Grouped(order, owners, others[order], torch.searchsorted(owners, nodes))


class _Attention(torch.autograd.Function):
    """Scores, softmax, dropout and weighted sum; the backward pass recomputes the edges' rows."""

    @staticmethod
    def forward(
        ctx: Any,
        left: Tensor,
        right: Tensor,
        att: Tensor,
        kept: Tensor | None,
        edges: Tensor,
        concat: bool,
    ) -> tuple[Tensor, Tensor]:
        """Return output and attention weights, [E, H].

        Args:
            ctx: autograd context for ``backward``.
            left: rows of sources, [N, H, C].
            right: rows of targets, [N, H, C].
            att: attention vectors, [H, C].
            kept: factor of each weight, 0 or 1 / (1 - dropout), [E, H]; None without dropout.
            edges: source row and target row, [2, E].
            concat: concatenate the heads; False averages them.
        """
        num_nodes, heads, width = left.shape
        by_target = _group(edges[1], edges[0], num_nodes)
        exact = _exact(left.dtype)
        sources, targets, vectors = (t.detach().to(exact) for t in (left, right, att))
        with torch.autocast(left.device.type, enabled=False):
            scores = _scores(sources, targets, vectors, by_target)
            alpha = _softmax(scores, by_target)  # [E, H]
            kept = None if kept is None else kept[by_target.order]
            weights = alpha if kept is None else alpha * kept
            out = sources.new_zeros(num_nodes, heads if concat else 1, width)
            for head in range(heads):
                out[:, head % out.shape[1]] += _sums(sources, by_target, weights, head)
            out = out if concat else out.div_(heads)
        ctx.save_for_backward(left, right, att, alpha, kept, *by_target)
        ctx.concat = concat
        attention = torch.empty_like(weights).index_copy_(0, by_target.order, weights)
        ctx.mark_non_differentiable(attention)
        return out.flatten(1).to(torch.promote_types(left.dtype, att.dtype)), attention

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of left, right and att; there are no second derivatives."""
        # once_differentiable would return zeros, not fail, where grad needs no gradient
        if torch.is_grad_enabled():
            raise RuntimeError("GATv2Layer has no second derivative (create_graph=True)")
        left, right, att, alpha, kept, *grouped = ctx.saved_tensors
        by_target = _Grouped(*grouped)
        sources, targets, vectors = (t.to(alpha.dtype) for t in (left, right, att))
        num_nodes, heads, width = left.shape
        grad_shape = (num_nodes, heads if ctx.concat else 1, width)
        grad = grad.to(alpha.dtype).reshape(grad_shape).contiguous()
        scaled = alpha if ctx.concat else alpha / heads
        scaled = scaled if kept is None else scaled * kept  # d output / d message
        with torch.autocast(left.device.type, enabled=False):
            along = _edge_values(sources, grad, by_target, lambda j, i, _: j.mul_(i).sum(1))
            along *= scaled
            grad_scores = along - alpha * _node_sums(along, by_target)[by_target.owners]
            grads = _gradients(sources, targets, vectors, grad, scaled, grad_scores, by_target)
        kinds = (left.dtype, right.dtype, att.dtype)
        return *(g.to(kind) for g, kind in zip(grads, kinds, strict=True)), None, None, None


def _gradients(
    sources: Tensor,
    targets: Tensor,
    att: Tensor,
    grad: Tensor,
    weights: Tensor,
    grad_scores: Tensor,
    by_target: _Grouped,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of source rows, of target rows, and of the attention vectors.

    A score is a LeakyReLU(z) with z = x_j + x_i, and LeakyReLU(z) = LeakyReLU'(z) z. Let s be the
    sum of the score's gradient times LeakyReLU'(z) over the edges of a node. Then s times a is the
    gradient of the node's row, and s times the row is the node's part of the gradient of a.
    """
    by_source = _group(by_target.others, by_target.owners, len(sources))
    weights = weights[by_source.order]
    grad_sources, grad_targets = torch.empty_like(sources), torch.empty_like(targets)
    grad_att = torch.zeros_like(att)
    sides = (
        (sources, targets, by_source, grad_scores[by_source.order], grad_sources),
        (targets, sources, by_target, grad_scores, grad_targets),
    )
    for head in range(len(att)):
        for own, other, graph, flow, grad_own in sides:
            slopes = _slope_sums(own, other, graph, flow[:, head], head)  # [N, C]
            grad_att[head] += (slopes * own[:, head]).sum(0)
            grad_own[:, head] = slopes.mul_(att[head])
        grad_sources[:, head] += _sums(grad, by_source, weights, head)
    return grad_sources, grad_targets, grad_att


def _blocks(graph: _Grouped, rows: Tensor) -> Iterator[slice]:
    """Yield blocks of edges whose rows have at most ``CPU_BLOCK`` or ``GPU_BLOCK`` elements."""
    elements = CPU_BLOCK if rows.device.type == "cpu" else GPU_BLOCK
    step = max(1, elements // rows.shape[-1])
    for start in range(0, len(graph.owners), step):
        yield slice(start, min(start + step, len(graph.owners)))


def _flat(rows: Tensor, nodes: Tensor, head: int) -> tuple[Tensor, Tensor]:
    """Flatten [N, H, C] or [N, 1, C] to a matrix; return it and the nodes' rows of a head."""
    per_node = rows.shape[1]
    return rows.flatten(0, 1), nodes * per_node + head % per_node


def _edge_values(
    of_others: Tensor,
    of_owners: Tensor,
    graph: _Grouped,
    value: Callable[[Tensor, Tensor, int], Tensor],
) -> Tensor:
    """Compute a value for each edge and head from the rows of its two nodes, [E, H].

    ``value`` may overwrite the rows that it is given.
    """
    heads = of_others.shape[1]
    values = of_others.new_empty(len(graph.owners), heads)
    for head in range(heads):
        others, others_at = _flat(of_others, graph.others, head)
        owners, owners_at = _flat(of_owners, graph.owners, head)
        for block in _blocks(graph, of_others):
            other = others.index_select(0, others_at[block])
            owner = owners.index_select(0, owners_at[block])
            values[block, head] = value(other, owner, head)
    return values


def _scores(sources: Tensor, targets: Tensor, att: Tensor, by_target: _Grouped) -> Tensor:
    """Compute each edge's attention score, before the softmax, [E, H]."""

    def score(source: Tensor, target: Tensor, head: int) -> Tensor:
        return functional.leaky_relu_(source.add_(target), SLOPE) @ att[head]

    return _edge_values(sources, targets, by_target, score)


def _softmax(scores: Tensor, by_target: _Grouped) -> Tensor:
    """Compute the softmax over the edges of each target, [E, H]."""
    highest = torch.segment_reduce(scores, "max", offsets=by_target.starts, unsafe=True)
    powers = (scores - highest[by_target.owners]).exp_()
    return powers / _node_sums(powers, by_target)[by_target.owners]


def _node_sums(values: Tensor, graph: _Grouped) -> Tensor:
    """Sum over each owner's edges, [N, H]."""
    return torch.segment_reduce(values, "sum", offsets=graph.starts, unsafe=True)


def _sums(rows: Tensor, graph: _Grouped, weights: Tensor, head: int) -> Tensor:
    """Compute the weighted sum of the others' rows over each owner's edges, [N, C]."""
    matrix, at = _flat(rows, graph.others, head)
    return _bags(matrix, at, graph.starts, weights[:, head])


def _bags(matrix: Tensor, at: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
    """Compute the weighted sum of the rows from each start to the next, in a fixed order."""
    return functional.embedding_bag(
        at,
        matrix,
        starts,
        mode="sum",
        per_sample_weights=weights.contiguous(),
        include_last_offset=True,
    )


def _slope_sums(own: Tensor, other: Tensor, graph: _Grouped, flow: Tensor, head: int) -> Tensor:
    """Sum flow, [E], times LeakyReLU'(own + other) over each owner's edges, [N, C]."""
    sums = own.new_zeros(len(own), own.shape[2])  # of flow where own + other is positive
    owners, owners_at = _flat(own, graph.owners, head)
    others, others_at = _flat(other, graph.others, head)
    blocks = list(_blocks(graph, own))
    ends = [end for block in blocks for end in (block.start, block.stop - 1)]
    bounds = [0, len(own) - 1]
    if len(blocks) != 1:
        bounds = graph.owners[ends].tolist()  # the host waits for the GPU here
    for block, first, last in zip(blocks, bounds[::2], bounds[1::2], strict=True):
        pairs = owners.index_select(0, owners_at[block])
        pairs += others.index_select(0, others_at[block])
        starts = graph.starts[first : last + 2].clamp(block.start, block.stop) - block.start
        each = torch.arange(len(pairs), device=pairs.device)
        sums[first : last + 1] += _bags(pairs.gt_(0), each, starts, flow[block])
    plain = _node_sums(flow[:, None], graph)  # [N, 1]
    return sums.mul_(1 - SLOPE).add_(plain, alpha=SLOPE)
