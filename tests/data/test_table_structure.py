"""What linearised evidence repeats: titles and headers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngraph.data.linearise import linearise_row
from turngraph.data.table_structure import cells_of, lead_of, repeated_spans, row_cells
from turngraph.data.types import Evidence, Source

TITLE = "Eastern Europe"
ROWS = (
    "Eastern Europe, Members, Country is Serbia, Code is 688",
    "Eastern Europe, Members, Country is Ukraine, Code is 804, Capital is Kyiv",
    "Eastern Europe, Members, Country is Latvia, Capital is Riga, the port",
)


def passages_of(*texts: str, source: Source = "table") -> list[Evidence]:
    return [Evidence(str(number), text, source) for number, text in enumerate(texts)]


def repeated_texts(passages: list[Evidence]) -> list[list[str]]:
    found = repeated_spans(passages)
    return [
        [passage.text[start:end] for start, end in spans]
        for passage, spans in zip(passages, found, strict=True)
    ]


def test_cells_of_a_row() -> None:
    text = linearise_row(
        "A, b", ["Name", "Size (m)", "", "Is it"], ["Ed, Jr.", "3", "x", "what is"]
    )
    assert text == "A, b, Name is Ed, Jr., Size (m) is 3, x, Is it is what is"
    cells = row_cells(text)
    assert [(text[c.start : c.middle], text[c.cell : c.end]) for c in cells] == [
        ("Name", "Ed, Jr."),
        ("Size (m)", "3, x"),
        ("Is it", "what is"),
    ]
    assert [cell.header for cell in cells] == ["Name", "Size (m)", "Is it"]


def test_only_a_table_has_cells() -> None:
    row, sentence = passages_of(ROWS[0])[0], passages_of(ROWS[0], source="text")[0]
    assert lead_of(row) == "Eastern Europe, Members"
    assert cells_of(sentence) == ()
    assert lead_of(sentence) == sentence.text


def test_titles_and_headers_are_repeated_and_cells_are_not() -> None:
    assert repeated_texts(passages_of(*ROWS)) == [
        [],
        ["Eastern Europe, Members,", " Country is", " Code is"],
        ["Eastern Europe, Members,", " Country is", " Capital is"],
    ]


def test_another_caption_is_said() -> None:
    other = "Eastern Europe, Rivers, Country is Serbia"
    assert repeated_texts(passages_of(ROWS[0], other))[1] == ["Eastern Europe,", " Country is"]


def test_a_title_is_repeated_only_from_the_passage_before() -> None:
    """Without it one would take a passage for one of another title."""
    passages = passages_of(
        "Peru, Lima grows.", "Chad, It is hot.", "Peru, It rains.", source="text"
    )
    assert repeated_texts(passages) == [[], [], []]


@pytest.mark.parametrize("text", ["Peru, capital, Lima", "Peru", "", "Peru, "])
def test_the_last_part_of_a_passage_is_its_own(text: str) -> None:
    (start, end), *more = repeated_spans(passages_of(text, text, source="kb"))[1] or [(0, 0)]
    assert not more
    assert (start, end) == (0, len(text) - len(text.split(", ")[-1]) - (", " in text))


@given(st.lists(st.lists(st.sampled_from(["A", "B is c", "d is e", "1"]), max_size=6), max_size=5))
def test_spans_are_ordered_and_leave_something(parts: list[list[str]]) -> None:
    passages = passages_of(*map(", ".join, parts))
    for passage, spans in zip(passages, repeated_spans(passages), strict=True):
        bounds = [bound for span in spans for bound in span]
        assert bounds == sorted(bounds)
        assert sum(end - start for start, end in spans) <= max(len(passage.text) - 1, 0)
