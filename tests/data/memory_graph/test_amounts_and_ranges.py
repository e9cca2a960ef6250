"""Amounts and ranges of dates as people write them, read whole or left as text."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngraph.data.amounts import read_amount
from turngraph.data.memory_graph.extract.rules import RulesExtractor
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode, Triplet
from turngraph.data.memory_graph.record.clean import clean_extraction
from turngraph.data.memory_graph.times import start
from turngraph.data.memory_graph.upkeep.check import check


@pytest.mark.parametrize(
    ("text", "number", "unit"),
    [
        ("€1.5m", "1500000", "euros"),
        ("£34k", "34000", "pounds"),
        ("$12bn", "12000000000", "dollars"),
        ("€1.5 million", "1500000", "euros"),
        ("US$1,200.50", "1200.50", "dollars"),
        ("1.350,50 €", "1350.50", "euros"),
        ("1.350 €", "1350", "euros"),
        ("300 €", "300", "euros"),
        ("300 EUR", "300", "euros"),
        ("CHF 1’200", "1200", "francs"),
        ("1\u202f234,5 €", "1234.5", "euros"),
        ("12.345.678", "12345678", ""),
        ("72.5kg", "72.5", "kg"),
        ("1.350 kg", "1.350", "kg"),
        ("1.5m tall", "1.5", "m tall"),
        ("5k", "5", "k"),
        ("-.5", "-0.5", ""),
        ("34 years old", "34", "years old"),
        ("1 234 €", "1234", "euros"),
        ("1\u2009234 €", "1234", "euros"),
        ("1 234 567,89 €", "1234567.89", "euros"),
        ("€ 1 234", "1234", "euros"),
        ("10 000 dollars", "10000", "dollars"),
        ("€ 500", "500", "euros"),
        ("500k€", "500000", "euros"),
        ("500 K€", "500000", "euros"),
        ("1,5 M€", "1500000", "euros"),
        ("2 Mio. €", "2000000", "euros"),
        ("1.350€/month", "1350", "€/month"),
        ("1'234 CHF", "1234", "francs"),
        ("1'234'567.50 CHF", "1234567.50", "francs"),
        ("49,- €", "49", "euros"),
        ("49.– CHF", "49", "francs"),
        ("1 200 000 kr", "1200000", "kroner"),
    ],
)
def test_amounts_are_read(text: str, number: str, unit: str) -> None:
    assert read_amount(text) == (Decimal(number), unit)


@pytest.mark.parametrize(
    "text",
    ["", "no", "€12.34.5", "1,23,456", "5 of 7", "1.2.3", "€", "1.234,567,8", "12 34 €", "1 2345 €",
     "0 234 €", "1'23 CHF", "1'2345 CHF", "room 12 300", "10 100m races", "10 100 € vouchers",
     "12 300 1 €", "0042", "€05", "€30–40", "300 – 400 euros"],
)  # fmt: skip
def test_what_is_no_amount_is_no_other_number(text: str) -> None:
    assert read_amount(text) is None


def triplets(text: str) -> list[Triplet]:
    episode = Episode(text, "2023-06-01", speaker="Anna")
    return list(RulesExtractor().extract([episode])[0].triplets)


@pytest.mark.parametrize(
    ("text", "object_"),
    [
        ("I bought a house for €1.5m.", "€1.5m"),
        ("I weighed 72.5kg in May 2020.", "72.5kg"),
        ("I paid 300 € for it.", "300 €"),
        ("I paid 49,- € for it.", "49,- €"),
        ("I paid 49.- CHF for it.", "49.- CHF"),
        ("I paid €30–40 for it.", "€30–40"),
        ("I paid 300 – 400 euros for it.", "300 – 400 euros"),
        ("We won 3 - 1.", "3 - 1"),
        ("I paid 1 234 € for it.", "1 234 €"),
        ("I paid 1\u202f234 € for it.", "1\u202f234 €"),
        ("I paid € 500 for it.", "€ 500"),
        ("I paid 500k€ for it.", "500k€"),
        ("I paid 1'234 CHF for it.", "1'234 CHF"),
        ("I paid CHF 1’234 for it.", "CHF 1’234"),
        ("My salary is EUR 50k.", "EUR 50k"),
        ("I paid 72.5xyz for it.", "72.5xyz"),
        ("I work at Booking.com in Rome.", "Booking.com"),
        ("I use ASP.NET at work.", "ASP.NET"),
    ],
)
def test_an_amount_or_a_name_with_a_dot_is_one_object(text: str, object_: str) -> None:
    assert object_ in [one.object for one in triplets(text)]


@pytest.mark.parametrize(
    ("words", "since", "until"),
    [
        ("from March to May 2020", "2020-03", "2020-06"),
        ("2010–2015", "2010", "2015"),
        ("2010-15", "2010", "2015"),
        ("3–5 May 2021", "2021-05-03", "2021-05-06"),
        ("May 3-5, 2021", "2021-05-03", "2021-05-06"),
        ("from 30 April to 2 May 2021", "2021-04-30", "2021-05-03"),
        ("November—February 2021", "2020-11", "2021-03"),
        ("Nov 2020 to Feb 2021", "2020-11", "2021-03"),
        ("from March 2020 to May", "2020-03", "2020-06"),
        ("Nov 2020–Feb", "2020-11", "2021-03"),
        ("between 3 and 5 May 2021", "2021-05-03", "2021-05-06"),
        ("from 3 to 5 May", "2023-05-03", "2023-05-06"),
        ("from 2010 to 2015", "2010", "2015"),
        ("from 2010 to 2010", "2010", "2011"),
        ("from 3 to 3 May 2021", "2021-05-03", "2021-05-04"),
        ("until 5 May 2021", None, "2021-05-05"),
    ],
)
def test_ranges_begin_and_end(words: str, since: str, until: str) -> None:
    [lived] = [one for one in triplets(f"I lived in Kiel {words}.") if one.object == "Kiel"]
    assert (lived.valid_from, lived.valid_to) == (since, until)


def test_a_range_that_is_backwards_has_no_end() -> None:
    with MemoryGraph.open(":memory:") as graph:
        graph.remember("Anna lived in Kiel from 2015 to 2010.", time="2020")
        assert check(graph.store) == []
        [lived] = [fact for fact in graph.history("Kiel") if fact.ends]
    assert (lived.valid_from, lived.valid_to) == ("2015", None)


@given(st.text("0123456789 .,–-€km'toMay", max_size=40))
def test_no_text_of_numbers_ends_before_it_begins(text: str) -> None:
    episode = Episode(f"I lived in Kiel {text}", "2023-06-01", speaker="Anna")
    [found] = RulesExtractor().extract([episode])
    for one in clean_extraction(found, len(episode.text), "rules").triplets:
        if one.valid_from and one.valid_to:
            assert start(one.valid_from) <= start(one.valid_to)
    read_amount(text)


def test_the_same_day_without_a_day_before_it_is_not_that_of_writing() -> None:
    assert [one.valid_from for one in triplets("I sold my car the same day.")] == [None]
