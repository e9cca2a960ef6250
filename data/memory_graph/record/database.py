"""Interface of the databases that keep a memory graph's record: SQLite and PostgreSQL.

A statement is written once, in SQLite's SQL and in what both understand: ``?``, ``?1`` and
``:name`` are values, ``json_each(?) k`` is a list of numbers with the column ``k.value``, ``INDEXED
BY`` is for SQLite alone, ``IS ?`` compares NULL too. What cannot be written so is a method here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from turngraph.configs.user_error import UserError

if TYPE_CHECKING:
    import numpy as np

RECOVER = (
    "damaged: restore a backup, or save what is left of it with SQLite's shell from sqlite.org"
    " (`sqlite3 OLD.db .recover | sqlite3 NEW.db`; Debian's has none), then `check --rebuild`"
)
Values = Sequence[Any] | Mapping[str, Any]
Recorded = tuple[str, tuple[Any, ...] | None, tuple[Any, ...] | None]
"""Table, and the row before and after a change; None: there was no such row."""


class Unavailable(UserError):
    """The file, the database or the machine fails, whatever was asked of the memory graph."""


class Damaged(Unavailable):
    """The file was changed by something other than this program."""


class Rows(Protocol):
    """Rows that a statement found."""

    @property
    def rowcount(self) -> int:
        """Number of rows that a statement changed."""

    @property
    def description(self) -> Any:
        """One tuple for each column, which begins with its name."""

    def __iter__(self) -> Iterator[Any]: ...

    def __next__(self) -> Any: ...

    def fetchone(self) -> Any:
        """Return the next row; None after the last."""

    def fetchall(self) -> list[Any]:
        """Return the rows that are left."""

    def fetchmany(self, size: int = 1, /) -> list[Any]:
        """Return the next rows."""


class Words(Protocol):
    """The word indexes: ``fact_words`` by fact key, ``name_words`` by alias id.

    Texts come as ``facts.index_words`` returns them, ranks are BM25 with k1 = 1.2 and b = 0.75.
    """

    def add(self, table: str, rows: Sequence[tuple[int, str]]) -> None:
        """Add the words of rows."""

    def remove(self, table: str, rows: Sequence[tuple[int, str]]) -> None:
        """Remove rows, given the words that they were added with."""

    def clear(self, table: str) -> None:
        """Remove all rows of an index."""

    def prepare(self) -> None:
        """Prepare reading, outside of a transaction."""

    def facts(self, phrase: str) -> np.ndarray:
        """Return the keys of the facts that contain a phrase, int64, in no order."""

    def frequency(self, word: str) -> int:
        """Return the number of facts that contain a word."""

    def counts(self) -> tuple[int, int]:
        """Return the number of facts and of all their words."""

    def best_nodes(self, words: Sequence[str], type: int, limit: int) -> list[tuple[int, float]]:
        """Return theses or episodes with one of some words, best first, and their BM25."""

    def best_names(self, words: Sequence[str], limit: int) -> list[int]:
        """Return the object of each name with one of some words, best first by BM25."""

    def spelled(self, phrase: str, name: str) -> list[tuple[int, int]]:
        """Return id and type of the theses and episodes with the words of a name, spelled so."""

    def is_right(self, table: str) -> bool:
        """Return whether an index has the words of the record, each at its place."""


class Database(Protocol):
    """A connection to a record. One transaction at a time."""

    duplicate: type[Exception]
    """Raised for a row whose key is there already."""
    refused: tuple[type[Exception], ...]
    """Raised for a value that a column cannot keep."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun."""

    @property
    def words(self) -> Words:
        """The word indexes."""

    def close(self) -> None:
        """Close the connection."""

    def execute(self, sql: str, parameters: Values = (), /) -> Rows:
        """Run a statement."""

    def executemany(self, sql: str, parameters: Iterable[Values], /) -> object:
        """Run a statement for each of many values."""

    def scan(self, sql: str, parameters: Values = (), /) -> Rows:
        """Run a query of very many rows, which are read while they are used."""

    def as_json(self, text: str) -> str:
        """Return JSON for a column, unless the database could not read it again.

        Raises:
            Exception: one of ``refused``.
        """

    def rules(self) -> Mapping[str, str]:
        """Return the rules between the rows; see ``integrity.make_rules``."""

    def version(self) -> int:
        """Return the schema version."""

    def last_ids(self) -> dict[str, int]:
        """Return the last id that each table gave."""

    def set_last_ids(self, last: Mapping[str, int]) -> None:
        """Note ids that were given, after rows with ids were written."""

    def reindex(self) -> None:
        """Rebuild the indexes of the tables."""

    def recording(
        self, columns: Mapping[str, Sequence[str]]
    ) -> AbstractContextManager[Callable[[], list[Recorded]]]:
        """Record the changes of rows inside, which the yielded function returns.

        Args:
            columns: what is recorded of each table.
        """
