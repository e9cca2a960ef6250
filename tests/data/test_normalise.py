"""Normal forms: what is equal, what only looks equal, and what stays as it is."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngraph.data import normalise
from turngraph.data.normalise import (
    answer_type,
    fold,
    normal_form,
    normalise_text,
    normalise_value,
    parse_date,
    parse_number,
)


@pytest.mark.parametrize(
    "text",
    [
        "2 October 2000",
        "02 October 2000",
        "2 october 2000",
        "2nd October 2000",
        "2nd of October, 2000",
        "2 Oct 2000",
        "2 Oct. 2000",
        "October 2, 2000",
        "October 2nd, 2000",
        "OCT. 2 2000",
        "  October   2,  2000 ",
        "2000-10-02",
        "2000-10-02T00:00:00Z",
        '"2000-10-02T00:00:00Z"',
        "2. Oktober 2000",
        "2. Okt. 2000",
        "02.10.2000",
        "2. 10. 2000",
        "２ October ２０００",
    ],
)
def test_one_day_in_all_its_spellings(text: str) -> None:
    assert parse_date(text) == "2000-10-02"
    assert normalise_value(text) == "2000-10-02"
    assert answer_type(text) == "date"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("October 2000", "2000-10"),
        ("Sept. 1999", "1999-09"),
        ("29 February 2000", "2000-02-29"),
        ("März 2000", "2000-03"),
        ("31.06.2000", None),
        ("1.2.3.2000", None),
        ("29 February 1900", None),
        ("31 June 2000", None),
        ("2000", None),
        ("2 October", None),
        ("on 2 October 2000", None),
        ("2 Octobers 2000", None),
        ("2000-13-02", None),
        ("", None),
    ],
)
def test_what_is_one_date_and_what_is_not(text: str, expected: str | None) -> None:
    assert parse_date(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,234", "1234"),
        ("1234", "1234"),
        ("1,234.0", "1234"),
        ("1234.50", "1234.5"),
        ("0012", None),
        ("-05", None),
        ("00.5", None),
        ("0,500", None),
        ("0", "0"),
        ("0.5", "0.5"),
        ("1.234,50", "1234.5"),
        ("-1.234.567,8", "-1234567.8"),
        ("+5", "5"),
        ("-5", "-5"),
        ("−5", "-5"),
        ("–5", "-5"),
        ("-0.0", "0"),
        (".5", "0.5"),
        ("10,151,000", "10151000"),
        ("12,34", None),
        ("1,2345", None),
        ("1.234.567", None),
        ("5th", None),
        ("5 km", None),
        ("١٢x", None),
        ("", None),
    ],
)
def test_numbers(text: str, expected: str | None) -> None:
    assert parse_number(text) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The Beatles", "beatles"),
        ("José Sánchez-Gavito", "jose sanchez gavito"),
        ("Straße", "STRASSE"),
        ("ﬁve", "five"),
        ("Rock  'n'\u00a0Roll", "rock n roll"),
        ("snake_case", "snake case"),
        ("U.S.", "u s"),
        ("Acme™", "ACMEtm"),
        ("مُحَمَّد", "محمد"),
    ],
)
def test_spellings_of_one_text(one: str, other: str) -> None:
    assert normalise_text(one) == normalise_text(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The The", "A An"),
        ("?!", "!?"),
        ("0042", "42"),
        ("0042", "042"),
        ("01.02.2024", "02.01.2024"),
        ("C++", "C plus"),
        ("1,234", "1.234"),
        ("May 2000", "May 2001"),
        ("-5", "5"),
        ("–60", "60"),
        ("-5.2%", "5.2%"),
        ("-5.2%", "+5.2%"),
        ("(+70 kg)", "(−70 kg)"),
        ("-$3 million", "$3 million"),
        ("B+", "B-"),
        ("A–", "A"),
        ("C#", "C++"),
        ("Disney+", "Disney"),
        ("10", "1.0"),
        ("theatre", "atre"),
        ("日本", "日木"),
        ("バス", "パス"),
        ("ไม้", "ไม่"),
        ("की", "का"),
    ],
)
def test_near_misses_stay_apart(one: str, other: str) -> None:
    assert normalise_value(one) != normalise_value(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("+5.2%", "5.2 %"),
        ("−5.2%", "-5.2 %"),
        ("(-$3)", "−$3"),
        ("A−", "A-"),
        ("1990–", "1990"),
        ("pre-", "pre"),
        ("No. 5", "No 5"),
        ("- 5 items", "5 items"),
        ("2003–04", "2003-04"),
        ("#1", "1"),
    ],
)
def test_spellings_of_one_value(one: str, other: str) -> None:
    assert normalise_value(one) == normalise_value(other)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1959", "date"),
        ("959", "number"),
        ("2,000", "number"),
        ("3.5", "number"),
        ("0042", "number"),
        ("Lima", "string"),
    ],
)
def test_answer_type(text: str, expected: str) -> None:
    assert answer_type(text) == expected


@given(st.text())
def test_normal_forms_are_stable_and_never_empty(text: str) -> None:
    assert fold(fold(text)) == fold(text)
    assert normalise_text(normalise_text(text)) == normalise_text(text)
    assert bool(normalise_value(text)) == bool(fold(text))


def test_a_long_name_is_folded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    folded = []

    def counted(form: Any, text: str) -> str:
        folded.append(text)
        return normal_form(form, text)

    monkeypatch.setattr(normalise, "normal_form", counted)
    name = "Ünsal " * 5000
    assert {normalise_value(name) for _ in range(5)} == {"unsal " * 4999 + "unsal"}
    assert folded == [name]


@given(st.integers(-(10**12), 10**12))
def test_thousands_separators_change_nothing(number: int) -> None:
    assert parse_number(f"{number:,}") == parse_number(str(number)) == str(number)


@given(st.dates())
def test_every_day_is_read_in_each_form(day: date) -> None:
    year = f"{day.year:04d}"
    assert parse_date(f"{day.day} {day:%B} {year}") == day.isoformat()
    assert parse_date(f"{day:%B} {day.day}, {year}") == day.isoformat()
    assert parse_date(day.isoformat()) == day.isoformat()
