"""Utility questions: by rules from statements and cells, by an LM with filters, round trips."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from turngraph.data.eigen.question_wording import ask_object, ask_subject, ask_time
from turngraph.data.eigen.utility_questions import (
    Chunk,
    Stated,
    UtilityQuestion,
    chunk_spans,
    keep_found,
    questions_by_lm,
    questions_by_rules,
)
from turngraph.tests.data.eigen.planted import by_words


@pytest.mark.parametrize(
    ("statement", "question"),
    [
        (("Anna", "works at", "Louvre"), "Where does Anna work?"),
        (("Paris", "is the capital of", "France"), "What is Paris the capital of?"),
        (("Bob", "bought", "house"), "What did Bob buy?"),
        (("Lea", "was born in", "1990"), "When was Lea born?"),
        (("Carl", "studied", "physics"), "What did Carl study?"),
        (("Carl", "created", "art"), "What did Carl create?"),
        (("Carl", "stopped", "it"), "What did Carl stop?"),
        (("Carl", "changed", "it"), "What did Carl change?"),
        (("Carl", "teaches", "it"), "What does Carl teach?"),
        (("Carl", "carries", "it"), "What does Carl carry?"),
        (("Carl", "has", "dog"), "What does Carl have?"),
        (("Carl", "had", "dog"), "What did Carl have?"),
        (("Carl", "can play", "chess"), "What can Carl play?"),
        (("Carl", "knows", "it"), "What does Carl know?"),
        (("Carl", "xyz", "it"), None),
    ],
)
def test_questions_for_objects(statement: tuple[str, str, str], question: str | None) -> None:
    assert ask_object(*statement) == question


def test_questions_for_subjects_and_times() -> None:
    assert ask_subject("works at", "the Louvre", "Anna") == "Who works at the Louvre?"
    assert ask_subject("houses", "the Mona Lisa", "The Louvre") == "What houses the Mona Lisa?"
    assert ask_time("Bob", "bought", "a house") == "When did Bob buy a house?"
    assert ask_time("Lea", "is married to", "Bob") == "When is Lea married to Bob?"
    assert ask_time("Lea", "xyz", "Bob") is None


def test_rules_ask_for_statements_first_and_name_rare_ends() -> None:
    chunks = [
        Chunk("", (Stated("Anna", "works at", "Louvre", span=(0, 9)),), ("Anna", "Louvre")),
        Chunk("", (Stated("Anna", "lives in", "Rome", "2019"),), ("Anna", "Rome", "anna")),
        Chunk("", (), ("Anna", "Oslo")),
    ]
    made = questions_by_rules(chunks, 3)
    assert [(q.chunk, q.text) for q in made] == [
        (0, "Who works at Louvre?"),
        (0, "What is said of Louvre?"),
        (0, "What is said of Anna?"),
        (1, "When does Anna live in Rome?"),
        (1, "What is said of Rome?"),
        (1, "What is said of Anna?"),
        (2, "What is said of Oslo?"),
        (2, "What is said of Anna?"),
    ]
    assert made[0].span == (0, 9)
    assert all(one.maker == "rules" for one in made)
    assert len(questions_by_rules(chunks, 1)) == 3
    assert questions_by_rules(chunks, 0) == []


def test_rows_and_infoboxes_ask_for_their_cells() -> None:
    row = Chunk("Olympics, Medals, Nation is France, Gold is 3", kind="table")
    info = Chunk("Paris, Population, 2 million", kind="infobox")
    only = Chunk("Olympics, Year is 1900", kind="table")
    texts = [one.text for one in questions_by_rules([row, info, only])]
    assert texts == [
        "What is the Gold of France in Olympics?",
        "What is the Population of Paris?",
        "What is the Year of Olympics?",
    ]
    assert questions_by_rules([Chunk("no cells", kind="table")]) == []


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
    made = questions_by_lm(["Bob sails to Lima."] * 3, generate, counts=counts, maker="tiny")
    assert made == [UtilityQuestion(0, "Who sails to Lima?", "tiny", (0, 18))]
    assert counts == {"made": 5, "cut_off": 1, "no_question": 1, "no_shared_word": 1, "copied": 1}


def test_a_complete_reply_that_breaks_the_schema_names_the_chunk_not_its_text() -> None:
    with pytest.raises(
        ValueError, match="chunk 0: the LM's reply breaks the prompt's schema"
    ) as error:
        questions_by_lm(["a secret"], scripted(("nothing", True)))
    assert "secret" not in str(error.value)


def test_round_trip_keeps_questions_that_find_their_chunk() -> None:
    texts = ["the ship sails", "the baker bakes bread", "the judge rules", "a cat sleeps"]
    right = UtilityQuestion(1, "What does the baker bake?", "lm", (0, 1))
    wrong = UtilityQuestion(0, "What does the judge rule?", "lm", (0, 1))
    vectors = by_words(texts)
    assert keep_found([right, wrong], texts, vectors, by_words, depth=1) == [right]
    assert keep_found([], texts, vectors, by_words) == []
