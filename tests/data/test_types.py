"""The texts that the types give: interaction, target and query."""

from __future__ import annotations

import pytest

from turngraph.data.types import (
    Answer,
    Conversation,
    Turn,
    gold_interaction,
    interaction_answer,
    query,
    target_answer,
    weighted_query,
)


def answers(count: int) -> list[Answer]:
    return [Answer(f"a{i}") for i in range(1, count + 1)]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, ""),
        (1, "a1"),
        (5, "a1; a2; a3; a4; a5"),
        (6, "a1; a2; a3; a4; a5 and 1 more"),
        (25, "a1; a2; a3; a4; a5 and 20 more"),
    ],
)
def test_interaction_lists_five_answers_and_counts_the_rest(count: int, expected: str) -> None:
    assert interaction_answer(answers(count)) == expected


def test_target_is_all_answers_joined() -> None:
    assert target_answer(answers(7)) == "a1; a2; a3; a4; a5; a6; a7"
    assert target_answer(answers(1)) == "a1"
    assert target_answer([]) == ""


def test_query_joins_turns_in_order_and_leaves_no_double_spaces() -> None:
    interaction = [("Capital of Peru?", "Lima"), ("Its river?", "")]
    assert query(interaction, "How long?") == "Capital of Peru? Lima Its river? How long?"
    assert query([], "How long?") == "How long?"


def test_gold_interaction_stops_before_the_turn() -> None:
    turns = (
        Turn("1", "Capital?", (Answer("Lima", "Q2868"),)),
        Turn("2", "Languages?", tuple(answers(6))),
        Turn("3", "Currency?", (Answer("sol"),)),
    )
    conversation = Conversation("c", "", turns)
    assert gold_interaction(conversation, 0) == []
    assert gold_interaction(conversation, 2) == [
        ("Capital?", "Lima"),
        ("Languages?", "a1; a2; a3; a4; a5 and 1 more"),
    ]


def test_turns_of_no_weight_are_left_out() -> None:
    interaction = [(f"q{turn}", f"a{turn}") for turn in range(480)]
    found = weighted_query(interaction, "now", 0.4)
    assert [text for text, _ in found[-2:]] == ["q479 a479", "now"]
    assert [weight for _, weight in found[-3:]] == pytest.approx([0.16, 0.4, 1.0])
    assert len(found) == 26
    assert len(weighted_query(interaction, "now", 1.0)) == 481
