"""Nodes that share a place in the prompt, or have none, and types of edges, through the LM."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from turngraph.configs.schema import EncoderConfig
from turngraph.data.batches.collate import collate
from turngraph.data.examples import Example
from turngraph.tests.tiny import stir, text_ids, tiny_examples, tiny_model

HIDDEN = {"repeats": "encoded", "question_nodes": "question", "structure_edges": "all"}


def with_places(example: Example, places: list[int]) -> Example:
    return replace(example, graph=replace(example.graph, places=np.array(places)))


def test_a_place_holds_the_mean_of_its_nodes() -> None:
    model, example = stir(tiny_model()), tiny_examples(1)[0]
    num = len(example.graph.node_ids)
    places = [-1, 0, 0, 0, *range(1, num - 4), -1]
    shared = with_places(example, places)
    batches = [collate([e], "right", with_target=True) for e in (example, shared)]
    each, pooled = (model.input_embeddings(batch)[0] for batch in batches)
    start = len(example.prefix_ids)
    states = each[start : start + num]
    expected = [each[:start], states[1:4].mean(0)[None], states[4:-1], each[start + num :]]
    torch.testing.assert_close(pooled, torch.cat(expected))


def test_places_in_order_are_no_places() -> None:
    model, examples = stir(tiny_model()), tiny_examples(3)
    said = [with_places(e, list(range(len(e.graph.node_ids)))) for e in examples]
    batches = [collate(e, "left", with_target=False) for e in (examples, said)]
    one, other = (model.input_embeddings(batch) for batch in batches)
    assert torch.equal(one, other)


@pytest.mark.parametrize("edge_types", [False, True])
def test_padding_and_packing_change_nothing(edge_types: bool) -> None:
    config = EncoderConfig(residual_gate_init=0.5, edge_types=edge_types)
    model = stir(tiny_model(encoder=config))
    examples = tiny_examples(4, **HIDDEN)
    assert any((e.graph.places < 0).any() for e in examples)
    alone = sum(model(collate([e], "right", True)).total.item() for e in examples)
    for packed in (False, True):
        together = model(collate(examples, "right", True, packed=packed)).total
        assert together.item() == pytest.approx(alone, rel=1e-4)


def test_what_has_no_place_is_still_read_through_the_graph() -> None:
    """Another question beside the evidence, joined to it, changes what stands in the prompt."""
    model = stir(tiny_model())
    example = tiny_examples(1, question_nodes="question")[0]
    batch = collate([example], "right", True)
    other = replace(batch, node_ids=batch.node_ids.where(batch.places >= 0, 7))
    assert torch.equal(batch.input_ids, other.input_ids)
    assert not torch.allclose(model(batch).total, model(other).total)


def test_a_text_row_reads_what_stands_in_the_prompt() -> None:
    model, example = stir(tiny_model(evidence="text")), tiny_examples(1, **HIDDEN)[0]
    batch = collate([example], "right", with_target=False)
    assert batch.input_ids[0].tolist() == text_ids(example)
    table = model.lm.get_input_embeddings()
    assert torch.equal(model.input_embeddings(batch), table(batch.input_ids))


def test_types_of_edges_reach_the_answer_and_are_trained() -> None:
    model = stir(tiny_model(encoder=EncoderConfig(residual_gate_init=0.5, edge_types=True)))
    batch = collate(tiny_examples(2, **HIDDEN), "right", True)
    one_type = replace(batch, edge_types=torch.zeros_like(batch.edge_types))
    assert not torch.allclose(model(batch).total, model(one_type).total)
    model(batch).total.backward()
    for layer in model.encoder.layers:
        used = layer.edge.grad.abs().sum(1) > 0
        assert used[[0, 3, 9]].all()  # chains, the question, self-loops
        assert not used[1]  # there is no backward chain
    names = [name for name, _ in model.encoder.named_parameters() if name.endswith(".edge")]
    assert set(names) <= set(model.encoder.saved_state())
