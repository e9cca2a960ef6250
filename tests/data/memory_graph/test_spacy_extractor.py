"""The extractor by spaCy, over blank pipelines whose components are rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc

from turngraph.data.memory_graph.extract.spacy_extractor import SpacyExtractor, load_pipeline
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode, Extraction
from turngraph.data.memory_graph.recall.word_vectors import word_vectors
from turngraph.memory import main

NAMES = {"Anna": "persName", "Gdyni": "placeName", "Jan Nowak": "persName", "wczoraj": "DATE"}
POLISH = "Anna mieszka w Gdyni. Jan Nowak lubi morze wczoraj."
# head's index, relation, part of speech and morphology of every token
TREES: dict[str, list[tuple[int, str, str, str]]] = {
    "Anna mieszka w Gdyni .": [
        (1, "nsubj", "PROPN", ""), (1, "ROOT", "VERB", ""), (3, "case", "ADP", ""),
        (1, "obl", "PROPN", ""), (1, "punct", "PUNCT", ""),
    ],
    "Anna zna Jan Nowak": [
        (1, "nsubj", "PROPN", ""), (1, "ROOT", "VERB", ""), (1, "obj", "PROPN", ""),
        (2, "flat", "PROPN", ""),
    ],
    "Anna nie zna Jan Nowak": [
        (2, "nsubj", "PROPN", ""), (2, "advmod", "PART", "Polarity=Neg"), (2, "ROOT", "VERB", ""),
        (2, "obj", "PROPN", ""), (3, "flat", "PROPN", ""),
    ],
    "Anna lives in Gdyni": [
        (1, "nsubj", "PROPN", ""), (1, "ROOT", "VERB", ""), (1, "prep", "ADP", ""),
        (2, "pobj", "PROPN", ""),
    ],
}  # fmt: skip


@Language.component("known_trees")
def known_trees(doc: Doc) -> Doc:
    """Parse the sentences of ``TREES``."""
    if (tree := TREES.get(" ".join(token.text for token in doc))) is None:
        return doc
    for token, (head, relation, part, morphology) in zip(doc, tree, strict=True):
        token.head, token.dep_, token.pos_ = doc[head], relation, part
        token.set_morph(morphology or None)
    return doc


def pipeline(*more: str) -> Language:
    made = spacy.blank("pl")
    for name in more:
        made.add_pipe(name)
    ruler: Any = made.add_pipe("entity_ruler")
    ruler.add_patterns([{"label": label, "pattern": name} for name, label in NAMES.items()])
    return made


def extract(text: str, *more: str, **fields: Any) -> Extraction:
    [found] = SpacyExtractor(pipeline(*more), "spacy:test").extract([Episode(text, **fields)])
    return found


def test_every_sentence_is_a_thesis_with_its_entities() -> None:
    found = extract(POLISH, "sentencizer")
    assert [(one.text, one.entities, one.span) for one in found.theses] == [
        ("Anna mieszka w Gdyni.", ("Anna", "Gdyni"), (0, 21)),
        ("Jan Nowak lubi morze wczoraj.", ("Jan Nowak",), (22, 51)),
    ]
    assert found.triplets == ()  # without a parser nothing tells who does what
    assert [one.text for one in extract(POLISH).theses] == [one.text for one in found.theses]
    assert extract("").theses == ()


def test_a_speaker_is_named_and_dates_are_times() -> None:
    found = extract("Anna mieszka w Gdyni od 2019-05-03.", speaker="Piotr")
    [thesis] = found.theses
    assert thesis.text == "Piotr: Anna mieszka w Gdyni od 2019-05-03."
    assert thesis.entities == ("Piotr", "Anna", "Gdyni")
    assert found.times == ("2019-05-03",)


@pytest.mark.parametrize(
    ("text", "triplets"),
    [
        ("Anna mieszka w Gdyni.", [("Anna", "mieszka w", "Gdyni")]),
        ("Anna zna Jan Nowak", [("Anna", "zna", "Jan Nowak")]),
        ("Anna nie zna Jan Nowak", []),
        ("Anna lives in Gdyni", [("Anna", "lives in", "Gdyni")]),
    ],
)
def test_a_parsed_sentence_has_triplets(text: str, triplets: list[tuple[str, str, str]]) -> None:
    found = extract(text, "known_trees").triplets
    assert [(one.subject, one.relation, one.object) for one in found] == triplets


def test_questions_are_linked_by_the_same_pipeline() -> None:
    extractor = SpacyExtractor(pipeline("known_trees"), "spacy:test")
    assert extractor.entities("Gdzie mieszka Anna, a gdzie Jan Nowak, wczoraj?") == [
        "Anna", "Jan Nowak",
    ]  # fmt: skip
    with MemoryGraph.open(":memory:", word_vectors, extractor) as graph:
        done = graph.remember("Anna mieszka w Gdyni.")
        assert (done.theses, done.triplets) == (1, 1)
        texts = [fact.text for fact in graph.ask("Gdzie mieszka Anna?").facts]
        assert "Anna mieszka w Gdyni" in texts


def test_the_command_reads_with_a_pipeline_of_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline("sentencizer").to_disk(tmp_path / "names")
    (tmp_path / "notes.txt").write_text(POLISH, encoding="utf-8")
    db, name = str(tmp_path / "my.db"), f"spacy:{tmp_path / 'names'}"
    main(["remember", "--db", db, "--input", str(tmp_path / "notes.txt"), "--extractor", name])
    assert "2 theses" in capsys.readouterr().out
    main(["ask", "--db", db, "--no_embed", "--json", "Gdzie mieszka Anna?"])
    facts = json.loads(capsys.readouterr().out)["facts"]
    assert "Anna mieszka w Gdyni." in [fact["text"] for fact in facts]


def test_a_missing_pipeline_and_one_without_entities_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"spacy:xx_none: no such pipeline.*spacy download xx_none"
    ):
        load_pipeline("xx_none")
    spacy.blank("pl").to_disk(tmp_path / "bare")
    with pytest.raises(ValueError, match="the pipeline finds no entities; it has nothing"):
        load_pipeline(str(tmp_path / "bare"))


@pytest.mark.parametrize("name", ["spacy", "spacy:", "stanza:pl", ""])
def test_an_unknown_extractor_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["remember", "--db", "my.db", "--input", "a.txt", "--extractor", name])
    assert stopped.value.code == 2
    assert "must be one of rules, lm, endpoint, given or spacy:PIPELINE" in capsys.readouterr().err
