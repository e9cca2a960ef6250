"""Parser of Markdown into blocks of plain text, by markdown-it: CommonMark with GitHub's tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_block.table import table as parse_table
from markdown_it.token import Token
from selectolax.lexbor import LexborHTMLParser

from turngraph.data.sources.document import Unreadable
from turngraph.data.sources.html_text import STRUCK

MAX_CELLS = 10_000
"""Most cells of a text's tables, in addition to one for each character of the text: markdown-it
fills up rows that are shorter than their header."""
_WIKI_LINK = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]+)\]\]")
_CHECKBOX = re.compile(r"^\[[ xX]\]\s+")
_TABLE_TAG = re.compile(r"<(/?)table\b", re.IGNORECASE)
_STRUCK = re.compile(rf"<(/?)(?:{'|'.join(STRUCK)})\b", re.IGNORECASE)
_KEY_VALUE = re.compile(r"([\w][\w .-]*):\s+(.+)")

Kind = Literal["heading", "paragraph", "item", "code", "table", "html"]
Text = tuple[str, list[str]]
"""Plain text and the texts of the links in it."""


@dataclass(frozen=True)
class Block:
    """Block of a Markdown text; ``item`` is a paragraph of a list item, ``html`` holds a table.

    Args:
        kind: type of the block.
        text: its text and links; empty for a table, HTML for ``html``.
        rows: rows of a table, header first; a row may have more cells than the header.
        level: level of a heading, from 1.
    """

    kind: Kind
    text: Text = ("", [])
    rows: Sequence[Sequence[Text]] = ()
    level: int = 0


def _table_within_limit(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a table as markdown-it does, unless it and earlier ones have too many cells."""
    if silent or not parse_table(state, start, end, True):
        return parse_table(state, start, end, silent)
    num_columns = state.getLines(start, start + 1, 0, False).count("|") + 1
    after = next((line for line in range(start, end) if state.isEmpty(line)), end)
    state.env["cells"] += num_columns * (after - start)
    if state.env["cells"] > MAX_CELLS + len(state.src):
        raise Unreadable(state.env["path"], "too large", "short rows under wide headers of tables")
    return parse_table(state, start, end, silent)


_PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
_PARSER.block.ruler.at("table", _table_within_limit, {"alt": ["paragraph", "reference"]})


def blocks(text: str, path: Path) -> Iterator[Block]:
    """Yield the blocks of a Markdown text in order; HTML without tables is read as its text.

    Args:
        text: content of the file.
        path: path of the file, for messages.

    Raises:
        Unreadable: the rows of its tables are much shorter than their headers.
    """
    tokens, lines = _PARSER.parse(text, {"path": path, "cells": 0}), text.split("\n")
    html_tables = _html_tables(tokens)
    lists = level = end_of_html = 0
    table: int | None = None
    for index, token in enumerate(tokens):
        if token.type in ("list_item_open", "list_item_close"):
            lists += token.nesting
        elif index < end_of_html:
            continue
        elif end := html_tables.get(index):
            end_of_html = end
            html = _PARSER.renderer.render(tokens[index:end], _PARSER.options, {})
            yield Block("html", (html, []))
        elif token.type in ("heading_open", "heading_close"):
            level = int(token.tag[1:]) if token.nesting > 0 else 0
        elif token.type == "table_open":
            table = index
        elif token.type == "table_close":
            yield Block("table", rows=list(_rows(tokens[table:index], lines)))
            table = None
        elif token.type in ("fence", "code_block"):
            yield Block("code", (token.content.strip("\n"), []))
        elif token.type == "html_block":
            yield Block("paragraph", (_text_of_html(token.content), []))
        elif token.type == "inline" and table is None:
            plain, links = plain_text(token)
            kind: Kind = "heading" if level else "item" if lists else "paragraph"
            if kind == "heading":
                plain = plain.replace("\n", " ")
            plain = _CHECKBOX.sub("", plain) if kind == "item" else plain
            yield Block(kind, (plain, links), level=level)


def _html_tables(tokens: Sequence[Token]) -> dict[int, int]:
    """Return where blocks of HTML with whole tables begin and end, blocks inside them included."""
    ends: dict[int, int] = {}
    first = depth = 0
    for index, token in enumerate(tokens):
        if token.type == "html_block" and (tags := _TABLE_TAG.findall(token.content)):
            if not depth and "" not in tags:
                continue
            first = first if depth else index
            depth = max(depth + 2 * tags.count("") - len(tags), 0)
            if not depth:
                ends[first] = index + 1
    return ends


def front_matter(text: str) -> tuple[list[tuple[str, str]], str]:
    """Split a text into the (key, value) pairs of its front matter and the rest."""
    lines = text.split("\n")
    if lines[0].strip() != "---" or "---" not in [line.strip() for line in lines[1:]]:
        return [], text
    end = next(i for i, line in enumerate(lines[1:], 1) if line.strip() == "---")
    matches = [_KEY_VALUE.fullmatch(line.strip()) for line in lines[1:end]]
    facts = [(match[1].strip(), match[2].strip(" \"'[]")) for match in matches if match]
    others = [line for line, match in zip(lines[1:end], matches, strict=True) if not match]
    return facts, "\n".join([*others, "", *lines[end + 1 :]])


def plain_text(inline: Token) -> Text:
    """Return the text of lines of Markdown, with the descriptions of images, and its links.

    What is struck through is left out.
    """
    parts: list[str] = []
    links: list[str] = []
    begins: list[int | None] = []
    struck: list[tuple[int, int]] = []
    for token in inline.children or ():
        tag = _STRUCK.match(token.content) if token.type == "html_inline" else None
        if token.type == "s_open" or (tag and not tag[1]):
            struck.append((len(parts), len(links)))
        elif token.type == "s_close" or tag:
            if struck:
                of_parts, of_links = struck.pop()
                del parts[of_parts:], links[of_links:]
        elif token.type == "link_open":
            begins.append(len(parts) if token.info != "auto" else None)
        elif token.type == "link_close":
            if (begin := begins.pop()) is not None:
                links.append(" ".join("".join(parts[begin:]).split()))
        elif token.type == "image":
            parts.append(plain_text(token)[0])
        elif token.type in ("softbreak", "hardbreak"):
            parts.append("\n")
        elif token.type == "html_inline":
            parts.append(" ")
        else:  # text and code; marks of emphasis have no content
            parts.append(token.content)

    def wiki_link(match: re.Match[str]) -> str:
        links.append(match[1])
        return match[1]

    lines = _WIKI_LINK.sub(wiki_link, "".join(parts)).split("\n")
    return "\n".join(" ".join(line.split()) for line in lines), links


def _rows(tokens: Sequence[Token], lines: Sequence[str]) -> Iterator[list[Text]]:
    """Yield the rows of a table, with the cells beyond its header that markdown-it leaves out."""
    row: list[Text] = []
    for token in tokens:
        if token.type == "tr_open":
            row, begin = [], token.map
        elif token.type == "inline":
            row.append(plain_text(token))
        elif token.type == "tr_close":
            written = _cells(lines[begin[0]]) if begin else []
            yield [*row, *((cell, []) for cell in written[len(row) :])]


def _cells(line: str) -> list[str]:
    cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.lstrip("> ").rstrip())]
    cells = cells[1:] if not cells[0] and len(cells) > 1 else cells
    return cells[:-1] if not cells[-1] and len(cells) > 1 else cells


def _text_of_html(text: str) -> str:
    tree = LexborHTMLParser(text)
    tree.strip_tags(["script", "style", *STRUCK])
    return "" if tree.body is None else " ".join(tree.body.text(separator=" ").split())
