"""Leaves out the oldest turns of a dialogue that exceeds the model's positions."""

from __future__ import annotations

from collections.abc import Callable

from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.types import Interaction
from turngraph.inference.answer_batches import lengths_beyond
from turngraph.model.evidence_model import EvidenceModel


def fitted(
    model: EvidenceModel,
    builder: ExampleBuilder,
    example: Example,
    interaction: Interaction,
    max_new_tokens: int,
    num_before: int = 0,
    check: Callable[[], None] = lambda: None,
) -> tuple[Example, int]:
    """Complete an example with as much of its dialogue as the model has positions for.

    The number of turns is bisected: a dialogue of a hundred turns is tokenised twice in all, as
    each trial has half of the turns of the one before.

    Args:
        model: the model that reads the example.
        builder: builder of the model's examples.
        example: example that was built without dialogue.
        interaction: the finished turns.
        max_new_tokens: length of the longest answer, in tokens.
        num_before: turns that are left out in any case.
        check: called before each trial; an exception that it raises ends the trials.

    Returns:
        The example, and the number of turns that its prompt leaves out. If no number is enough: the
        longest example, and 0.
    """

    def without(num: int) -> tuple[Example, bool]:
        check()
        shorter = builder.with_dialogue(example, interaction[num:])
        return shorter, not lengths_beyond(model, shorter, max_new_tokens)

    longest, fits = without(num_before)
    if fits:
        return longest, num_before
    too_few, enough = num_before, len(interaction)
    shortest, fits = without(enough)
    if not fits:
        return longest, 0
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        shorter, fits = without(middle)
        if fits:
            shortest, enough = shorter, middle
        else:
            too_few = middle
    return shortest, enough
