"""As much of a dialogue as the model has positions for, and no turn less."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turngraph.inference.answer_batches import prompt_length
from turngraph.inference.fitting import fitted
from turngraph.tests.tiny import tiny_builder, tiny_examples, tiny_model

NEW = 3
DIALOGUE = tuple((f"What is number {i}?", f"It is {i}.") for i in range(7))


@pytest.mark.parametrize("num_left_out", range(len(DIALOGUE) + 1))
def test_the_fewest_turns_are_left_out(num_left_out: int) -> None:
    builder, (example,) = tiny_builder(), tiny_examples(1)
    question = example.conversation.turns[example.turn].question

    def length(num: int) -> int:
        prefix, suffix = builder.prompt.parts(DIALOGUE[num:], question)
        return prompt_length(replace(example, prefix_ids=prefix, suffix_ids=suffix))

    model = tiny_model()
    lm = model.causal_lm.config
    lm.max_position_embeddings = length(num_left_out) + NEW
    found, num = fitted(model, builder, example, DIALOGUE, NEW)
    assert num == num_left_out
    assert prompt_length(found) == length(num_left_out)
    lm.max_position_embeddings = length(len(DIALOGUE)) + NEW - 1
    found, num = fitted(model, builder, example, DIALOGUE, NEW)
    assert (num, prompt_length(found)) == (0, length(0))
    lm.max_position_embeddings = 10**6
    assert fitted(model, builder, example, DIALOGUE, NEW, 2)[1] == 2
