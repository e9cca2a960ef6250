"""Interface of the databases that keep a memory graph's record: SQLite and PostgreSQL.

Every statement is written once, in the part of SQLite's SQL that ``postgres_sql`` can translate:
``?``, ``?1`` and ``:name`` are parameters, ``json_each(?) k`` is a list of numbers with the column
``k.value``, ``IS ?`` also compares NULL, and ``INDEXED BY`` is left out. Operations that differ
between the databases are methods of ``Database``.
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
"""Table, row before a change, and row after it; None: the row did not or does not exist."""


class Unavailable(UserError):
    """The file, the database server or the machine fails; the request itself is valid."""


class Damaged(Unavailable):
    """The file was changed by something other than this program."""


class Rows(Protocol):
    """Result of a statement."""

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

    Texts are given in the form of ``facts.index_words``; ranking is by BM25 with k1 = 1.2 and b =
    0.75.
    """

    def add(self, table: str, rows: Sequence[tuple[int, str]]) -> None:
        """Add the words of rows."""

    def remove(self, table: str, rows: Sequence[tuple[int, str]]) -> None:
        """Remove rows; each needs the same words with which it was added."""

    def clear(self, table: str) -> None:
        """Remove all rows of an index."""

    def prepare(self) -> None:
        """Prepare reading, outside of a transaction."""

    def facts(self, phrase: str) -> np.ndarray:
        """Return the keys of the facts that contain a phrase, int64, in no order."""

    def frequency(self, word: str) -> int:
        """Return the number of facts that contain a word."""

    def counts(self) -> tuple[int, int]:
        """Return the number of facts, and the number of words in all facts together."""

    def best_nodes(self, words: Sequence[str], type: int, limit: int) -> list[tuple[int, float]]:
        """Return nodes of a type that contain any of the words, best first, with their BM25."""

    def best_names(self, words: Sequence[str], limit: int) -> list[int]:
        """Return the objects of names that contain any of the words, best first by BM25."""

    def spelled(self, phrase: str, name: str) -> list[tuple[int, int]]:
        """Return id and type of the theses and episodes that contain a name in this spelling."""

    def is_right(self, table: str) -> bool:
        """Return whether an index agrees with the texts of the record."""


class Database(Protocol):
    """A connection to a record, with at most one transaction at a time."""

    duplicate: type[Exception]
    """Exception for a row whose key exists already."""
    refused: tuple[type[Exception], ...]
    """Exceptions for a value that a column cannot store."""

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
        """Run a query whose many rows are streamed instead of being read at once."""

    def as_json(self, text: str) -> str:
        """Return a JSON text as it is written to a column.

        Raises:
            Exception: one of ``refused``, if the database cannot store it.
        """

    def rules(self) -> Mapping[str, str]:
        """Return the integrity rules; see ``integrity.make_rules``."""

    def version(self) -> int:
        """Return the schema version."""

    def last_ids(self) -> dict[str, int]:
        """Return the last id that was assigned in each table."""

    def set_last_ids(self, last: Mapping[str, int]) -> None:
        """Set the last assigned ids, after rows with explicit ids were written."""

    def reindex(self) -> None:
        """Rebuild the indexes of the tables."""

    def recording(
        self, columns: Mapping[str, Sequence[str]]
    ) -> AbstractContextManager[Callable[[], list[Recorded]]]:
        """Record the changes of rows in the context; the yielded function returns them.

        Args:
            columns: columns to record, by table.
        """
