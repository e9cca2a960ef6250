"""Reads the text of a PDF file by pages, with hyphenated words joined and without running heads.

Columns of running text are read one after the other, even where the file draws line by line across
them. Tables of a PDF are lines of text like others: the format does not say what is a cell.
"""

from __future__ import annotations

import io
import logging
import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise, takewhile
from pathlib import Path
from typing import Any, NamedTuple

from turngraph.configs.words import plural
from turngraph.data.linearise import MAX_LEAD, sentence_spans
from turngraph.data.sources.document import (
    Document,
    PassageLimit,
    Unreadable,
    documents_extra,
    shown,
    title_of,
)
from turngraph.data.types import Evidence
from turngraph.data.warned import reading_logger

logger = reading_logger(__name__)

MAX_PAGES = 20_000
MAX_OPERATIONS, OPERATIONS_PER_BYTE = 200_000, 2
"""Most drawing operations of a file: the first number, and the second for each byte of the file.
Pages may share forms that draw other forms, and so on, so that a small file can have any number."""
MAX_CONTENT_BYTES, CONTENT_BYTES_PER_BYTE = 1_000_000, 16
"""Most unpacked bytes of the drawing operations of all pages: the first number, and the second for
each byte of the file."""
MAX_CHARACTERS = 100_000_000
MIN_PAGES = 3
"""A line at the edge of a page is a running head if it stands on so many pages, and on most."""
MAX_LEVELS = 6
"""Levels of headings, as in HTML; all headings of smaller letters have the last level."""
LARGER = 1.05
"""Least ratio of the size of a heading's letters to that of the text's."""
MAX_COLUMNS = 6
"""Most columns of text that a page is divided into."""
MIN_ROWS = 5
"""Least rows of a page that is divided into columns."""
_EDGE = 4.0
"""Points within which texts begin at the same place."""
_LETTER = 0.45
"""Mean width of a letter of narrow fonts, as a share of the letters' size."""
_GUTTER = 0.8
"""Least space between columns, as a share of the letters' size, after a word drawn by itself."""
_LONGEST_WORD = 20
"""Most characters of a text that counts as a word drawn by itself."""
_BOLD = re.compile(r"bold|black|heavy|demi", re.IGNORECASE)
_DIGITS = re.compile(r"\d+")
_WORD = re.compile(r"[\w-]+")
_HYPHEN_AT_END = re.compile(r"\b(\w+)[-\u2010]\n(\w+)")
_FILE_NAME = re.compile(
    r"^Microsoft Word - |^untitled|\.(?:docx?|odt|rtf|tex|dvi|pdf|indd|qxd|pptx?|xlsx?)$",
    re.IGNORECASE,
)


def read_pdf(
    raw: bytes, path: Path, limit: PassageLimit, with_path: bool, longest_sentence: int
) -> list[Evidence]:
    """Read a PDF file as passages, whose ids are the pages that they begin on.

    Args:
        raw: content of the file.
        path: its name, for messages, and its title where the file has none.
        limit: counts the passages.
        with_path: begin every passage with the headings above it. False: passages below a heading
            that is a date have this heading as their id.
        longest_sentence: in characters; lines of a longer one are read as one passage each.

    Raises:
        Unreadable: the file is broken, encrypted, too large, or without text.
    """
    with documents_extra(path, "PDF files"):
        import pypdf
    reading_logger("pypdf").setLevel(logging.ERROR)  # its warnings about repairs concern no user
    try:
        reader = pypdf.PdfReader(io.BytesIO(raw))
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable(path, "encrypted: a password is needed")
        if len(reader.pages) > MAX_PAGES:
            raise Unreadable(path, "too large", f"more than {MAX_PAGES} pages")
        pages = _lines_of_pages(reader, path, len(raw))
        title = title_of(path, [_title(reader)])
        if not any(pages):
            images = any(page.images.keys() for page in reader.pages)
            raise Unreadable(path, "holds images only, no text" if images else "holds no text")
    except Unreadable:
        raise
    except Exception as error:  # pypdf raises whatever a broken file leads to
        detail = " ".join(f"{type(error).__name__}: {error}".split())
        raise Unreadable(path, "broken PDF", detail) from None
    if empty := pages.count([]):
        logger.warning("%s: no text on %d of %s", shown(path), empty, plural(len(pages), "page"))
    document = Document(title, limit)
    _add_sections(document, without_running_heads(pages), with_path, longest_sentence)
    return document.passages


Size = tuple[float, bool]
"""Size of letters in points, and whether they are bold."""


@dataclass(frozen=True)
class Line:
    """A line of a page; ``size`` is that of its smallest letters, 0 if it is not known."""

    text: str
    size: Size = (0.0, False)


class Piece(NamedTuple):
    """A part of a line, and where it begins, in points from the left."""

    text: str
    size: Size = (0.0, False)
    x: float = 0.0


Row = list[Piece]


def _lines_of_pages(reader: Any, path: Path, num_bytes: int) -> list[list[Line]]:
    pages: list[list[Line]] = []
    operations = content = characters = 0
    most_operations = MAX_OPERATIONS + OPERATIONS_PER_BYTE * num_bytes
    most_content = MAX_CONTENT_BYTES + CONTENT_BYTES_PER_BYTE * num_bytes
    pieces: list[Piece] = []

    def count(*_: object) -> None:
        nonlocal operations
        operations += 1
        if operations > most_operations:
            detail = f"its pages have more than {most_operations} operations"
            raise Unreadable(path, "too large", detail)

    def add(text: str, outer: list[float], inner: list[float], font: Any, size: float) -> None:
        if text:
            scale = math.hypot(*inner[2:4]) * math.hypot(*outer[2:4])
            is_bold = _BOLD.search(str(font.get("/BaseFont"))) is not None if font else False
            x = inner[4] * outer[0] + inner[5] * outer[2] + outer[4]
            pieces.append(Piece(text, (round(abs(size) * scale, 1), is_bold), x))

    for page in reader.pages:
        drawn = page.get_contents()
        content += len(drawn.get_data()) if drawn is not None else 0
        if content > most_content:
            raise Unreadable(path, "too large", f"its pages draw more than {most_content} bytes")
        pieces.clear()
        text = page.extract_text(visitor_operand_before=count, visitor_text=add)
        characters += len(text)
        if characters > MAX_CHARACTERS:
            raise Unreadable(path, "too large", f"more than {MAX_CHARACTERS} characters")
        whole = "".join(piece.text for piece in pieces) == text
        pages.append(_lines(_by_columns(_rows(pieces)) if whole else _rows([Piece(text)])))
    return pages


def _rows(pieces: Sequence[Piece]) -> list[Row]:
    """Return the pieces of each line of a page."""
    rows: list[Row] = [[]]
    for piece in pieces:
        first, *others = piece.text.split("\n")
        rows[-1].append(piece._replace(text=first))
        rows += [[piece._replace(text=text)] for text in others]
    return rows


def _by_columns(rows: list[Row], most: int = MAX_COLUMNS) -> list[Row]:
    """Return the rows of a page with its columns of running text one after the other.

    A column begins where pieces of many rows do, if the rows go to and fro across that edge. Rows
    that are wider than the columns stay between those above and below them. Columns of short
    texts, or of texts that begin with capitals or digits, are those of a table and stay.
    """
    starts = [piece.x for row in rows for piece in row if piece.text.strip()]
    if len(rows) < MIN_ROWS or most < 2 or not starts:
        return rows
    places = Counter(round(x / _EDGE) for x in starts if x > min(starts) + 2 * _EDGE)
    common = [at for at, n in places.items() if n >= max(MIN_ROWS, 0.4 * len(rows))]
    for at in sorted(common)[: 2 * MAX_COLUMNS]:
        parts = [_parted(row, (at - 0.5) * _EDGE) for row in rows]
        narrow = [side for *sides, is_wide in parts if not is_wide for side in enumerate(sides)]
        texts = [(side, words) for side, row in narrow if (words := _text(row).split())]
        columns = [[words for side, words in texts if side == column] for column in (0, 1)]
        crossings = sum(before < after for (before, _), (after, _) in pairwise(texts))
        if 2 * crossings >= len(columns[1]) and all(map(_is_running_text, columns)):
            return _in_order(parts, most)
    return rows


def _in_order(parts: Sequence[tuple[Row, Row, bool]], most: int) -> list[Row]:
    ordered: list[Row] = []
    for is_wide, band in groupby(parts, key=lambda part: part[2]):
        cut = [*band]
        if is_wide:
            ordered += [left + right for left, right, _ in cut]
        else:
            ordered += [left for left, right, _ in cut if left or not right]
            ordered += _by_columns([right for _, right, _ in cut if right], most - 1)
    return ordered


def _parted(row: Row, edge: float) -> tuple[Row, Row, bool]:
    """Return the pieces of a row before and after an edge, and whether its text goes across it."""
    left = list(takewhile(lambda piece: piece.x < edge or not piece.text.strip(), row))
    right = row[len(left) :]
    filled = [piece for piece in left if piece.text.strip()]
    if not filled:
        return left, right, False
    last = filled[-1]
    end = last.x + _LETTER * last.size[0] * len(last.text.strip())
    if not right:
        return left, right, end > edge
    is_word = len(last.text.strip()) <= _LONGEST_WORD
    return left, right, is_word and right[0].x - end < _GUTTER * last.size[0]


def _is_running_text(lines: Sequence[Sequence[str]]) -> bool:
    """Return whether lines of words are those of sentences, by their lengths and first letters."""
    long = sum(len(words) >= 3 for words in lines)
    going_on = sum(words[0][0].islower() for words in lines)
    return 3 * long > 2 * len(lines) and 3 * going_on > len(lines)


def _text(row: Row) -> str:
    return "".join(piece.text for piece in row)


def _lines(rows: Sequence[Row]) -> list[Line]:
    """Return the lines of a page's rows, without empty ones at its edges."""
    lines = []
    for row in rows:
        sizes = [piece.size for piece in row if piece.text.strip()]
        lines.append(Line(_text(row), min(sizes, default=(0.0, False))))
    full = [index for index, line in enumerate(lines) if line.text.strip()]
    return lines[full[0] : full[-1] + 1] if full else []


def _title(reader: Any) -> str:
    """Return the title that the file gives itself; "" if it is the name of a file."""
    title = " ".join(((reader.metadata and reader.metadata.title) or "").split())
    return "" if _FILE_NAME.search(title) else title


def without_running_heads(pages: Sequence[Sequence[Line]]) -> list[list[Line]]:
    """Remove the first and last lines that most pages have in common, but for their numbers."""
    kept = [list(page) for page in pages]
    for edge in (0, -1):
        heads = [_DIGITS.sub("#", page[edge].text).strip() if page else "" for page in kept]
        counts = Counter(filter(None, heads))
        common = {head for head, n in counts.items() if n >= MIN_PAGES and 2 * n > len(pages)}
        for page, head in zip(kept, heads, strict=True):
            if head in common and len(page) > 1:
                page.pop(edge)
    return kept


@dataclass
class Section:
    """A heading and the text below it; for text above the first heading, the heading is empty.

    Args:
        heading: its lines.
        size: size of its letters.
        page: page on which it begins, from 1.
        lines: lines below it, each with its page.
    """

    heading: list[str] = field(default_factory=list)
    size: Size = (0.0, False)
    page: int = 1
    lines: list[tuple[int, str]] = field(default_factory=list)


def _sections(pages: Sequence[Sequence[Line]]) -> list[Section]:
    """Divide the pages at their headings: lines larger than the text, or bold in the text's size.

    The text's size is that of most letters. Lines of a heading that is longer than passages repeat,
    and those without two letters or digits (as large initials), are text.
    """
    letters = Counter[Size]()
    for page in pages:
        for line in page:
            letters[line.size] += len(line.text)
    [(text_size, _)] = letters.most_common(1)
    sections = [Section()]
    for number, page in enumerate(pages, 1):
        for line in page:
            text = line.text.strip()
            is_head = _is_larger(line.size, text_size) and sum(map(str.isalnum, text)) > 1
            last = sections[-1]
            if is_head and last.heading and not last.lines and last.size == line.size:
                last.heading.append(text)
            elif is_head:
                sections.append(Section([text], line.size, number))
            else:
                last.lines.append((number, line.text))
    return sections


def _is_larger(size: Size, text_size: Size) -> bool:
    if not text_size[0]:  # unknown
        return False
    return size[0] > LARGER * text_size[0] or (size[0] == text_size[0] and size > text_size)


def _add_sections(
    document: Document, pages: Sequence[Sequence[Line]], with_path: bool, longest: int
) -> None:
    """Add the sentences of all sections, each after the headings above it."""
    words = set[str]()
    for page in pages:
        words.update(*(_WORD.findall(line.text.casefold()) for line in page))
    sections = _sections(pages)
    sizes = sorted({section.size for section in sections if section.heading}, reverse=True)
    levels = {size: min(level, MAX_LEVELS) for level, size in enumerate(sizes, 1)}
    outline = document if with_path else Document("", by_sentence=False)
    for section, after in zip(sections, [*sections[1:], Section()], strict=True):
        heading = " ".join(section.heading)
        has_text = any(text.strip() for _, text in section.lines)
        is_empty = not has_text and levels.get(after.size, 0) <= levels.get(section.size, 0)
        if is_empty or len(heading) > MAX_LEAD:  # keep the heading as text
            section.lines[:0] = [(section.page, text) for text in section.heading]
        if is_empty or len(heading) <= MAX_LEAD:
            outline.heading(levels.get(section.size, 0), "" if is_empty else heading)
        day = "" if with_path else outline.place
        _add_sentences(document, section.lines, words, longest, day)


def _add_sentences(
    document: Document,
    lines: Sequence[tuple[int, str]],
    words: Collection[str],
    longest: int,
    day: str,
) -> None:
    """Add the sentences of lines as passages, whose id is ``day``, else the page they begin on."""
    by_page = [
        (number, "\n".join(text for _, text in of_page))
        for number, of_page in groupby(lines, key=lambda line: line[0])
    ]
    text, starts = _joined([text for _, text in by_page], words)
    begin = 0
    for paragraph in re.split(r"(\n\s*\n)", text):
        spans = sentence_spans(paragraph)
        if max((end - start for start, end in spans), default=0) > longest:
            spans = [match.span() for match in re.finditer(r"[^\n]+", paragraph)]
        else:  # together, those that begin on one page
            pages = groupby(spans, key=lambda span: bisect_right(starts, begin + span[0]))
            spans = [
                (page_spans[0][0], page_spans[-1][1])
                for _, page_spans in ((page, [*of]) for page, of in pages)
            ]
        for start, end in spans:
            page = by_page[bisect_right(starts, begin + start) - 1][0]
            document.place = day or f"page {page}"
            document.sentences(paragraph[start:end])
        begin += len(paragraph)


def _joined(pages: Sequence[str], words: Collection[str]) -> tuple[str, list[int]]:
    """Return the text of all pages with words whole, and where each page begins in it."""

    def close(match: re.Match[str]) -> str:
        before, after = match.groups()
        whole, parted = f"{before}{after}".casefold(), f"{before}-{after}".casefold()
        is_parted = parted in words and whole not in words
        keeps = is_parted or not after[0].islower() or before[-1].isdigit()
        return f"{before}-{after}" if keeps else f"{before}{after}"

    starts, parts, length = [], list[str](), 0
    for page in pages:
        starts.append(length)
        page = _HYPHEN_AT_END.sub(close, page.replace("\u00ad\n", "").replace("\u00ad", ""))
        parts.append(page + "\n")
        length += len(parts[-1])
    return "".join(parts), starts
