"""Times of any precision."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode
from turngraph.data.memory_graph.recall.recollection import dated_text
from turngraph.data.memory_graph.recall.word_vectors import word_vectors
from turngraph.data.memory_graph.times import end, local_time, now, parse_time, start
from turngraph.data.memory_graph.upkeep.html_page import export_html
from turngraph.inference.memory_printing import origin, validity


def seconds(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("text", "iso", "first", "after"),
    [
        ("2019", "2019", (2019, 1, 1), (2020, 1, 1)),
        ("2019-12", "2019-12", (2019, 12, 1), (2020, 1, 1)),
        ("2020-02-29", "2020-02-29", (2020, 2, 29), (2020, 3, 1)),
        ("3 May 2019", "2019-05-03", (2019, 5, 3), (2019, 5, 4)),
        (" 2019-05-03T10 ", "2019-05-03T10", (2019, 5, 3, 10), (2019, 5, 3, 11)),
        (
            "2019-05-03T10+05:30",
            "2019-05-03T04:30",
            (2019, 5, 3, 4, 30),
            (2019, 5, 3, 4, 31),
        ),
        ("2019-05-03 10:30Z", "2019-05-03T10:30", (2019, 5, 3, 10, 30), (2019, 5, 3, 10, 31)),
        (
            "2019-05-03T10:30:05.75+02:00",
            "2019-05-03T08:30:05",
            (2019, 5, 3, 8, 30, 5),
            (2019, 5, 3, 8, 30, 6),
        ),
        ("2019-12-31T23:59:59-0001", "2020-01-01T00:00:59", (2020, 1, 1, 0, 0, 59), None),
        ("0001", "0001", (1, 1, 1), (2, 1, 1)),
    ],
)
def test_a_time_is_as_long_as_it_is_precise(
    text: str, iso: str, first: tuple[int, ...], after: tuple[int, ...] | None
) -> None:
    assert parse_time(text) == iso
    assert start(iso) == seconds(*first)
    assert end(iso) == (start(iso) + 1 if after is None else seconds(*after))


def test_the_last_year_ends() -> None:
    assert end("9999") == end("9999-12") == end("9999-12-31") == seconds(9999, 12, 31) + 86400


@pytest.mark.parametrize(
    ("said", "word", "day"),
    [
        ("2024-03-01T08:30:00+09:00", "yesterday", "2024-02-29"),
        ("2024-03-01T08:30:00+09:00", "last month", "2024-02"),
        ("2024-01-01T08:30:00+09:00", "today", "2024-01-01"),
        ("2024-01-01T08:30:00+09:00", "this year", "2024"),
        ("2023-12-31T20:00-08:00", "today", "2023-12-31"),
        ("2023-12-31T20:00-08:00", "last year", "2022"),
        ("2024-03-31T20-0330", "yesterday", "2024-03-30"),
        ("2024-01-01T08:30Z", "today", "2024-01-01"),
    ],
)
def test_days_count_by_the_clock_of_the_speaker(said: str, word: str, day: str) -> None:
    with MemoryGraph.open(":memory:") as graph:
        graph.remember_many([Episode(f"I visited Rome {word}.", said, speaker="Anna")])
        [visit] = [fact for fact in graph.history("Rome") if fact.ends]
    assert visit.valid_from == day
    assert visit.provenance[0].said == parse_time(said)


@pytest.mark.parametrize(
    ("said", "shown"),
    [("2024-01-01T08:30+09:00", "2024-01-01T08:30"), ("2023-12-31T20:00-08:00", "2023-12-31T20:00"),
     ("2024-01-01T08:30", "2024-01-01T08:30")],
)  # fmt: skip
def test_a_time_is_shown_as_the_clock_of_the_speaker_showed_it(
    said: str, shown: str, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    with MemoryGraph.open(tmp_path / "my.db", word_vectors) as graph:
        graph.remember_many([Episode("Nora keeps bees.", said)])
        facts = [*graph.history("Nora"), *graph.ask_episodes("Who keeps bees?").facts]
        [listed] = graph.to_forget(entity="Nora")
        export_html(graph.store, page)
    assert {fact.type for fact in facts} == {"simple", "thesis", "episodic"}
    for fact in facts:
        assert fact.provenance[0].said == parse_time(said)
        assert origin(fact.provenance[0]) == f"#1 {shown}"
        assert validity(fact) == f"said in {shown}"
        assert dated_text(fact).startswith(f"{shown[:10]}: ")
    assert listed.said == shown
    assert f'"said":"{shown}"' in page.read_text(encoding="utf-8").replace(": ", ":")


def test_an_offset_that_is_no_offset_is_a_property_like_others() -> None:
    assert local_time("2024-01-01T08", {"utc_offset": "my own"}) == "2024-01-01T08"
    assert local_time("2024-01-01T08", {"utc_offset": "+05:30"}) == "2024-01-01T13:30"
    assert local_time("9999-12-31T23", {"utc_offset": "+05"}) == "9999-12-31T23"


@pytest.mark.parametrize("zone", ["+25:00", "-99", "+05:75"])
def test_a_zone_that_does_not_exist_is_named(zone: str) -> None:
    with pytest.raises(ValueError, match=rf"there is no zone \{zone}"):
        parse_time(f"2024-01-01T08:30{zone}")


@pytest.mark.parametrize(
    "text", ["", "soon", "2019-13", "2019-02-30", "0000", "19", "2019-05-03T25", "٢٠١٩", "2019-5-3"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a time|no such day"):
        parse_time(text)


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)), st.sampled_from([4, 7, 10, 16, 19]))
def test_periods_hold_the_moments_that_they_begin(moment: datetime, length: int) -> None:
    iso = moment.isoformat(timespec="seconds")[:length]
    assert parse_time(iso) == iso
    assert start(iso) <= (moment - datetime(1970, 1, 1)).total_seconds() < end(iso)


def test_now_is_a_time_in_utc() -> None:
    before = int(datetime.now(UTC).timestamp())
    time = now()
    assert parse_time(time) == time
    assert before <= start(time) <= int(datetime.now(UTC).timestamp())
