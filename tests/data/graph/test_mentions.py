"""Which nodes hold a gold answer's words, and which entities passages have."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from turngraph.data.graph.chain_graph import TokenisedPassage
from turngraph.data.graph.mentions import entities_of, find_answers, find_mentions
from turngraph.data.types import Answer, Entity, Evidence

TEXTS = "Lima, by the sea (Lima)", "the sea", "Peru: Lima"


def passage(number: int, text: str) -> Evidence:
    return Evidence(str(number), text, "text")


@settings(max_examples=40)
@given(
    st.lists(st.lists(st.integers(1, 4), min_size=23, max_size=23), min_size=3, max_size=3),
    st.lists(st.integers(0, 23), min_size=3, max_size=3),
)
def test_the_places_of_an_answer_are_the_tokens_that_hold_its_characters(
    widths: list[list[int]], kept: list[int]
) -> None:
    """Whatever the tokens' widths, and wherever a passage is cut."""
    tokens, expected, start = [], [], 0
    for text, sizes, num in zip(TEXTS, widths, kept, strict=True):
        ends = list(dict.fromkeys(min(end, len(text)) for end in accumulate(sizes)))[:num]
        tokens.append(TokenisedPassage(list(range(len(ends))), ends))
        for at in (i for i in range(len(text)) if text.startswith("Lima", i)):
            inside = [
                start + i
                for i, (begin, end) in enumerate(zip([0, *ends], ends, strict=False))
                if begin < at + 4 and end > at
            ]
            if ends and ends[-1] >= at + 4:
                expected.append((inside[0], inside[-1]))
        start += len(ends)
    passages = [passage(i, text) for i, text in enumerate(TEXTS)]
    found = find_answers(passages, tokens, [Answer("lima")])
    assert list(map(tuple, found.T.tolist())) == expected


def test_an_entity_is_named_as_in_the_best_ranked_passage() -> None:
    first, second = (Entity("Q1", label) for label in ("Lima", "Lima, Peru"))
    other = Entity("Q2", "Callao")
    passages = [
        replace(passage(number, "x"), entities=entities)
        for number, entities in enumerate([(first,), (other, second)])
    ]
    assert entities_of(passages) == {"Q1": first, "Q2": other}
    found = find_mentions(passages, {"Q2": [(1, 5)], "Q1": [(0, 2), (1, 6)]}, [3, 4])
    assert found.entities.tolist() == [1, 0, 0]
    assert found.nodes.tolist() == [5, 2, 6]
    assert found.sizes.tolist() == [3, 4]
    assert find_mentions(passages, {}, [3, 4]).entities.dtype == np.int64
