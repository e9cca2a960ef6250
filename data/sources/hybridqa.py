"""Reads HybridQA and OTT-QA (Chen et al. 2020, 2021) as conversations of one question.

Their questions are about a table of Wikipedia and the first paragraphs of the pages that its cells
link to. The pool of a table, which all its questions share, has its rows and the paragraphs'
sentences. A linked page is an entity, with its name as the id, of the rows that link to it and of
its own sentences. Other cells, and their values in sentences, are entities as on SQA's pages
(``page_entities``), and so are the names, dates and numbers of sentences (``find_entities``).
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from turngraph.configs.progress import track
from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.cli import CommandParser, run_cli
from turngraph.data.entities import find_entities
from turngraph.data.json_fields import Json, Location, decoded, field, parse_json, shown
from turngraph.data.jsonlines import write_conversations
from turngraph.data.linearise import linearise_row, linearise_sentence, split_sentences
from turngraph.data.normalise import normalise_value
from turngraph.data.sources.convmix import iter_records
from turngraph.data.sources.page_entities import (
    PageNames,
    Passage,
    resolve_entities,
    strip_disambiguation,
)
from turngraph.data.sources.sqa import log_counts
from turngraph.data.sources.table_grid import is_value
from turngraph.data.types import Answer, Conversation, Evidence, Turn

logger = logging.getLogger(__name__)

PARTS = ("train", "tune", "dev", "test")
ENDS = {"test": 160, "dev": 310, "tune": 360}
"""Upper ends of the parts, by the number of a page in ``part_of``; all others are train."""
WIKI = "/wiki/"
SOURCES = {"table": "table", "passage": "text"}
"""Where an answer was found, in HybridQA's words and in ours."""
_BEFORE = re.compile(r" +([.,;!?%)\]}]|n't\b|'(?:s|re|ve|ll|m|d)\b|'(?= |$))")
_AFTER = re.compile(r"([(\[{$£€]) +")
_QUOTED = re.compile(r"(?:\"|``) ([^\"`]*?) (?:\"|'')")


def undo_tokenisation(text: str) -> str:
    """Remove the spaces that tokenisation put beside marks: "Al 's ( 2nd ) ." -> "Al's (2nd).".

    Quotation marks are paired in their order.
    """
    return _AFTER.sub(r"\1", _BEFORE.sub(r"\1", _QUOTED.sub(r'"\1"', " ".join(text.split()))))


def page_name(link: str) -> str:
    """Return the name of a link's page: "/wiki/Oslo_(film)" -> "Oslo (film)"."""
    return link.removeprefix(WIKI).replace("_", " ").strip()


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table: its text, and the names of the pages that it links to."""

    text: str
    pages: tuple[str, ...]

    def links(self) -> list[tuple[str, str]]:
        """Return (anchor text, page) pairs; with several links, the page's name is the anchor."""
        if len(self.pages) == 1 and self.text:
            return [(self.text, self.pages[0])]
        return [(strip_disambiguation(page), page) for page in self.pages]


@dataclass(frozen=True, slots=True)
class TablePool:
    """The pool of a table, with the names of its entities."""

    evidence: tuple[Evidence, ...]
    names: PageNames
    known: frozenset[str]


def read_pool(table: Path, links: Path) -> TablePool:
    """Read a table and the paragraphs that its cells link to as a pool.

    Args:
        table: its JSON file, with the fields ``title``, ``section_title``, ``header`` and ``data``.
        links: JSON file that has a text for each link; a link without one is an entity of rows.

    Raises:
        UserError: a file is missing, or a field is wrong; the message names file and field.
    """
    record, location = _read(table), Location(table)
    title = undo_tokenisation(field(record, "title", str, location))
    section = undo_tokenisation(field(record, "section_title", str, location, "")) or None
    headers = [cell.text for cell in _row(record.get("header"), location / "header")]
    passages = []
    for index, value in enumerate(field(record, "data", list, location)):
        at = location / "data" / index
        cells = _row(value, at)
        if len(cells) != len(headers):
            raise at.error(f"has {plural(len(cells), 'cell')}, but the header has {len(headers)}")
        texts = [cell.text for cell in cells]
        passages.append(
            Passage(
                f"row {index + 1}",
                linearise_row(title, headers, texts, section),
                "table",
                [link for cell in cells for link in cell.links()],
                [text for text in texts if is_value(text)],
            )
        )
    of_pages, at = _read(links), Location(links)
    for link in of_pages:
        name = page_name(link)
        text = undo_tokenisation(field(of_pages, link, str, at))
        passages += [
            Passage(
                f"{name}, {number}",
                linearise_sentence(name, sentence),
                "text",
                [(strip_disambiguation(name), name), (name, name)],
            )
            for number, sentence in enumerate(split_sentences(text), 1)
        ]
    evidence, names = resolve_entities(title, passages)
    # the table's page would link every sentence with every row
    linked = [
        replace(one, entities=tuple(e for e in one.entities if e.id != title or title in one.text))
        for one in evidence
    ]
    named = find_entities(linked, extend=True)
    pool = [old if old.source == "table" else new for old, new in zip(linked, named, strict=True)]
    known = frozenset(entity.id for passage in pool for entity in passage.entities)
    return TablePool(tuple(pool), names, known)


def _read(path: Path) -> Json:
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    location = Location(path)
    value = parse_json(decoded(path.read_bytes(), location), location)
    if not isinstance(value, dict):
        raise location.error(f"must be an object, not {shown(value)}")
    return value


def _row(value: Any, location: Location) -> list[Cell]:
    """Parse cells, each a list of its text and its links."""
    if not isinstance(value, list):
        raise location.error(f"must be a list of cells, not {shown(value)}")
    return [_cell(cell, location / index) for index, cell in enumerate(value)]


def _cell(value: Any, location: Location) -> Cell:
    match value:
        case [str(text), list(links)] if all(isinstance(link, str) for link in links):
            pages = dict.fromkeys(page_name(link) for link in links)
            return Cell(undo_tokenisation(text), tuple(filter(None, pages)))
    raise location.error(f"must be a text and a list of links, not {shown(value)}")


def part_of(table: str) -> str:
    """Return the part of a table, "train", "tune", "dev" or "test": that of its page.

    The first four bytes of the SHA-256 of "turngraph" and the page's name, a number modulo 1000,
    decide the part (``ENDS``). Results are of train, tune and dev; none is of test.

    Args:
        table: its id: the page's name with underscores, and the table's number on the page.
    """
    page = "turngraph" + table.rpartition("_")[0]
    number = int.from_bytes(hashlib.sha256(page.encode("utf-8")).digest()[:4]) % 1000
    return next((part for part, end in ENDS.items() if number < end), "train")


def convert(
    questions: Mapping[str, Path],
    tables: Path,
    links: Path,
    part: str | None = None,
    skip_missing: bool = False,
) -> tuple[list[Conversation], int]:
    """Convert the questions of files, each to a conversation, in their order.

    Args:
        questions: JSON list, or JSON Lines, of the questions of each benchmark; a question's field
            ``benchmark`` goes before its name here.
        tables: folder of the tables, ``ID.json`` each.
        links: folder of the linked paragraphs, ``ID.json`` each.
        part: part whose questions are returned, see ``part_of``; None: all.
        skip_missing: leave out questions on tables that ``tables`` lacks.

    Returns:
        The conversations, and how many questions of the part were left out.

    Raises:
        UserError: a file is missing, or a field is wrong; the message names file and field.
    """
    for folder in (tables, links):
        if not folder.is_dir():
            raise UserError(f"{folder}: no such folder")
    records = []
    for benchmark, path in questions.items():
        of_file = [(at, {"benchmark": benchmark} | record) for at, record in iter_records(path)]
        if not of_file:
            raise Location(path).error("no question in it")
        records += of_file
    pools: dict[str, TablePool] = {}
    conversations, num_skipped = [], 0
    for location, record in track(records, "questions", "questions"):
        table = field(record, "table_id", str, location)
        if Path(table).name != table:
            raise (location / "table_id").error(f"not the name of a table: {shown(table)}")
        if part is not None and part_of(table) != part:
            continue
        if table not in pools:
            name = f"{table}.json"
            if skip_missing and not (tables / name).is_file():
                num_skipped += 1
                continue
            if not (tables / name).is_file():
                raise (location / "table_id").error(f"no such table: {tables / name}")
            pools[table] = read_pool(tables / name, links / name)
        conversations.append(_conversation(record, location, pools[table]))
    if not conversations:
        names = ", ".join(map(str, questions.values()))
        raise UserError(f"{names}: no question on a table of {part or tables}")
    return conversations, num_skipped


def _conversation(record: Json, location: Location, pool: TablePool) -> Conversation:
    benchmark = field(record, "benchmark", str, location)
    id_ = f"{benchmark}-{field(record, 'question_id', str, location)}"
    question = undo_tokenisation(field(record, "question", str, location))
    if not question:
        raise (location / "question").error("empty")
    label = undo_tokenisation(field(record, "answer-text", str, location, ""))
    listed = field(record, "answer-node", list, location, [])
    places = [_node(node, location / "answer-node" / i) for i, node in enumerate(listed)]
    kinds = [kind for _, _, kind in places]
    kind = "table" if "table" in kinds else next(iter(kinds), None)
    answers = (Answer(label, _answer_id(label, places, pool)),) if label else ()
    turn = Turn("0", question, answers, SOURCES[kind] if kind else None)
    return Conversation(id_, benchmark, (turn,), pool.evidence)


Node = tuple[str, str | None, str]
"""Where an answer was found: the cell's text, the link whose paragraphs have it, and the kind."""


def _node(value: Any, location: Location) -> Node:
    match value:
        case [str(name), _, (str() | None) as link, str(kind)] if kind in SOURCES:
            return undo_tokenisation(name), link, kind
    raise location.error(f"must be [name, cell, link, table or passage], not {shown(value)}")


def _answer_id(label: str, places: Sequence[Node], pool: TablePool) -> str | None:
    """Return the entity of the pool that an answer names: of a link or a cell, or found in text."""
    norm = normalise_value(label)
    ids = [page_name(link) for name, link, _ in places if link and normalise_value(name) == norm]
    ids += [pool.names.value_id(label), norm]
    return next((id_ for id_ in ids if id_ in pool.known), None)


def main(argv: Sequence[str] | None = None) -> None:
    """Convert HybridQA, and OTT-QA if given, to conversations in the project's format."""
    args = _parser().parse_args(argv)
    given = {"hybridqa": args.questions, "ottqa": args.ottqa_questions}
    questions = {name: path for name, path in given.items() if path is not None}
    conversations, num_skipped = convert(
        questions, args.tables, args.links, args.part, args.skip_missing_tables
    )
    write_conversations(args.output, conversations)
    log_counts(conversations, Counter({f"questions on tables not in {args.tables}": num_skipped}))


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="python -m turngraph.data.sources.hybridqa", description=main.__doc__
    )
    add = parser.add_argument
    add("--questions", type=Path, required=True, help="questions of HybridQA: dev.traced.json")
    add("--ottqa_questions", type=Path, help="questions of OTT-QA, which follow those of HybridQA")
    add("--tables", type=Path, required=True, help="folder of the tables (tables_tok)")
    add("--links", type=Path, required=True, help="folder of the linked texts (request_tok)")
    add("--output", type=Path, required=True, help="JSON Lines file to write")
    add(
        "--part",
        choices=PARTS,
        help="part to convert: of the pages 64 %% are train, 5 %% tune, 15 %% dev, 16 %% test",
    )
    add(
        "--skip_missing_tables",
        action="store_true",
        help="leave out questions on tables that --tables lacks",
    )
    return parser


if __name__ == "__main__":
    run_cli(main)
