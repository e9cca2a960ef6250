"""Finds the sources of a corpus, and reads each as blocks of passages.

A source is one file: a document, a pool of passages, articles as JSON Lines (``title`` and
``text``), or articles between ``<doc ... title="...">`` and ``</doc>``, the two formats in which
plain text of Wikipedia's dumps is exchanged. A large file is never read at once.
"""

from __future__ import annotations

import html
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from turngraph.configs.json_files import file_hash
from turngraph.configs.user_error import UserError
from turngraph.data.entities import find_entities
from turngraph.data.json_fields import Json, Location, decoded, field, iter_lines, raw_lines
from turngraph.data.jsonlines import parse_evidence
from turngraph.data.sources.document import Document, Unreadable, shown
from turngraph.data.sources.folder import find_files
from turngraph.data.sources.readers import SUFFIXES, read_document, with_ids
from turngraph.data.types import Evidence

logger = logging.getLogger(__name__)

JSON_LINES = (".jsonl", ".json")
BLOCK = 1_000
"""Passages of a pool that are read, and whose entities are found, together."""
WIKI_FILE = re.compile(r"wiki_\d+")
"""Names that the usual extractor of Wikipedia's dumps gives its files, which have no ending."""
_DOC = re.compile(r"<doc\b([^>]*)>\s*")
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')

Block = Callable[[], list[Evidence]]
"""Function that makes some passages of a source, in order; a resumed build skips calls."""


@dataclass(frozen=True)
class SourceFile:
    """One file of a corpus.

    Args:
        name: beginning of its passages' ids; unique in the corpus.
        path: path of the file.
    """

    name: str
    path: Path

    def digest(self) -> str:
        """Return the hash of its content, in hexadecimal digits.

        Raises:
            Unreadable: the file cannot be read.
        """
        try:
            return file_hash(self.path)
        except OSError as error:
            reason = error.strerror or str(error)
            raise Unreadable(self.path, "cannot be read", reason) from None

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks of its passages, which have ids and entities.

        Raises:
            UserError: a line of JSON Lines is wrong; the message names file, line and field.
            Unreadable: the document cannot be read.
        """
        if self.path.suffix.lower() in JSON_LINES:
            yield from _json_blocks(self)
        elif is_wiki(self.path):
            yield from _wiki_blocks(self)
        else:
            yield lambda: _finished(read_document(self.path).passages, self.name)


def is_wiki(path: Path) -> bool:
    """Whether a file's name is one of plain text of Wikipedia's dumps."""
    return WIKI_FILE.fullmatch(path.name) is not None


def find_sources(
    inputs: Sequence[str | Path], strict: bool = False
) -> tuple[list[SourceFile], list[Unreadable]]:
    """Find the files of a corpus, in the order of their names.

    A file found in a folder is named by its path in that folder, a file given itself by its own
    name.

    Args:
        inputs: files and folders; subfolders are looked into, too.
        strict: raise for what cannot be read.

    Returns:
        The files, and paths in the folders that cannot be read, such as links that lead out of a
        folder.

    Raises:
        UserError: an input is missing or of an unknown kind, two files have one name, or there is
            no file.
        Unreadable: ``strict``, and something cannot be read.
    """
    sources: dict[str, SourceFile] = {}
    refused: list[Unreadable] = []
    for path in map(Path, inputs):
        for source in _files_of(path, refused):
            if source.name in sources and sources[source.name].path != source.path:
                both = f"{shown(sources[source.name].path)} and {shown(source.path)}"
                raise UserError(f"two sources are called {source.name}: {both}")
            sources[source.name] = source
    if strict and refused:
        raise refused[0]
    if not sources:
        raise UserError(f"{', '.join(map(shown, inputs))}: no file that can be read")
    return [sources[name] for name in sorted(sources)], refused


def _files_of(path: Path, refused: list[Unreadable]) -> Iterator[SourceFile]:
    if path.is_dir():
        paths, others, skipped = find_files(path, (*SUFFIXES, *JSON_LINES))
        wiki = [other for other in others if is_wiki(other)]
        if len(wiki) < len(others):
            num_unread = len(others) - len(wiki)
            first = shown(next(other for other in others if not is_wiki(other)))
            logger.warning(
                "%s: files of other kinds not read: %d, first %s", path, num_unread, first
            )
        refused += skipped
        for file in (*paths, *wiki):
            yield SourceFile(shown(file.relative_to(path).as_posix()), file)
        return
    if not path.is_file():
        reason = "not a file" if path.exists() else "no such file or folder"
        raise UserError(f"{shown(path)}: {reason}")
    if path.suffix.lower() not in (*SUFFIXES, *JSON_LINES) and not is_wiki(path):
        kinds = ", ".join((*SUFFIXES, *JSON_LINES, "wiki_00"))
        raise UserError(f"{shown(path)}: cannot be read; files that can: {kinds}")
    yield SourceFile(shown(path.name), path)


def _finished(passages: Sequence[Evidence], name: str) -> list[Evidence]:
    return find_entities(with_ids(passages, name), extend=True)


def _json_blocks(source: SourceFile) -> Iterator[Block]:
    """Yield blocks of passages, and one block for each article."""
    lines: list[tuple[Location, Json]] = []
    for location, record in iter_lines(source.path):
        if "title" in record and "source" not in record:
            if lines:
                yield _passages(lines, source.name)
                lines = []
            title = field(record, "title", str, location)
            text = field(record, "text", str, location)
            yield _article(title, text, f"{source.name}:{location.line}")
            continue
        lines.append((location, record))
        if len(lines) == BLOCK:
            yield _passages(lines, source.name)
            lines = []
    if lines:
        yield _passages(lines, source.name)


def _passages(lines: Sequence[tuple[Location, Json]], name: str) -> Block:
    def read() -> list[Evidence]:
        parsed = [parse_evidence(record, at, str(at.line)) for at, record in lines]
        named = [Evidence(f"{name}#{p.id}", p.text, p.source, p.entities) for p in parsed]
        return find_entities(named)

    return read


def _article(title: str, text: str, name: str) -> Block:
    def read() -> list[Evidence]:
        document = Document(title)
        for paragraph in text.split("\n"):
            if paragraph.strip() and paragraph.strip() != title:
                document.sentences(paragraph)
        return _finished(document.passages, name)

    return read


def _wiki_blocks(source: SourceFile) -> Iterator[Block]:
    """Yield one block for each article between ``<doc ...>`` and ``</doc>``."""
    begin: Location | None = None
    title, lines = "", list[str]()
    for location, raw in raw_lines(source.path):
        line = decoded(raw, location)
        opening = _DOC.fullmatch(line)
        if opening is not None and begin is None:
            attributes = dict(_ATTRIBUTE.findall(opening[1]))
            if "title" not in attributes:
                raise location.error("<doc> without a title")
            begin, title, lines = location, html.unescape(attributes["title"]), []
        elif opening is not None:
            raise location.error(f"<doc> inside the <doc> of line {begin and begin.line}")
        elif line.strip() == "</doc>":
            if begin is None:
                raise location.error("</doc> without <doc>")
            yield _article(title, "\n".join(lines), f"{source.name}:{begin.line}")
            begin = None
        elif begin is not None:
            lines.append(line)
        elif line.strip():
            raise location.error("text outside of <doc> and </doc>")
    if begin is not None:
        raise begin.error("<doc> without </doc>")
