"""The HTML page: all of the graph is in it, nothing of it is code, and nothing is loaded."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from turngraph.data.memory_graph.extract.given import GivenExtractor
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode, Extraction, Thesis, Triplet
from turngraph.data.memory_graph.upkeep.html_page import export_html

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "\"quotes' & <!-- comments",
    "</SCRIPT\u2028 line",
    "$title ${data} {{x}}",
    "שלום 日本語 \U0001f600",
    "\x00\x1b[31m",
)


class Reader(HTMLParser):
    """Tags, attributes and the text of scripts, as a browser's parser finds them."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[tuple[dict[str, Any], str]] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.tags: list[str] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.inside = tag == "script"
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            attributes, text = self.scripts[-1]
            self.scripts[-1] = attributes, text + data


@pytest.fixture
def graph(tmp_path: Path) -> MemoryGraph:
    """Hostile names and texts, a superseded fact, a hypothesis."""
    extractor = GivenExtractor()
    graph = MemoryGraph.open(tmp_path / "<b>.db", extractor=extractor)
    for number, name in enumerate(HOSTILE):
        triplet = Triplet("Anna", f"knows {name}"[:60], name, "2019", "2021-05", number == 1)
        thesis = Thesis(f"{name} is known.", (name, "Anna"))
        episode = Episode(f"Once: {name}", "2020-02-03", f"source {name}", str(number), name)
        graph.remember_many([extractor.hold(episode, Extraction((triplet,), (thesis,)))])
    return graph


def read(path: Path) -> tuple[Reader, dict[str, Any]]:
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    [data] = [text for attributes, text in reader.scripts if attributes.get("id") == "data"]
    return reader, json.loads(data)


def test_the_whole_graph_is_in_the_page(graph: MemoryGraph, tmp_path: Path) -> None:
    shown, total = export_html(graph.store, tmp_path / "page.html")
    _, data = read(tmp_path / "page.html")
    db = graph.store.db
    texts = [text for (text,) in db.execute("SELECT text FROM nodes ORDER BY id")]
    assert [node["text"] for node in data["nodes"]] == texts
    assert shown == total == len(texts)
    assert len(data["edges"]) == db.execute("SELECT count(*) FROM edges").fetchone()[0]
    names = [node["text"] for node in data["nodes"]]
    simple = [edge for edge in data["edges"] if edge["type"] == 0]
    assert {names[edge["target"]] for edge in simple} >= {HOSTILE[0], HOSTILE[5]}
    for edge in simple:
        assert (edge["from"], edge["to"]) == ("2019", "2021-05")
        assert edge["holds"] == [1546300800, 1619827200]
        [[episode, _]] = edge["seen"]
        assert data["episodes"][episode]["said"] == "2020-02-03"
        assert data["episodes"][episode]["source"].startswith("source ")
    assert sum("maybe" in edge for edge in simple) == 1


def test_nothing_that_was_remembered_is_code(graph: MemoryGraph, tmp_path: Path) -> None:
    export_html(graph.store, tmp_path / "page.html")
    reader, _ = read(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert len(reader.scripts) == 3  # the data, Cytoscape and ours
    assert "img" not in reader.tags
    assert "b" not in reader.tags
    assert "onerror" not in {name for _, name, _ in reader.attributes}
    assert "&lt;b&gt;.db" in text
    [data] = [text for attributes, text in reader.scripts if "id" in attributes]
    assert not set("<>&\u2028") & set(data)
    source = Path("data/memory_graph/upkeep/page_files/page.js").read_text(encoding="utf-8")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", source)


def test_the_page_is_one_file_that_loads_nothing(graph: MemoryGraph, tmp_path: Path) -> None:
    export_html(graph.store, tmp_path / "out" / "page.html")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["page.html"]
    reader, _ = read(tmp_path / "out" / "page.html")
    assert not {name for _, name, _ in reader.attributes} & {"src", "href", "srcset", "action"}
    assert "link" not in reader.tags
    assert "iframe" not in reader.tags
    [policy] = [v for _, name, v in reader.attributes if name == "content" and "default-src" in v]
    assert policy.startswith("default-src 'none'; ")
    allowed = set(re.findall(r"'sha256-([^']+)'", policy))
    code = [text for attributes, text in reader.scripts if not attributes]
    digests = {base64.b64encode(hashlib.sha256(t.encode()).digest()).decode() for t in code}
    assert digests == allowed
    assert len(allowed) == 2


def test_a_large_graph_is_cut_to_its_best_joined_nodes(graph: MemoryGraph, tmp_path: Path) -> None:
    shown, total = export_html(graph.store, tmp_path / "page.html", max_nodes=4)
    _, data = read(tmp_path / "page.html")
    assert (shown, len(data["nodes"]), data["total"]) == (4, 4, total)
    assert "Anna" in [node["text"] for node in data["nodes"]]
    assert all(max(edge["source"], edge["target"]) < 4 for edge in data["edges"])


def test_an_empty_graph_has_a_page(tmp_path: Path) -> None:
    with MemoryGraph.open(tmp_path / "my.db") as graph:
        assert export_html(graph.store, tmp_path / "page.html") == (0, 0)
    assert read(tmp_path / "page.html")[1]["nodes"] == []


def test_a_long_text_is_cut_and_says_so(tmp_path: Path) -> None:
    with MemoryGraph.open(tmp_path / "my.db") as graph:
        graph.remember("Anna " + "sang and " * 2000 + "slept.")
        export_html(graph.store, tmp_path / "page.html")
    texts = [node["text"] for node in read(tmp_path / "page.html")[1]["nodes"]]
    assert max(map(len, texts)) < 2100
    assert any("characters)" in text for text in texts)


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb (WCAG 2)."""
    shares = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(shares <= 0.03928, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_edges_and_nodes_stand_out_from_the_ground(graph: MemoryGraph, tmp_path: Path) -> None:
    """By at least 3 to 1, as WCAG 2 wants of graphics, on the light and on the dark page."""
    export_html(graph.store, tmp_path / "page.html")
    style = (tmp_path / "page.html").read_text(encoding="utf-8")
    parts = re.findall(r":root(?:\.dark)? {(.+?)}", style, re.DOTALL)
    assert len(parts) == 2
    for part in parts:
        colours = dict(re.findall(r"--(\w+): (#\w{6});", part))
        assert {"edge", "ground", "object", "class5"} <= set(colours)
        ground = luminance(colours["ground"])
        for name in set(colours) - {"ground", "raised", "line", "dim"}:
            dark, light = sorted((ground, luminance(colours[name])))
            assert (light + 0.05) / (dark + 0.05) >= 3, name
