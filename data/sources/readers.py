"""Reads one document: text, Markdown, HTML, CSV, PDF or Word, as passages.

Every passage begins with its document's title: the first heading, else ``<title>``; of a PDF file,
the title in its metadata. Without a title, or if it is a date, the file's name stands for it.
Sentences of a paragraph or list item, and code blocks, become text, and table rows become rows
with their headers. Short sentences share passages (``document.PASSAGE_BYTES``).
The ``key: value`` lines at the head of a Markdown file become infobox rows.
"""

from __future__ import annotations

import csv
import io
import re
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, zip_longest
from pathlib import Path
from types import ModuleType

from turngraph.configs.words import plural
from turngraph.data.linearise import (
    cut_lead,
    split_sentences,
)
from turngraph.data.normalise import answer_type
from turngraph.data.sources.chat_log import messages
from turngraph.data.sources.document import (
    Document,
    PassageLimit,
    Unreadable,
    documents_extra,
    shown,
    title_of,
)
from turngraph.data.sources.pdf import read_pdf
from turngraph.data.sources.text_encoding import decode
from turngraph.data.types import Evidence
from turngraph.data.warned import reading_logger

logger = reading_logger(__name__)

FIRST_ROWS = 20
DELIMITERS = ",;|\t"
_SEPARATOR_LINE = re.compile(r'"?sep=([^"\n])"?[ \t]*(?:\n|$)', re.IGNORECASE)
"""First line of a CSV file that tells Excel its delimiter."""
_VALUE, _YEAR = re.compile(r"\d"), re.compile(r"(?:1\d|20)\d\d")
LONGEST_SENTENCE = 500
"""In characters. Lines that would form a longer sentence are read as one passage each."""
MAX_BYTES = 256 << 20
"""Size of the largest file that is read."""
MAX_HTML_BYTES = 32 << 20
"""Size of the largest page: its tree takes many times the page's size."""


@dataclass(frozen=True)
class ReadFile:
    """A document that was read.

    Args:
        passages: its passages in order; their ids are their ``Document.place``.
        encoding: encoding of a text file; None for UTF-8, and for files that are not text.
    """

    passages: list[Evidence]
    encoding: str | None = None


def read_document(path: Path, by_sentence: bool = True) -> ReadFile:
    """Read the passages of one file, with its title, links and cells.

    Args:
        path: path of the file.
        by_sentence: False keeps the paragraphs and list items of Markdown whole, each after the
            heading above it, and leaves the headings of HTML, PDF and Word files out. Passages
            below a heading that is a date then have this heading as their id.

    Raises:
        Unreadable: the file cannot be read, or nothing is in it; the message names it.
    """
    raw = _content(path)
    suffix = path.suffix.lower()
    encoding: str | None = None
    limit = PassageLimit(path, len(raw))
    if suffix in BINARY_READERS:
        passages = BINARY_READERS[suffix](raw, path, limit, by_sentence)
    else:
        text, encoding = decode(raw, path, is_html=suffix in HTML)
        text = text.replace("\r\n", "\n")
        if suffix in (".md", *HTML):
            pages = _page_readers(path)
            read = pages.read_markdown if suffix == ".md" else pages.read_html
            passages = read(text, path, limit, by_sentence)
        else:
            passages = TEXT_READERS[suffix](text, path, limit)
    if not passages:
        raise Unreadable(path, "nothing to read in it")
    return ReadFile(passages, encoding if encoding != "utf-8" else None)


def with_ids(passages: Sequence[Evidence], name: str) -> list[Evidence]:
    """Return the passages of a document with ids that name it."""
    names = (f"{name}, {passage.id}" if passage.id else name for passage in passages)
    pairs = zip(passages, names, strict=True)
    return [replace(passage, id=f"{of}#{index}") for index, (passage, of) in enumerate(pairs)]


def _content(path: Path) -> bytes:
    limit = MAX_HTML_BYTES if path.suffix.lower() in HTML else MAX_BYTES
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for
            raise Unreadable(path, "not a regular file")
        if status.st_size > limit:
            size = f"{status.st_size >> 20} MiB, at most {limit >> 20} are read"
            raise Unreadable(path, "too large", size)
        raw = path.read_bytes()
    except OSError as error:
        raise Unreadable(path, "cannot be read", error.strerror or str(error)) from None
    if not raw:
        raise Unreadable(path, "empty")
    return raw


def _read_text(text: str, path: Path, limit: PassageLimit) -> list[Evidence]:
    document = Document(title_of(path), limit)
    for message in messages(text):
        document.heading(1, message.day)
        said = "\n".join(message.lines)
        longest = max(map(len, split_sentences(" ".join(said.split()))), default=0)
        for part in [said] if longest <= LONGEST_SENTENCE else said.split("\n"):
            document.sentences(part, lead=message.head)
    return document.passages


def _page_readers(path: Path) -> ModuleType:
    """Return the module that reads pages; its libraries are of an extra, and few need them."""
    with documents_extra(path, "HTML, Markdown and Word files"):
        from turngraph.data.sources import page_readers
    return page_readers


def _read_csv(text: str, path: Path, limit: PassageLimit) -> list[Evidence]:
    document = Document(title_of(path), limit)
    told = _SEPARATOR_LINE.match(text)
    delimiter = told[1] if told else "\t" if path.suffix.lower() == ".tsv" else _delimiter(text)
    headers: list[str] = []
    wide: list[int] = []  # lines of rows with more cells than headers
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        if told:
            next(rows)
        filled = ((rows.line_num, list(map(_one_line, cells))) for cells in rows)
        filled = ((line, cells) for line, cells in filled if any(cells))
        first = list(islice(filled, FIRST_ROWS))
        if has_header := _has_header([cells for _, cells in first], shown(path)):
            headers = list(map(cut_lead, first[0][1] if first else []))
        for line, cells in chain(first[has_header:], filled):
            if has_header and any(cells[len(headers) :]):
                wide.append(line)
            while len(cells) > len(headers) and not cells[-1]:
                cells.pop()
            document.row(headers, cells)
    except csv.Error as error:
        raise Unreadable(path, "broken CSV", str(error), max(rows.line_num, 1)) from None
    if wide:
        counted = f"{plural(len(wide), 'row')} with more cells than the header has"
        logger.warning("%s, line %d: %s", shown(path), wide[0], counted)
    return document.passages


def _one_line(cell: str) -> str:
    return " ".join(cell.split())


def _has_header(rows: Sequence[Sequence[str]], name: str) -> bool:
    """Tell whether the first of a table's first rows names its columns.

    If a column of numbers or dates begins with a cell of another kind, that cell is its name. If it
    begins with a number or date that is no year, the first row is like the others. Otherwise the
    first row is taken for a header, and a warning says so.
    """
    if len(rows) == 1 and any(answer_type(cell) != "string" for cell in rows[0] if cell):
        return False  # names of columns alone would be words
    columns = list(zip_longest(*rows, fillvalue=""))
    kinds = [[answer_type(cell) for cell in column if cell] for column in columns]
    of_values = [i for i, kind in enumerate(kinds) if kind[1:] and "string" not in kind[1:]]
    if any(columns[i][0] and kinds[i][0] == "string" for i in of_values):
        return True
    if any(_VALUE.search(columns[i][0]) and not _YEAR.fullmatch(columns[i][0]) for i in of_values):
        return False
    logger.warning("%s: its first row is taken for the names of the columns", name)
    return True


def _delimiter(text: str) -> str:
    """Return the delimiter that splits the first rows into equally many cells, the most of them.

    If several do so equally, the last of ``DELIMITERS`` is taken: in ``Price (EUR, net);Number``
    over ``1,50;3`` the comma belongs to numbers.
    """

    def widths(delimiter: str) -> list[int]:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        rows = (cells for cells in reader if any(cells))
        return [len(cells) for cells in islice(rows, FIRST_ROWS)] or [0]

    def fit(delimiter: str) -> tuple[bool, int, int]:
        header, *rows = widths(delimiter)
        fits = header > 1 and rows.count(header) == len(rows)
        order = DELIMITERS.index(delimiter)
        return fits, header, order if fits else -order

    try:
        return max(DELIMITERS, key=fit)
    except csv.Error:  # reading the file will raise the error with its line
        return ","


HTML = (".html", ".htm")
TEXT_READERS: dict[str, Callable[[str, Path, PassageLimit], list[Evidence]]] = {
    ".txt": _read_text,
    ".md": lambda text, path, limit: _page_readers(path).read_markdown(text, path, limit),
    **dict.fromkeys(
        HTML, lambda text, path, limit: _page_readers(path).read_html(text, path, limit)
    ),
    ".csv": _read_csv,
    ".tsv": _read_csv,
}
BINARY_READERS: dict[str, Callable[[bytes, Path, PassageLimit, bool], list[Evidence]]] = {
    ".pdf": partial(read_pdf, longest_sentence=LONGEST_SENTENCE),
    ".docx": lambda raw, path, limit, with_path: _page_readers(path).read_word_file(
        raw, path, limit, with_path
    ),
}
SUFFIXES = (*TEXT_READERS, *BINARY_READERS)
"""Endings of the names of files that can be read."""
