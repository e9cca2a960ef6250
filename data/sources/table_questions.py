"""Makes questions from the rows of tables, as training data beside people's questions.

The questions ask for a cell of a row that another cell names, the row with the most of something,
the row after another, and so on. Models of tables gain from such synthetic statements (Eisenschlos
et al. 2020, "Understanding tables with intermediate pre-training"). The result is a file of short
conversations over the pools of the input; no question or answer of the input is used.
"""

from __future__ import annotations

import logging
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.cli import CommandParser, run_cli
from turngraph.data.jsonlines import read_conversations, write_conversations
from turngraph.data.table_structure import cells_of, lead_of
from turngraph.data.types import Answer, Conversation, Entity, Evidence, Turn

logger = logging.getLogger(__name__)

LEAST_ROWS = 4
MOST_IN_LIST = 12
COMMON = 0.8
"""Fraction of the rows that must have a column, and whose cells must differ in a key column."""
OPENS_WITH_LIST = 0.7
MOST_ROUNDS = 200
_NUMBER = re.compile(r"[$£€]?\s*([-−+]?\d[\d,]*(?:\.\d+)?)\D*")

WORDS: dict[str, tuple[str, ...]] = {
    "list": (
        "what are the {key}s?",
        "which {key}s are listed?",
        "what are all of the {key}s?",
        "who are the {key}s?",
        "list the {key}s.",
        "what were the {key}s?",
    ),
    "which": (
        "which of these has {cell} as {column}?",
        "of these, which one has {column} {cell}?",
        "which {key} has a {column} of {cell}?",
        "of those, who has {cell}?",
        "which {key} had {column} {cell}?",
        "which one was {cell}?",
        "which {key} is {cell}?",
        "of these {key}s, which is {cell}?",
        "and which had {cell}?",
        "what {key} was {cell}?",
        "who was {cell}?",
    ),
    "cell": (
        "what is the {column} of {name}?",
        "what was the {column} for {name}?",
        "what {column} did {name} have?",
        "how many {column} did {name} have?",
        "what about {name}?",
        "and for {name}?",
        "what is {name}'s {column}?",
        "for {name}, what is the {column}?",
    ),
    "its": (
        "what is its {column}?",
        "what was the {column}?",
        "what {column} was it?",
        "and what is the {column}?",
        "what about the {column}?",
        "how many {column}?",
        "which {column} was that?",
        "what {column} did they have?",
    ),
    "most": (
        "which of these has the most {column}?",
        "which has the highest {column}?",
        "who had the largest {column}?",
        "of these, which {key} has the highest {column}?",
        "which {key} had the greatest {column}?",
        "and which had the most {column}?",
    ),
    "least": (
        "which of these has the least {column}?",
        "which has the lowest {column}?",
        "who had the fewest {column}?",
        "of these, which {key} has the smallest {column}?",
        "which {key} had the lowest {column}?",
    ),
    "more": (
        "between {name} and {other}, which has the higher {column}?",
        "which of {name} and {other} had more {column}?",
        "of {name} and {other}, who has the greater {column}?",
    ),
    "less": (
        "between {name} and {other}, which has the lower {column}?",
        "which of {name} and {other} had less {column}?",
        "of {name} and {other}, who has fewer {column}?",
    ),
    "same": (
        "which other {key} has the same {column}?",
        "what other {key} had that {column}?",
        "who else had {cell}?",
        "which other one has {cell} as {column}?",
        "besides {name}, which {key} has {cell}?",
    ),
    "next": (
        "which {key} comes after {name}?",
        "who is listed after {name}?",
        "what {key} is next after {name}?",
    ),
    "before": (
        "which {key} comes before {name}?",
        "who is listed right before {name}?",
        "what {key} is above {name}?",
    ),
}
"""Templates of each kind of question: with the headers of key and another column, and cells."""
SHARES = {"which": 5, "cell": 3, "its": 3, "most": 3, "least": 3, "more": 1, "less": 1}
SHARES |= {"same": 2, "next": 1, "before": 1}
"""Relative frequency of each kind."""


@dataclass(frozen=True)
class Row:
    """A row: its cells by header, and entities by cell text."""

    cells: dict[str, str]
    entities: dict[str, Entity]

    def number(self, column: str) -> float | None:
        """Return the number at the start of a cell; None if others follow, as in a date."""
        found = _NUMBER.fullmatch(self.cells.get(column, "").strip())
        return float(found[1].replace(",", "").replace("−", "-")) if found else None

    def entity(self, column: str) -> Entity | None:
        """Return the entity of a cell; None if it has none, and so cannot be an answer."""
        return self.entities.get(self.cells.get(column, ""))


def tables_of(pool: Sequence[Evidence]) -> list[list[Row]]:
    """Return the tables of a pool with enough rows: adjacent rows of one title, similar headers."""
    tables: list[list[Row]] = []
    lead, headers = "", set[str]()
    for passage in pool:
        cells = {cell.header: passage.text[cell.cell : cell.end] for cell in cells_of(passage)}
        if not cells:
            lead = ""
            continue
        if lead_of(passage) != lead or 2 * len(cells.keys() & headers) < len(cells):
            tables.append([])
            lead, headers = lead_of(passage), set()
        headers |= cells.keys()
        tables[-1].append(Row(cells, {entity.label: entity for entity in passage.entities}))
    return [rows for rows in tables if len(rows) >= LEAST_ROWS]


@dataclass
class Talk:
    """A conversation about one table under construction.

    Args:
        rng: random generator.
        rows: rows of the table, in order.
        key: the header of the key column, which names rows.
        columns: the other headers.
        named: the rows whose key is unique.
        row: the row of the last answer.
        turns: questions with their answers.
        kinds: kinds of the turns.
    """

    rng: random.Random
    rows: list[Row]
    key: str
    columns: list[str]
    named: list[Row]
    row: Row
    turns: list[tuple[str, list[Entity]]] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)

    @classmethod
    def begin(cls, rng: random.Random, rows: list[Row]) -> Talk | None:
        """Begin a conversation about a table; None if no column names its rows."""
        heads = Counter(header for row in rows for header in row.cells)
        columns = [header for header, num in heads.items() if num >= COMMON * len(rows)]
        different = {h: len({row.cells.get(h) for row in rows}) for h in columns}
        keys = [h for h in columns if different[h] >= COMMON * len(rows)]
        words = [h for h in keys if 2 * sum(r.number(h) is None for r in rows) > len(rows)] or keys
        if not keys or len(columns) < 2:
            return None
        draw = rng.random()
        key = words[0] if draw < 0.6 else rng.choice(words if draw < 0.9 else keys)
        times = Counter(row.cells.get(key) for row in rows)
        named = [row for row in rows if row.entity(key) and times[row.cells[key]] == 1]
        if len(named) < LEAST_ROWS - 1:
            return None
        others = [header for header in columns if header != key]
        return cls(rng, rows, key, others, named, rng.choice(named))

    def ask(self, kind: str, column: str) -> None:
        """Add a question of a kind about a column, if the table has an answer."""
        words = {"key": self.key, "column": column, "name": self.row.cells[self.key]}
        found = KINDS[kind](self, column, words)
        if found is None:
            return
        row, header = found
        if (answer := row.entity(header)) is not None:
            self.row = row
            self._say(kind, words, [answer])

    def ask_for_all(self) -> None:
        """Add a question for the names of all rows."""
        named = [entity for row in self.named if (entity := row.entity(self.key))]
        self._say("list", {"key": self.key}, named[:MOST_IN_LIST])

    def _say(self, kind: str, words: dict[str, str], answers: list[Entity]) -> None:
        question = self.rng.choice(WORDS[kind]).format(**words)
        self.turns.append((question.lower() if self.rng.random() < 0.9 else question, answers))
        self.kinds.append(kind)

    def numbers(self, column: str) -> list[tuple[float, Row]]:
        """Return the rows that have a number in a column, with the number."""
        found = ((row.number(column), row) for row in self.rows)
        return [(number, row) for number, row in found if number is not None]

    @property
    def follows(self) -> bool:
        """Whether the last question was about a row."""
        return bool(self.kinds) and self.kinds[-1] != "list"


Found = tuple[Row, str] | None
"""Row and header of an answer; None if the table has no such question."""


def _which(talk: Talk, column: str, words: dict[str, str]) -> Found:
    times = Counter(row.cells.get(column) for row in talk.rows)
    rows = [row for row in talk.named if column in row.cells and times[row.cells[column]] == 1]
    if not rows:
        return None
    row = talk.rng.choice(rows)
    words["cell"] = row.cells[column]
    return row, talk.key


def _cell(talk: Talk, column: str, words: dict[str, str]) -> Found:
    row = talk.rng.choice(talk.named)
    words["name"] = row.cells[talk.key]
    return row, column


def _its(talk: Talk, column: str, words: dict[str, str]) -> Found:
    return (talk.row, column) if talk.follows else None


def _extreme(talk: Talk, column: str, sign: int) -> Found:
    numbers = sorted(talk.numbers(column), key=lambda pair: -sign * pair[0])
    if len(numbers) < COMMON * len(talk.rows) or numbers[0][0] == numbers[1][0]:
        return None
    if numbers[0][1] not in talk.named:
        return None
    return numbers[0][1], talk.key


def _compared(talk: Talk, column: str, words: dict[str, str], sign: int) -> Found:
    numbers = [pair for pair in talk.numbers(column) if pair[1] in talk.named]
    if len(numbers) < 2:
        return None
    two = talk.rng.sample(numbers, 2)
    (first, row), (second, other) = two
    words |= {"name": row.cells[talk.key], "other": other.cells[talk.key]}
    if first == second:
        return None
    return (row if sign * first > sign * second else other), talk.key


def _same(talk: Talk, column: str, words: dict[str, str]) -> Found:
    cell = talk.row.cells.get(column)
    others = [row for row in talk.rows if row.cells.get(column) == cell and row is not talk.row]
    if not talk.follows or cell is None or len(others) != 1 or others[0] not in talk.named:
        return None
    words["cell"] = cell
    return others[0], talk.key


def _beside(talk: Talk, step: int) -> Found:
    index = talk.rows.index(talk.row) + step
    if not 0 <= index < len(talk.rows) or talk.rows[index] not in talk.named:
        return None
    return talk.rows[index], talk.key


KINDS: dict[str, Callable[[Talk, str, dict[str, str]], Found]] = {
    "which": _which,
    "cell": _cell,
    "its": _its,
    "most": lambda talk, column, words: _extreme(talk, column, 1),
    "least": lambda talk, column, words: _extreme(talk, column, -1),
    "more": lambda talk, column, words: _compared(talk, column, words, 1),
    "less": lambda talk, column, words: _compared(talk, column, words, -1),
    "same": _same,
    "next": lambda talk, column, words: _beside(talk, 1),
    "before": lambda talk, column, words: _beside(talk, -1),
}
"""Function of each kind that finds the answer and adds words to the template."""


def make_conversations(
    pools: Sequence[tuple[Evidence, ...]], num_questions: int, seed: int = 0
) -> list[Conversation]:
    """Return conversations about the tables of evidence pools, equally many from each.

    Args:
        pools: evidence pools.
        num_questions: number of questions with a single answer; up to three more may be made.
        seed: random seed.

    Raises:
        UserError: there is no table, or there are too few for this many questions.
    """
    rng = random.Random(f"questions of tables {seed}")
    tables = [found for pool in pools if (found := (pool, tables_of(pool)))[1]]
    made: list[Conversation] = []
    kinds: Counter[str] = Counter()
    for round_ in count() if tables else ():
        for number, (pool, of_pool) in enumerate(tables):
            rows = rng.choices(of_pool, [len(rows) for rows in of_pool])[0]
            talk = _talk(rng, rows)
            if talk is None or set(talk.kinds) <= {"list"}:
                continue
            made.append(_conversation(f"made-{number}-{round_}", talk, pool))
            kinds.update(talk.kinds)
            if kinds.total() - kinds["list"] >= num_questions:
                num = plural(len(made), "conversation")
                logger.info("%s: %s", num, dict(kinds.most_common()))
                return made
        if round_ >= MOST_ROUNDS:
            break
    made_up = kinds.total() - kinds["list"]
    raise UserError(f"data.table_questions: {made_up} can be made, not {num_questions}")


def questions_from_tables(
    conversations: Sequence[Conversation], num: int, seed: int
) -> list[Conversation]:
    """Make conversations from the pools of others."""
    pools = {id(c.evidence): c.evidence for c in conversations}
    return make_conversations(list(pools.values()), num, seed)


def _talk(rng: random.Random, rows: list[Row]) -> Talk | None:
    """Return a conversation of up to four turns about a table."""
    talk = Talk.begin(rng, rows)
    if talk is None:
        return None
    if rng.random() < OPENS_WITH_LIST:
        talk.ask_for_all()
    for _ in range(rng.choice((2, 3))):
        kind = rng.choices(list(SHARES), list(SHARES.values()))[0]
        talk.ask(kind, rng.choice(talk.columns))
    return talk


def _conversation(id_: str, talk: Talk, pool: tuple[Evidence, ...]) -> Conversation:
    turns = tuple(
        Turn(str(number), question, tuple(Answer(e.label, e.id) for e in answers), "table")
        for number, (question, answers) in enumerate(talk.turns)
    )
    return Conversation(id_, "tables", turns, pool)


def main(argv: Sequence[str] | None = None) -> None:
    """Make questions from the tables of a file of conversations."""
    parser = CommandParser(
        prog="python -m turngraph.data.sources.table_questions", description=main.__doc__
    )
    parser.add_argument("--input", required=True, help="conversations, JSON Lines: their pools")
    parser.add_argument("--output", required=True, help="JSON Lines file to write")
    parser.add_argument("--num_questions", type=int, default=8000, help="with a single answer")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    if Path(args.input).resolve() == Path(args.output).resolve():
        raise UserError(f"--output: {args.output} is also the input")
    conversations = read_conversations(args.input)
    try:
        made = questions_from_tables(conversations, args.num_questions, args.seed)
    except UserError as error:
        raise UserError(f"{args.input}: {error}") from None
    write_conversations(args.output, made)


if __name__ == "__main__":
    run_cli(main)
