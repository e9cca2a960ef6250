"""A pool with a table, made by hand."""

from __future__ import annotations

from turngraph.data.entities import entity_of
from turngraph.data.linearise import linearise_row
from turngraph.data.types import Evidence

HEADERS = ["Team", "Wins", "City", "Founded"]
CELLS = [
    ["Reds", "12", "Lima", "1901"],
    ["Blues", "7", "Oslo", "1950"],
    ["Greens", "1,003", "Lima", "1877"],
    ["Whites", "9", "Cairo", "1999"],
    ["Blacks", "−4", "Quito", "1923"],
]


def passage(title: str, number: int, cells: list[str], headers: list[str] = HEADERS) -> Evidence:
    text = linearise_row(title, headers, cells)
    entities = {e.id: e for cell in cells if (e := entity_of(cell)) is not None}
    return Evidence(f"{title}#{number}", text, "table", tuple(entities.values()))


def pool(title: str = "League", rows: list[list[str]] = CELLS) -> tuple[Evidence, ...]:
    prose = Evidence(f"{title}#p", f"{title}, It is old.", "text")
    return (prose, *(passage(title, n, cells) for n, cells in enumerate(rows)))
