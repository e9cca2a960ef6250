"""The page's scripts, run by V8: where labels lie, and how an edge shows its relation."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from py_mini_racer import MiniRacer

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.upkeep.html_page import SCRIPTS, page_data

SOURCES = Path("data/memory_graph/upkeep/page_files")
BROWSER = Path(__file__).with_name("fake_browser.js")
NAMES = [
    f"{first} {last}"
    for first in ("Anna", "Piotr", "Christopher", "Zoe", "Omar", "Marta", "Ben", "Lena", "Ivy")
    for last in ("Nowak", "Montgomery-Hollingsworth", "Berg", "Silva", "Lindqvist", "Okafor")
]
Box = tuple[float, float, float, float]


def graph_data(num_sentences: int) -> dict[str, Any]:
    """Return the page's data of a graph of sentences about people and places."""
    drawn = np.random.default_rng(0)
    with MemoryGraph.open(":memory:") as graph:
        for one, other in drawn.choice(len(NAMES), (num_sentences, 2)).tolist():
            graph.remember(f"{NAMES[one]} met {NAMES[other]}.", time="2024-05-06")
        return page_data(graph.store.db, "my.db")


def browser(data: dict[str, Any], width: int, height: int) -> MiniRacer:
    """Return the page as it looks once it is loaded."""
    engine = MiniRacer()
    given = f"const WIDTH = {width}, HEIGHT = {height}, DATA = {json.dumps(json.dumps(data))};\n"
    sources = [BROWSER, *(SOURCES / name for name in SCRIPTS)]
    engine.eval(given + "\n".join(path.read_text(encoding="utf-8") for path in sources))
    engine.eval("frames()")
    return engine


def ask(engine: MiniRacer, code: str) -> Any:
    return json.loads(str(engine.eval(f"JSON.stringify({code})")))


def overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


@pytest.mark.parametrize(("width", "height"), [(390, 680), (1280, 710)])
@pytest.mark.parametrize(("num_sentences", "least"), [(1, 4), (18, 12), (330, 15)])
def test_no_label_is_cut_or_lies_on_another(
    width: int, height: int, num_sentences: int, least: int
) -> None:
    data = graph_data(num_sentences)
    engine = browser(data, width, height)
    for look in ("", "select(0, true)", "select(null)", "zoom(3)", "pan(1, -0.5)", "zoom(0.1)"):
        engine.eval(f"{look}; frames()")
        shift = ask(engine, "[drawing.picture.width / 4 - WIDTH / 2, "
                            "drawing.picture.height / 4 - HEIGHT / 2]")  # fmt: skip
        labels = ask(engine, "drawing.picture.getContext().labels")
        boxes = [
            (x - shift[0], y - shift[1] - 13, x - shift[0] + 7 * len(text), y - shift[1] + 5)
            for text, x, y in labels
            if (x, y) != (0, -5)  # of an edge: turned, and placed by its own boxes
        ]
        if not look:
            assert len(boxes) >= least, (look, len(data["nodes"]))
        for box in boxes:
            assert box[0] >= 0, (look, box)
            assert box[1] >= 0, (look, box)
            assert box[2] <= width, (look, box)
            assert box[3] <= height, (look, box)
            assert not overlap(box, (12, height - 30, 200, height - 8)), (look, "on the status")
        assert not [pair for pair in combinations(boxes, 2) if overlap(*pair)], look


def test_a_chosen_node_has_its_label_once() -> None:
    engine = browser(graph_data(18), 390, 680)
    index = ask(engine, "nodes.findIndex((node) => node.type === 0)")
    engine.eval(f"select({index}, true); frames()")
    labels = [text for text, _, _ in ask(engine, "drawing.picture.getContext().labels")]
    name = ask(engine, f"nodes[{index}].label")
    assert sum(name.startswith(text.removesuffix("…")) for text in labels) == 1


def test_a_label_takes_the_free_side_and_hides_no_larger_node() -> None:
    engine = browser(graph_data(1), 390, 680)
    engine.eval("room = new Room([0, 0, 200, 100], [[0, 80, 90, 100]])")
    assert ask(engine, "room.beside(20, 20, 5, 60)") == [30, 11, 90, 29]  # right
    assert ask(engine, "room.beside(180, 20, 5, 60)") == [110, 11, 170, 29]  # left
    assert ask(engine, "room.beside(100, 50, 5, 100)") == [50, 60, 150, 78]  # below
    assert ask(engine, "room.beside(40, 90, 5, 60)") is None  # only below what is taken
    engine.eval("room.addDot(60, 45, 9)")
    assert ask(engine, "room.beside(20, 45, 5, 60)") is None
    assert ask(engine, "room.beside(20, 45, 9, 16)") == [34, 36, 50, 54]
    assert ask(engine, "room.take(along(100, 5, 0, 80))") is False  # over the upper edge
    assert ask(engine, "room.take(along(172, 88, 0, 40))") is True
    assert ask(engine, "room.fits([160, 80, 170, 90])") is False
    engine.eval("room = new Room([0, 0, 60, 20]); room.addDot(40, 10, 2)")
    assert ask(engine, "room.beside(10, 10, 4, 30)") == [19, 1, 49, 19]  # over a smaller node
    engine.eval("room = new Room([0, 0, 60, 20]); room.addDot(40, 10, 2, true)")
    assert ask(engine, "room.beside(10, 10, 4, 30)") is None  # but not over one that is kept


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [("Anna", 28, "Anna"), ("Anna Nowak", 42, "Anna…"), ("😀😀😀😀", 21, "😀😀…"), ("Anna", 3, "")],
)
def test_a_text_is_shortened_to_a_width(text: str, width: int, short: str) -> None:
    engine = browser(graph_data(1), 390, 680)
    code = f"shorten({json.dumps(text)}, {width}, (text) => [...text].length * 7)"
    assert ask(engine, code) == short


def test_a_tip_stays_inside() -> None:
    engine = browser(graph_data(1), 390, 680)
    for x, y in ((0, 0), (389, 679), (389, 0), (195, 340)):
        left, top = ask(engine, f"beneath([{x}, {y}], [150, 40], [390, 680])")
        assert 0 <= left <= 390 - 150
        assert 0 <= top <= 680 - 40
    assert ask(engine, "[distance([0, 3], [-5, 0], [5, 0]), distance([9, 0], [0, 0], [6, 0])]") == [
        3,
        3,
    ]


def test_an_edge_shows_its_relation_to_the_mouse() -> None:
    engine = browser(graph_data(1), 390, 680)
    edge = ask(engine, "edges.findIndex((edge) => edge.type === 0)")
    x, y = ask(engine, f"drawing.anchor(drawing.ends({edge}))")
    assert ask(engine, "tip()") is None
    engine.eval(f"byId('canvas').dispatch('pointermove', {{clientX: {x}, clientY: {y}}}); frames()")
    shown = ask(engine, "tip()")
    ends = ask(engine, f"[nodes[edges[{edge}].source].text, nodes[edges[{edge}].target].text]")
    assert shown == f"{ends[0]} — met → {ends[1]}"
    engine.eval("byId('canvas').dispatch('pointerleave'); frames()")
    assert ask(engine, "tip()") is None


def test_the_keyboard_walks_from_edge_to_edge() -> None:
    engine = browser(graph_data(1), 390, 680)
    count = ask(engine, "edges.length")
    seen = []
    for _ in range(count):
        engine.eval("press('e')")
        seen.append(ask(engine, "tip()"))
    assert len(seen) == count > 4
    assert sum(" — met → " in text for text in seen) == 1
    assert {text.split(" — ")[1].split(" → ")[0] for text in seen} == {
        "met", "mentioned in", "said in", "the time of",
    }  # fmt: skip
    engine.eval("press('E')")
    assert ask(engine, "tip()") == seen[-2]
    engine.eval("press('Escape')")
    assert ask(engine, "tip()") is None


def test_a_fact_of_the_panel_shows_its_edge_while_it_has_the_focus() -> None:
    engine = browser(graph_data(1), 390, 680)
    engine.eval("select(edges.find((edge) => edge.type === 0).source); frames()")
    engine.eval("byId('panel').all('li')[0].dispatch('focusin'); frames()")
    assert " — met → " in ask(engine, "tip()")
    engine.eval("byId('panel').all('li')[0].dispatch('focusout'); frames()")
    assert ask(engine, "tip()") is None
