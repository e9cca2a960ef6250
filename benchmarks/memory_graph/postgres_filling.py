"""Fills tenants of a PostgreSQL database in bulk, with the rows of synthetic graphs.

A graph of a million nodes is 14 million rows, most of them words, which remembering would write for
days. They are copied here from a file that ``synthetic_graph.py`` makes, a table at a time and the
words in parts, each in one transaction: what was killed goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from turngraph.benchmarks.memory_graph.synthetic_graph import Shape, make_graph
from turngraph.data.memory_graph.record import postgres_schema as schema
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.record.facts import INDEXED, index_words
from turngraph.data.memory_graph.record.postgres_words import counted
from turngraph.data.memory_graph.record.store import Store

EDGES_PER_NODE = 4
PART = 20_000
"""Texts whose words are copied in one transaction."""
ROWS_AT_ONCE = 5000
_ESCAPED = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


class OutOfTimeError(Exception):
    """The time that was given has passed; the same call goes on."""


def shape_of(nodes: int, seed: int) -> Shape:
    """Return the shape of a graph with four edges a node and a hub of a fiftieth of the nodes."""
    return Shape(nodes, EDGES_PER_NODE * nodes, nodes // 50, seed)


def made_graph(folder: Path, nodes: int, seed: int) -> Path:
    """Return the file of a synthetic graph, which is made if it is not there."""
    path = folder / f"{nodes}-{seed}.db"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / f"{nodes}-{seed}.partial.db"
        for left in folder.glob(f"{partial.name}*"):
            left.unlink()
        make_graph(partial, shape_of(nodes, seed))
        partial.rename(path)
    return path


def fill(db: Any, tenant: str, path: Path, until: float) -> None:
    """Fill a tenant with the rows of a file.

    Args:
        db: a connection of a superuser, whom row-level security lets use ``COPY``.
        tenant: name; it is made if need be.
        path: SQLite file of the graph.
        until: second of ``time.monotonic`` at which to stop.

    Raises:
        OutOfTimeError: what is missing is copied by the next call.
    """
    role = schema.make_tenant(db, tenant)
    number = int(role.rpartition("_")[2])
    with Store(path, read_only=True) as store:
        if _has(db, "stamps", number):
            return
        for table in (*schema.TABLES, *schema.THEME_TABLES):
            if table not in ("meta", "counters", "stamps", "changes", *INDEXED):
                in_time(until)
                _copy_table(db, store.db, table, number)
        sizes = {table: _copy_words(db, store.db, table, number, until) for table in INDEXED}
        with db.transaction():
            _count(db, store, sizes, number)


def in_time(until: float) -> None:
    """Raise ``OutOfTimeError`` after a second of ``time.monotonic``."""
    if time.monotonic() > until:
        raise OutOfTimeError


def _has(db: Any, table: str, tenant: int) -> bool:
    sql = f"SELECT 1 FROM turngraph.{table} WHERE tenant = $1 LIMIT 1"
    return db.execute(sql, (tenant,)).fetchone() is not None


def _copy_table(db: Any, source: Database, table: str, tenant: int) -> None:
    if _has(db, table, tenant):
        return
    cursor = source.execute(f"SELECT * FROM {table}")
    names = [column[0] for column in cursor.description]
    _copy(db, table, names, tqdm(cursor, f"copy {table}", unit="row", leave=False), tenant)


def _copy(
    db: Any, table: str, names: Sequence[str], rows: Iterable[Sequence[Any]], tenant: int
) -> None:
    sql = f"COPY turngraph.{table} ({', '.join(names)}, tenant) FROM STDIN"
    lines = (f"{_line(row)}\t{tenant}\n" for row in rows)
    with db.cursor() as cursor, cursor.copy(sql) as copy:
        while part := "".join(islice(lines, ROWS_AT_ONCE)):
            copy.write(part)


def _line(row: Sequence[Any]) -> str:
    """Return a row in the text format of ``COPY``."""
    return "\t".join(
        "\\N" if value is None else value.translate(_ESCAPED) if isinstance(value, str)
        else str(value)
        for value in row
    )  # fmt: skip


def _copy_words(
    db: Any, source: Database, table: str, tenant: int, until: float
) -> tuple[int, int]:
    """Copy the words of texts in parts; return the number of texts and of their words."""
    key = "alias" if table == "name_words" else "fact"
    sql = f"SELECT coalesce(max({key}), -1) FROM turngraph.{table} WHERE tenant = $1"
    last = db.execute(sql, (tenant,)).fetchone()[0]
    types = dict(source.execute("SELECT id, type FROM nodes")) if key == "fact" else {}
    num_texts = num_words = 0
    texts = sorted(source.execute(INDEXED[table]))
    with tqdm(total=len(texts), desc=f"copy {table}", unit="text") as bar:
        for begin in range(0, len(texts), PART):
            part = [(id_, index_words(text)) for id_, text in texts[begin : begin + PART]]
            num_texts += len(part)
            num_words += sum(len(text.split()) for _, text in part)
            if new := [pair for pair in part if pair[0] > last]:
                in_time(until)
                _copy(db, table, *_columns(table, new, types), tenant)
            bar.update(len(part))
    return num_texts, num_words


def _columns(
    table: str, texts: Sequence[tuple[int, str]], types: dict[int, int]
) -> tuple[list[str], Iterator[Sequence[Any]]]:
    """Return the names of the columns of a word index, and its rows in the order of its key."""
    rows = sorted(counted(texts))
    if table == "name_words":
        return ["word", "alias", "count", "length"], iter(rows)
    typed = ((*row, 0 if row[1] % 2 else types[row[1] // 2]) for row in rows)
    return ["word", "fact", "count", "length", "type"], typed


def _count(db: Any, store: Store, sizes: dict[str, tuple[int, int]], tenant: int) -> None:
    """Write the counters, and the revision, with which the graph is whole."""
    found = store.db.last_ids() | {
        f"{table} {what}": number
        for table, pair in sizes.items()
        for what, number in zip(("rows", "words"), pair, strict=True)
    }
    sql = """UPDATE turngraph.counters SET value = k.value
        FROM unnest($1::text[], $2::bigint[]) AS k(name, value)
        WHERE counters.name = k.name AND tenant = $3"""
    db.execute(sql, (list(found), list(found.values()), tenant))
    sql = "UPDATE turngraph.meta SET value = $1 WHERE name = 'revision' AND tenant = $2"
    db.execute(sql, (str(store.revision), tenant))
    stamps = store.db.execute("SELECT revision, stamp FROM stamps").fetchall()
    _copy(db, "stamps", ["revision", "stamp"], stamps, tenant)


def copy_tenant(db: Any, source: str, name: str) -> None:
    """Make a tenant with the rows of another one, in one transaction.

    Args:
        db: a connection of a superuser.
        source: name of the tenant that is copied.
        name: of the new one.
    """
    with db.transaction():
        new, old = (schema.make_tenant(db, one).rpartition("_")[2] for one in (name, source))
        sql = """SELECT relname, string_agg(quote_ident(attname), ', ') FROM pg_attribute a
            JOIN pg_class c ON c.oid = attrelid AND relnamespace = 'turngraph'::regnamespace
            WHERE relname = ANY($1::text[]) AND attnum > 0 AND attidentity = ''
            AND NOT attisdropped AND attname <> 'tenant' GROUP BY relname"""
        tables = [*schema.TABLES, *schema.THEME_TABLES]
        for table, names in db.execute(sql, (tables,)).fetchall():
            db.execute(f"DELETE FROM turngraph.{table} WHERE tenant = {new}")
            db.execute(
                f"INSERT INTO turngraph.{table} ({names}, tenant)"
                f" SELECT {names}, {new} FROM turngraph.{table} WHERE tenant = {old}"
            )
