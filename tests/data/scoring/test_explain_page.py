"""The page of a conversation's reasons: all of the record is in it, nothing of it is code."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from turngraph.data.scoring.explain_page import explain_page, write_explain_page
from turngraph.data.scoring.explanation import (
    DroppedPassage,
    ExplainedPassage,
    ExplainedTurn,
    Explanation,
    MarkedSpan,
    PassageEdge,
)

HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "</title></style><!-- {{ record }} {% raw %}",
    "שלום 日本語 \U0001f600 &amp; 'q'",
)
OURS = files("turngraph.data.scoring") / "explain_files"


def span(text: str, word: str, entity: str) -> MarkedSpan:
    return MarkedSpan(text.index(word), text.index(word) + len(word), entity, f"label {entity}")


def passage(id_: str, text: str, share: float, *words: str) -> ExplainedPassage:
    spans = tuple(span(text, word, word) for word in words)
    return ExplainedPassage(id_, "table", text, 12.5, 0, "new", share, 0.25, spans)


@pytest.fixture
def record() -> Explanation:
    """Two turns, each with two passages that Oslo joins and one that is alone."""
    passages = (
        passage("t1", "Norway, capital is Oslo", 0.25, "Norway", "Oslo"),
        passage("t2", "Oslo lies by a fjord", 0.7, "Oslo"),
        passage("t3", "Bergen", 0.05, "Bergen"),
    )
    kept = replace(passages[2], origin="memory", from_turn=0, source="text")
    remembered = replace(passages[2], origin="remembered", source="memory", from_turn=1)
    edges = (PassageEdge(0, 1, "Oslo", "label Oslo", 1.0, 0.5),)
    left = (DroppedPassage("t9", "kb", "Left out", 3.25, "budget"),)
    first = ExplainedTurn("a", 0, "Where?", "oslo", ("Oslo",), -0.5, passages, edges, left)
    second = replace(first, id="b", index=3, question="And then?", answer="Bergen")
    second = replace(second, passages=(*passages[:2], kept, remembered), dropped=())
    return Explanation("c1", "places", "demo", "graph", "gold", "rerank", (first, second))


def hostile(record: Explanation, text: str) -> Explanation:
    """The record with a text in every place that holds one."""
    spans = (MarkedSpan(0, 3, text, text), MarkedSpan(4, len(text), "b", text))
    first = replace(record.turns[0].passages[0], id=text, text=text, spans=spans)
    edge = replace(record.turns[0].edges[0], entity=text, label=text)
    dropped = replace(record.turns[0].dropped[0], id=text, text=text)
    turn = replace(record.turns[0], question=text, answer=text, gold=(text,), id=text)
    turn = replace(
        turn, passages=(first, *turn.passages[1:]), edges=(edge, *turn.edges), dropped=(dropped,)
    )
    return Explanation(text, text, text, "graph", "gold", "rerank", (turn,))


def read(record: Explanation) -> LexborHTMLParser:
    return LexborHTMLParser(explain_page(record))


def words(node: Any, selector: str) -> list[str]:
    return [" ".join(found.text().split()) for found in node.css(selector)]


def test_what_is_said_of_a_turn(record: Explanation) -> None:
    first, second = read(record).css("section.turn")
    assert words(first, "h2") == ["Where?"]
    assert words(first, "dd")[:3] == ["oslo ✓ right", "Oslo", "61 % (logarithm −0.500)"]
    assert words(first, "dd")[3] == "3 passages: 3 found for this question; 1 left out"
    assert words(first, ".passage .share") == ["70 %", "25 %", "5.0 %"]
    assert words(first, ".passage .text")[0] == "Oslo lies by a fjord"
    assert words(first, ".passage .facts")[0].startswith(
        "attention 25 % · place 2 in the evidence · score 12.5 · t2"
    )
    bars = [bar.attributes["width"] for bar in first.css(".bar rect")]
    assert bars == ["100.0%", "35.7%", "7.1%"]
    assert "against" not in " ".join(words(first, ".given"))  # a share has no sign
    assert words(first, ".dropped li") == [
        "kb did not fit into the prompt · score 3.25 · t9 Left out"
    ]
    assert words(second, "dd")[0] == "Bergen ✗ wrong"
    assert words(second, ".passage .tag:last-child")[2:] == ["from turn 1", "remembered"]
    assert second.attributes["id"] == "turn-4"


@pytest.mark.parametrize(("memory", "score"), [("rerank", "similarity"), ("random", "score")])
def test_only_a_memory_that_reranks_scores_by_similarity(
    record: Explanation, memory: Any, score: str
) -> None:
    facts = words(read(replace(record, memory=memory)).css("section")[1], ".passage .facts")
    assert [fact.split(" · ")[-2] for fact in facts] == ["score 12.5"] * 2 + [
        f"{score} 12.5",
        "score 12.5",
    ]


def test_what_joins_passages_stands_in_the_list_and_in_the_graph(record: Explanation) -> None:
    page = read(record)
    section = page.css_first("section")
    assert words(section, ".joins li") == ["label Oslo share 100 % · passages 1, 2"]
    graph = json.loads(page.css_first("#graphs").text())[0]
    labels = [node["label"] for node in graph["nodes"]]
    assert labels == ["Oslo lies by a fjord", "Norway", "Bergen"]
    [edge] = graph["edges"]
    assert edge["ends"] == [1, 0]
    assert edge["share"] == 1
    [oslo] = {mark.attributes["data-entities"] for mark in section.css("mark[title='label Oslo']")}
    assert oslo == str(edge["entity"]) == section.css_first(".entity").attributes["data-entities"]


def test_shares_are_whole_percents_from_ten_on_and_never_a_rounded_nothing(
    record: Explanation,
) -> None:
    shares = (0.0, 0.0004, 0.001, 0.0994, 0.0996, 0.8)
    passages = tuple(passage(str(n), "Oslo", share) for n, share in enumerate(shares))
    turn = replace(record.turns[0], passages=passages, edges=())
    nothing = replace(turn, index=1, passages=passages[:1])
    found, bare = read(replace(record, turns=(turn, nothing))).css("section.turn")
    shown = ["80 %", "10 %", "9.9 %", "0.1 %", "< 0.1 %", "0 %"]
    assert words(found, ".passage .share") == shown
    assert [bar.attributes["width"] for bar in bare.css(".bar rect")] == ["0%"]


def test_entities_that_join_passages_are_ordered_by_the_sum_of_their_edges(
    record: Explanation,
) -> None:
    texts = "Oslo, Norway and a fjord", "Oslo, Norway", "Oslo", "x" * 33, "y" * 32
    names = ("Oslo", "Norway", "fjord"), ("Oslo", "Norway"), ("Oslo",), (), ()
    passages = tuple(
        passage(str(n), text, 0.2, *found)
        for n, (text, found) in enumerate(zip(texts, names, strict=True))
    )
    edges = (
        PassageEdge(0, 1, "Norway", "Norway", 0.4, 0.5),
        PassageEdge(0, 1, "Oslo", "Oslo", 0.3, 0.5),
        PassageEdge(0, 2, "Oslo", "Oslo", 0.3, 0.5),
    )
    turns = [
        replace(record.turns[0], index=n, passages=passages[:num], edges=edges)
        for n, num in enumerate((5, 4))
    ]
    page = read(replace(record, turns=tuple(turns)))
    assert words(page.css_first("section"), ".joins li") == [
        "Oslo share 60 % · passages 1, 2, 3",
        "Norway share 40 % · passages 1, 2",
    ]
    five, four = (
        [node["label"] for node in graph["nodes"]]
        for graph in json.loads(page.css_first("#graphs").text())
    )
    rest = ["x" * 31 + "…", "y" * 32]
    assert five == ["Norway · fjord", "Norway", "Oslo", *rest]  # Oslo is in most passages
    assert four == ["Norway · fjord", "Norway", "Oslo", rest[0]]


def test_where_nothing_joins_no_graph_is_drawn(record: Explanation) -> None:
    turn = replace(record.turns[0], edges=())
    plain = tuple(replace(passage, attention=None) for passage in turn.passages)
    bare = replace(turn, index=1, passages=(), edges=(), dropped=(), gold=(), answer="")
    read_as_text = replace(record, evidence="text", turns=(replace(turn, passages=plain), bare))
    page = read(read_as_text)
    assert json.loads(page.css_first("#graphs").text()) == [None, None]
    assert page.css(".graph") == []
    assert "attention" not in page.css_first(".passages").text()
    assert words(page.css("section")[1], "dd")[0] == "(empty)"
    side = read(replace(record, turns=(turn,))).css_first(".side")
    assert "No edge of an entity joins" in side.text()


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_of_the_record_is_code(record: Explanation, text: str) -> None:
    page = read(hostile(record, text))
    tags = Counter(node.tag for node in page.root.traverse())
    ours = Counter(node.tag for node in read(hostile(record, "plain and long")).root.traverse())
    assert tags == ours
    assert page.css_first("title").text() == f"Why these answers: {text}"
    assert page.css_first("section h2").text() == text
    assert page.css_first(".passage:nth-child(2) .text").text() == text
    assert page.css_first(".passage:nth-child(2) mark").attributes["title"] == text
    assert json.loads(page.css_first("#graphs").text())[0]["edges"][0]["label"] == text


def test_no_script_of_ours_reads_text_as_html() -> None:
    for name in ("graph.js", "page.js"):
        source = (OURS / name).read_text(encoding="utf-8")
        assert not re.search(
            r"(inner|outer|Adjacent)HTML|document\.write|eval\(|Function\(", source
        )
    template = (OURS / "page.html").read_text(encoding="utf-8")
    assert set(re.findall(r"{{ (\w+)\|safe }}", template)) == {"text"}  # styles and scripts


def test_the_policy_lets_through_what_is_in_the_page_and_nothing_else(record: Explanation) -> None:
    page = read(record)
    policy = page.css_first("meta[http-equiv]").attributes["content"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules.keys() == {"default-src", "script-src", "style-src", "base-uri", "form-action"}
    assert rules["default-src"] == "'none'"
    for tag, rule, count in (("style", "style-src", 2), ("script:not([type])", "script-src", 3)):
        texts = [node.text().encode() for node in page.css(tag)]
        assert len(texts) == count
        hashes = [base64.b64encode(hashlib.sha256(text).digest()).decode() for text in texts]
        assert rules[rule] == " ".join(f"'sha256-{value}'" for value in hashes)
    assert "style" not in {name for node in page.root.traverse() for name in node.attributes}
    addresses = [
        node.attributes[name]
        for node in page.root.traverse()
        for name in ("src", "href", "srcset", "action", "data")
        if name in node.attributes
    ]
    ids = Counter(node.attributes["id"] for node in page.css("[id]"))
    assert set(ids.values()) == {1}
    assert {address[1:] for address in addresses} <= set(ids)
    css = (OURS / "page.css").read_text(encoding="utf-8")
    assert "@import" not in css
    assert "url(" not in css


def test_the_graph_library_is_whole_and_named() -> None:
    library = (OURS / "cytoscape.min.js").read_bytes()
    note = (OURS / "cytoscape.md").read_text(encoding="utf-8")
    assert hashlib.sha256(library).hexdigest() in note
    [version] = re.findall(rb'\.version="([\d.]+)"', library)
    assert f"Cytoscape.js {version.decode()}" in note
    assert "Permission is hereby granted" in (OURS / "cytoscape.LICENSE").read_text("utf-8")
    assert b"__________cytoscape_stylesheet" in library  # what CYTOSCAPE_STYLE stands in for
    assert not re.search(rb"</script|<!--|\r", library, re.IGNORECASE)


spans = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20), st.sampled_from("abc")))


@settings(max_examples=15, deadline=None)  # each reads a page of half a megabyte
@given(st.text("ab <&\n", min_size=1, max_size=40), spans)
def test_marks_leave_the_text_as_it_is(text: str, found: list[tuple[int, int, str]]) -> None:
    marked = [
        MarkedSpan(start, min(start + length, len(text)), entity, entity)
        for start, length, entity in found
        if start < len(text)
    ]
    one = ExplainedPassage("1", "kb", text, 1.0, 0, "new", 1.0, 1.0, tuple(marked))
    turn = ExplainedTurn("a", 0, "q", "a", (), -1.0, (one,), (), ())
    page = read(Explanation("c", "", "", "graph", "gold", "rerank", (turn,)))
    assert page.css_first(".passage .text").text() == text
    covered = {at for s in marked for at in range(s.start, s.end)}
    assert sum(len(mark.text()) for mark in page.css("mark")) == len(covered)


def test_the_file_is_whole_or_not_there_and_the_same_each_time(
    record: Explanation, tmp_path: Path
) -> None:
    write_explain_page(record, tmp_path / "out" / "page.html")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["page.html"]
    written = (tmp_path / "out" / "page.html").read_bytes()
    assert written.decode() == explain_page(record)
    write_explain_page(record, tmp_path / "out" / "page.html")
    assert (tmp_path / "out" / "page.html").read_bytes() == written
    with pytest.raises(ValueError, match="cannot be written"):
        write_explain_page(record, tmp_path / "out")


def test_ten_long_turns_are_less_than_a_megabyte(record: Explanation) -> None:
    text = "Oslo " + "and a row of a table with cells " * 8
    long = tuple(passage(f"t{n}", text, 0.05, "Oslo", "table", "cells") for n in range(20))
    edges = tuple(PassageEdge(0, n, "Oslo", "Oslo", 0.05, 0.1) for n in range(1, 20))
    dropped = tuple(DroppedPassage(p.id, p.source, text, 1.0, "budget") for p in long[:10])
    turn = replace(record.turns[0], passages=long, edges=edges, dropped=dropped)
    turns = tuple(replace(turn, index=index) for index in range(10))
    assert len(explain_page(replace(record, turns=turns)).encode()) < 1_000_000
