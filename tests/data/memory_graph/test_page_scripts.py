"""The page's script, run by V8 with Cytoscape.js and without a screen: labels, edges, keys."""

from __future__ import annotations

import json
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from py_mini_racer import MiniRacer

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.upkeep.html_page import SCRIPTS, page_data

BROWSER = Path(__file__).with_name("fake_browser.js")
NAMES = ("Anna", "Piotr", "Christopher Montgomery", "Zoe", "Omar", "Marta", "Ben", "Lena", "Ivy")
ENDS = ("source", "target")
Box = tuple[float, float, float, float]


def graph_data(num_sentences: int) -> dict[str, Any]:
    """Return the page's data of a graph of sentences about people."""
    drawn = np.random.default_rng(0)
    with MemoryGraph.open(":memory:") as graph:
        for one, other in drawn.choice(len(NAMES), (num_sentences, 2)).tolist():
            graph.remember(f"{NAMES[one]} met {NAMES[other]}.", time="2024-05-06")
        return page_data(graph.store.db, "my.db")


def browser(data: dict[str, Any], width: int, height: int) -> MiniRacer:
    """Return the page as it looks once it is loaded."""
    engine = MiniRacer()
    given = f"const WIDTH = {width}, HEIGHT = {height}, DATA = {json.dumps(json.dumps(data))};\n"
    library, page = (
        (files(folder.rpartition(".")[0]) / folder.rpartition(".")[2] / name).read_text("utf-8")
        for name, folder in SCRIPTS.items()
    )
    engine.eval(library)
    engine.eval(given + BROWSER.read_text(encoding="utf-8") + page + "\nframes();")
    return engine


def ask(engine: MiniRacer, code: str) -> Any:
    return json.loads(str(engine.eval(f"JSON.stringify({code})")))


def boxes(engine: MiniRacer) -> list[Box]:
    """The places of the labels, as the page reckons them."""
    found = ask(
        engine,
        "drawing.nodes('.named').map((node) => [node.renderedPosition().x, "
        "node.renderedPosition().y + node.renderedHeight() / 2, node.data('label').length])",
    )
    return [(x - 3 * size, y, x + 3 * size, y + 13) for x, y, size in found]


@pytest.mark.parametrize(("width", "height"), [(390, 680), (1280, 710)])
@pytest.mark.parametrize("num_sentences", [1, 30])
def test_no_label_lies_on_another(width: int, height: int, num_sentences: int) -> None:
    engine = browser(graph_data(num_sentences), width, height)
    for look in ("", "select(0, true)", "select(null)", "zoom(3)", "pan(1, -0.5)"):
        engine.eval(f"{look}; frames()")
        placed = boxes(engine)
        assert len(placed) >= (1 if look else min(num_sentences + 2, 8))
        for one, other in combinations(placed, 2):
            apart = one[2] <= other[0] or other[2] <= one[0]
            assert apart or one[3] <= other[1] or other[3] <= one[1], look


def test_all_nodes_of_a_large_graph_have_places_of_their_own() -> None:
    engine = browser(graph_data(260), 1280, 710)
    places = ask(engine, "drawing.nodes().map((node) => node.position())")
    assert len(places) > ask(engine, "CORE")
    assert len({(place["x"], place["y"]) for place in places}) == len(places)
    assert np.isfinite([list(place.values()) for place in places]).all()


def test_an_object_that_only_texts_join_to_others_lies_beside_one_of_them() -> None:
    data = graph_data(260)
    ivy = next(at for at, node in enumerate(data["nodes"]) if node["text"] == "Ivy")
    data["edges"] = [
        edge for edge in data["edges"] if edge["type"] or ivy not in map(edge.get, ENDS)
    ]
    engine = browser(data, 1280, 710)
    assert ask(engine, f"isCore({ivy})") is False
    place = "map((node) => Object.values(node.position()))"
    (own,) = ask(engine, f"drawing.$('#n{ivy}').{place}")
    near = ask(engine, f"drawing.$('#n{ivy}').neighborhood('node').{place}")
    assert min(np.hypot(*np.subtract(near, own).T)) < 200


def test_an_edge_shows_its_relation_to_the_mouse() -> None:
    engine = browser(graph_data(1), 390, 680)
    edge = ask(engine, "edges.findIndex((edge) => edge.type === 0)")
    count = ask(engine, "status()")
    engine.eval(f"drawing.getElementById('e{edge}').emit('mouseover')")
    ends = ask(engine, f"[nodes[edges[{edge}].source].text, nodes[edges[{edge}].target].text]")
    assert ask(engine, "status()") == f"{ends[0]} — met → {ends[1]}"
    engine.eval(f"drawing.getElementById('e{edge}').emit('mouseout')")
    assert ask(engine, "status()") == count


def test_a_text_is_hidden_between_the_times_at_which_its_facts_hold() -> None:
    with MemoryGraph.open(":memory:") as graph:
        graph.remember(
            "Eva lived in Cork until 2010. Eva adopted a cat in 2012.", time="2023-06-01"
        )
        data = page_data(graph.store.db, "my.db")
    engine = browser(data, 390, 680)
    engine.eval("const text = nodes.find((node) => node.type === 2)")
    held = {year: ask(engine, f"(moment = {year - 1970} * 31556952, holds(text))")
            for year in (2004, 2011, 2013)}  # fmt: skip
    assert held == {2004: True, 2011: False, 2013: True}


def test_the_keyboard_walks_from_edge_to_edge() -> None:
    engine = browser(graph_data(1), 390, 680)
    count = ask(engine, "edges.length")
    before = ask(engine, "status()")
    seen = []
    for _ in range(count):
        engine.eval("press('e')")
        seen.append(ask(engine, "status()"))
    assert len(seen) == count > 4
    assert sum(" — met → " in text for text in seen) == 1
    assert {text.split(" — ")[1].split(" → ")[0] for text in seen} == {
        "met", "mentioned in", "said in", "the time of",
    }  # fmt: skip
    engine.eval("press('E')")
    assert ask(engine, "status()") == seen[-2]
    engine.eval("press('Escape')")
    assert ask(engine, "status()") == before


def test_a_fact_of_the_panel_shows_its_edge_while_it_has_the_focus() -> None:
    engine = browser(graph_data(1), 390, 680)
    engine.eval("select(edges.find((edge) => edge.type === 0).source); frames()")
    assert ask(engine, "drawing.nodes('.chosen').length") == 1
    engine.eval("byId('panel').all('li')[0].dispatch('focusin')")
    assert " — met → " in ask(engine, "status()")
    assert ask(engine, "drawing.edges('.pointed').length") == 1
    engine.eval("byId('panel').all('li')[0].dispatch('focusout')")
    assert ask(engine, "drawing.edges('.pointed').length") == 0


def test_types_that_are_not_shown_and_times_hide_nodes() -> None:
    engine = browser(graph_data(3), 390, 680)
    assert ask(engine, "drawing.nodes('.hidden').length") == 0
    engine.eval("shown.delete(3); redraw()")
    hidden = ask(engine, "drawing.nodes('.hidden').map((node) => nodes[node.data('index')].type)")
    assert set(hidden) == {3}
