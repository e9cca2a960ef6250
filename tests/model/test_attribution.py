"""Gradient x input against finite differences, cut edges, and a passage that decides the answer."""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from turngraph.configs.schema import EncoderConfig, ScorerConfig
from turngraph.data.batches.collate import Batch, collate
from turngraph.data.examples import Example
from turngraph.data.graph.chain_graph import ChainGraph
from turngraph.model.attribution import Attribution, attribute
from turngraph.model.evidence_model import EvidenceModel
from turngraph.model.graph_lm import GraphLM
from turngraph.tests.scorer_examples import examples, read_examples
from turngraph.tests.tiny import END_ID, LORA, stir, tiny_builder, tiny_examples, tiny_model


def batch_of(example: Example) -> Batch:
    return collate([example], "right", with_target=True)


def explained(model: EvidenceModel, example: Example) -> Attribution:
    return attribute(model, batch_of(example))


@torch.no_grad()
def logprob(model: EvidenceModel, example: Example) -> float:
    return -model(batch_of(example)).total.item()


def scaled(model: EvidenceModel, example: Example, scale: Tensor) -> float:
    """The log-probability where the evidence's states are multiplied, node by node."""
    mask = batch_of(example).node_mask
    graph = isinstance(model, GraphLM)
    module = model.encoder if graph else model.lm.get_input_embeddings()

    def multiply(_: nn.Module, __: Any, output: Tensor) -> Tensor:
        factors = scale if graph else torch.ones(mask.shape)
        if not graph:
            factors[mask] = scale
        return output * factors[..., None]

    hook = module.register_forward_hook(multiply)
    try:
        return logprob(model, example)
    finally:
        hook.remove()


@pytest.mark.parametrize("evidence", ["graph", "text"])
def test_gradient_x_input_is_the_derivative_of_scaling_a_node(evidence: Any) -> None:
    model, example = stir(tiny_model(evidence=evidence)), tiny_examples(2)[1]
    found = explained(model, example)
    assert found.logprob == pytest.approx(logprob(model, example), abs=1e-5)
    nodes, step = len(example.graph.node_ids), 1e-2
    assert found.nodes.shape == (nodes,)
    for node in range(0, nodes, 9):
        change = torch.zeros(nodes).index_fill_(0, torch.tensor(node), step)
        up, down = (scaled(model, example, 1 + sign * change) for sign in (1, -1))
        assert found.nodes[node] == pytest.approx((up - down) / (2 * step), abs=5e-3)


def test_an_edges_part_is_the_derivative_of_a_factor_on_its_attention() -> None:
    model, example = stir(tiny_model(encoder=EncoderConfig(heads=2))), tiny_examples(2)[1]
    model.encoder.residual_gates.data.fill_(1.0)
    found, step = explained(model, example), 0.05
    num_edges = example.graph.edge_index.shape[1]
    assert found.edges.shape == found.attention.shape == (num_edges,)
    assert example.graph.num_entity_edges >= 2
    sizes = found.edges.abs()
    entity = sizes[-example.graph.num_entity_edges :].argmax() - example.graph.num_entity_edges
    assert sizes[entity] > 0.01
    for edge in (*sizes.topk(3).indices.tolist(), num_edges + int(entity)):
        up, down = (weighted(model, example, edge, 1 + sign * step) for sign in (1, -1))
        assert found.edges[edge] == pytest.approx((up - down) / (2 * step), rel=0.03, abs=2e-4)


def weighted(model: EvidenceModel, example: Example, edge: int, factor: float) -> float:
    """The log-probability where one edge's attention weights are multiplied in every layer."""

    def change(layer: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        states, edge_index, *types = args
        weights = layer.forward_with_attention(*args)[1][1][edge]  # [H]
        source, target = edge_index[:, edge]
        message = layer.lin_l(states)[source]
        if types and types[0] is not None:
            message = message + layer.edge[types[0][edge]]
        heads = message.view(layer.heads, -1) * weights[:, None]
        more = heads.flatten() if layer.concat else heads.mean(0)
        output = output.clone()
        output[target] += (factor - 1) * more
        return output

    hooks = [layer.register_forward_hook(change) for layer in model.graph_layers]
    try:
        return logprob(model, example) if model.writes else chance(model, example)
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def chance(model: EvidenceModel, example: Example, features: Tensor | None = None) -> float:
    """The log-probability of the likelier one of the first two candidates, or of the answer."""
    batch = batch_of(example)
    scores = model.node_scores(batch, features)
    entity = float(scores.entities[:2].max().exp())
    if scores.kinds is None:
        return math.log(entity)
    share, other, _ = scores.kinds[0].exp().tolist()
    spans = float(scores.span_logprobs(batch.reading.answers).exp().sum())
    return math.log(share * entity + other * spans)


@pytest.mark.parametrize("layer", [0, 1])
def test_parts_of_an_answer_of_a_scorer_are_derivatives(layer: int) -> None:
    """Of scaling a node's features, and of a factor on an edge's attention."""
    scorer = ScorerConfig(num_layers=2, width=16, dropout=0.0)
    lora = None if layer == 0 else LORA
    model = stir(tiny_model(answers="nodes", layer=layer, lora=lora, scorer=scorer))
    head = model.graph.scorer if layer else model.scorer
    head.project.bias.data.normal_(0, 0.5, generator=torch.Generator().manual_seed(0))
    head.score[-1].weight.data *= 10
    [*_, example] = read_examples(2) if layer else examples(2)
    found = attribute(model, batch_of(example), [0, 1])
    assert found.logprob == pytest.approx(chance(model, example), abs=1e-5)
    assert found.nodes.shape == (len(example.graph.node_ids),)
    step = 1e-2
    assert found.nodes.abs().max() > 3e-3
    for node in found.nodes.abs().topk(3).indices.tolist():
        pair = []
        for sign in (1, -1):
            changed = found.states.clone()
            changed[node, :] *= 1 + sign * step
            pair.append(chance(model, example, changed))
        assert found.nodes[node] == pytest.approx((pair[0] - pair[1]) / (2 * step), rel=0.03)
    assert found.edges.abs().max() > 1e-3
    for edge in found.edges.abs().topk(3).indices.tolist():
        up, down = (weighted(model, example, edge, 1 + sign * step) for sign in (1, -1))
        assert found.edges[edge] == pytest.approx((up - down) / (2 * step), rel=0.03, abs=5e-5)


def test_an_answer_that_is_a_span_alone_is_explained_by_it() -> None:
    scorer = ScorerConfig(num_layers=1, width=16, dropout=0.0)
    model = stir(tiny_model(answers="nodes", layer=1, lora=LORA, scorer=scorer))
    batch = batch_of(read_examples(1)[0])
    found = attribute(model, batch)
    with torch.no_grad():
        scores = model.node_scores(batch)
        spans = scores.span_logprobs(batch.reading.answers).logsumexp(0)
    assert found.logprob == pytest.approx(float(scores.kinds[0, 1] + spans), abs=1e-5)
    assert found.nodes.abs().max() > 0


def test_attention_is_the_mean_over_layers_and_heads() -> None:
    model, example = stir(tiny_model()), tiny_examples(1)[0]
    batch, seen = batch_of(example), []
    hooks = [
        layer.register_forward_hook(
            lambda layer, args, _: seen.append(layer.forward_with_attention(*args)[1][1])
        )
        for layer in model.encoder.layers
    ]
    found = attribute(model, batch)
    for hook in hooks:
        hook.remove()
    edges = batch.edge_index.shape[1]
    expected = torch.stack([weights[:edges].mean(1) for weights in seen]).mean(0)
    assert torch.allclose(found.attention, expected, atol=1e-6)
    assert ((found.attention > 0) & (found.attention < 1)).all()


def test_it_leaves_the_model_as_it_was() -> None:
    model, example = stir(tiny_model()), tiny_examples(1)[0]
    before = logprob(model, example)
    explained(model, example)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.encoder.modules())
    assert logprob(model, example) == before


def test_gradients_are_computed_where_the_caller_has_switched_them_off() -> None:
    model, example = stir(tiny_model()), tiny_examples(1)[0]
    with torch.no_grad():
        assert torch.equal(explained(model, example).nodes, explained(model, example).nodes)
        assert explained(model, example).nodes.abs().max() > 0


def test_a_model_without_anything_to_train_can_be_explained() -> None:
    example = tiny_examples(1)[0]
    model = stir(tiny_model())
    expected = explained(model, example)
    model.requires_grad_(False)
    found = explained(model, example)
    assert torch.allclose(found.nodes, expected.nodes)
    assert found.nodes.abs().max() > 0
    assert torch.allclose(found.edges, expected.edges)
    plain = explained(tiny_model(evidence="text", lora=None), example)
    assert plain.nodes.abs().max() > 0
    assert not plain.edges.any()


def test_no_evidence_has_no_parts() -> None:
    example = tiny_examples(1)[0]
    empty = replace(example, graph=tiny_builder().graph([]), evidence=[])
    for evidence in ("graph", "text"):
        assert explained(tiny_model(evidence=evidence), empty).nodes.shape == (0,)


def test_in_bf16_it_is_close_to_float32() -> None:
    example = tiny_examples(1)[0]
    exact = explained(stir(tiny_model()), example)
    low = explained(stir(tiny_model(dtype="bfloat16")), example)
    assert low.nodes.dtype == torch.float32
    close = torch.nn.functional.cosine_similarity(low.nodes, exact.nodes, dim=0)
    assert close > 0.9


def test_training_mode_and_several_examples_are_refused() -> None:
    model = tiny_model()
    two = collate(tiny_examples(2), "right", with_target=True)
    with pytest.raises(ValueError, match="one example, 2 were given"):
        attribute(model, two)
    with pytest.raises(ValueError, match="evaluation mode"):
        attribute(model.train(), batch_of(tiny_examples(1)[0]))


def passage_puzzles(count: int, rng: np.random.Generator) -> list[Example]:
    """Four passages of six random tokens; a token in the third alone tells the answer."""
    (whole,) = tiny_examples(1)
    short = replace(whole, prefix_ids=whole.prefix_ids[:4], suffix_ids=whole.suffix_ids[-4:])
    chains = np.array([(node, node + 1) for node in range(23) if node % 6 < 5]).T
    puzzles = []
    for number in range(count):
        node_ids = rng.integers(200, 400, 24)
        node_ids[14] = 50 + number % 4
        graph = ChainGraph(node_ids, chains, 0)
        puzzles.append(replace(short, graph=graph, target_ids=[100 + number % 4, END_ID]))
    return puzzles


def test_a_passage_that_alone_decides_the_answer_has_the_largest_part() -> None:
    rng = np.random.default_rng(0)
    model = tiny_model(encoder=EncoderConfig(dropout=0.0)).requires_grad_(True)
    optimizer = torch.optim.Adam(model.parameters(), 6e-3)
    for _ in range(200):
        loss = model(collate(passage_puzzles(16, rng), "right", with_target=True))
        if loss.total < 1:
            break
        optimizer.zero_grad()
        (loss.total / loss.num_tokens).backward()
        optimizer.step()
    assert loss.total < 1
    parts = [explained(model, e).nodes.abs().view(4, 6).sum(1) for e in passage_puzzles(16, rng)]
    shares = torch.stack([sizes / sizes.sum() for sizes in parts]).mean(0)
    assert shares.argmax() == 2, shares
    assert shares[2] > 0.4, shares


@pytest.mark.parametrize("evidence", ["graph", "text"])
def test_another_thread_reads_its_prompt_meanwhile(evidence: Any) -> None:
    model = stir(tiny_model(evidence=evidence))
    example, _, _, other = tiny_examples(4)
    alone, others = explained(model, example), logprob(model, other)
    found: list[float] = []

    def read_another(*_: object) -> None:
        if threading.current_thread() is threading.main_thread():
            thread = threading.Thread(target=lambda: found.append(logprob(model, other)))
            thread.start()
            thread.join()

    hook = model.causal_lm.get_output_embeddings().register_forward_pre_hook(read_another)
    beside = explained(model, example)
    hook.remove()
    assert found == [others]
    for one, two in zip(beside, alone, strict=True):
        torch.testing.assert_close(one, two)
