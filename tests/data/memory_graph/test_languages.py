"""Which sentences the English rules read: every English one, and hardly one of another language."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from turngraph.configs.memory_schema import MemoryGraphConfig
from turngraph.data.memory_graph.conversation import ChatGraph
from turngraph.data.memory_graph.extract.english_rules import EnglishRules, unread_line
from turngraph.data.memory_graph.extract.languages import UNNAMED, other_languages
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode
from turngraph.data.memory_graph.recall.word_vectors import word_vectors
from turngraph.memory import main
from turngraph.tests.data.memory_graph.language_sentences import ENGLISH, FOREIGN
from turngraph.tests.growing import assert_grows_linearly, cpu_seconds

MIXED = "Anna lives in Gdynia. Mój brat nie lubi oliwek. Anna mieszka w Gdyni i pracuje w porcie."


def test_no_english_sentence_is_called_another_language() -> None:
    assert len(ENGLISH) == 100
    assert [one for one in ENGLISH if other_languages([one]) != [None]] == []


def test_nearly_all_sentences_of_other_languages_are_told() -> None:
    told = {one: other_languages([one])[0] for _, one in FOREIGN}
    assert len(FOREIGN) == 100
    assert sum(language is not None for language in told.values()) >= 95
    named = sum(told[one] == language for language, one in FOREIGN)
    assert named >= 75


@pytest.mark.parametrize(
    "text",
    ["", "?!", "42", "OSLO, ROMA", "Anna", "https://example.org/sciezka/do/pliku", "x_i = foo_j()"],
)
def test_what_has_no_words_is_left_to_the_rules(text: str) -> None:
    assert other_languages([text]) == [None]


def test_a_sentence_of_unknown_words_is_english_among_english_ones() -> None:
    jargon = "Grafana dashbrd crashlooped."
    assert other_languages([jargon]) == [UNNAMED]
    assert other_languages(["The server is down.", jargon]) == [None, None]
    assert other_languages(["Grafana crashlooped."]) == [None]  # one word tells nothing
    assert other_languages(["Grafana dashbrd crashed.", jargon]) == [None, UNNAMED]


def test_a_foreign_name_in_its_own_script_does_not_make_a_sentence_foreign() -> None:
    assert (
        other_languages(["My neighbour 健太 moved to Ōsaka.", "We met Анна in Kazan."])
        == [None] * 2
    )
    assert other_languages(["Anna spotkała się z Janem w the Old Pub."]) == ["Polish"]


def test_only_english_sentences_become_facts_and_others_are_counted() -> None:
    rules = EnglishRules()
    [found] = rules.extract([Episode(MIXED)])
    assert [thesis.text for thesis in found.theses] == ["Anna lives in Gdynia."]
    assert [(t.subject, t.relation, t.object) for t in found.triplets] == [
        ("Anna", "lives in", "Gdynia")
    ]
    assert "Anna" in found.entities
    assert rules.unread == {"Polish": 2}
    assert unread_line(rules.unread).endswith("no facts were read from 2 sentences (Polish 2)")


def test_a_foreign_text_is_an_episode_and_is_found(tmp_path: Path) -> None:
    with MemoryGraph.open(tmp_path / "my.db", word_vectors) as graph:
        graph.remember("Hans wohnt seit 2010 in Hamburg.")
        graph.remember("Moja siostra nie lubi oliwek.")
        found = graph.ask("nie lubi oliwek")
        assert [(fact.type, fact.text) for fact in found.facts] == [
            ("episodic", "Moja siostra nie lubi oliwek.")
        ]
        [fact] = graph.ask("Wo wohnt Hans?").facts
        assert (fact.type, fact.text) == ("episodic", "Hans wohnt seit 2010 in Hamburg.")


def test_the_command_says_what_it_did_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = tmp_path / "notes.txt"
    text.write_text(f"{MIXED}\n\nIch mag keinen Kaffee.\n", encoding="utf-8")
    with caplog.at_level(logging.INFO):
        main(["remember", "--db", str(tmp_path / "my.db"), "--input", str(text)])
    assert "no facts were read from 3 sentences (Polish 2, German 1)" in caplog.text
    caplog.clear()
    text.write_text("Anna lives in Gdynia.", encoding="utf-8")
    with caplog.at_level(logging.INFO):
        main(["remember", "--db", str(tmp_path / "other.db"), "--input", str(text)])
    assert "no facts" not in caplog.text


def test_a_chat_says_what_it_did_not_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    chat = ChatGraph(tmp_path / "my.db", MemoryGraphConfig(vectors="words"), None)
    with caplog.at_level(logging.INFO):
        chat.remember([("Mieszkam w Gdyni i nie lubię kawy.", "Oh.")])
    assert "no facts were read from 1 sentence (Polish 1)" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO):
        chat.remember([("Mieszkam w Gdyni i nie lubię kawy.", "Oh."), ("I live in Oslo.", "OK.")])
    assert "no facts" not in caplog.text
    [fact] = chat.recall("Gdzie mieszkam?", [], 2)[:1]
    assert fact.evidence.text == "user: Mieszkam w Gdyni i nie lubię kawy."
    chat.close()


@pytest.mark.parametrize("letters", ["a", "a.", "a1", "a/", "é"])
def test_the_time_of_a_long_word_grows_as_the_word_does(letters: str) -> None:
    assert_grows_linearly(lambda n: cpu_seconds(lambda: other_languages([letters * n])), 5_000)
