"""Structure to text, and text to sentences."""

import pytest

from turngraph.data.linearise import (
    MAX_LEAD,
    cut_lead,
    linearise_infobox,
    linearise_row,
    linearise_sentence,
    sentence_spans,
    split_sentences,
)


def test_row_reads_as_in_convmix():
    headers = ["Season", "Time slot", "Rank"]
    cells = ["4 (1963)", "Thursday at 9:00 pm", ""]
    row = linearise_row("The Twilight Zone (1959 TV series)", headers, cells)
    assert row == (
        "The Twilight Zone (1959 TV series), Season is 4 (1963), Time slot is Thursday at 9:00 pm"
    )


def test_row_with_caption_and_bare_cell():
    row = linearise_row("Oslo", ["", "Year"], ["Total", "1990"], "Population")
    assert row == "Oslo, Population, Total, Year is 1990"


def test_row_refuses_headers_that_do_not_fit():
    with pytest.raises(ValueError, match="zip"):
        linearise_row("Oslo", ["Year"], ["1990", "1991"])


def test_a_long_title_is_cut_and_marked() -> None:
    whole = "x" * MAX_LEAD
    assert cut_lead(whole) == whole
    assert cut_lead(f"{whole}y") == f"{whole}…"
    assert cut_lead(f"{whole[:-1]} yz") == f"{whole[:-1]}…"


def test_infobox_and_sentence() -> None:
    assert linearise_infobox("Oslo", "Mayor", "Anne") == "Oslo, Mayor, Anne"
    assert linearise_infobox("Oslo", "Total", "12", "Area") == "Oslo, Area, Total, 12"
    assert linearise_infobox("Oslo", "", "A view") == "Oslo, A view"
    assert linearise_sentence("Oslo", "It is a city.") == "Oslo, It is a city."
    assert linearise_sentence("Oslo", "Frogner", "Boroughs") == "Oslo, Boroughs, Frogner"


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("He won. She lost.", ["He won.", "She lost."]),
        ("Dr. Smith met J. R. R. Tolkien.", ["Dr. Smith met J. R. R. Tolkien."]),
        ("It cost 3.5 million. It sank.", ["It cost 3.5 million.", "It sank."]),
        ("Born in St. Louis on Jan. 5, 1990.", ["Born in St. Louis on Jan. 5, 1990."]),
        ("He left the U.S. The war was over.", ["He left the U.S.", "The war was over."]),
        ("The U.S. Army came.", ["The U.S. Army came."]),
        ("He left the U.S.\n\n“However, he came.", ["He left the U.S.", "“However, he came."]),
        ("Apple Inc. Its rival fell.", ["Apple Inc.", "Its rival fell."]),
        ("Apple Inc. was big.", ["Apple Inc. was big."]),
        ('"Stop!" He ran? Yes.', ['"Stop!"', "He ran?", "Yes."]),
        ('He said "no." Then he left.', ['He said "no."', "Then he left."]),
        ("He sang Yes. (no joke) It was long.", ["He sang Yes. (no joke) It was long."]),
        ("see www.example.org for more", ["see www.example.org for more"]),
        ("Note: 1. Unofficial;  2. Shared.", ["Note: 1. Unofficial;  2. Shared."]),
        ("We met at 16:55. Beatriz came later.", ["We met at 16:55.", "Beatriz came later."]),
        ("It ended 3:1. Nobody cheered.", ["It ended 3:1.", "Nobody cheered."]),
        (
            "Er kam am 3. Mai 2021. Er ging am 4. August 2022.",
            ["Er kam am 3. Mai 2021.", "Er ging am 4. August 2022."],
        ),
        ("They were 12. August was cold.", ["They were 12.", "August was cold."]),
        ("2. Bundesliga began.", ["2. Bundesliga began."]),
        ("It ended in 1990. Nobody won.", ["It ended in 1990.", "Nobody won."]),
        ("東京は首都です。人口は多い。", ["東京は首都です。", "人口は多い。"]),
        ("", []),
        ("  \n ", []),
    ],
)
def test_sentences(text, sentences):
    assert split_sentences(text) == sentences


def test_spans_point_into_the_text():
    text = "  One is. Two is!  "
    assert [text[start:end] for start, end in sentence_spans(text)] == ["One is.", "Two is!"]
