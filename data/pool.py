"""A folder of text, Markdown, HTML and CSV files as one evidence pool.

Every piece opens with the title of its file: the first heading, else ``<title>``, else the file's
name. Sentences, items of lists and blocks of code become text, rows of tables become rows with
their headers, and the ``key: value`` lines at the head of a Markdown file become infobox rows.
"""

from __future__ import annotations

import csv
import html
import io
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from selectolax.lexbor import LexborHTMLParser
from tqdm import tqdm

from data.cli import CommandParser, run_cli
from data.entities import count_entity_edges, entity_of, find_entities, log_entities
from data.jsonlines import Place, write_pool
from data.linearise import (
    linearise_infobox,
    linearise_row,
    linearise_sentence,
    split_sentences,
)
from data.normalise import normalise_value
from data.page_entities import VALUE
from data.types import Entity, Evidence, Source
from data.wikipage import read_page

logger = logging.getLogger(__name__)

NAMED_FILES = 5

_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*$")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_RULE = re.compile(r" {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$")
_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?(?=\S)")
_TABLE_LINE = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$")
_REFERENCE = re.compile(r" {0,3}\[[^\]]+\]:\s*\S+")
_KEY_VALUE = re.compile(r"([\w][\w .-]*):\s+(.+)")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_IMAGE = re.compile(r"!\[([^\]]*)\](?:\([^()]*(?:\([^()]*\)[^()]*)*\)|\[[^\]]*\])")
_LINK = re.compile(r"\[([^\[\]]+)\](?:\([^()]*(?:\([^()]*\)[^()]*)*\)|\[[^\[\]]*\])")
_WIKI_LINK = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]+)\]\]")
_AUTOLINK = re.compile(r"<((?:https?|mailto):[^>\s]+)>")
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_CODE_SPAN = re.compile(r"(`+)(.+?)\1", re.DOTALL)
_EMPHASIS = re.compile(
    r"(\*{1,3}|~~)(?=\S)(.+?)(?<=\S)\1|(?<!\w)(_{1,3})(?=\S)(.+?)(?<=\S)\3(?!\w)"
)
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")


@dataclass
class _File:
    """One file's pieces so far; ``names`` are its links and cells, known to be entities."""

    title: str
    section: str = ""
    pieces: list[Evidence] = field(default_factory=list)

    def add(self, text: str, source: Source, names: Sequence[str]) -> None:
        found = [entity_of(name) for name in (self.title, *names)]
        entities = {entity.id: entity for entity in found if entity is not None}
        self.pieces.append(Evidence("", text, source, tuple(entities.values())))

    def sentences(self, text: str, links: Sequence[str] = (), section: str = "") -> None:
        for sentence in split_sentences(" ".join(text.split())):
            if any(map(str.isalnum, sentence)):
                names = [link for link in links if link in sentence]
                self.add(linearise_sentence(self.title, sentence, section), "text", names)


def read_folder(folder: str | Path) -> list[Evidence]:
    """The evidence pool of a folder, its files in the order of their names, with entities.

    Ids are "folder/file.md#12". Files of other kinds are counted and named in a warning.

    Raises:
        ValueError: there is no such folder or nothing in it to read, or a file is not UTF-8 or a
            broken CSV; the message names file and line.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder")
    found = sorted(path for path in folder.rglob("*") if not path.is_dir())
    paths = [path for path in found if path.suffix.lower() in READERS]
    _warn("files of other kinds not read", [p for p in found if p not in set(paths)], folder)
    if not paths:
        raise ValueError(f"{folder}: no file with one of {', '.join(READERS)} in it")
    pieces: list[Evidence] = []
    empty = []
    for path in tqdm(paths, desc="reading files", unit=" files", delay=2):
        name = path.relative_to(folder).as_posix()
        of_file = read_file(path)
        pieces += [replace(piece, id=f"{name}#{i}") for i, piece in enumerate(of_file)]
        empty += [] if of_file else [path]
    _warn("files have nothing to read in them", empty, folder)
    _log_counts(paths, pieces)
    pieces = find_entities(pieces, extend=True)
    log_entities(count_entity_edges(pieces), len(pieces))
    return pieces


def read_file(path: Path) -> list[Evidence]:
    """The pieces of one file, with its title, links and cells for entities, and without ids.

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
        raise Place(path, line).error(f"not UTF-8 at byte {error.start + 1}") from None
    return READERS[path.suffix.lower()](text.replace("\r\n", "\n"), path)


def _warn(what: str, paths: Sequence[Path], folder: Path) -> None:
    if paths:
        names = [path.relative_to(folder).as_posix() for path in paths[:NAMED_FILES]]
        more = ", ..." if len(paths) > NAMED_FILES else ""
        logger.warning("%d %s: %s%s", len(paths), what, ", ".join(names), more)


def _log_counts(paths: Sequence[Path], pieces: Sequence[Evidence]) -> None:
    files = Counter(path.suffix.lower() for path in paths)
    sources = Counter(piece.source for piece in pieces)
    logger.info("%d files: %s", len(paths), ", ".join(f"{n} {s}" for s, n in sorted(files.items())))
    shares = ", ".join(f"{n} {source}" for source, n in sorted(sources.items()))
    logger.info("%d pieces of evidence: %s", len(pieces), shares or "none")


def _read_text(text: str, path: Path) -> list[Evidence]:
    file = _File(path.stem)
    for paragraph in re.split(r"\n\s*\n", text):
        file.sentences(paragraph)
    return file.pieces


def _read_html(text: str, path: Path) -> list[Evidence]:
    tree = LexborHTMLParser(text)
    heads = (tree.css_first(tag) for tag in ("h1", "title"))
    titles = [" ".join(head.text().split()) for head in heads if head is not None]
    title = next(filter(None, titles), path.stem)
    page = read_page(text, title, str(path))
    if left_out := ", ".join(f"{n} {kind}" for kind, n in page.left_out.items() if n):
        logger.info("%s: left out by choice: %s", path, left_out)
    return [_with_plain_ids(piece) for piece in page.evidence]


def _with_plain_ids(piece: Evidence) -> Evidence:
    """A page's ids hold for that page alone; here the same name is the same in every file."""
    entities: dict[str, Entity] = {}
    for entity in piece.entities:
        id_ = normalise_value(entity.id.removeprefix(VALUE))
        entities.setdefault(id_, replace(entity, id=id_))
    return replace(piece, entities=tuple(entities.values()))


def _read_csv(text: str, path: Path) -> list[Evidence]:
    file = _File(path.stem)
    first = text.split("\n", 1)[0]
    is_semicolon = "," not in first and ";" in first
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ";" if is_semicolon else ","
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    headers: list[str] = []
    try:
        for cells in reader:
            cells = [" ".join(cell.split()) for cell in cells]
            if headers:
                _add_csv_row(file, headers, cells, Place(path, reader.line_num))
            elif any(cells):
                headers = cells
    except csv.Error as error:
        raise Place(path, max(reader.line_num, 1)).error(f"broken CSV: {error}") from None
    return file.pieces


def _add_csv_row(file: _File, headers: list[str], cells: list[str], place: Place) -> None:
    if any(cells[len(headers) :]):
        raise place.error(f"broken CSV: {len(cells)} cells under {len(headers)} headers")
    if any(cells):
        _add_row(file, headers, cells[: len(headers)])


def _add_row(file: _File, headers: list[str], cells: list[str], links: Sequence[str] = ()) -> None:
    """A row; short ones are filled up, and cells without a header stand bare."""
    width = max(len(headers), len(cells))
    headers = headers + [""] * (width - len(headers))
    cells = cells + [""] * (width - len(cells))
    text = linearise_row(file.title, headers, cells, file.section or None)
    file.add(text, "table", [*links, *filter(None, cells)])


def _read_markdown(text: str, path: Path) -> list[Evidence]:
    lines = _COMMENT.sub("", text).split("\n")
    facts, lines = _front_matter(lines)
    blocks = list(_blocks(lines))
    given = [value for key, value in facts if key.lower() == "title"]
    heads = [_plain(lines[0])[0] for kind, lines in blocks if kind == "heading"]
    file = _File(next(filter(None, given + heads), path.stem))
    for key, value in facts:
        if key.lower() != "title":
            file.add(linearise_infobox(file.title, key, value), "infobox", [value])
    for kind, block in blocks:
        _add_block(file, kind, block)
    return file.pieces


def _front_matter(lines: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """(key, value) pairs between two lines of three dashes at the head of a file, and the rest."""
    if not lines or lines[0].strip() != "---" or "---" not in [s.strip() for s in lines[1:]]:
        return [], lines
    end = next(i for i, line in enumerate(lines[1:], 1) if line.strip() == "---")
    matches = [_KEY_VALUE.fullmatch(line.strip()) for line in lines[1:end]]
    facts = [(match[1].strip(), match[2].strip(" \"'[]")) for match in matches if match]
    others = [line for line, match in zip(lines[1:end], matches, strict=True) if not match]
    return facts, [*others, "", *lines[end + 1 :]]


def _blocks(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The blocks of a Markdown text: kind and lines, without the marks that made them one."""
    start = 0
    while start < len(lines):
        kind, end = _block_at(lines, start)
        block = [line.lstrip("> ") if kind == "quote" else line for line in lines[start:end]]
        if kind == "quote":
            yield from _blocks(block)
        elif kind == "code":
            closed = len(block) > 1 and _FENCE.match(block[-1])
            yield kind, block[1:-1] if closed else block[1:]
        elif kind == "heading":
            match = _HEADING.match(block[0])
            yield kind, [(match[1] or "") if match else block[0]]
        elif kind != "nothing":
            yield kind, block
        start = end


def _block_at(lines: list[str], start: int) -> tuple[str, int]:
    """The kind of the block that begins at a line, and the line after its last."""
    line, following = lines[start], lines[start + 1] if start + 1 < len(lines) else ""
    if fence := _FENCE.match(line):
        ends = (i for i in range(start + 1, len(lines)) if lines[i].strip().startswith(fence[1]))
        return "code", next(ends, len(lines) - 1) + 1
    if not line.strip() or _RULE.match(line) or _REFERENCE.match(line):
        return "nothing", start + 1
    if _HEADING.match(line):
        return "heading", start + 1
    if "|" in line and "|" in following and _TABLE_LINE.match(following):
        return "table", _while(lines, start, lambda text: "|" in text)
    if line.lstrip().startswith(">"):
        return "quote", _while(lines, start, lambda text: text.lstrip().startswith(">"))
    if _UNDERLINE.match(following) and not _ITEM.match(line):
        return "heading", start + 2
    kind = "item" if _ITEM.match(line) else "paragraph"
    return kind, _while(lines, start, lambda text: not _begins_block(text))


def _while(lines: list[str], start: int, goes_on: Callable[[str], bool]) -> int:
    ends = (i for i in range(start + 1, len(lines)) if not goes_on(lines[i]))
    return next(ends, len(lines))


def _begins_block(line: str) -> bool:
    patterns = (_FENCE, _RULE, _HEADING, _ITEM)
    return not line.strip() or line[:1] == ">" or any(p.match(line) for p in patterns)


def _add_block(file: _File, kind: str, block: list[str]) -> None:
    if kind == "heading":
        heading = _plain(block[0])[0]
        file.section = heading if heading != file.title else ""
    elif kind == "code":
        if code := "\n".join(block).strip("\n"):
            file.add(linearise_sentence(file.title, code, file.section), "text", [])
    elif kind == "table":
        _add_table(file, block)
    elif kind == "item":
        text, links = _plain(_ITEM.sub("", block[0], count=1) + "\n" + "\n".join(block[1:]))
        file.sentences(text, links, file.section)
    else:
        file.sentences(*_plain("\n".join(block)))


def _add_table(file: _File, block: list[str]) -> None:
    rows = [[_plain(cell) for cell in _cells(line)] for line in (block[0], *block[2:])]
    headers = [text for text, _ in rows[0]]
    for row in rows[1:]:
        links = [link for _, found in row for link in found]
        if any(text for text, _ in row):
            _add_row(file, headers, [text for text, _ in row], links)


def _cells(line: str) -> list[str]:
    cells = re.split(r"(?<!\\)\|", line.strip())
    cells = cells[1:] if not cells[0].strip() and len(cells) > 1 else cells
    return cells[:-1] if not cells[-1].strip() and len(cells) > 1 else cells


def _plain(text: str) -> tuple[str, list[str]]:
    """Markdown inside a block as plain text, and the texts of its links."""
    links: list[str] = []

    def link(match: re.Match[str]) -> str:
        links.append(match[1])
        return match[1]

    text = _IMAGE.sub(r"\1", text)
    for pattern in (_WIKI_LINK, _LINK):
        text = pattern.sub(link, text)
    return _unmark(text), [_unmark(name) for name in links]


def _unmark(text: str) -> str:
    text = _CODE_SPAN.sub(r"\2", _TAG.sub(" ", _AUTOLINK.sub(r"\1", text)))
    for _ in range(2):  # emphasis inside emphasis
        text = _EMPHASIS.sub(lambda match: match[2] or match[4], text)
    return " ".join(html.unescape(_ESCAPE.sub(r"\1", text)).split())


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
    parser = CommandParser(prog="python -m data.pool", description=description)
    parser.add_argument("--input", required=True, metavar="FOLDER")
    parser.add_argument("--output", required=True, metavar="POOL.jsonl")
    args = parser.parse_args(argv)
    write_pool(args.output, read_folder(args.input))
    logger.info("written to %s", args.output)


if __name__ == "__main__":
    run_cli(main)
