"""Pages and tables are remembered by what they say, without their markup."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.extract.rules import RulesExtractor
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.inputs import read_episodes
from turngraph.tests.data.sources.made_documents import docx, paragraph, pdf_of_lines

PAGE = """<html><head><title>Tours</title></head><body><nav><a href="/">Home</a></nav>
<main><h1>Tours</h1><p>Ida Brown founded the brewery. A tour costs 12 pounds.</p>
<table><tr><th>Month</th><th>Guide</th></tr><tr><td>May</td><td>Ida Brown</td></tr></table>
</main></body></html>"""


def test_a_page_becomes_sentences_and_rows_without_tags(tmp_path: Path) -> None:
    path = tmp_path / "tour.html"
    path.write_text(PAGE)
    episodes = list(read_episodes(path))
    assert [(episode.text, dict(episode.properties)) for episode in episodes] == [
        ("Ida Brown founded the brewery. A tour costs 12 pounds.", {"title": "Tours"}),
        ("Tours, Month is May, Guide is Ida Brown", {}),
    ]
    assert {episode.source for episode in episodes} == {"tour.html"}
    assert len({episode.origin for episode in episodes}) == 2


def test_the_rows_of_a_table_replace_nothing_and_can_be_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "outlets.csv"
    path.write_text("Beer;Pub\nGrey Heron;The Anchor\nLock Keeper;The Barge Inn\n")
    with MemoryGraph.open(tmp_path / "my.db", extractor=RulesExtractor()) as graph:
        done = graph.remember_many(read_episodes(path))
        assert (done.episodes, done.triplets, done.superseded) == (2, 0, 0)
        assert [fact.text for fact in graph.show("Lock Keeper").facts] == [
            "outlets, Beer is Lock Keeper, Pub is The Barge Inn"
        ]
        assert graph.remember_many(read_episodes(path)).skipped == 2
        assert graph.forget(source="outlets.csv").episodes == 2


def test_markdown_is_read_without_its_markup_and_its_paragraphs_stay_whole(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_text(
        "---\nauthor: Ida Brown\n---\n# Garden\n\nAnna Berg is a nurse. She *lives*\nin Oslo.\n\n"
        "## Team\n\n- Tom Hale lives in Leeds.\n\n| Name | City |\n|---|---|\n| Bo | Rome |\n\n"
        "Anna: I am new.\nBob: I work at Acme.\n\n```\nx = 5\n```\n\n<!-- Anna is 90. -->\n"
    )
    episodes = list(read_episodes(path))
    assert [(episode.text, episode.properties.get("title")) for episode in episodes] == [
        ("Garden, author, Ida Brown", None),
        ("Anna Berg is a nurse. She lives\nin Oslo.", "Garden"),
        ("Tom Hale lives in Leeds.", "Team"),
        ("Garden, Team, Name is Bo, City is Rome", None),
        ("Anna: I am new.\nBob: I work at Acme.", "Team"),
        ("x = 5", "Team"),
    ]
    found = [t for one in RulesExtractor().extract(episodes) for t in one.triplets]
    assert [(t.subject, t.relation, t.object) for t in found] == [
        ("Anna Berg", "is a", "nurse"),
        ("Anna Berg", "lives in", "Oslo"),
        ("Tom Hale", "lives in", "Leeds"),
        ("Anna", "is", "new"),
        ("Bob", "works at", "Acme"),
    ]


def test_another_encoding_is_named_and_what_is_broken_is_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "brewers.csv"
    path.write_bytes("Brewer,Ort\nJürgen Müller,Köln\nKäthe Weiß,Süßen\n".encode("latin-1"))
    with caplog.at_level(logging.INFO):
        first = next(iter(read_episodes(path)))
    assert first.text == "brewers, Brewer is Jürgen Müller, Ort is Köln"
    assert "brewers.csv: read as " in caplog.text
    (tmp_path / "empty.html").write_text("")
    with pytest.raises(ValueError, match=r"empty\.html"):
        list(read_episodes(tmp_path / "empty.html"))


def test_headings_of_pdf_and_word_files_are_no_part_of_what_is_remembered(tmp_path: Path) -> None:
    (tmp_path / "bridge.pdf").write_bytes(pdf_of_lines([(14, "Repairs"), (10, "Anna left Oslo.")]))
    (tmp_path / "harbour.docx").write_bytes(docx(paragraph("Crew", "H") + paragraph("Bert came.")))
    found = [
        e.text for name in ("bridge.pdf", "harbour.docx") for e in read_episodes(tmp_path / name)
    ]
    assert found == ["Anna left Oslo.", "Bert came."]


@pytest.mark.parametrize("name", ["a.ttl", "a.trig", "a.nt", "a.nq", "a.rdf", "a.OWL", "a.jsonld"])
def test_an_ontology_is_no_text(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text("<urn:my:tom> <urn:my:likes> <urn:my:fish> .\n")
    with pytest.raises(UserError, match=rf"/{name}: RDF, not a text; `import --rdf`"):
        read_episodes(path)
