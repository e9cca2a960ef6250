"""The command that measures what consecutive prompts share."""

from __future__ import annotations

from turngraph.benchmarks.kv_reuse import ORDERS, kept_first, long_conversations, measure
from turngraph.tests.tiny import tiny_builder, tiny_conversation, tiny_model


def test_conversations_are_joined_to_the_length_asked_for() -> None:
    found = list(long_conversations([tiny_conversation(n) for n in range(5)], 7))
    assert [len(c.turns) for c in found] == [7]
    assert [turn.id for turn in found[0].turns] == list("0123456")
    texts = [passage.text for passage in found[0].evidence]
    assert len(texts) == len(set(texts)) == 16  # of three pools of six, which share two passages


def test_what_was_there_before_comes_first() -> None:
    a, b, c, d, *_ = tiny_conversation(0).evidence
    assert kept_first([a, d, c], [c, b, a]) == [c, a, d]


def test_an_order_for_reuse_keeps_more_of_a_text_prompt() -> None:
    model, builder = tiny_model(evidence="text"), tiny_builder(top_k=4, memory="random")
    conversations = [tiny_conversation(n) for n in range(2)]
    rows = [measure(model, builder, conversations, order, 1) for order in ORDERS]
    for (positions, equal, prefix), times in rows:
        assert prefix <= equal < positions
        assert all(seconds > 0 for seconds in times)
    assert rows[0][0][0] == rows[1][0][0]
    assert rows[0][0][1] <= rows[1][0][1]
