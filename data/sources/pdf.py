"""Reads the text of a PDF file by its pages: hyphens at line ends are closed, running heads go.

Tables of a PDF are lines of text like others: the format does not say what is a cell.
"""

from __future__ import annotations

import io
import logging
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turngraph.configs.words import plural
from turngraph.data.linearise import sentence_spans
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
"""Drawing operations of any file, and for each byte of it besides: pages may share what they draw,
which may draw forms that draw forms, and so on."""
MAX_CONTENT_BYTES, CONTENT_BYTES_PER_BYTE = 1_000_000, 16
"""Unpacked bytes of what all pages draw, for any file and for each byte of it besides."""
MAX_CHARACTERS = 100_000_000
MIN_PAGES = 3
"""A line at the edge of a page is a running head if it stands on so many pages, and on most."""
_DIGITS = re.compile(r"\d+")
_HYPHEN_AT_END = re.compile(r"\b(\w+)[-\u2010]\n(\w+)")
_FILE_NAME = re.compile(
    r"^Microsoft Word - |^untitled|\.(?:docx?|odt|rtf|tex|dvi|pdf|indd|qxd|pptx?|xlsx?)$",
    re.IGNORECASE,
)


def read_pdf(raw: bytes, path: Path, limit: PassageLimit, longest_sentence: int) -> list[Evidence]:
    """Read a PDF file as passages, whose ids are the pages that they begin on.

    Args:
        raw: content of the file.
        path: its name, for messages, and its title where the file has none.
        limit: counts the passages.
        longest_sentence: in characters; lines of a longer one are read as one passage each.

    Raises:
        Unreadable: the file is broken, encrypted, too large, or without text.
    """
    with documents_extra(path, "PDF files"):
        import pypdf
    reading_logger("pypdf").setLevel(logging.ERROR)  # what it repairs concerns no user
    try:
        reader = pypdf.PdfReader(io.BytesIO(raw))
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable(path, "encrypted: a password is needed")
        if len(reader.pages) > MAX_PAGES:
            raise Unreadable(path, "too large", f"more than {MAX_PAGES} pages")
        pages = _texts_of_pages(reader, path, len(raw))
        title = _title(reader) or title_of(path)
        if not any(pages):
            images = any(page.images.keys() for page in reader.pages)
            raise Unreadable(path, "holds images only, no text" if images else "holds no text")
    except Unreadable:
        raise
    except Exception as error:  # pypdf raises whatever a broken file leads to
        detail = " ".join(f"{type(error).__name__}: {error}".split())
        raise Unreadable(path, "broken PDF", detail) from None
    if empty := pages.count(""):
        logger.warning("%s: no text on %d of %s", shown(path), empty, plural(len(pages), "page"))
    document = Document(title, limit)
    _add_sentences(document, without_running_heads(pages), longest_sentence)
    return document.passages


def _texts_of_pages(reader: Any, path: Path, num_bytes: int) -> list[str]:
    texts: list[str] = []
    operations = content = characters = 0
    most_operations = MAX_OPERATIONS + OPERATIONS_PER_BYTE * num_bytes
    most_content = MAX_CONTENT_BYTES + CONTENT_BYTES_PER_BYTE * num_bytes

    def count(*_: object) -> None:
        nonlocal operations
        operations += 1
        if operations > most_operations:
            detail = f"its pages have more than {most_operations} operations"
            raise Unreadable(path, "too large", detail)

    for page in reader.pages:
        drawn = page.get_contents()
        content += len(drawn.get_data()) if drawn is not None else 0
        if content > most_content:
            raise Unreadable(path, "too large", f"its pages draw more than {most_content} bytes")
        texts.append(page.extract_text(visitor_operand_before=count).strip())
        characters += len(texts[-1])
        if characters > MAX_CHARACTERS:
            raise Unreadable(path, "too large", f"more than {MAX_CHARACTERS} characters")
    return texts


def _title(reader: Any) -> str:
    """Return the title that the file gives itself; "" if it is the name of a file."""
    title = " ".join(((reader.metadata and reader.metadata.title) or "").split())
    return "" if _FILE_NAME.search(title) else title


def without_running_heads(pages: Sequence[str]) -> list[str]:
    """Remove the first and last lines that most pages have in common, but for their numbers."""
    split = [page.split("\n") for page in pages]
    for edge in (0, -1):
        heads = [_DIGITS.sub("#", lines[edge]).strip() for lines in split]
        counts = Counter(filter(None, heads))
        common = {head for head, n in counts.items() if n >= MIN_PAGES and 2 * n > len(pages)}
        for lines, head in zip(split, heads, strict=True):
            if head in common and len(lines) > 1:
                lines.pop(edge)
    return ["\n".join(lines) for lines in split]


def _add_sentences(document: Document, pages: Sequence[str], longest: int) -> None:
    """Add the sentences of all pages; one that a page's end cuts belongs to the page before."""
    text, starts = _joined(pages)
    begin = 0
    for paragraph in re.split(r"(\n\s*\n)", text):
        spans = sentence_spans(paragraph)
        if max((end - start for start, end in spans), default=0) > longest:
            spans = [match.span() for match in re.finditer(r"[^\n]+", paragraph)]
        for start, end in spans:
            document.place = f"page {bisect_right(starts, begin + start)}"
            document.sentences(paragraph[start:end])
        begin += len(paragraph)


def _joined(pages: Sequence[str]) -> tuple[str, list[int]]:
    """Return the text of all pages with words whole, and where each page begins in it."""
    words = set(re.findall(r"[\w-]+", "\n".join(pages).casefold()))

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
