"""Readers of JSON Lines and their fields, with errors that name file, line and field."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar, overload

from turngraph.configs.user_error import UserError
from turngraph.configs.words import similar
from turngraph.data.warned import reading_logger

logger = reading_logger(__name__)

Json = dict[str, Any]
MAX_UNKNOWN = 5
"""Maximum number of unknown fields that are named."""
MAX_SHOWN = 40
"""Characters of a wrong value that a message shows, at most."""
_KIND: dict[type, str] = {str: "a string", list: "a list", dict: "an object"}
Kind = TypeVar("Kind", str, list[Any], Json)
Default = TypeVar("Default")
Read = TypeVar("Read")


class Location:
    """Location of a value: file, line and field, which every error names."""

    def __init__(self, path: str | Path, line: int | None = None, field: str = "") -> None:
        self.path, self.line, self.field = path, line, field

    def __truediv__(self, part: str | int) -> Location:
        if isinstance(part, int):
            return Location(self.path, self.line, f"{self.field}[{part}]")
        return Location(self.path, self.line, f"{self.field}.{part}" if self.field else part)

    def error(self, message: str) -> UserError:
        """Return the error that a user sees: ``FILE, line N, field F: message``."""
        parts = [str(self.path)]
        parts += [f"line {self.line}"] if self.line is not None else []
        parts += [f"field {self.field}"] if self.field else []
        return UserError(f"{', '.join(parts)}: {message}")


def iter_lines(path: str | Path) -> Iterator[tuple[Location, Json]]:
    """Yield each non-blank line of a JSON Lines file as an object, with its location.

    Raises:
        UserError: the file is missing, or a line is not UTF-8 or not a JSON object; the message
            names file, line and, for bad JSON, column.
    """
    for location, raw in raw_lines(path):
        if (record := parse_line(raw, location)) is not None:
            yield location, record


class UnknownFields:
    """Collects fields that a format does not have, to warn of each once for a file."""

    def __init__(self) -> None:
        self._first: dict[str, UserError] = {}
        self._counts: Counter[str] = Counter()

    def add(self, record: Json, known: Collection[str], location: Location) -> None:
        """Add the fields of a record, or of an object in one, that are not among the known."""
        for name in record.keys() - known:
            at = location / name
            field = re.sub(r"\[\d+\]", "", at.field)
            self._counts[field] += 1
            if field not in self._first:
                near = similar(name, known)
                meant = f"did you mean {near}?" if near else f"known are {', '.join(sorted(known))}"
                self._first[field] = at.error(f"unknown and not read; {meant}")

    def warn(self) -> None:
        """Log the most frequent fields, each where it is first and how often it is there."""
        for field, count in self._counts.most_common(MAX_UNKNOWN):
            logger.warning("%s%s", self._first[field], f" ({count} times)" if count > 1 else "")
        if (more := len(self._counts) - MAX_UNKNOWN) > 0:
            logger.warning("and %d more unknown fields", more)


def filled(
    path: str | Path, read: Iterable[Read], error: str = "nothing to read in it"
) -> Iterator[Read]:
    """Yield items that were read from a file; none at all is an error.

    Raises:
        UserError: there is no item; the message names the file.
    """
    is_empty = True
    for one in read:
        is_empty = False
        yield one
    if is_empty:
        raise Location(path).error(error)


def raw_lines(path: str | Path) -> Iterator[tuple[Location, bytes]]:
    """Yield each line of a file unparsed, with its location.

    Raises:
        UserError: the file is missing.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: " + ("a folder, not a file" if path.is_dir() else "no such file"))
    with open(path, "rb") as file:
        for number, raw in enumerate(file, 1):
            yield Location(path, number), raw


def parse_line(raw: bytes, location: Location) -> Json | None:
    """Parse a line into an object; return None if it is blank.

    Raises:
        UserError: as ``iter_lines``.
    """
    text = decoded(raw, location)
    begun = text.strip()
    if not begun:
        return None
    try:
        value = parse_json(text, location)
    except UserError:
        if not _is_cut(begun):
            raise
        raise location.error(
            "each line must be a whole JSON object (JSON Lines); this line ends within one"
        ) from None
    if not isinstance(value, dict):
        kind = "an array" if isinstance(value, list) else "no object"
        raise location.error(f"each line must be a JSON object (JSON Lines); this is {kind}")
    return value


def _is_cut(text: str) -> bool:
    """Tell whether a text is JSON that ends before its value does."""
    try:
        _DECODER.decode(text)
    except json.JSONDecodeError as error:
        return error.pos >= len(text)
    except (ValueError, RecursionError):  # another error
        return False
    return False


def decoded(raw: bytes, location: Location) -> str:
    """Return a line of UTF-8 as text, without the line break.

    Raises:
        UserError: it is not UTF-8.
    """
    try:
        return raw.decode("utf-8-sig" if location.line == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise location.error(f"not UTF-8 at byte {error.start + 1}") from None


def parse_json(text: str, location: Location) -> Any:
    """Parse a JSON value, of a line or of a whole file (``location`` then names no line).

    Raises:
        UserError: it is not JSON, which has no NaN and no Infinity either, or a number is larger
            than Python's; the message names file, line and, for bad JSON, column.
    """
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        line = error.lineno if location.line is None else location.line
        at = Location(location.path, line, location.field)
        raise at.error(f"not JSON: {error.msg} (column {error.colno})") from None
    except RecursionError:
        raise location.error("not JSON: too deep") from None
    except ValueError as error:  # from the functions that _DECODER calls
        raise location.error(f"not JSON: {error}") from None


def _whole(digits: str) -> int:
    try:
        return int(digits)
    except ValueError:  # Python's limit on the digits of a number
        raise ValueError(f"a number has {len(digits)} digits: {digits[:20]}...") from None


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is too large a number")
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


_DECODER = json.JSONDecoder(parse_int=_whole, parse_float=_finite, parse_constant=_no_constant)


@overload
def field(record: Json, name: str, kind: type[Kind], location: Location) -> Kind: ...
@overload
def field(
    record: Json, name: str, kind: type[Kind], location: Location, default: Default
) -> Kind | Default: ...
def field(record: Json, name: str, kind: type, location: Location, default: Any = ...) -> Any:
    """Return a field of a record after checking its type; strings lose lone surrogates.

    Args:
        record: the JSON object.
        name: the field's name.
        kind: ``str``, ``list`` or ``dict``; for ``str`` an integer is converted to its digits.
        location: location of the record.
        default: returned if the field is missing or null; without it the field is required.

    Raises:
        UserError: the field is missing or of another type.
    """
    value = record.get(name)
    if value is None:
        if default is ...:
            raise (location / name).error("missing")
        return default
    if kind is str and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, kind):
        raise (location / name).error(f"must be {_KIND[kind]}, not {shown(value)}")
    return well_formed(value) if isinstance(value, str) else value


def shown(value: Any) -> str:
    """Return a JSON value as a message shows it: its first characters."""
    return json.dumps(value)[:MAX_SHOWN]


def well_formed(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode("utf-8")


def records(record: Json, name: str, location: Location) -> Iterator[tuple[Location, Json]]:
    """Yield the objects of a list field with their locations; none if the field is missing.

    Raises:
        UserError: the field is not a list of objects.
    """
    for index, value in enumerate(field(record, name, list, location, [])):
        if not isinstance(value, dict):
            raise (location / name / index).error(f"must be an object, not {shown(value)}")
        yield location / name / index, value
