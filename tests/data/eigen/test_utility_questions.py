"""Utility questions: by an LM with filters, round trips."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from turngraph.data.eigen.utility_questions import (
    UtilityQuestion,
    chunk_spans,
    keep_found,
    questions_by_lm,
)
from turngraph.tests.data.eigen.planted import by_words


def test_long_texts_are_split_at_sentences() -> None:
    sentence = "This sentence has exactly seven words here. "
    text = sentence * 40
    spans = chunk_spans(text)
    assert [start for start, _ in spans[1:]] == [stop for _, stop in spans[:-1]]
    assert (spans[0][0], spans[-1][1]) == (0, len(text))
    assert all(len(text[a:b].split()) <= 120 for a, b in spans)
    assert all(text[a:].startswith("This") for a, _ in spans)
    assert chunk_spans("short") == [(0, 5)]
    assert chunk_spans(" \n") == []


def scripted(*replies: tuple[Any, bool]) -> Any:
    def generate(prompts: Sequence[str], schema: Mapping[str, Any]) -> list[tuple[str, bool]]:
        assert len(prompts) == len(replies)
        assert schema["properties"]["questions"]["maxItems"] == 3
        return [(r if isinstance(r, str) else json.dumps(r), done) for r, done in replies]

    return generate


def test_questions_of_a_language_model_are_filtered() -> None:
    counts: Counter[str] = Counter()
    asked = [
        "Who sails to Lima?",
        "who sails  to Lima?",
        "Tell of Lima",
        "Why?",
        "Is Mira in Lima?",
    ]
    generate = scripted(
        ({"questions": asked[:3]}, True),
        ({"questions": asked[3:]}, True),
        ('{"questions": ["Wh', False),
    )
    made = questions_by_lm(["Bob sails to Lima."] * 3, generate, counts)
    assert made == [UtilityQuestion(0, "Who sails to Lima?")]
    assert counts == {"made": 5, "cut_off": 1, "no_question": 1, "no_shared_word": 1, "copied": 1}


def test_a_complete_reply_that_breaks_the_schema_names_the_chunk_not_its_text() -> None:
    with pytest.raises(
        ValueError, match="chunk 0: the LM's reply breaks the prompt's schema"
    ) as error:
        questions_by_lm(["a secret"], scripted(("nothing", True)))
    assert "secret" not in str(error.value)


def test_round_trip_keeps_questions_that_find_their_chunk() -> None:
    texts = ["the ship sails", "the baker bakes bread", "the judge rules", "a cat sleeps"]
    right = UtilityQuestion(1, "What does the baker bake?")
    wrong = UtilityQuestion(0, "What does the judge rule?")
    vectors = by_words(texts)
    assert keep_found([right, wrong], texts, vectors, by_words, depth=1) == [right]
    assert keep_found([], texts, vectors, by_words) == []
