"""Nodes that take no position in the prompt, and types of edges, through the LM."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from turngraph.data.batches.collate import collate
from turngraph.tests.tiny import stir, text_ids, tiny_examples, tiny_model

HIDDEN = {"graph": "reader"}


def test_padding_and_packing_change_nothing() -> None:
    model = stir(tiny_model())
    examples = tiny_examples(4, **HIDDEN)
    assert any(e.graph.num_hidden for e in examples)
    alone = sum(model(collate([e], "right", True)).total.item() for e in examples)
    for packed in (False, True):
        together = model(collate(examples, "right", True, packed=packed)).total
        assert together.item() == pytest.approx(alone, rel=1e-4)


def test_what_has_no_place_is_still_read_through_the_graph() -> None:
    """Another question beside the evidence, joined to it, changes what stands in the prompt."""
    model = stir(tiny_model())
    example = tiny_examples(1, graph="reader")[0]
    batch = collate([example], "right", True)
    shown = torch.zeros(len(batch.node_ids), dtype=torch.bool).index_fill(0, batch.in_prompt, True)
    other = replace(batch, node_ids=batch.node_ids.where(shown, 7))
    assert torch.equal(batch.input_ids, other.input_ids)
    assert not torch.allclose(model(batch).total, model(other).total)


def test_a_text_row_reads_what_stands_in_the_prompt() -> None:
    model, example = stir(tiny_model(evidence="text")), tiny_examples(1, **HIDDEN)[0]
    batch = collate([example], "right", with_target=False)
    assert batch.input_ids[0].tolist() == text_ids(example)
    table = model.lm.get_input_embeddings()
    assert torch.equal(model.input_embeddings(batch), table(batch.input_ids))
