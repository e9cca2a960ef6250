"""Lossless export and import of a memory graph as JSON Lines.

The file begins with a header. Every other line is one row of a table of schema.py, by its kind:
node, episode, edge, alias, sighting, provenance, supersession; of themes: chunk, question, theme,
member, quote. Ids are those of the database, facts are given by key, and NULL fields are left out.
The file contains neither derived data (search indexes, revisions) nor the journal of edits;
`turngraph memory themes` makes the themes of an imported graph again, without new calls of a
language model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turngraph.configs.progress import track
from turngraph.configs.user_error import UserError
from turngraph.data.json_fields import Location, iter_lines
from turngraph.data.jsonlines import dump
from turngraph.data.memory_graph.memory_types import EDGE_TYPES, NODE_TYPES
from turngraph.data.memory_graph.names import text_hash, well_formed
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.memory_graph.record.facts import index_everything
from turngraph.data.memory_graph.record.integrity import broken_rules
from turngraph.data.memory_graph.record.store import Store, tried_again
from turngraph.data.memory_graph.times import start
from turngraph.data.outputs import whole_file

_JSON = {
    str: "a string", int: "a whole number", float: "a number", bool: "true or false",
    dict: "an object",
}  # fmt: skip
TIMES = {"said", "valid_from", "valid_to", "boundary", "old_valid_to", "new_valid_from"}
HEADER = {"format": "turngraph memory graph", "version": 1}


@dataclass(frozen=True, slots=True)
class Kind:
    """Kind of line: its table, and the JSON type of each column."""

    table: str
    columns: dict[str, type]
    required: int
    """Number of leading columns without which a line is invalid."""
    types: tuple[str, ...] = ()
    """Names of the values of the column ``type``."""


_TIMES = {"said": str, "valid_from": str, "valid_to": str, "hypothesis": bool}
KINDS = {
    "node": Kind("nodes", {"id": int, "type": str, "text": str, **_TIMES}, 3, NODE_TYPES),
    "episode": Kind(
        "episodes",
        {"node": int, "extractor": str, "properties": dict, "source": str, "origin": str,
         "speaker": str},
        3,
    ),
    "edge": Kind(
        "edges",
        {"id": int, "type": str, "source": int, "target": int, "relation": str, **_TIMES},
        4,
        EDGE_TYPES,
    ),
    "alias": Kind(
        "aliases", {"id": int, "node": int, "spelling": str, "alias": str, "given": bool}, 4
    ),
    "sighting": Kind("sightings", {"alias": int, "episode": int}, 2),
    "provenance": Kind(
        "provenance", {"fact": int, "episode": int, "start": int, "stop": int}, 4
    ),
    "supersession": Kind(
        "supersessions",
        {"old": int, "new": int, "boundary": str, "old_valid_to": str, "new_valid_from": str},
        2,
    ),
    "chunk": Kind("chunks", {"id": int, "episode": int, "start": int, "stop": int}, 4),
    "question": Kind(
        "questions", {"id": int, "chunk": int, "maker": str, "text": str, "kept": bool}, 4
    ),
    "theme": Kind(
        "themes",
        {"id": int, "level": int, "eigenvalue": float, "source": str, "maker": str, "summary": str},
        3,
    ),
    "member": Kind("theme_members", {"theme": int, "member": int, "weight": float}, 3),
    "quote": Kind(
        "theme_quotes",
        {"theme": int, "position": int, "fact": int, "episode": int, "start": int, "stop": int},
        6,
    ),
}  # fmt: skip
WITH_REVISION = ("node", "edge", "chunk", "question", "theme")


def export_jsonl(store: Store, path: str | Path) -> int:
    """Write the last committed state of the graph, and return the number of lines.

    Raises:
        UserError: the file cannot be written; no partial file is left.
    """
    with store.reading(), whole_file(path, True) as file:
        file.write(dump(HEADER) + "\n")
        lines = 1
        for line in track(_lines(store.db), "export", "lines", delay=2, leave=False):
            file.write(dump(line) + "\n")
            lines += 1
    return lines


def _lines(db: Database) -> Iterator[dict[str, Any]]:
    for name, kind in KINDS.items():
        order = ", ".join([c for c, t in kind.columns.items() if t is int][: kind.required])
        columns = ", ".join(kind.columns)
        for row in db.scan(f"SELECT {columns} FROM {kind.table} ORDER BY {order}"):
            yield line_of(name, row)


def line_of(name: str, row: tuple[Any, ...]) -> dict[str, Any]:
    """Return the line of a row, whose columns are in the order of ``KINDS``."""
    kind = KINDS[name]
    line: dict[str, Any] = {"kind": name}
    for (column, type), value in zip(kind.columns.items(), row, strict=True):
        if column == "type":
            line[column] = kind.types[value]
        elif type is dict:
            line[column] = json.loads(value)
        elif value is not None and (type is not bool or value):
            line[column] = bool(value) if type is bool else value
    return line


@tried_again
def import_jsonl(store: Store, path: str | Path) -> int:
    """Fill an empty graph from a file of ``export_jsonl``, and return the number of lines.

    Ids are kept, so another export gives the same file. The import is one transaction.

    Raises:
        UserError: the graph is not empty; or a line is invalid, with file, line and field; or the
            rows break a rule of integrity.py.
    """
    lines = iter_lines(path)
    location, header = next(lines, (Location(path), {}))
    if header != HEADER:
        raise location.error(f"does not begin with the line {dump(HEADER)}")
    num_lines = 1
    with store.writing() as revision:
        if store.db.execute("SELECT EXISTS (SELECT 1 FROM nodes)").fetchone()[0]:
            raise UserError(f"{store}: not empty; import fills a new memory graph")
        for location, line in track(lines, "import", "lines", delay=2, leave=False):
            _insert(store.db, line, location, revision)
            num_lines += 1
        store.db.set_last_ids(
            {
                table: store.db.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()[0]
                for table in store.db.last_ids()
            }
        )
        index_everything(store.db)
        broken = broken_rules(store.db)
        if broken:
            raise UserError(f"{path}: is inconsistent: {broken[0]}")
    return num_lines


def _insert(db: Database, line: dict[str, Any], location: Location, revision: int) -> None:
    name = line.pop("kind", None)
    if name not in KINDS:
        raise (location / "kind").error(f"must be one of {', '.join(KINDS)}")
    kind = KINDS[name]
    row: dict[str, Any] = {
        column: _value(line.pop(column, None), kind, column, location) for column in kind.columns
    }
    if line:
        raise (location / next(iter(line))).error(f"unknown field in a line of kind {name}")
    if name == "node":
        row["hash"] = text_hash(row["type"], row["text"])
    if name in WITH_REVISION:
        row["revision"] = revision
    sql = f"INSERT INTO {kind.table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"
    try:
        if "properties" in row:
            row["properties"] = db.as_json(row["properties"])
        db.execute(sql, list(row.values()))
    except db.duplicate:
        raise location.error(f"duplicate {name}") from None
    except db.refused:
        raise location.error(
            "has a NUL character, or a number that is too large, for this database"
        ) from None


def _value(value: object, kind: Kind, column: str, location: Location) -> object:
    """Convert a field for its column; errors do not show the value, which may be private."""
    type = kind.columns[column]
    if value is None:
        if type is bool:
            return 0
        if list(kind.columns).index(column) < kind.required:
            raise (location / column).error("missing")
        return None
    if type is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, type) or (type is int and isinstance(value, bool)):
        raise (location / column).error(f"must be {_JSON[type]}")
    if isinstance(value, int) and not 0 <= value < 2**63:
        raise (location / column).error("must be a number from 0 to 2**63 - 1")
    if column == "type":
        if value not in kind.types:
            raise (location / column).error(f"must be one of {', '.join(kind.types)}")
        return kind.types.index(value)
    if isinstance(value, dict):
        return well_formed(json.dumps(value, ensure_ascii=False))
    if isinstance(value, str):
        return _time(value, location / column) if column in TIMES else well_formed(value)
    return value


def _time(value: str, location: Location) -> str:
    try:
        start(value)
    except ValueError as error:
        raise location.error(str(error)) from None
    return value
