"""Examples of the graph's variants: what is encoded, what stands in the prompt, what fits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from turngraph.configs.schema import EDGE_TYPES, EvidenceConfig
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.prompt import Prompt
from turngraph.data.types import Answer, Conversation, Entity, Evidence, Turn
from turngraph.tests.data import golden

CITIES = ("Lima", "Quito", "Bogota", "Caracas", "Santiago", "Asuncion", "Montevideo", "Brasilia")


@pytest.fixture(scope="module")
def prompt(smollm2_tokenizer: Any) -> Prompt:
    return Prompt(smollm2_tokenizer)


def table() -> Conversation:
    """A table whose rows say their title and headers each."""
    pool = tuple(
        Evidence(
            str(number),
            f"Capitals, Name of the city is {name}, Population is {number} million",
            "table",
            (Entity(name, name),),
        )
        for number, name in enumerate(CITIES)
    )
    turns = (Turn("0", "What is the population of Lima?", (Answer("0 million"),)), Turn("1", "?"))
    return Conversation("c", "", turns, pool)


def example_of(prompt: Prompt, conversation: Conversation, **evidence: Any) -> Example:
    config = EvidenceConfig(**{"memory": "none", "top_k": 8} | evidence)
    return ExampleBuilder(prompt, config, golden.embed).conversation(conversation)[0]


def test_question_nodes_stand_behind_the_evidence_and_not_in_the_prompt(prompt: Prompt) -> None:
    conversation = golden.conversation()
    config = {"memory": "none", "top_k": 7}
    plain = ExampleBuilder(prompt, EvidenceConfig(**config)).conversation(conversation)[1]
    config["graph"] = "reader"
    asked = ExampleBuilder(prompt, EvidenceConfig(**config)).conversation(conversation)[1]
    num = len(plain.graph.node_ids)
    text = prompt.tokenizer.decode(asked.graph.node_ids[num:])
    assert text == "When was Kid A released, of what rank? 2 October 2000 Rank in Fact magazine?"
    assert np.array_equal(asked.graph.prompt_ids, plain.graph.node_ids)
    assert asked.num_tokens == plain.num_tokens
    assert asked.graph.num_entity_edges == plain.graph.num_entity_edges
    kinds = asked.graph.edge_types == EDGE_TYPES.index("question")
    assert kinds.sum() > 0
    assert ((asked.graph.edge_index >= num).sum(0)[kinds] == 1).all()


def test_edges_are_typed(prompt: Prompt) -> None:
    def kinds(graph: str) -> set[str]:
        example = example_of(prompt, table(), graph=graph)
        return {EDGE_TYPES[kind] for kind in example.graph.edge_types}

    assert kinds("paper") == {"forward"}
    assert kinds("reader") == {"forward", "backward", "question", "header", "row", "column"}


def test_a_graph_without_edges_keeps_its_nodes(prompt: Prompt) -> None:
    full, bare = (example_of(prompt, table(), edges=e).graph for e in ("all", "none"))
    assert np.array_equal(full.node_ids, bare.node_ids)
    assert full.edge_index.shape[1] > 0 == bare.edge_index.shape[1]
