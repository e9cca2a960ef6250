"""Summaries: every sentence is a quotation with its place; central, novel, within the words."""

from __future__ import annotations

import numpy as np
import pytest

from turngraph.data.eigen.summaries import (
    Quotation,
    Sentence,
    quotations,
    quotations_of_themes,
    sentences_of,
    summaries_by_lm,
)
from turngraph.data.eigen.themes import Theme
from turngraph.tests.data.eigen.planted import by_words

TEXTS = [
    "The ship left the harbour. It rained.",
    "The ship left the harbour. The captain of the ship saw the harbour.",
    "A ship and a harbour and a captain.",
]
THEME = Theme(1.0, np.array([1, 0, 2]), np.array([1.0, 0.8, 0.5]), np.ones(2))


def quoted(max_words: int = 100) -> tuple[Quotation, ...]:
    sentences = sentences_of(THEME, TEXTS)
    return quotations(THEME, sentences, by_words([one.text for one in sentences]), max_words)


def said() -> list[str]:
    return [one.sentence.text for one in quoted()]


def test_sentences_have_their_places() -> None:
    sentences = sentences_of(THEME, TEXTS)
    assert [one.chunk for one in sentences] == [1, 1, 0, 0, 2]
    assert all(TEXTS[one.chunk][one.start : one.stop] == one.text for one in sentences)


def test_quotations_are_central_and_distinct() -> None:
    found = quoted()
    assert found[0].centrality == 1
    assert found[0].sentence.chunk == 1
    texts = [one.sentence.text for one in found]
    assert len(texts) == len(set(texts)) == 4
    assert "It rained." in texts[1:]
    assert found == quoted()


def test_what_says_little_is_not_quoted_first() -> None:
    texts = ["Thanks, Anna!", "Thanks, Anna!!", "Anna plants red and yellow roses behind the shed."]
    sentences = [Sentence(i, 0, len(text), text) for i, text in enumerate(texts)]
    near = np.array([[1.0, 0.0], [1.0, 0.0], [0.8, 0.6]])
    theme = Theme(1.0, np.arange(3), np.ones(3), np.ones(2))
    assert quotations(theme, sentences, near)[0].sentence.text == texts[2]
    assert quotations(theme, sentences[:2], near[:2])[0].sentence.text == texts[0]  # if all do


def test_quotations_keep_within_the_words() -> None:
    assert sum(len(one.sentence.text.split()) for one in quoted(14)) <= 14
    assert len(quoted(1)) == 1


def test_nothing_to_quote_and_foreign_sentences() -> None:
    assert quotations(THEME, [], np.zeros((0, 4))) == ()
    with pytest.raises(ValueError, match="sentence 0: its chunk 9 is not in the theme"):
        quotations(THEME, [Sentence(9, 0, 1, "x")], np.ones((1, 4)))
    with pytest.raises(ValueError, match="sentence 0: its vector is zero"):
        quotations(THEME, [Sentence(1, 0, 1, "x")], np.zeros((1, 4)))


def test_themes_of_themes_quote_their_members_in_turn() -> None:
    each = [["e f", "a b"], ["a b", "c d"], []]
    assert quotations_of_themes(each, max_words=5) == [(0, 0), (1, 0)]
    assert quotations_of_themes(each) == [(0, 0), (1, 0), (1, 1)]


def test_summaries_of_a_language_model_are_marked() -> None:
    first, second = summaries_by_lm([said(), []], lambda prompts: ["Ships  leave a harbour."])
    assert (first.text, first.maker) == ("Ships leave a harbour.", "lm")
    assert (second.text, second.maker) == ("", "quotes")
    (foreign,) = summaries_by_lm([said()], lambda prompts: ["Penguins swim"])
    assert foreign.maker == "quotes"
    assert foreign.text.startswith(said()[0])
