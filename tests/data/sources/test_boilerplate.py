"""Navigation and other boilerplate of web pages goes, and their content stays.

In the pages, ``[[...]]`` holds content and ``{{...}}`` boilerplate. The rules were made on all of
them but those in ``held_out``.
"""

from __future__ import annotations

import html as entities
import logging
import re
from pathlib import Path

import pytest

from turngraph.data.sources.pool import read_documents
from turngraph.data.sources.wikipage import finish_page, parse_page

PAGES = sorted((Path(__file__).parent / "pages").rglob("*.html"))
CONTENT, BOILERPLATE = re.compile(r"\[\[(.*?)\]\]", re.DOTALL), re.compile(r"\{\{(.*?)\}\}")
MARKS = re.compile(r"\[\[|\]\]|\{\{|\}\}")
MAX_KEPT = {"blog": 1, "faq": 1, "forum": 2, "layout": 3, "news": 1, "recipe": 4, "schedule": 2}
MAX_KEPT |= {"shop": 3, "wiki": 5}
MAX_KEPT |= {"bridge": 1, "market": 1, "museum": 3, "sailor": 4}  # held out
"""Pieces of boilerplate that still stay; none on the other pages."""


def pieces(page: Path, pattern: re.Pattern[str]) -> list[str]:
    found = pattern.findall(page.read_text(encoding="utf-8"))
    return [" ".join(entities.unescape(text).split()) for text in found]


def read(folder: Path, html: str) -> list[str]:
    (folder / "page.html").write_text(html, encoding="utf-8")
    return [passage.text for passage in read_documents(folder / "page.html")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_content_stays_and_boilerplate_goes(tmp_path: Path, page: Path) -> None:
    text = "\n".join(read(tmp_path, MARKS.sub("", page.read_text(encoding="utf-8"))))
    assert [piece for piece in pieces(page, CONTENT) if piece not in text] == []
    kept = [piece for piece in pieces(page, BOILERPLATE) if piece in text]
    assert len(kept) <= MAX_KEPT.get(page.stem, 0), kept


def test_most_boilerplate_was_read_before() -> None:
    """The pages are hard enough: the reader of Wikipedia pages keeps most of it."""
    kept = total = 0
    for page in PAGES:
        html = MARKS.sub("", page.read_text(encoding="utf-8"))
        text = "\n".join(
            p.text for p in finish_page(parse_page(html, page.stem, page.name)).evidence
        )
        found = pieces(page, BOILERPLATE)
        kept, total = kept + sum(piece in text for piece in found), total + len(found)
        assert all(piece in text for piece in pieces(page, CONTENT))
    assert len(PAGES) >= 12
    assert total > 100
    assert kept > 0.8 * total
    assert sum(MAX_KEPT.values()) < 0.25 * total


NAV = "<nav><ul><li><a href='/a'>Away from here</a></li><li>Not a link</li></ul></nav>"
FACTS = "<ul><li>Height: 12 m</li><li>Width: 3 m</li></ul>"
LINKS = "<ul><li><a href='/x'>Bog bean</a></li><li><a href='/y'>Sundew</a></li></ul>"
TABLE = "<table><tr><th>City</th><th>People</th></tr><tr><td>Lima</td><td>10</td></tr></table>"
TEXT = "<p>The old bridge was built before the war by the people of the town.</p>"


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        (f"<h1>T</h1>{NAV}{TEXT}", []),
        (f"<h1>T</h1>{TEXT}{FACTS}", ["T, Height: 12 m", "T, Width: 3 m"]),
        (f"<h1>T</h1>{TEXT}{LINKS}", ["T, Bog bean", "T, Sundew"]),
        (f"<h1>T</h1>{TEXT}<div><h2>More</h2>{LINKS}</div>", []),
        (f"<h1>T</h1>{TEXT}{TABLE}", ["T, City is Lima, People is 10"]),
        (f"<h1>T</h1>{TEXT}<footer>{TABLE}</footer>", []),
        (f"<h1>T</h1>{TEXT}<p><a href='/'>Back</a> | <a href='/n'>Next</a></p>", []),
        (f"<h1>T</h1>{TEXT}<p>Ten <del>crowns</del> <s>or</s> euros.</p>", ["T, Ten euros."]),
        (f"<h1>T</h1>{TEXT}<p>See <a href='/n'>the next one</a>.</p>", ["T, See the next one."]),
    ],
)
def test_what_holds_evidence_stays(tmp_path: Path, html: str, expected: list[str]) -> None:
    found = read(tmp_path, f"<body>{html}</body>")
    sentence = "T, The old bridge was built before the war by the people of the town."
    assert sorted(found) == sorted([sentence, *expected])


def test_headings_begin_the_passages_below_them(tmp_path: Path) -> None:
    aside = "<aside><h2>Advertisement</h2></aside>"
    html = f"<h1>T</h1>{TEXT}<h2>Size</h2>{FACTS}<h3>Deck</h3>{aside}<p>It is made of oak.</p>"
    found = read(tmp_path, f"{html}<h2>{'Long ' * 60}</h2>{TEXT}")
    below = ["T, Size, Height: 12 m", "T, Size, Width: 3 m", "T, Size, Deck, It is made of oak."]
    assert found[1:-1] == below
    assert len(found[-1]) < 300


BODY = "<div id=c1 class=collapse><p>Send it back.</p></div>"


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        (f"<h4><a data-toggle=collapse href='#c1'>Returns?</a></h4>{BODY}", "Returns?, "),
        (f"<div><a data-toggle=collapse href='#c1'>Returns?</a></div>{BODY}", "Returns?, "),
        (f"<h2><button data-bs-toggle=collapse data-bs-target='#c1'>Returns?</button></h2>{BODY}",
         "Returns?, "),
        (f"<h2>Shop</h2><button aria-controls=c1>Returns?</button>{BODY}", "Shop, Returns?, "),
        (f"<ul><li><a data-toggle=tab href='#c1'>Returns?</a></li></ul>{BODY}", "Returns?, "),
        (f"<ul><li><button aria-controls=c1>Returns?</button>{BODY}</li></ul>", "Returns? "),
        ("<details><summary><a>Returns?</a></summary>Send it back.</details>", "Returns?, "),
        (f"<nav><button aria-controls=c1>Menu</button></nav>{BODY}", ""),
        (f"<div><a href='/other'>Other shop</a></div>{BODY}", ""),
        (f"<div><a aria-haspopup=true aria-controls=c1>Shops</a></div>{BODY}", ""),
    ],
)  # fmt: skip
def test_a_toggle_heads_what_it_opens(tmp_path: Path, html: str, expected: str) -> None:
    found = read(tmp_path, f"<h1>T</h1>{TEXT}{html}<h2>End</h2>{TEXT}")
    assert found[1:-1] == [f"T, {expected}Send it back."]


def test_a_page_without_main_content_is_read_whole_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = read(tmp_path, f"<title>T</title><nav>{FACTS}</nav>")
    assert found == ["T, Height: 12 m", "T, Width: 3 m"]
    assert "page.html: no main content found, so the whole page is read" in caplog.text


def test_what_is_left_out_is_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        read(tmp_path, f"<h1>T</h1>{NAV}{TEXT}")
    assert "left out by choice: 2 texts of navigation and other boilerplate" in caplog.text
