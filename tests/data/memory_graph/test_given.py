"""Given statements: read from JSON Lines with one clear error each, returned, and replaced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from turngraph.data.memory_graph.extract.given import GivenExtractor
from turngraph.data.memory_graph.memory_types import (
    SIMPLE,
    Episode,
    Extraction,
    Fact,
    Replaced,
    Triplet,
    edge_key,
)
from turngraph.data.memory_graph.record.ingest import remember_many
from turngraph.data.memory_graph.record.store import Store
from turngraph.data.memory_graph.upkeep.forget import forget

PARIS = {"subject": "Anna", "relation": "lives in", "object": "Paris"}
BERLIN = PARIS | {"object": "Berlin"}


def write(folder: Path, *lines: dict[str, Any]) -> Path:
    path = folder / "given.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


def remember(folder: Path, *lines: dict[str, Any]) -> list[Fact]:
    """Return the simple facts after a file is remembered."""
    extractor = GivenExtractor()
    with Store(folder / "memory.db") as store:
        remember_many(store, extractor, extractor.read(write(folder, *lines)))
        edges = store.db.execute("SELECT id FROM edges WHERE type = ? ORDER BY id", (SIMPLE,))
        return store.facts(edge_key(edge) for (edge,) in edges.fetchall())


def read_given(path: Path) -> list[tuple[Episode, Extraction]]:
    """Return the episodes of a file and their extractions."""
    extractor = GivenExtractor()
    return [(episode, extractor.extract([episode])[0]) for episode in extractor.read(path)]


def test_a_line_is_an_episode_with_its_statements(tmp_path: Path) -> None:
    triplet = PARIS | {"valid_from": "3 May 2019", "valid_to": "2020", "replaces": [BERLIN]}
    thesis = {"text": "Anna  likes it there.", "entities": ["Anna"], "hypothesis": True}
    line = {"text": "Anna lives in Paris.", "time": "2019-06", "source": "diary", "speaker": "Eva"}
    path = write(tmp_path, line | {"triplets": [triplet], "theses": [thesis], "times": ["2019"]})
    ((episode, extraction),) = read_given(path)
    assert (episode.text, episode.time) == ("Anna lives in Paris.", "2019-06")
    assert (episode.source, episode.speaker) == ("diary", "Eva")
    (found,), (said,) = extraction.triplets, extraction.theses
    assert (found.valid_from, found.valid_to, found.span) == ("2019-05-03", "2020", (0, 20))
    assert found.replaces == (Replaced("Anna", "lives in", "Berlin"),)
    assert (said.text, said.entities, said.hypothesis) == ("Anna likes it there.", ("Anna",), True)
    assert extraction.times == ("2019",)


def test_without_a_text_the_statements_are_the_text(tmp_path: Path) -> None:
    line = {"triples": [PARIS, BERLIN], "theses": [{"text": "Anna moves often."}]}
    ((episode, extraction),) = read_given(write(tmp_path, line))
    assert episode.text == "Anna lives in Paris.\nAnna lives in Berlin.\nAnna moves often."
    spans = [s.span for s in (*extraction.triplets, *extraction.theses)]
    assert [episode.text[slice(*span)] for span in spans if span] == episode.text.split("\n")
    assert episode.source == "given.jsonl"


def test_a_grown_file_adds_only_new_lines(tmp_path: Path) -> None:
    lines = [{"triplets": [PARIS]}, {"triplets": [PARIS]}, {"triplets": [BERLIN]}]
    origins = [episode.origin for episode, _ in read_given(write(tmp_path, *lines))]
    assert len(set(origins)) == 3
    grown = [{"triplets": [BERLIN | {"object": "Rome"}]}, *lines]
    assert [e.origin for e, _ in read_given(write(tmp_path, *grown))][1:] == origins
    assert len(remember(tmp_path, *lines)) == 2
    assert len(remember(tmp_path, *grown)) == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"text": " "}, "must have a text, triplets or theses"),
        ({"triplets": [{"subject": "Anna", "relation": "is"}]}, "triplets[0].object: missing"),
        ({"triplets": [PARIS | {"object": " "}]}, "triplets[0].object: empty"),
        ({"triplets": "Anna"}, "field triplets: must be a list"),
        ({"triplets": [PARIS | {"valid_from": "soon"}]}, "triplets[0].valid_from: not a time"),
        ({"triplets": [PARIS | {"valid_from": "2020", "valid_to": "2019"}]}, "before valid_from"),
        ({"triplets": [PARIS | {"hypothesis": 1}]}, "triplets[0].hypothesis: must be true or"),
        ({"triplets": [PARIS | {"certain": 1}]}, "triplets[0].certain: unknown"),
        (
            {"triplets": [PARIS | {"replaces": [{}]}]},
            "triplets[0].replaces[0]: must have the subject",
        ),
        (
            {"triplets": [PARIS | {"replaces": [BERLIN], "hypothesis": True}]},
            "triplets[0].replaces: a hypothesis replaces nothing",
        ),
        ({"theses": [{"text": "Yes.", "entities": [1]}]}, "theses[0].entities[0]: must be a"),
        ({"text": "Yes.", "time": "never"}, "field time: not a time"),
        ({"text": "Yes.", "speakers": "Anna"}, "field speakers: unknown"),
    ],
)
def test_bad_input_is_one_error_with_file_line_and_field(
    line: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = write(tmp_path, {"text": "Fine."}, line)
    with pytest.raises(ValueError, match=r"given\.jsonl, line 2") as error:
        read_given(path)
    assert message in str(error.value)


def test_a_repeated_statement_replaces_what_it_names_until_that_is_forgotten(
    tmp_path: Path,
) -> None:
    again = BERLIN | {"replaces": [PARIS]}
    extractor = GivenExtractor()
    lines = [
        {"time": "2010", "triplets": [BERLIN]},
        {"time": "2012", "triplets": [PARIS]},
        {"time": "2015", "triplets": [again]},
        {"time": "2016", "triplets": [BERLIN]},
    ]
    with Store(tmp_path / "memory.db") as store:
        remember_many(store, extractor, extractor.read(write(tmp_path, *lines)))
        sql = "SELECT n.text, e.valid_from, e.valid_to FROM edges e JOIN nodes n ON n.id = e.target"
        sql += " WHERE e.type = 0 ORDER BY e.id"
        berlin, paris = ("Berlin", None, None), ("Paris", None, "2015")
        assert store.db.execute(sql).fetchall() == [berlin, paris, ("Berlin", "2015", None)]
        [third] = store.db.execute("SELECT id FROM nodes WHERE type = 2 AND said = '2015'")
        forget(store, episode=third[0])
        assert store.db.execute(sql).fetchall() == [berlin, ("Paris", None, None)]


@pytest.mark.parametrize(
    ("pattern", "closed"),
    [
        ({"subject": "anna", "relation": "LIVES IN"}, 2),
        ({"object": "the  paris"}, 2),
        ({"subject": "Anna", "object": "Berlin"}, 1),
    ],
)
def test_a_pattern_matches_facts_by_its_given_fields(
    pattern: dict[str, str], closed: int, tmp_path: Path
) -> None:
    facts = remember(
        tmp_path,
        {"time": "2010", "triplets": [PARIS, BERLIN, PARIS | {"subject": "Bob"}]},
        {"time": "2015", "triplets": [BERLIN | {"object": "Rome", "replaces": [pattern]}]},
    )
    assert sum(fact.valid_to is not None for fact in facts) == closed


def test_a_pattern_without_a_match_is_an_error_that_rolls_back_the_batch(
    tmp_path: Path,
) -> None:
    bad = BERLIN | {"replaces": [PARIS, PARIS | {"object": "Oslo"}]}
    rome = BERLIN | {"object": "Rome"}
    lines = [{"time": "2010", "triplets": [PARIS]}, {"time": "2015", "triplets": [rome, bad]}]
    message = r"given.jsonl, line 2, field triplets\[1\].replaces\[1\]: no fact that holds"
    with pytest.raises(ValueError, match=message):
        remember(tmp_path, *lines)
    assert remember(tmp_path, lines[0]) != []


def test_a_long_triplet_that_replaces_nothing_open_is_named_as_a_triplet(tmp_path: Path) -> None:
    long = PARIS | {"object": "Paris " * 8, "replaces": [{"text": "Anna lives in Rome."}]}
    with pytest.raises(ValueError, match=r"line 1, field triplets\[0\].replaces\[0\]: no fact"):
        remember(tmp_path, {"triplets": [long]})


def test_a_thesis_replaces_a_thesis(tmp_path: Path) -> None:
    old, new = "Anna lives in Paris.", "Anna lives in Berlin."
    extractor = GivenExtractor()
    lines = [
        {"time": "2010", "theses": [{"text": old, "entities": ["Anna"]}]},
        {"time": "2015", "theses": [{"text": new, "replaces": [{"text": "anna lives in paris"}]}]},
    ]
    with Store(tmp_path / "memory.db") as store:
        remember_many(store, extractor, extractor.read(write(tmp_path, *lines)))
        rows = store.db.execute("SELECT text, valid_to FROM nodes WHERE type = 1 ORDER BY id")
        assert rows.fetchall() == [(old, "2015"), (new, None)]


def test_from_python_an_extraction_is_held_for_its_episode() -> None:
    extractor = GivenExtractor()
    said = Extraction((Triplet("Anna", "lives in", "Paris"),))
    episodes = [Episode(str(i), origin=f"here:{i}") for i in range(3)]
    for episode in episodes:
        extractor.hold(episode, said)
    assert extractor.extract(episodes[1:2]) == [said]
    with pytest.raises(ValueError, match="here:0: no given statements"):  # it was skipped
        extractor.extract(episodes[:1])
    assert extractor.extract(episodes[2:]) == [said]
    with pytest.raises(ValueError, match="needs an origin"):
        extractor.hold(Episode("Anna"), said)
