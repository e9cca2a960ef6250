"""Lines of JSON and their fields, read with checks that name file, line and field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Json = dict[str, Any]
_KIND = {str: "a string", list: "a list", dict: "an object"}


class Place:
    """Where in a file a value stands, so that every error can name file, line and field."""

    def __init__(self, path: str | Path, line: int | None = None, field: str = "") -> None:
        self.path, self.line, self.field = path, line, field

    def __truediv__(self, part: str | int) -> Place:
        if isinstance(part, int):
            return Place(self.path, self.line, f"{self.field}[{part}]")
        return Place(self.path, self.line, f"{self.field}.{part}" if self.field else part)

    def error(self, message: str) -> ValueError:
        """The one error that a user sees: ``FILE, line N, field F: message``."""
        parts = [str(self.path)]
        parts += [f"line {self.line}"] if self.line is not None else []
        parts += [f"field {self.field}"] if self.field else []
        return ValueError(f"{', '.join(parts)}: {message}")


def iter_lines(path: str | Path) -> Iterator[tuple[Place, Json]]:
    """Each non-blank line of a JSON Lines file as an object, with its place.

    Raises:
        ValueError: the file is missing, or a line is not UTF-8 or not a JSON object; the message
            names file, line and, for bad JSON, column.
    """
    for place, raw in raw_lines(path):
        if (record := parse_line(raw, place)) is not None:
            yield place, record


def raw_lines(path: str | Path) -> Iterator[tuple[Place, bytes]]:
    """Each line of a file as it is, with its place.

    Raises:
        ValueError: the file is missing.
    """
    if not Path(path).is_file():
        raise ValueError(f"{path}: no such file")
    with open(path, "rb") as file:
        for number, raw in enumerate(file, 1):
            yield Place(path, number), raw


def parse_line(raw: bytes, place: Place) -> Json | None:
    """A line as an object; None where it is blank.

    Raises:
        ValueError: as ``iter_lines``.
    """
    try:
        text = raw.decode("utf-8-sig" if place.line == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise place.error(f"not UTF-8 at byte {error.start + 1}") from None
    if not text.strip():
        return None
    try:
        value = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        column = f" (column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        raise place.error(f"not JSON: {getattr(error, 'msg', 'too deep')}{column}") from None
    if not isinstance(value, dict):
        raise place.error("each line must be a JSON object")
    return value


def field(record: Json, name: str, kind: type, place: Place, default: Any = ...) -> Any:
    """A field of a record, checked for its kind; strings lose lone surrogates.

    Args:
        record: the JSON object.
        name: the field's name.
        kind: ``str``, ``list`` or ``dict``; for ``str`` a whole number is taken as its digits.
        place: the place of the record.
        default: returned where the field is missing or null; without it the field is required.

    Raises:
        ValueError: the field is missing or of another kind.
    """
    value = record.get(name)
    if value is None:
        if default is ...:
            raise (place / name).error("missing")
        return default
    if kind is str and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, kind):
        raise (place / name).error(f"must be {_KIND[kind]}, not {json.dumps(value)[:40]}")
    return well_formed(value) if kind is str else value


def well_formed(text: str) -> str:
    """A text without lone surrogates, which no file can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def records(record: Json, name: str, place: Place) -> Iterator[tuple[Place, Json]]:
    """The objects of a list field, each with its place; none where the field is missing.

    Raises:
        ValueError: the field is not a list of objects.
    """
    for index, value in enumerate(field(record, name, list, place, [])):
        if not isinstance(value, dict):
            raise (place / name / index).error(f"must be an object, not {json.dumps(value)[:40]}")
        yield place / name / index, value
