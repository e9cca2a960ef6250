"""Turns HTML elements into texts with links, and HTML tables into rows of cells."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterator
from urllib.parse import unquote

from selectolax.lexbor import LexborHTMLParser, LexborNode

from turngraph.data.linearise import cut_lead
from turngraph.data.sources.table_grid import MAX_COLUMNS, Cell, Link, RichText

BLOCKS = frozenset(
    "address article aside blockquote body caption center dd details div dl dt fieldset figcaption "
    "figure footer form h1 h2 h3 h4 h5 h6 header hr html li main nav ol p pre section summary "
    "table tbody td tfoot th thead tr ul".split()
)
BOLD = frozenset({"b", "strong"})
STRUCK = ("del", "s", "strike")
HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
TOGGLES = (
    ":is(a, button):is([aria-controls], [aria-expanded], "
    ":is([data-toggle], [data-bs-toggle]):is([href^='#'], [data-target], [data-bs-target]))"
    ":not([aria-haspopup], [data-toggle=dropdown], [data-bs-toggle=dropdown]), "
    ".accordion-header :is(a, button), summary :is(a, button)"
)
"""Selects links and buttons that show a part of their own page, as an accordion's questions."""
_TARGETS = ("aria-controls", "data-target", "data-bs-target", "href")
_ITEMS = frozenset({"li", "dt", "dd", "td", "th"})
_OPENERS = HEADINGS | {"a", "button", "summary"}
_GROUPS = frozenset({"thead", "tbody", "tfoot"})
MAX_DEPTH = 1000
"""Open elements; a browser's limit is 512."""
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
_CLOSED_BY_ITSELF = frozenset(
    "area base br col embed hr img input link meta param source track wbr p li dt dd option tr td "
    "th thead tbody tfoot colgroup".split()
)
_CLOSED_WITH_RUBY = ("rb", "rt", "rtc", "rp")
_NAMESPACES = re.compile(
    r"(?:File|Image|Media|Category|Help|Portal|Special|Template|Wikipedia|Talk|User|Book)"
    r"(?:[_ ]talk)?:",
    re.IGNORECASE,
)
_WIKI_PATH = re.compile(r"/wiki/([^?#]+)")
_FILE_NAME = re.compile(r"\.(?:jpe?g|png|svg|gif|tiff?|webp)$", re.IGNORECASE)
_MISSING_PAGE = " (page does not exist)"
_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u200e\u200f\u2060\ufeff"))
_NO_COMMA_AFTER = " ,;:([–—-/&.!?"
_NO_COMMA_BEFORE = ",;:.)]([–—-/&"


def is_nested_deep(html: str) -> bool:
    """Return whether elements are nested so deep that a parser takes quadratic time for them.

    Open elements are counted; those that a parser closes by itself are not.
    """
    depth, depths = 0, Counter[str]()
    for match in _TAG.finditer(html):
        name = match[2].lower()
        if name in _CLOSED_BY_ITSELF:
            continue
        if match[1]:
            for inner in _CLOSED_WITH_RUBY if name == "ruby" else ():
                depth -= depths.pop(inner, 0)
            depth -= depths[name] > 0
            depths[name] = max(depths[name] - 1, 0)
        else:
            depth += 1
            depths[name] += 1
        if depth > MAX_DEPTH:
            return True
    return False


def children(node: LexborNode) -> Iterator[LexborNode]:
    """Return the child nodes of a node, text nodes included."""
    child = node.child
    while child is not None:
        yield child
        child = child.next


def link_target(node: LexborNode) -> str | None:
    """Return the title of the page that a link names; None for files, anchors, other sites."""
    attributes = node.attributes
    href, title = attributes.get("href") or "", attributes.get("title") or ""
    if title.endswith(_MISSING_PAGE):
        return title.removesuffix(_MISSING_PAGE)
    path = _WIKI_PATH.search(href)
    if path is None or _NAMESPACES.match(path[1]):
        return None
    return " ".join((title or unquote(path[1]).replace("_", " ")).split())


def opened_parts(tree: LexborHTMLParser, unseen: Container[int]) -> dict[int, LexborNode]:
    """Return what opens a part of the page, by the part's ``mem_id``: a summary, or a toggle.

    A heading around a toggle is returned in its place. Parts of list items and cells, and those
    whose ``mem_id`` is in ``unseen``, are left out.
    """
    opened: dict[int, LexborNode] = {}
    toggles = tree.css(TOGGLES)
    named = {node.attributes.get("id"): node for node in tree.css("[id]")} if toggles else {}
    for node in [*tree.css("details > summary"), *toggles]:
        above = list(_upwards(node))
        part = above[1]
        if node.tag != "summary":
            targets = ((node.attributes.get(name) or "").lstrip("#") for name in _TARGETS)
            part = next((named[target] for target in targets if target in named), node)
            if part.mem_id in {around.mem_id for around in above}:
                continue
        openers = [around for around in above if around.tag in _OPENERS]
        is_whole = len(openers) == 1 or (len(openers) == 2 and openers[1].tag in HEADINGS)
        in_item = any(around.tag in _ITEMS for around in _upwards(part))
        if is_whole and not in_item and part.mem_id not in unseen:
            opened.setdefault(part.mem_id, openers[-1])
    return opened


def _upwards(node: LexborNode | None) -> Iterator[LexborNode]:
    """Yield a node and the elements around it, the nearest first."""
    while node is not None:
        yield node
        node = node.parent


class TextWriter:
    """Collects text with single spaces, its links, and its lines.

    Args:
        comma: separate lines by ", " unless they end with a mark; False: by a space.
        unseen: ``mem_id`` of the elements to leave out.
    """

    def __init__(self, comma: bool, unseen: Container[int]) -> None:
        self.comma, self.unseen = comma, unseen
        self._clear()

    def _clear(self) -> None:
        self.parts: list[str] = []
        self.length = 0
        self.last = ""
        self.gap: str | None = None
        self.line_starts = [0]
        self.links: list[tuple[int, int, str]] = []

    def add(self, raw: str) -> None:
        """Add the text of a text node."""
        words = raw.translate(_INVISIBLE).split()
        if not words or raw[0].isspace():
            self.gap = self.gap or " "
        if not words:
            return
        text = " ".join(words)
        if self.length and self.gap:
            if self.gap == "\n":
                self.line_starts.append(self.length)
            self._put(self._break(text) if self.gap == "\n" else " ")
        self._put(text)
        self.gap = " " if raw[-1].isspace() else None

    def _put(self, text: str) -> None:
        self.parts.append(text)
        self.length += len(text)
        self.last = text[-1]

    def _break(self, text: str) -> str:
        no_comma = self.last in _NO_COMMA_AFTER or text[0] in _NO_COMMA_BEFORE
        return " " if no_comma or not self.comma else ", "

    def end_line(self) -> None:
        """End the current line."""
        self.gap = "\n"

    def inline(self, node: LexborNode) -> None:
        """Add the visible text of a node and of all nodes below it."""
        tag = node.tag
        if tag == "-text":
            self.add(node.text_content or "")
            return
        if node.mem_id in self.unseen or tag == "-comment":
            return
        is_line = tag == "br" or tag in BLOCKS
        if is_line:
            self.end_line()
        start = self.length
        for child in children(node):
            self.inline(child)
        if tag == "a" and self.length > start and (target := link_target(node)):
            self.links.append((start, self.length, target))
        if is_line:
            self.end_line()

    def finish(self) -> RichText:
        """Return the collected text and empty the writer."""
        text = "".join(self.parts)
        links = []
        for start, end, target in self.links:
            start += len(text[start:end]) - len(text[start:end].lstrip(", "))
            links.append(Link(start, end, target))
        links.sort(key=lambda link: link.start)
        ends = [*self.line_starts[1:], len(text)]
        lines = [text[a:b].strip(", ") for a, b in zip(self.line_starts, ends, strict=True)]
        self._clear()
        return RichText(text, links, [line for line in lines if line])


def inline_text(node: LexborNode, unseen: Container[int], comma: bool = False) -> RichText:
    """Return the visible text of an element, with its links."""
    writer = TextWriter(comma, unseen)
    for child in children(node):
        writer.inline(child)
    return writer.finish()


def table_groups(table: LexborNode) -> Iterator[tuple[bool, list[LexborNode]]]:
    """Yield the row groups of a table: whether each is the ``thead``, and its rows."""
    for group in children(table):
        if group.tag in _GROUPS:
            yield group.tag == "thead", [row for row in children(group) if row.tag == "tr"]


def outer_tables(node: LexborNode) -> Iterator[LexborNode]:
    """Return the tables below an element that are not inside another one."""
    for child in children(node):
        if child.tag == "table":
            yield child
        else:
            yield from outer_tables(child)


def read_cells(
    row: LexborNode, in_head: bool, unseen: Container[int]
) -> tuple[list[Cell], list[str]]:
    """Return the cells of a table row, and the spans that are not numbers (read as 1)."""
    cells: list[Cell] = []
    bad: list[str] = []
    for node in children(row):
        if node.tag in ("td", "th") and node.mem_id not in unseen:
            attributes = node.attributes
            spans = [_span(attributes.get(name), name, bad) for name in ("colspan", "rowspan")]
            content = inline_text(node, unseen, comma=True)
            if not content.text:
                content = RichText(_image_text(node, unseen))
            header = content.text
            if len(content.lines) > 1:
                header = inline_text(node, unseen).text
            is_header = in_head or node.tag == "th" or _is_bold(node, content.text, unseen)
            cells.append(Cell(content, cut_lead(header), is_header, spans[0] or 1, spans[1]))
    return cells, bad


def _image_text(cell: LexborNode, unseen: Container[int]) -> str:
    """Return the text of a cell of images ("Yellow card"); empty if it is a file's name."""
    texts = []
    for image in cell.css("img"):
        text = " ".join((image.attributes.get("alt") or "").split())
        if text and not _FILE_NAME.search(text) and not _is_unseen(image, cell, unseen):
            texts.append(text)
    return ", ".join(dict.fromkeys(texts))


def _is_unseen(node: LexborNode, top: LexborNode, unseen: Container[int]) -> bool:
    current: LexborNode | None = node
    while current is not None and current.mem_id != top.mem_id:
        if current.mem_id in unseen:
            return True
        current = current.parent
    return False


def _span(value: str | None, name: str, bad: list[str]) -> int:
    if value is None or not value.strip():
        return 1
    digits = value.strip().rstrip(";")
    if not digits.isascii() or not digits.isdigit():
        bad.append(f'{name}="{value}"')
        return 1
    return min(int(digits), MAX_COLUMNS)


def _is_bold(cell: LexborNode, text: str, unseen: Container[int]) -> bool:
    """Return whether all text of the cell is in one bold element."""
    for node in children(cell):
        if node.tag in BOLD:
            return inline_text(node, unseen, comma=True).text == text
        if node.tag != "-text" or (node.text_content or "").strip():
            return False
    return False
