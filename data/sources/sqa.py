"""Reads SQA (Iyyer et al. 2017) with the Wikipedia pages of its tables as conversations.

The questions' tables are CSV files in plain ASCII, the pages the saved HTML of WikiTableQuestions.
The pool of a conversation is its page. The gold table is found on the page by the number in the
page's JSON file and by its rows. SQA's gold answers are cells: each gets the spelling of its cell
on the page ("Ásmundur", in the CSV "Asmundur"), and that cell's entity id.
"""

from __future__ import annotations

import argparse
import ast
import csv
import hashlib
import io
import itertools
import logging
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing import Pool
from pathlib import Path

from turngraph.configs.progress import progress
from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.cli import CommandParser, run_cli
from turngraph.data.json_fields import Location
from turngraph.data.jsonlines import write_conversations
from turngraph.data.normalise import normalise_value
from turngraph.data.sources.sqa_page import (
    AnswerCell,
    SqaPage,
    SqaPageTask,
    page_file,
    read_sqa_page,
)
from turngraph.data.types import Answer, Conversation, Turn

logger = logging.getLogger(__name__)

FIELDS = (
    "id",
    "annotator",
    "position",
    "question",
    "table_file",
    "answer_coordinates",
    "answer_text",
)
PARTS = ("train", "tune", "dev")
NUM_TABLES = {"tune": 60, "dev": 100}
"""Tables of the parts; all others are train."""


@dataclass(frozen=True, slots=True)
class Question:
    """A line of the questions' file: ``cells`` are its answers as (row, column, text)."""

    location: Location
    conversation: str
    position: int
    question: str
    table: str
    cells: tuple[AnswerCell, ...]


def read_questions(path: str | Path) -> list[Question]:
    """Read the questions of an SQA file, in its order.

    Raises:
        UserError: a line or field is not in SQA's format; the message names file, line and field.
    """
    questions = []
    rows = _read_tsv(path)
    location, header = next(rows, (Location(path), []))
    if tuple(header) != FIELDS:
        raise location.error(f"the first line must name the fields {', '.join(FIELDS)}")
    for location, row in rows:
        if len(row) != len(FIELDS):
            raise location.error(f"has {plural(len(row), 'field')}, not {len(FIELDS)}")
        questions.append(_parse_question(dict(zip(FIELDS, row, strict=True)), location))
    if not questions:
        raise Location(path).error("no question in it")
    return questions


def _read_tsv(path: str | Path) -> Iterator[tuple[Location, list[str]]]:
    if not Path(path).is_file():
        raise UserError(f"{path}: no such file")
    raw = Path(path).read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise Location(path, line).error(
            f"not UTF-8 at byte {error.start + 1} of the file"
        ) from None
    reader = csv.reader(io.StringIO(text, newline=""), delimiter="\t", strict=True)
    location = Location(path, 1)
    try:
        for row in reader:
            yield location, row
            location = Location(path, reader.line_num + 1)
    except csv.Error as error:
        raise location.error(f"not tab-separated: {error}") from None


def _parse_question(row: dict[str, str], location: Location) -> Question:
    for name in ("id", "question", "table_file"):
        if not row[name].strip():
            raise (location / name).error("empty")
    if page_file(row["table_file"]) is None:
        raise (location / "table_file").error(f"{row['table_file']!r} is not like 203_149.csv")
    if not row["position"].isdigit():
        raise (location / "position").error(f"must be a whole number, not {row['position']!r}")
    texts = _parse_list(row["answer_text"], location / "answer_text")
    coordinates = _parse_list(row["answer_coordinates"], location / "answer_coordinates")
    if len(texts) != len(coordinates):
        raise (location / "answer_text").error(
            f"has {plural(len(texts), 'answer')}, but answer_coordinates has {len(coordinates)}"
        )
    cells = zip(coordinates, texts, strict=True)
    return Question(
        location=location,
        conversation=f"{row['id']}_{row['annotator']}",
        position=int(row["position"]),
        question=" ".join(row["question"].split()),
        table=row["table_file"],
        cells=tuple((*_parse_pair(pair, location), text) for pair, text in cells),
    )


def _parse_list(text: str, location: Location) -> list[str]:
    """Parse a list of strings as Python writes it; strings may contain line breaks."""
    try:
        value = ast.literal_eval(text.replace("\r", "").replace("\n", "\\n"))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise location.error(f"not a list of strings: {text[:60]}") from None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise location.error(f"not a list of strings: {text[:60]}")
    return value


def _parse_pair(text: str, location: Location) -> tuple[int, int]:
    parts = text.strip("() ").split(",")
    if len(parts) != 2 or not all(part.strip().lstrip("-").isdigit() for part in parts):
        raise (location / "answer_coordinates").error(f"not a (row, column) pair: {text!r}")
    return int(parts[0]), int(parts[1])


def split_tables(tables: Iterable[str]) -> dict[str, list[str]]:
    """Split tables into the parts train, tune and dev, which share none.

    In the order of the SHA-256 of their names, such as table_csv/200_12.csv, the first 100 are dev,
    the next 60 tune, and the others train.

    Args:
        tables: names of the tables; those of train.tsv give the split that all results have.
    """
    names = sorted(set(tables), key=lambda name: hashlib.sha256(name.encode("utf-8")).digest())
    dev, tune = NUM_TABLES["dev"], NUM_TABLES["dev"] + NUM_TABLES["tune"]
    return {"train": names[tune:], "tune": names[dev:tune], "dev": names[:dev]}


def group_questions(questions: Sequence[Question]) -> dict[str, list[Question]]:
    """Group questions by conversation, each in the order of its positions.

    Raises:
        UserError: a position repeats, or the questions of a conversation have several tables.
    """
    groups: dict[str, list[Question]] = {}
    for question in questions:
        groups.setdefault(question.conversation, []).append(question)
    for id_, group in groups.items():
        group.sort(key=lambda question: question.position)
        for one, other in itertools.pairwise(group):
            if one.position == other.position:
                raise (other.location / "position").error(
                    f"conversation {id_} has position {one.position} twice"
                )
            if one.table != other.table:
                tables = f"{one.table} and {other.table}"
                raise (other.location / "table_file").error(f"conversation {id_} has {tables}")
    return groups


def convert(
    questions: Sequence[Question],
    tables: Path,
    pages: Path,
    workers: int = 1,
) -> tuple[list[Conversation], Counter[str]]:
    """Return the conversations of questions with their pages as pools, and counts for the log.

    Args:
        questions: from ``read_questions``.
        tables: folder of the CSV tables.
        pages: folder of the pages.
        workers: processes that read pages; the result does not depend on it.

    Raises:
        UserError: a folder is missing, or the questions contradict each other.
    """
    for folder in (tables, pages):
        if not folder.is_dir():
            raise UserError(f"{folder}: no such folder")
    groups = group_questions(questions)
    by_table: dict[str, list[Question]] = {}
    for question in questions:
        by_table.setdefault(question.table, []).append(question)
    tasks = [
        SqaPageTask(
            table,
            tables,
            pages,
            tuple({cell: None for question in group for cell in question.cells}),
        )
        for table, group in by_table.items()
    ]
    read = {page.table: page for page in _read_pages(tasks, workers)}
    counts: Counter[str] = Counter()
    for page in read.values():
        counts.update(page.counts)
    conversations = [
        _conversation(id_, group, read[group[0].table], counts) for id_, group in groups.items()
    ]
    return conversations, counts


def _read_pages(tasks: Sequence[SqaPageTask], workers: int) -> Iterator[SqaPage]:
    pages = progress(len(tasks), "pages", "pages")
    with pages as bar, Pool(workers, _log_to_stderr) if workers > 1 else nullcontext() as pool:
        read = pool.imap(read_sqa_page, tasks, chunksize=4) if pool else map(read_sqa_page, tasks)
        for page in read:
            bar.update()
            yield page


def _log_to_stderr() -> None:
    """Add a log handler in a worker that was spawned, not forked."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)


def _conversation(
    id_: str,
    questions: Sequence[Question],
    page: SqaPage,
    counts: Counter[str],
) -> Conversation:
    turns = []
    for question in questions:
        answers = _answers(question, page)
        if not answers:
            counts["questions whose answers are all empty cells"] += 1
        turns.append(Turn(str(question.position), question.question, answers, "table"))
    return Conversation(id_, "sqa", tuple(turns), page.evidence)


def _answers(question: Question, page: SqaPage) -> tuple[Answer, ...]:
    """Return the answers in order, equal ones once (SQA repeats a value for each of its cells)."""
    distinct: dict[str, Answer] = {}
    for answer in (page.answers[cell] for cell in question.cells):
        if answer.label:
            distinct.setdefault(normalise_value(answer.label), answer)
    return tuple(distinct.values())


def log_counts(conversations: Sequence[Conversation], left_out: Counter[str]) -> None:
    """Log what was written, how many single answers the pools hold, and what is missing."""
    pools = {id(c.evidence): c.evidence for c in conversations}
    passages = Counter(passage.source for pool in pools.values() for passage in pool)
    entities = sum(
        len({e.id for passage in pool for e in passage.entities}) for pool in pools.values()
    )
    turns = [turn for c in conversations for turn in c.turns]
    logger.info(
        "%s, %s, %s, %s (%s), %s",
        plural(len(conversations), "conversation"),
        plural(len(turns), "question"),
        plural(len(pools), "page"),
        plural(passages.total(), "passage"),
        ", ".join(f"{count} {source}" for source, count in sorted(passages.items())),
        plural(entities, "entity", "entities"),
    )
    single = [turn for turn in turns if len(turn.answers) == 1]
    named = sum(turn.answers[0].id is not None for turn in single)
    logger.info("entities of their pool: %d of %s", named, plural(len(single), "single answer"))
    for what, count in left_out.items():
        if count:
            logger.info("%s: %d", what, count)


def main(argv: Sequence[str] | None = None) -> None:
    """Convert SQA with its pages to conversations in the project's format."""
    args = _parser().parse_args(argv)
    questions = read_questions(args.questions)
    if args.part is not None:
        tables = set(split_tables(question.table for question in questions)[args.part])
        questions = [question for question in questions if question.table in tables]
        if not questions:
            raise UserError(f"{args.questions}: no question on a table of {args.part}")
    conversations, left_out = convert(questions, args.tables, args.pages, args.workers)
    write_conversations(args.output, conversations)
    log_counts(conversations, left_out)


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="python -m turngraph.data.sources.sqa", description=main.__doc__)
    add = parser.add_argument
    add("--questions", type=Path, required=True, help="train.tsv or another file like it")
    add("--tables", type=Path, required=True, help="folder of the tables (table_csv)")
    add("--pages", type=Path, required=True, help="folder of the saved pages (page)")
    add("--output", type=Path, required=True, help="JSON Lines file to write")
    add(
        "--part",
        choices=PARTS,
        help="part to convert: 100 tables are dev, 60 tune, all others train",
    )
    add("--workers", type=int, default=2, help="processes that read pages (default: 2)")
    return parser


if __name__ == "__main__":
    run_cli(main)
