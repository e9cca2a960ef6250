"""Reads one page of SQA: the saved page, its gold table, and the ids of the answers on it."""

from __future__ import annotations

import csv
import io
import json
import logging
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from turngraph.configs.extras import extra
from turngraph.data.linearise import linearise_row
from turngraph.data.normalise import fold
from turngraph.data.sources.page_entities import Passage
from turngraph.data.sources.table_grid import is_value
from turngraph.data.types import Answer, Evidence

if TYPE_CHECKING:  # these need an extra
    from turngraph.data.sources.wikipage import Page, PageTable, RawPage


logger = logging.getLogger(__name__)

MIN_SHARED_CELLS = 0.5
_TABLE_FILE = re.compile(r"(\w+)_(\w+)\.csv")
# The CSV files are ASCII: letters that are not a base letter with an accent are spelled out.
_ASCII = {"ø": "o", "ł": "l", "đ": "d", "æ": "ae", "œ": "oe", "ð": "d", "þ": "th", "ı": "i"}
_ASCII |= {"°": "deg", "£": "ps", "€": "eur", "×": "x"}
_TO_ASCII = str.maketrans(_ASCII)
_NOT_ALPHANUMERIC = re.compile(r"[^a-z0-9]+")

AnswerCell = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class SqaPageTask:
    """Paths and names needed to read one table.

    Args:
        table: its name in the questions: "table_csv/203_149.csv".
        tables: folder of the CSV files.
        pages: folder of the pages.
        cells: the answers whose ids are wanted, as (row, column, text).
    """

    table: str
    tables: Path
    pages: Path
    cells: tuple[AnswerCell, ...]


@dataclass(slots=True)
class SqaPage:
    """The pool of one page.

    Args:
        table: name of the gold table, as in ``SqaPageTask``.
        evidence: the pool.
        answers: each answer in the page's spelling, with its entity id if the pool names it.
        counts: numbers of unreadable, missing or replaced parts, by kind.
    """

    table: str
    evidence: tuple[Evidence, ...] = ()
    answers: dict[AnswerCell, Answer] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)


def page_file(table: str) -> str | None:
    """Return a table's page without its suffix: "203_149.csv" -> "203-page/149"; else None."""
    match = _TABLE_FILE.fullmatch(Path(table).name)
    return f"{match[1]}-page/{match[2]}" if match else None


def read_sqa_page(task: SqaPageTask) -> SqaPage:
    """Return the pool of a page and the ids of its answers; log and count what is unreadable."""
    pool = SqaPage(task.table)
    rows = _read_csv(task, pool)
    raw, table_index = _read_raw(task, pool)
    table = _find_gold(raw, table_index, rows)
    gold = _GoldCells(rows[1:], table)
    if table is not None:
        _report_missing_rows(rows, gold, pool)
    else:
        _add_csv_rows(raw, rows, pool)
    with extra("documents", "SQA's pages need"):
        from turngraph.data.sources.wikipage import finish_page
    page = finish_page(raw)
    pool.evidence = tuple(page.evidence)
    pool.counts["tables, rows or spans that could not be read"] += len(page.problems)
    pool.counts.update(page.left_out)
    _find_answers(task, pool, page, gold)
    return pool


def _report_missing_rows(rows: Sequence[Sequence[str]], gold: _GoldCells, pool: SqaPage) -> None:
    for index, row in enumerate(rows[1:]):
        if index not in gold.rows and any(map(ascii_key, row)):
            logger.warning("%s: row %d is not in the page's table", pool.table, index + 1)
            pool.counts["rows of gold tables that their page lacks"] += 1


def _read_csv(task: SqaPageTask, pool: SqaPage) -> list[list[str]]:
    path = task.tables / Path(task.table).name
    try:
        text = path.read_text(encoding="utf-8")
        reader = csv.reader(io.StringIO(text, newline=""), doublequote=False, escapechar="\\")
        return list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        logger.warning("%s: cannot be read: %s", path, error)
        pool.counts["CSV tables that could not be read"] += 1
        return []


def _read_raw(task: SqaPageTask, pool: SqaPage) -> tuple[RawPage, int | None]:
    """Return the page, empty if it cannot be read, and the number of its gold table."""
    with extra("documents", "SQA's pages need"):
        from turngraph.data.sources.wikipage import RawPage, parse_page
    path = task.pages / f"{page_file(task.table)}.html"
    title, table_index = Path(task.table).stem, None
    try:
        about = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        title, table_index = str(about["title"]), about.get("tableIndex")
        html = path.read_text(encoding="utf-8")
        return parse_page(html, title, str(path)), table_index
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        logger.warning("%s: cannot be read: %r", path, error)
        pool.counts["pages that could not be read"] += 1
        return RawPage(title, str(path)), table_index


def _add_csv_rows(raw: RawPage, rows: Sequence[Sequence[str]], pool: SqaPage) -> None:
    """Add the gold table from its CSV file if the page does not have it."""
    logger.warning("%s: the page has no table like it; its CSV rows are taken", pool.table)
    pool.counts["gold tables taken from their CSV file"] += 1
    headers = [" ".join(text.split()) for text in rows[0]] if rows else []
    for index, row in enumerate(rows[1:]):
        cells = [" ".join(text.split()) for text in row]
        if len(cells) != len(headers):
            logger.warning(
                "%s: row %d has more or fewer cells than the header", pool.table, index + 1
            )
            pool.counts["CSV rows that could not be read"] += 1
            continue
        text = linearise_row(raw.title, headers, cells)
        values = list(filter(is_value, cells))
        raw.passages.append(Passage(f"csvr{index + 1}", text, "table", [], values))


def ascii_key(text: str) -> str:
    """Return the letters and digits of a text in ASCII, to compare cells of CSV and page."""
    return _NOT_ALPHANUMERIC.sub("", fold(text).translate(_TO_ASCII))


def _find_gold(
    raw: RawPage, table_index: int | None, rows: Sequence[Sequence[str]]
) -> PageTable | None:
    """Return the table with the given number if it has the CSV's rows, else the most similar."""
    numbered = []
    if table_index is not None:
        numbered = [table for table in raw.tables if table.wikitable == table_index]
    if not rows:
        return numbered[0] if numbered else None
    for candidates in (numbered, raw.tables):
        shares = [len(align_rows(rows, table.grid)) / len(rows) for table in candidates]
        if shares and max(shares) >= MIN_SHARED_CELLS:
            return candidates[shares.index(max(shares))]
    return None


def align_rows(rows: Sequence[Sequence[str]], grid: Sequence[Sequence[str]]) -> dict[int, int]:
    """Map each CSV row to the grid row with the same cells, or with at least half of them.

    Equal rows are matched in order.
    """
    keys = [frozenset(map(ascii_key, line)) - {""} for line in grid]
    same: dict[frozenset[str], list[int]] = {}
    for index, key in enumerate(keys):
        same.setdefault(key, []).append(index)
    aligned = {}
    for index, row in enumerate(rows):
        cells = frozenset(map(ascii_key, row)) - {""}
        if not cells:
            continue
        if places := same.get(cells):
            aligned[index] = places.pop(0) if len(places) > 1 else places[0]
            continue
        shared = [len(key & cells) for key in keys]
        best = max(shared, default=0)
        if best >= MIN_SHARED_CELLS * len(cells):
            aligned[index] = shared.index(best)
    return aligned


def align_columns(
    rows: Sequence[Sequence[str]], grid: Sequence[Sequence[str]], aligned: dict[int, int]
) -> dict[int, int]:
    """Map each CSV column to the grid column with the same text in most rows, and at least half.

    A column whose text is lost in ASCII ("東京" became "Dong Jing") is found by its neighbours.
    """
    votes: dict[int, Counter[int]] = {}
    for row, line in aligned.items():
        keys = [ascii_key(slot) for slot in grid[line]]
        for column, text in enumerate(rows[row]):
            counter = votes.setdefault(column, Counter())
            counter.update(i for i, key in enumerate(keys) if key == ascii_key(text))
    columns: dict[int, int] = {}
    for column, counter in votes.items():
        for slot, count in counter.most_common(1):
            if 2 * count >= len(aligned):
                columns[column] = slot
    width = max(map(len, grid), default=0)
    for column in set(votes) - set(columns):
        left = columns.get(column - 1, -1 if column == 0 else None)
        right = columns.get(column + 1, width if column + 1 == len(votes) else None)
        if left is not None and right == left + 2:
            columns[column] = left + 1
    return columns


class _GoldCells:
    """Cells of the gold table on the page, by row and column of the CSV table."""

    def __init__(self, rows: Sequence[Sequence[str]], gold: PageTable | None) -> None:
        self.grid = gold.grid if gold else []
        self.rows = align_rows(rows, self.grid)
        self.columns = align_columns(rows, self.grid, self.rows)

    def text(self, row: int, column: int, text: str) -> str:
        """Return the page's spelling of a CSV cell; the CSV's if the page's cell is unknown."""
        if row not in self.rows:
            return text
        line, key = self.grid[self.rows[row]], ascii_key(text)
        offset = self.columns.get(column)
        there = line[offset] if offset is not None else ""
        if key and ascii_key(there) != key:
            there = next((slot for slot in line if ascii_key(slot) == key), there)
        spelled_otherwise = any(char.isalnum() and not char.isascii() for char in there)
        return there if spelled_otherwise or (key and ascii_key(there) == key) else text


def _find_answers(task: SqaPageTask, pool: SqaPage, page: Page, gold: _GoldCells) -> None:
    """Set the answers, with the ids of those that the pool names."""
    entity_ids = {entity.id for passage in pool.evidence for entity in passage.entities}
    for cell in task.cells:
        label = " ".join(gold.text(*cell).split())
        ids = [page.names.value_id(text) for text in (label, cell[2]) if is_value(text)]
        id_ = next((id_ for id_ in ids if id_ in entity_ids), None)
        pool.answers[cell] = Answer(label, id_)
