"""Reads HTML, Markdown and Word files as passages, with libraries of the extra ``documents``."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from pathlib import Path

from selectolax.lexbor import LexborHTMLParser

from turngraph.data.linearise import cut_lead, linearise_infobox, linearise_sentence
from turngraph.data.normalise import normalise_value
from turngraph.data.sources.boilerplate import remove_boilerplate
from turngraph.data.sources.document import (
    TOO_DEEP,
    Document,
    PassageLimit,
    Unreadable,
    shown,
    title_of,
)
from turngraph.data.sources.html_text import children, is_nested_deep
from turngraph.data.sources.markdown import Block, blocks, front_matter
from turngraph.data.sources.page_entities import VALUE
from turngraph.data.sources.wikipage import read_page
from turngraph.data.sources.word import read_word
from turngraph.data.types import Entity, Evidence
from turngraph.data.warned import reading_logger

logger = reading_logger(__name__)

MAX_OPTIONS = 5_000
"""Most options of all selections of a page: for each one, lexbor goes through its selection."""


def read_html(text: str, path: Path, limit: PassageLimit, with_path: bool = True) -> list[Evidence]:
    """Read a page without its navigation and boilerplate; ``with_path`` is as in ``read_page``."""
    _check_depth(text, path)
    if text.lower().count("<option") > MAX_OPTIONS:
        raise Unreadable(path, "too large", f"more than {MAX_OPTIONS} options to select")
    tree = LexborHTMLParser(text)
    heads = (tree.css_first(tag) for tag in ("h1", "title"))
    titles = [" ".join(head.text().split()) for head in heads if head is not None]
    title = title_of(path, titles)
    try:
        num_left_out = remove_boilerplate(tree, shown(path))
    except RecursionError:
        raise Unreadable(path, TOO_DEEP) from None
    return _passages_of_page(tree, title, path, limit, with_path, num_left_out)


def _check_depth(text: str, path: Path) -> None:
    if is_nested_deep(text):
        raise Unreadable(path, TOO_DEEP)


def _passages_of_page(
    tree: LexborHTMLParser,
    title: str,
    path: Path,
    limit: PassageLimit,
    with_path: bool,
    num_left_out: int = 0,
) -> list[Evidence]:
    head = tree.css_first("h1")
    if head is not None and " ".join(head.text().split()) == title:
        for child in [*children(head)]:  # every passage has the title; the empty h1 ends sections
            child.decompose()
    page = read_page(tree.html or "", title, shown(path), limit, with_path)
    counts = {"texts of navigation and other boilerplate": num_left_out, **page.left_out}
    if left_out := ", ".join(f"{n} {kind}" for kind, n in counts.items() if n):
        logger.info("%s: left out by choice: %s", shown(path), left_out)
    places = [""] * len(page.evidence) if with_path else page.days
    pairs = zip(page.evidence, places, strict=True)
    return [replace(_with_plain_ids(passage), id=place) for passage, place in pairs]


def _with_plain_ids(passage: Evidence) -> Evidence:
    """Replace a page's own ids by names, which mean the same in every file."""
    entities: dict[str, Entity] = {}
    for entity in passage.entities:
        id_ = normalise_value(entity.id.removeprefix(VALUE))
        entities.setdefault(id_, replace(entity, id=id_))
    return replace(passage, entities=tuple(entities.values()))


def read_word_file(raw: bytes, path: Path, limit: PassageLimit, with_path: bool) -> list[Evidence]:
    """Read a Word file, converted to HTML; ``with_path`` is as in ``read_page``."""
    tree, title = read_word(raw, path)
    return _passages_of_page(tree, title_of(path, [title]), path, limit, with_path)


def read_markdown(
    text: str, path: Path, limit: PassageLimit, by_sentence: bool = True
) -> list[Evidence]:
    """Read Markdown, with the ``key: value`` lines at its head as infobox rows."""
    _check_depth(text, path)
    facts, text = front_matter(text)
    page_blocks = list(blocks(text, path))
    titles = [value for key, value in facts if key.lower() == "title"]
    heads = [block.text[0] for block in page_blocks if block.kind == "heading"]
    title = title_of(path, titles + heads)
    document = Document(title, limit, by_sentence=by_sentence)
    for key, value in facts:
        if key.lower() != "title":
            document.add(
                linearise_infobox(document.title, cut_lead(key), value), "infobox", [value]
            )
    for block in page_blocks:
        if block.kind == "html":
            _add_html(document, block.text[0], path)
        else:
            _add_block(document, block)
    return document.passages


def _add_html(document: Document, html: str, path: Path) -> None:
    """Add the passages of HTML with tables, as those of a page below the document's headings."""
    levels = {name: level for level, name in document.headings.items()}
    heads = (f"<h{levels[name]}>{escape(name)}</h{levels[name]}>" for name in document.path)
    page = read_page("".join(heads) + html, document.title, shown(path), document.limit, True)
    kept = [replace(_with_plain_ids(passage), id=document.place) for passage in page.evidence]
    document.passages += kept


def _add_block(document: Document, block: Block) -> None:
    text, links = block.text
    if block.kind == "heading":
        document.heading(block.level, text)
    elif block.kind == "code":
        if text and not document.by_sentence:
            document.sentences(text)
        elif text:
            document.add(linearise_sentence(document.title, text, document.section), "text", [])
    elif block.kind == "table":
        head, *rows = block.rows
        headers = [cut_lead(text) for text, _ in head]
        for row in rows:
            names = [link for _, cell_links in row for link in cell_links]
            if any(text for text, _ in row):
                document.row(headers, [text for text, _ in row], names)
    else:
        document.sentences(text, links)
