"""Reads Turtle and TriG files; errors name file, line and column."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

from turngraph.configs.extras import extra
from turngraph.configs.user_error import UserError

with extra("rdf", "typed memory graphs need"):
    from pyoxigraph import Literal, Quad, RdfFormat, parse

_XSD = "http://www.w3.org/2001/XMLSchema#"
_PREFIX = re.compile(r"@?prefix\s+([^\s:]*):\s*<([^>]*)>", re.IGNORECASE)
_ZONE = re.compile(r"(?:Z|[+-]\d\d:\d\d)$")
_PARTIAL = {
    "gYear": re.compile(r"-?\d{4,}"),
    "gYearMonth": re.compile(r"-?\d{4,}-(?:0[1-9]|1[0-2])"),
}


@dataclass(frozen=True, slots=True)
class Source:
    """File of RDF.

    Args:
        path: path of the file.
        text: text of the file.
        quads: statements of the file.
    """

    path: Path
    text: str
    quads: Sequence[Quad]

    def place_of(self, iri: str) -> tuple[int, int] | None:
        """Return line and column, from 1, of a term; a line that begins with it is preferred."""
        spelled = [f"<{iri}>"]
        for prefix, start in _PREFIX.findall(self.text):
            if iri.startswith(start):
                spelled.append(f"{prefix}:{iri[len(start) :]}")
        names = "|".join(map(re.escape, spelled))
        return self._find(rf"^(?:{names})(?![\w-])") or self._find(rf"(?:{names})(?![\w-])")

    def place_of_text(self, value: str) -> tuple[int, int] | None:
        """Return line and column, from 1, of a literal."""
        return self._find(rf"(?<=[\"']){re.escape(value)}(?=[\"'])")

    def _find(self, pattern: str) -> tuple[int, int] | None:
        match = re.search(pattern, self.text, re.MULTILINE)
        if match is None:
            return None
        before = self.text[: match.start()]
        return before.count("\n") + 1, match.start() - before.rfind("\n")


def read_turtle(path: str | Path, format: RdfFormat = RdfFormat.TURTLE) -> Source:
    """Read a file of Turtle or TriG.

    Raises:
        UserError: the file cannot be read, is not of the format, or has an impossible date; the
            message names file, line and column.
    """
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 at byte {error.start + 1}") from None
    try:
        quads = list(parse(text, format, base_iri=path.resolve().as_uri()))
    except SyntaxError as error:
        reason = re.sub(r"^Parser error at [^:]*: ", "", error.msg or "")
        raise UserError(f"{path}:{error.lineno}:{error.offset}: {reason}") from None
    source = Source(path, text, quads)
    for quad in quads:
        if isinstance(quad.object, Literal) and not possible_date(quad.object):
            line, column = source.place_of_text(quad.object.value) or (1, 1)
            kind = quad.object.datatype.value.removeprefix(_XSD)
            raise UserError(f"{path}:{line}:{column}: {quad.object.value!r} is not a {kind}")
    return source


def possible_date(literal: Literal) -> bool:
    """Return whether a literal of a date type is a valid date; True for other literals."""
    kind = literal.datatype.value.removeprefix(_XSD)
    value = _ZONE.sub("", literal.value)
    if kind in _PARTIAL:
        return _PARTIAL[kind].fullmatch(value) is not None
    try:
        if kind == "date":
            date.fromisoformat(value)
        elif kind == "dateTime":
            datetime.fromisoformat(value)
    except ValueError:
        return False
    return True
