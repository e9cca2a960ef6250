"""Translation of the record's statements from SQLite's SQL to PostgreSQL's.

They differ in how values, lists of numbers and comparisons with NULL are written, and in nothing
else, so that 60 lines translate some 340 statements. SQLAlchemy Core would need the 17 tables
declared a second time, and every statement composed in Python in place of SQL that one can paste.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from turngraph.data.memory_graph.record.database import Values

_PARTS = re.compile(
    r"""'(?:[^']|'')*'                                      # a text, which stays
    |\bjson_each\((?P<list>\?\d*)\)(?:\s+(?P<as>[a-z]\w*)\b)?
    |\bINDEXED\s+BY\s+\w+
    |\bIS\s+(?P<not>NOT\s+)?(?=\?|[a-z]\w*\.)               # NULL IS NULL
    |(?P<value>\?\d*)
    |(?<![:\w]):(?P<name>[a-z_]\w*)""",
    re.VERBOSE,
)


class Statement(NamedTuple):
    """A statement of PostgreSQL.

    Args:
        sql: text of the statement, with $1, $2, ... for values.
        order: for each value, its index or name among the parameters of the SQLite statement.
        lists: indices of the values that are JSON lists of numbers.
    """

    sql: str
    order: tuple[int | str, ...]
    lists: frozenset[int]


@lru_cache(maxsize=4096)
def translate(sql: str) -> Statement:
    """Translate a statement of the record to PostgreSQL."""
    order: list[int | str] = []
    lists: set[int] = set()
    last = -1

    def number(given: str) -> int:
        """Return the number, from 1, of a parameter: "?" is the next one, "?2" the second."""
        nonlocal last
        last = int(given[1:]) - 1 if given[1:] else last + 1
        return of(last)

    def of(key: int | str) -> int:
        if key not in order:
            order.append(key)
        return order.index(key) + 1

    def part(match: re.Match[str]) -> str:
        if match["list"]:
            position = number(match["list"])
            lists.add(position - 1)
            return f"unnest(${position}::bigint[]) AS {match['as'] or 'k'}(value)"
        if match["value"]:
            return f"${number(match['value'])}"
        if match["name"]:
            return f"${of(match['name'])}"
        text = match[0]
        if text.startswith("IS"):
            return "IS DISTINCT FROM " if match["not"] else "IS NOT DISTINCT FROM "
        return "" if text.startswith("INDEXED") else text

    return Statement(_PARTS.sub(part, sql), tuple(order), frozenset(lists))


def values_of(statement: Statement, given: Values) -> list[Any]:
    """Return the parameters of a statement in the order of its translation."""
    if isinstance(given, Mapping):
        return [given[key] for key in statement.order]  # type: ignore[index]
    values = [given[key] for key in statement.order]  # type: ignore[index]
    for place in statement.lists:
        values[place] = values[place].replace("[", "{").replace("]", "}")
    return values
