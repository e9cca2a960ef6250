"""Attributes an answer to the nodes and edges of the evidence: gradient x input.

Shapes: N nodes, E edges, D LM width, H heads, C width of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from threading import get_ident
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from turngraph.model.base_model import embedding_table
from turngraph.model.convolutions import check_attention
from turngraph.model.evidence_model import BatchLike
from turngraph.model.gatv2 import GATv2Layer
from turngraph.model.graph_lm import GraphLM
from turngraph.model.node_ranker import NodeRanker
from turngraph.model.reader import Reader
from turngraph.model.text_lm import TextLM

Hook = Callable[[nn.Module, tuple[Any, ...], Tensor], Tensor | None]


Explained = TextLM | NodeRanker | Reader


class Attribution(NamedTuple):
    """An answer's log-probability and its gradients.

    Args:
        logprob: natural logarithm of the answer's probability: summed over its tokens, or that of
            the candidates and spans that are the answer, where the graph ranks answers.
        states: the input that the gradient refers to, [N, D]: node states or token embeddings at
            the evidence's positions of the LM's input, or the node features that a scorer reads.
        gradient: gradient of the log-probability with respect to ``states``, [N, D].
        edges: gradient of the log-probability with respect to a factor of 1 on the attention
            weights of each edge, summed over layers and heads, [E]; 0 without GATv2.
        attention: mean attention weight of each edge over layers and heads, [E]; 0 without GATv2.
    """

    logprob: float
    states: Tensor
    gradient: Tensor
    edges: Tensor
    attention: Tensor

    @property
    def nodes(self) -> Tensor:
        """Gradient x input of each node, [N] (Simonyan et al., 2013; Shrikumar et al., 2016)."""
        return (self.gradient * self.states).sum(1)


def attribute(
    model: Explained,
    batch: BatchLike,
    entities: Sequence[int] = (),
    of_answer: Callable[[Tensor], Tensor] | None = None,
) -> Attribution:
    """Compute gradient x input of one example's answer, in one forward and one backward pass.

    Gradients of parameters are not computed. An edge's gradient needs no separate backward pass:
    the derivative of a layer's output with respect to a factor on an attention weight is the
    message that the weight multiplies.

    Args:
        model: a model in evaluation mode, which switches dropout off.
        batch: one example, unpadded, with the answer as its target.
        entities: where the graph ranks answers, indices of the candidates that are the answer.
        of_answer: of a reader, returns first and last nodes, [2, A], of spans that are the answer,
            too, from the log-probabilities of all spans; see ``NodeScores.spans``.

    Raises:
        ValueError: the model is in training mode, or the batch holds several examples.
    """
    if model.training:
        raise ValueError("attribution needs a model in evaluation mode: call model.eval()")
    if len(batch.input_ids) != 1:
        raise ValueError(f"attribution takes one example, {len(batch.input_ids)} were given")
    check_attention(model.graph_layers, "an explanation")
    compiled = model.config.compile
    eager = torch.compiler.set_stance("force_eager") if compiled else nullcontext()
    with torch.enable_grad(), eager, _recorded(model, batch) as seen:
        logprob = _logprob(model, batch, entities, of_answer, seen)
        inputs = [seen.states, *(layer.output for layer in seen.layers)]
        gradient, *per_layer = torch.autograd.grad(logprob, inputs)
    edges = torch.zeros(batch.edge_index.shape[1], device=batch.edge_index.device)
    attention = edges.clone()
    for layer, flow in zip(seen.layers, per_layer, strict=True):
        weights, parts = _edge_parts(layer, flow)
        attention += weights.mean(1) / len(seen.layers)
        edges += parts
    return Attribution(
        logprob.item(), seen.states.detach().float(), gradient.float(), edges, attention
    )


def _logprob(
    model: Explained,
    batch: BatchLike,
    entities: Sequence[int],
    of_answer: Callable[[Tensor], Tensor] | None,
    seen: _Seen,
) -> Tensor:
    """Return the answer's log-probability; where a scorer answers, record its features as input.

    The LM layers below a reader's graph are not differentiated: their output states are the input
    here, as token embeddings are for an LM. The input is taken after normalisation: a scorer does
    not see the length of a state, so that gradient x input would be 0 before it.
    """
    if isinstance(model, TextLM):
        total: Tensor = model(batch).total
        return -total
    with torch.no_grad():
        features = model.features(batch)
    seen.states = features.requires_grad_()
    scores = model.node_scores(batch, seen.states)
    parts = [scores.entities[list(entities)].max(0, keepdim=True).values] if entities else []
    if isinstance(model, Reader):
        assert batch.reading is not None, "not laid out for a reader"
        places = batch.reading.answers
        if of_answer is not None:
            assert scores.spans is not None, "no span head"
            places = torch.cat([places, of_answer(scores.spans).to(places)], 1).unique(dim=1)
        spans = scores.span_logprobs(places)
        assert batch.candidates is not None, "built without mentions"
        share = scores.shares(batch.candidates.num_candidates)[0]  # of each head
        parts = [part + share[:1] for part in parts]
        parts += [spans + share[1:]] if len(spans) else []
    assert parts, "neither a candidate nor a span is the answer"
    return torch.cat(parts).logsumexp(0)


class _Seen:
    """Tensors recorded during a forward pass: the input states, and each layer's call."""

    def __init__(self) -> None:
        self.states: Tensor = torch.empty(0)
        self.layers: list[_SeenLayer] = []


class _SeenLayer(NamedTuple):
    """One call of a GATv2 layer."""

    layer: GATv2Layer
    output: Tensor  # [N, H * C] or [N, C]
    states: Tensor  # [N, F]
    edge_index: Tensor  # [2, E]
    edge_types: Tensor | None = None  # [E]


@contextmanager
def _recorded(model: Explained, batch: BatchLike) -> Iterator[_Seen]:
    """Record a forward pass of this thread by hooks, which are removed at the end.

    The hooks ignore other threads, which in a server use the same model meanwhile.
    """
    seen, here = _Seen(), get_ident()

    def mine(hook: Hook) -> Hook:
        return lambda *call: hook(*call) if get_ident() == here else None

    def keep_layer(layer: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        assert isinstance(layer, GATv2Layer), type(layer)
        output = _differentiable(output)
        seen.layers.append(_SeenLayer(layer, output, *args))
        return output

    def keep_states(_: nn.Module, __: tuple[Any, ...], output: Tensor) -> Tensor:
        seen.states = _differentiable(output)
        return seen.states

    def keep_embeddings(_: nn.Module, __: tuple[Any, ...], output: Tensor) -> Tensor:
        seen.states = _differentiable(output[batch.node_mask])
        output = output.clone()
        output[batch.node_mask] = seen.states
        return output

    hooks = [layer.register_forward_hook(mine(keep_layer)) for layer in model.graph_layers]
    if isinstance(model, GraphLM):
        hooks.append(model.encoder.register_forward_hook(mine(keep_states)))
    elif isinstance(model, TextLM):
        table = embedding_table(model.causal_lm)
        hooks.append(table.register_forward_hook(mine(keep_embeddings)))
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def _differentiable(states: Tensor) -> Tensor:
    """Return states that require a gradient, even where nothing before them is trained."""
    return states if states.requires_grad else states.detach().requires_grad_()


@torch.no_grad()
def _edge_parts(seen: _SeenLayer, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Return attention weights, [E, H], and gradients of a factor on each edge's weights, [E]."""
    layer, num_edges = seen.layer, seen.edge_index.shape[1]
    heads, width = layer.heads, layer.out_channels
    _, (edges, weights) = layer.forward_with_attention(*seen[2:])
    assert torch.equal(edges[:, :num_edges], seen.edge_index), "a self-loop among the edges"
    weights = weights[:num_edges]
    messages = layer.lin_l(seen.states).view(-1, heads, width).float()[seen.edge_index[0]]
    if layer.num_edge_types:
        messages += layer.edge[seen.edge_types].view(-1, heads, width)
    shape = (-1, heads if layer.concat else 1, width)
    flow = gradient.float().view(shape)[seen.edge_index[1]]  # [E, H or 1, C]
    parts = (messages * flow).sum(2) * weights
    return weights, parts.sum(1) if layer.concat else parts.mean(1)
