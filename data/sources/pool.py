"""Reads a folder of text, Markdown, HTML and CSV files as one evidence pool.

Every passage begins with its file's title: the first heading, else ``<title>``, else the name.
Sentences, list items and code blocks become text, and table rows become rows with their headers.
The ``key: value`` lines at the head of a Markdown file become infobox rows.
"""

from __future__ import annotations

import csv
import io
import logging
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from selectolax.lexbor import LexborHTMLParser
from tqdm import tqdm

from turngraph.data.cli import CommandParser, run_cli
from turngraph.data.entities import count_entity_edges, entity_of, find_entities, log_entities
from turngraph.data.json_fields import Location
from turngraph.data.jsonlines import write_pool
from turngraph.data.linearise import (
    linearise_infobox,
    linearise_row,
    linearise_sentence,
    split_sentences,
)
from turngraph.data.normalise import normalise_value
from turngraph.data.sources.markdown import Block, blocks, front_matter
from turngraph.data.sources.page_entities import VALUE
from turngraph.data.sources.wikipage import read_page
from turngraph.data.types import Entity, Evidence, Source

logger = logging.getLogger(__name__)

NAMED_FILES = 5
FIRST_ROWS = 20
LONGEST_SENTENCE = 500
"""In characters. Lines that would form a longer sentence are read as one passage each."""


@dataclass
class _File:
    """Passages of one file; ``names`` are its links and cells, which are entities."""

    title: str
    section: str = ""
    passages: list[Evidence] = field(default_factory=list)

    def add(self, text: str, source: Source, names: Sequence[str]) -> None:
        found = [entity_of(name) for name in (self.title, *names)]
        entities = {entity.id: entity for entity in found if entity is not None}
        self.passages.append(Evidence("", text, source, tuple(entities.values())))

    def sentences(self, text: str, links: Sequence[str] = (), section: str = "") -> None:
        for sentence in split_sentences(" ".join(text.split())):
            if any(map(str.isalnum, sentence)):
                names = [link for link in links if link in sentence]
                self.add(linearise_sentence(self.title, sentence, section), "text", names)


def read_folder(folder: str | Path) -> list[Evidence]:
    """Read a folder as an evidence pool with entities, its files in the order of their names.

    Ids are "folder/file.md#12". Files of other kinds are counted and named in a warning.

    Raises:
        ValueError: the folder is missing or has no file to read, or a file is not UTF-8 or broken
            CSV; the message names file and line.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder")
    found = sorted(path for path in folder.rglob("*") if not path.is_dir())
    paths = [path for path in found if path.suffix.lower() in READERS]
    others = [path for path in found if path.suffix.lower() not in READERS]
    _warn("files of other kinds not read", others, folder)
    if not paths:
        raise ValueError(f"{folder}: no file with one of {', '.join(READERS)} in it")
    passages: list[Evidence] = []
    empty = []
    for path in tqdm(paths, desc="reading files", unit=" files", delay=2):
        name = path.relative_to(folder).as_posix()
        of_file = read_file(path)
        passages += [replace(passage, id=f"{name}#{i}") for i, passage in enumerate(of_file)]
        empty += [] if of_file else [path]
    _warn("files have nothing to read in them", empty, folder)
    _log_counts(paths, passages)
    passages = find_entities(passages, extend=True)
    log_entities(count_entity_edges(passages), len(passages))
    return passages


def read_file(path: Path) -> list[Evidence]:
    """Read the passages of one file, with its title, links and cells, without ids.

    Raises:
        ValueError: the file cannot be read; the message names file and line.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise Location(path, line).error(f"not UTF-8 at byte {error.start + 1}") from None
    return READERS[path.suffix.lower()](text.replace("\r\n", "\n"), path)


def _warn(what: str, paths: Sequence[Path], folder: Path) -> None:
    if paths:
        names = [path.relative_to(folder).as_posix() for path in paths[:NAMED_FILES]]
        more = ", ..." if len(paths) > NAMED_FILES else ""
        logger.warning("%d %s: %s%s", len(paths), what, ", ".join(names), more)


def _log_counts(paths: Sequence[Path], passages: Sequence[Evidence]) -> None:
    files = Counter(path.suffix.lower() for path in paths)
    sources = Counter(passage.source for passage in passages)
    logger.info("%d files: %s", len(paths), ", ".join(f"{n} {s}" for s, n in sorted(files.items())))
    shares = ", ".join(f"{n} {source}" for source, n in sorted(sources.items()))
    logger.info("%d passages: %s", len(passages), shares or "none")


def _read_text(text: str, path: Path) -> list[Evidence]:
    file = _File(path.stem)
    for paragraph in re.split(r"\n\s*\n", text):
        longest = max(map(len, split_sentences(" ".join(paragraph.split()))), default=0)
        for part in [paragraph] if longest <= LONGEST_SENTENCE else paragraph.split("\n"):
            file.sentences(part)
    return file.passages


def _read_html(text: str, path: Path) -> list[Evidence]:
    tree = LexborHTMLParser(text)
    heads = (tree.css_first(tag) for tag in ("h1", "title"))
    titles = [" ".join(head.text().split()) for head in heads if head is not None]
    title = next(filter(None, titles), path.stem)
    page = read_page(text, title, str(path))
    if left_out := ", ".join(f"{n} {kind}" for kind, n in page.left_out.items() if n):
        logger.info("%s: left out by choice: %s", path, left_out)
    return [_with_plain_ids(passage) for passage in page.evidence]


def _with_plain_ids(passage: Evidence) -> Evidence:
    """Replace a page's own ids by names, which mean the same in every file."""
    entities: dict[str, Entity] = {}
    for entity in passage.entities:
        id_ = normalise_value(entity.id.removeprefix(VALUE))
        entities.setdefault(id_, replace(entity, id=id_))
    return replace(passage, entities=tuple(entities.values()))


def _read_csv(text: str, path: Path) -> list[Evidence]:
    file = _File(path.stem)
    headers: list[str] = []
    reader = None
    try:
        delimiter = "\t" if path.suffix.lower() == ".tsv" else _delimiter(text)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        for cells in reader:
            cells = [" ".join(cell.split()) for cell in cells]
            if headers:
                _add_csv_row(file, headers, cells, Location(path, reader.line_num))
            elif any(cells):
                headers = cells
    except csv.Error as error:
        line = max(reader.line_num, 1) if reader else 1
        raise Location(path, line).error(f"broken CSV: {error}") from None
    return file.passages


def _delimiter(text: str) -> str:
    """Return comma or semicolon: the one that gives the first rows equally many, or more, cells.

    If both do, as in ``Price (EUR, net);Number`` over ``1,50;3``, the comma belongs to numbers.
    """

    def widths(delimiter: str) -> list[int]:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        rows = (cells for cells in reader if any(cells))
        return [len(cells) for cells in islice(rows, FIRST_ROWS)] or [0]

    def fit(delimiter: str) -> tuple[bool, int, bool]:
        header, *rows = widths(delimiter)
        fits = header > 1 and rows.count(header) == len(rows)
        return fits, header, (delimiter == ";") == fits

    return max((",", ";"), key=fit)


def _add_csv_row(file: _File, headers: list[str], cells: list[str], location: Location) -> None:
    if any(cells[len(headers) :]):
        raise location.error(f"broken CSV: {len(cells)} cells under {len(headers)} headers")
    if any(cells):
        _add_row(file, headers, cells[: len(headers)])


def _add_row(file: _File, headers: list[str], cells: list[str], links: Sequence[str] = ()) -> None:
    """Add a row; short rows are padded, and cells without a header are added as they are."""
    width = max(len(headers), len(cells))
    headers = headers + [""] * (width - len(headers))
    cells = cells + [""] * (width - len(cells))
    text = linearise_row(file.title, headers, cells, file.section or None)
    file.add(text, "table", [*links, *filter(None, cells)])


def _read_markdown(text: str, path: Path) -> list[Evidence]:
    facts, text = front_matter(text)
    found = list(blocks(text))
    given = [value for key, value in facts if key.lower() == "title"]
    heads = [block.text[0] for block in found if block.kind == "heading"]
    file = _File(next(filter(None, given + heads), path.stem))
    for key, value in facts:
        if key.lower() != "title":
            file.add(linearise_infobox(file.title, key, value), "infobox", [value])
    for block in found:
        _add_block(file, block)
    return file.passages


def _add_block(file: _File, block: Block) -> None:
    text, links = block.text
    if block.kind == "heading":
        file.section = text if text != file.title else ""
    elif block.kind == "code":
        if text:
            file.add(linearise_sentence(file.title, text, file.section), "text", [])
    elif block.kind == "table":
        header, *rows = block.rows
        for row in rows:
            names = [link for _, found in row for link in found]
            if any(text for text, _ in row):
                _add_row(file, [text for text, _ in header], [text for text, _ in row], names)
    else:
        file.sentences(text, links, file.section if block.kind == "item" else "")


READERS = {
    ".txt": _read_text,
    ".md": _read_markdown,
    ".html": _read_html,
    ".htm": _read_html,
    ".csv": _read_csv,
    ".tsv": _read_csv,
}


def main(argv: Sequence[str] | None = None) -> None:
    """Make an evidence pool from a folder of text, Markdown, HTML and CSV files.

    Raises:
        ValueError: the folder or a file in it cannot be read.
    """
    description = (main.__doc__ or "").split("\n", 1)[0]
    parser = CommandParser(prog="turngraph pool", description=description)
    parser.add_argument("--input", required=True, metavar="FOLDER")
    parser.add_argument("--output", required=True, metavar="POOL.jsonl")
    args = parser.parse_args(argv)
    write_pool(args.output, read_folder(args.input))
    logger.info("written to %s", args.output)


if __name__ == "__main__":
    run_cli(main)
