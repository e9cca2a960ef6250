"""Turns and texts read by the rules: what is said together, and what a turn takes as known."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode
from turngraph.data.memory_graph.names import alias
from turngraph.data.memory_graph.record.store import Store
from turngraph.data.memory_graph.turns import TurnExtractor, turn_episode
from turngraph.data.memory_graph.upkeep import purge
from turngraph.memory import main
from turngraph.tests.data.memory_graph.hashing import Hashing


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[MemoryGraph]:
    with MemoryGraph.open(tmp_path / "my.db", Hashing(), TurnExtractor()) as opened:
        yield opened


def open_facts(graph: MemoryGraph, name: str) -> set[str]:
    """The facts of an object that hold, without their times."""
    return {fact.text.split(": ")[-1] for fact in graph.show(name).facts if fact.valid_to is None}


@pytest.mark.parametrize("first", [0, 1])
def test_what_a_sentence_says_replaces_none_of_itself_in_a_batch(
    graph: MemoryGraph, first: int
) -> None:
    texts = ["Bob works at Siemens and Bosch.", "Zed likes tea."]
    episodes = [Episode(text, "2022") for text in (texts[first], texts[1 - first])]
    graph.remember_many(episodes)
    assert {"Bob works at Siemens", "Bob works at Bosch"} <= open_facts(graph, "Bob")


def test_what_a_question_states_replaces_none_of_itself(graph: MemoryGraph) -> None:
    asked = turn_episode("Anna lives in Paris and Rome. Which is larger?", "Paris", "2022")
    graph.remember_many([asked])
    assert {"Anna lives in Paris", "Anna lives in Rome"} <= open_facts(graph, "Anna")
    later = turn_episode("Anna lives in Oslo now. Is it cold?", "Yes", "2023")
    graph.remember_many([later])
    assert "Anna lives in Rome" not in open_facts(graph, "Anna")


def test_a_property_of_the_users_own_makes_no_turn() -> None:
    text = "Anna lives in Paris. Bob works at Siemens."
    for size in ("3", "0", "9" * 20, str(len(text) + 1)):
        [found] = TurnExtractor().extract([Episode(text, properties={"question": size})])
        assert len(found.triplets) == 2
    [turn] = TurnExtractor().extract([turn_episode("Who lives in Paris?", "Anna")])
    assert turn.theses[0].text == "Who lives in Paris? Anna"


def test_a_turn_keeps_the_names_before_it_only_where_it_needs_them() -> None:
    extractor = TurnExtractor()
    assert extractor.topic("When was he born?", ("Kafka",)) == ("Kafka",)
    assert extractor.topic("Is Berlin larger than Hamburg?", ("Kafka",)) == ()


@pytest.mark.parametrize(
    "text",
    [
        "The licence is valid until 31 December 9999.",
        "It ends on 9999-12-31.",
        "It ends in December 9999.",
        "It holds until 9999.",
        "We meet again in 99999 years.",
        "It began 5000 months ago and 90000 years ago.",
    ],
)
def test_dates_beyond_all_calendars_are_words(graph: MemoryGraph, text: str) -> None:
    graph.remember_many([Episode(text, "2024-05-03")])
    assert graph.ask(text).facts


def test_what_is_forgotten_before_it_was_written_leaves_no_vector(
    graph: MemoryGraph, tmp_path: Path
) -> None:
    graph.remember_many([Episode("Bob has leukaemia.", source="a"), Episode("Zed likes tea.")])
    graph.ask("What has Bob?")
    graph.forget(source="a")
    graph.close()
    rows = [np.fromfile(path, np.float16) for path in tmp_path.glob("my.db.derived/*/rows-*")]
    [gone] = Hashing()(["Bob has leukaemia."]).astype(np.float16)
    width = len(gone)
    kept = np.concatenate([row.reshape(-1, width) for row in rows if row.size])
    assert kept.any()
    assert not (kept == gone).all(1).any()


def test_who_opens_a_graph_that_forgets_keeps_its_vectors(
    graph: MemoryGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.remember_many([Episode("Bob has leukaemia.", source="a"), Episode("Zed likes tea.")])
    graph.ask("What likes Zed?")
    graph.close()
    with MemoryGraph.open(tmp_path / "my.db", Hashing(), TurnExtractor()) as again:
        merge = purge._merge_words
        opened = []

        def open_it() -> None:
            with MemoryGraph.open(tmp_path / "my.db", Hashing(), TurnExtractor()) as other:
                opened.append(purge.marked(other.store))

        thread = threading.Thread(target=open_it)

        def meanwhile(store: Store) -> None:
            thread.start()
            merge(store)

        monkeypatch.setattr(purge, "_merge_words", meanwhile)
        again.forget(source="a")
        thread.join()
        assert opened == [None]  # it waited
        assert list(tmp_path.glob("my.db.derived/*/rows-*"))
        assert "Zed likes tea" in again.ask("What likes Zed?").facts[0].text
        assert [*again.store.db.execute("SELECT name FROM meta")] == [("revision",)]


def test_names_are_found_as_older_files_have_them() -> None:
    for name, stored in (("C#", "c"), ("C++", "c"), ("-5.2%", "5 2"), ("–60", "60")):
        assert alias(name) == stored
    assert alias("-5") == "-5"


def test_a_graph_that_is_not_there_is_not_made_by_asking(tmp_path: Path) -> None:
    path = tmp_path / "typo.db"
    for command in (["ask", "--no_embed", "Who?"], ["undo"], ["forget", "--source", "a", "--yes"]):
        with pytest.raises(ValueError, match=r"typo\.db: no such memory graph"):
            main([command[0], "--db", str(path), *command[1:]])
    assert not path.exists()


@pytest.mark.parametrize("number", ["9" * 20, "-1"])
def test_a_number_that_nothing_can_have_is_named(
    number: str, graph: MemoryGraph, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["forget", "--db", str(graph.store.path), f"--episode={number}", "--yes"])
    assert f"'{number}' given, nothing has such a number" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--jsonl", "--html", "--graphml", "--trig"])
def test_an_export_never_takes_the_place_of_the_graph(tmp_path: Path, option: str) -> None:
    path = tmp_path / "my.db"
    with MemoryGraph.open(path) as opened:
        opened.remember("Anna lives in Paris.", properties={"a": json.dumps(1)})
    before = path.read_bytes()
    with pytest.raises(ValueError, match="is the memory graph itself"):
        main(["export", "--db", str(path), option, str(tmp_path / "." / "my.db")])
    assert path.read_bytes() == before


def test_what_began_earlier_is_closed_by_what_began_later_whenever_it_is_told(
    graph: MemoryGraph,
) -> None:
    graph.remember("Anna has lived in Paris since 2020.", time="2023")
    graph.remember("Anna moved to Rome in 2018.", time="2024")
    found = {fact.text: (fact.valid_from, fact.valid_to) for fact in graph.history("Anna")}
    assert found["2020: Anna lives in Paris"] == ("2020", None)
    assert found["2018: Anna moved to Rome"] == ("2018", "2020")
