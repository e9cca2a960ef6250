"""The page of themes: all that is quoted leads to its passage, and nothing of it is code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.upkeep.themes_page import (
    GROUP,
    PASSAGE,
    THEME,
    export_themes_html,
    themes_data,
)
from turngraph.tests.data.memory_graph.talks import Script, with_talks
from turngraph.tests.data.memory_graph.test_html_page import HOSTILE, read
from turngraph.tests.data.memory_graph.test_page_scripts import ask, browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with hostile texts, an ended fact and summaries by an LM."""
    folder = tmp_path_factory.mktemp("themes")
    with with_talks(folder / "<b>.db", "abcd") as graph:
        graph.remember("Anna lives in Paris.", "2020-02", "a")
        graph.remember("Anna lives in Rome.", "2021-05", "b")
        for text in HOSTILE:
            graph.remember(f"Bob likes {text}", "2020", f"a {text}", text)
        graph.make_themes(Script().lm())
        export_themes_html(graph.store, folder / "page.html")
        export_themes_html(graph.store, folder / "cut.html", 20)
    return folder / "page.html"


def nodes_of(data: dict[str, Any], type: int) -> list[dict[str, Any]]:
    return [node for node in data["nodes"] if node["type"] == type]


def test_quotations_lead_to_their_passages(page: Path) -> None:
    _, data = read(page)
    groups, themes, passages = (nodes_of(data, type) for type in (GROUP, THEME, PASSAGE))
    assert len(groups) >= 2
    assert len(themes) >= 8
    assert len(passages) == 98  # hostile texts are of sources with one text each
    assert data["total"] == len(data["nodes"])
    assert {passage["members"] for passage in passages} == {1}
    assert sum(theme["members"] for theme in themes) == len(passages)
    assert sum(group["members"] for group in groups) == len(passages)
    for theme in themes:
        assert theme["text"] in {quote["text"] for quote in theme["quotes"]}
        assert "passages of" in theme["about"]
        for quote in theme["quotes"]:
            words = quote["text"].rpartition(": ")[2].split()
            assert set(words) <= set(data["nodes"][quote["node"]]["text"].split())
            assert data["episodes"][quote["episode"]]["source"] in "abcd"
    ended = [q for t in themes for q in t["quotes"] if "Paris" in q["text"]]
    assert ended
    assert {(quote["to"], quote["holds"][1]) for quote in ended} == {("2021-05", 1619827200)}
    assert not any("Paris" in theme["text"] for theme in themes)
    assert any("by lm:script: " in theme["about"] for theme in themes)


def test_it_is_safe_and_loads_nothing(page: Path) -> None:
    reader, _ = read(page)
    assert len(reader.scripts) == 3
    assert not {"img", "b", "link", "iframe"} & set(reader.tags)
    assert not {name for _, name, _ in reader.attributes} & {"src", "href", "onerror"}
    [policy] = [v for _, name, v in reader.attributes if name == "content" and "default-src" in v]
    assert policy.startswith("default-src 'none'; ")


def test_a_large_one_is_cut_and_says_so(page: Path) -> None:
    _, data = read(page.with_name("cut.html"))
    assert len(data["nodes"]) == 20
    assert data["total"] > 100
    assert len(nodes_of(data, THEME)) >= 8
    assert all(max(edge["source"], edge["target"]) < 20 for edge in data["edges"])
    engine = browser(data, 390, 680)
    status = ask(engine, "byId('status').textContent")
    assert status.startswith(f"20 of {data['total']} nodes, the largest themes and their heaviest")


@pytest.mark.parametrize(("width", "height"), [(390, 680), (1280, 710)])
def test_it_is_used_by_keyboard(page: Path, width: int, height: int) -> None:
    _, data = read(page)
    engine = browser(data, width, height)
    labels = ask(engine, "drawing.nodes('.named').map((node) => node.data('label'))")
    assert labels
    quiet = {node["text"][:20] for node in nodes_of(data, PASSAGE)}
    assert not [text for text in labels if text[:20] in quiet]
    walked = []
    for _ in range(3):
        engine.eval("press('n')")
        walked.append(ask(engine, "pointed.node"))
    engine.eval("press('N'); press('Enter')")
    assert ask(engine, "selected") == walked[1] != walked[0]
    assert len(set(walked)) == 3
    assert not [number for number in walked if data["nodes"][number]["type"] == PASSAGE]
    assert ask(engine, "document.activeElement === byId('panel').all('button')[0]")
    engine.eval("press('Escape')")
    assert ask(engine, "[selected, document.activeElement === byId('graph')]") == [None, True]
    engine.eval("search('paris')")
    engine.eval("choose(found.findIndex((item) => nodes[item.index].type === 1)); frames()")
    panel = "byId('panel').textContent"
    assert "Quotations (" in ask(engine, panel)
    assert "until 2021-05" in ask(engine, panel)
    engine.eval("byId('panel').all('button')[1].dispatch('click'); frames()")
    assert ask(engine, "nodes[selected].type") == PASSAGE
    assert "Themes and their passages (1)" in ask(engine, panel)
    engine.eval("press('e')")
    assert "has the passage" in ask(engine, "status()")
    engine.eval("press('Escape'); press('Escape')")
    assert ask(engine, "selected") is None


def test_without_themes_there_is_no_page(tmp_path: Path) -> None:
    with MemoryGraph.open(tmp_path / "my.db") as graph:
        with pytest.raises(ValueError, match=r"my\.db: no themes"):
            export_themes_html(graph.store, tmp_path / "page.html")
        with graph.store.reading():
            assert themes_data(graph.store)["nodes"] == []
    assert not (tmp_path / "page.html").exists()
