"""Entities found in evidence that has none."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turngraph.data.entities import (
    complete_entities,
    count_entity_edges,
    entity_of,
    find_entities,
)
from turngraph.data.normalise import fold
from turngraph.data.types import SOURCES, Conversation, Entity, Evidence, Turn


def pool(*texts: str, source: str = "text") -> list[Evidence]:
    return [Evidence(str(i), text, source) for i, text in enumerate(texts)]


def labels(text: str, source: str = "text", others: tuple[str, ...] = ()) -> list[str]:
    """The entities of one text in a pool with others."""
    return [e.label for e in find_entities(pool(text, *others, source=source))[0].entities]


def ids_of(passage: Evidence) -> set[str]:
    return {entity.id for entity in passage.entities}


def ids(*texts: str) -> list[set[str]]:
    return [ids_of(passage) for passage in find_entities(pool(*texts))]


def test_a_title_is_what_several_passages_begin_with() -> None:
    found = find_entities(pool("lake titicaca, It is deep.", "lake titicaca, It is old.", "x, y."))
    assert [[e.label for e in passage.entities] for passage in found] == [
        ["lake titicaca"],
        ["lake titicaca"],
        [],
    ]


def test_what_merely_opens_sentences_is_no_title() -> None:
    assert ids("However, she left.", "However, Ana Diaz came.") == [set(), {"ana diaz"}]
    assert ids("last year, it grew.", "last year, they left.") == [set(), set()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ann left Booking.com for ASP.NET, and likes Node.js.", "Ann|Booking.com|ASP.NET|Node.js"),
        ("The offices of Amazon.com are in Rome. then Bo came.", "Amazon.com|Rome|Bo"),
        ("Ann paid €1.5m for it, US$300 for tea and 45 € for both.", "€1.5m|US$300|45 €"),
        ("It weighs 72.5kg, costs $5 and lies 10 km off, at 10:30.", "72.5kg|10 km"),
        ("1 350 kg in 2020, 350 km away, for 10 100m races", "1 350 kg|2020|350 km|10|100m"),
        (
            "It weighs 72.5 kg at 38.5 °C and has 16\u00a0GB and 12 men.",
            "72.5 kg|38.5 °C|16\u00a0GB|12",
        ),
        (
            "It runs at 3.5 GHz and 60 Hz, 100 km/h or 30 mph, on 12 V, by 25% of 10 m².",
            "3.5 GHz|60 Hz|100 km/h|30 mph|12 V|25%|10 m²",
        ),
        (
            "It cost 300 EUR, CHF 1,200 or $1.5 bn in 2020 Mallorca.",
            "300 EUR|CHF 1,200|$1.5 bn|2020|Mallorca",
        ),
        ("the 5G net, a fee of 1.5 million and 12.34.56 things", "1.5 million"),
        ("It cost $1.5 billion and 12 million people came.", "$1.5 billion|12 million"),
    ],
)
def test_names_with_dots_and_amounts_with_units_are_whole(text: str, expected: str) -> None:
    assert set(labels(text, others=("He met Ann and Bo.",))) - {"Ann"} == set(
        expected.split("|")
    ) - {"Ann"}


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("$1.5m", "$1.5 million"),
        ("45 €", "€45"),
        ("1.5 million", "1,500,000"),
        ("72.50kg", "72.5kg"),
        ("72.5 kg", "72.50kg"),
        ("1 350 kg", "1350 kg"),
        ("10,000 km", "10000\u00a0km"),
        ("$1.5 bn", "$1.5 billion"),
        ("1.234,50 €", "€1,234.50"),
        ("1.234,50", "1,234.5"),
        ("EUR 300", "€300"),
        ("300 EUR", "€300"),
    ],
)
def test_an_amount_is_one_entity_in_any_spelling(text: str, other: str) -> None:
    assert ids(f"They gave {text}.")[0] == ids(f"They gave {other}.")[0] != set()


def test_amounts_of_different_units_and_sizes_differ() -> None:
    found = ["$1.5m", "€1.5m", "$1.5", "1.5 million", "1.5kg", "15kg", "15 g", "15 m"]
    assert len({entity.id for entity in map(entity_of, found) if entity}) == len(found)


def test_cells_of_a_row() -> None:
    text = "Peru, City is lima, People is 10,151,000, Note is the capital, Rank is 1, Region is Ica"
    expected = ["Peru", "lima", "10,151,000", "the capital", "Ica"]
    assert labels(text, "table") == expected


def test_values_of_an_infobox_row() -> None:
    expected = ["Peru", "Spanish, Quechua, guaraní", "Spanish", "Quechua", "guaraní"]
    assert labels("Peru, Languages, Spanish, Quechua, guaraní", "infobox") == expected


def test_subject_object_and_qualifier_values_of_a_fact() -> None:
    text = "Ana Diaz, position held, mayor, start time, 2 May 1999, of, Cusco"
    assert labels(text, "kb") == ["Ana Diaz", "mayor", "2 May 1999", "Cusco"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("He met Ana Diaz there.", ["Ana Diaz"]),
        ("He saw the Lord of the Rings.", ["Lord of the Rings"]),
        ("She is Ludwig van Beethoven's aunt.", ["Ludwig van Beethoven"]),
        ("He read J. R. R. Tolkien and J.K. Rowling.", ["J. R. R. Tolkien", "J.K. Rowling"]),
        ("They flew with Apollo 11 to it.", ["11", "Apollo 11"]),
        ("He met Ana 10,000 times.", ["10,000", "Ana"]),
        ("They met at Expo 2000 there.", ["2000", "Expo"]),
        ("He met Ana de la there.", ["Ana"]),
        ("It is run by Johnson & Johnson.", ["Johnson & Johnson"]),
        ("He saw Lima and Cusco.", ["Lima", "Cusco"]),
        ("He came to the city of Dr. Ana Diaz.", ["Dr. Ana Diaz"]),
        ("They saw Jean-Paul O'Neill.", ["Jean-Paul O'Neill"]),
        ("He met Ana. Diaz left.", ["Ana"]),
        ("He went in 1999, I think.", ["1999"]),
        ("Он видел Анну Каренину.", ["Анну Каренину"]),
    ],
)
def test_names_inside_a_sentence(text: str, expected: list[str]) -> None:
    assert labels(text) == expected


def test_a_word_that_begins_a_sentence_is_a_name_if_it_is_one_elsewhere() -> None:
    text = "Lima is large. Rivers flow."
    assert labels(text) == []
    assert labels(text, others=("We saw Lima.",)) == ["Lima"]
    assert labels(text, others=("Lima grows.",)) == []
    row = Evidence("1", "Cities, City is Lima", "table")
    assert ids_of(find_entities([*pool(text), row])[0]) == {"lima"}


def test_function_words_and_roles_are_cut_off_at_the_beginning_of_a_sentence() -> None:
    assert labels("In Peru it rains. The Ritz Hotel is old.") == ["Peru", "Ritz Hotel"]
    assert labels("New York is large.", others=("a new town",)) == ["New York"]
    others = ("Once a singer, she met Ana Diaz.",)
    assert labels("Singer Ana Diaz left.", others=others) == ["Ana Diaz"]


@pytest.mark.parametrize(
    "text",
    [
        "2 October 2000",
        "October 2nd, 2000",
        "Oct. 2, 2000",
        "2nd of Oct 2000",
        "2000-10-02",
        "2. Oktober 2000",
        "02.10.2000",
        "2.10.2000",
    ],
)
def test_dates_in_any_spelling_are_one_entity(text: str) -> None:
    first, second = find_entities(pool(f"it began on {text}.", "it ended on 2 Oct 2000"))
    assert [e.id for e in first.entities] == ["2000-10-02"]
    assert [e.id for e in second.entities] == ["2000-10-02"]
    assert second.entities[0].label == text
    assert second.entities[0].mentions == (() if text == "2 Oct 2000" else ("2 Oct 2000",))


def test_what_is_no_date() -> None:
    assert ids("in october they met", "31 June 2000") == [set(), {"june", "31", "2000"}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("it has 10,151,000 people", {"10151000"}),
        ("it has 10151000 people, 12.50 each", {"10151000", "12.5"}),
        ("3 of 7 came in the 2nd week of 42", {"42"}),
        ("from 1999–2005 at 9:30 or 10:45", {"1999", "2005"}),
        ("it fell to -12 and −15.", {"-12", "-15"}),
        ("codes a320, 12b and 1,2345", set()),
        ("the end of 1999.", {"1999"}),
        ("order 42 of part 0042 in row 05, version 10.1.2.2021", {"42", "0042"}),
    ],
)
def test_numbers_of_two_digits_and_more(text: str, expected: set[str]) -> None:
    assert ids(text) == [expected]


@pytest.mark.parametrize(
    "text", ['it is "the old song" now', "it is “the old song”", "it is «the old song»"]
)
def test_quoted_titles(text: str) -> None:
    assert labels(text) == ["the old song"]


@pytest.mark.parametrize(("length", "is_entity"), [(1, False), (2, True), (100, True)])
def test_an_entity_has_two_to_a_hundred_characters(length: int, is_entity: bool) -> None:
    assert (entity_of("x" * length) is not None) == is_entity


@pytest.mark.parametrize(("length", "is_title"), [(80, True), (81, False)])
def test_a_title_has_80_characters_at_most(length: int, is_title: bool) -> None:
    title = "x" * length
    expected = [title] if is_title else []
    assert labels(f'it is "{title}" now') == expected
    assert labels(f"{title}, It rains.", others=(f"{title}, It snows.",)) == expected


def test_quoted_sentences_are_no_titles() -> None:
    assert labels('she said "it is old." and left') == []


@pytest.mark.parametrize(
    ("text", "source", "expected"),
    [
        ("日本は1945年8月15日に「君が代」と", "text", ["君が代"]),
        ("東京, 都市 is 日本, 人口 is 13,960,000", "table", ["東京", "日本", "13,960,000"]),
        ("पेरू, राजधानी, लीमा", "kb", ["पेरू", "लीमा"]),
    ],
)
def test_scripts_without_capital_letters(text: str, source: str, expected: list[str]) -> None:
    assert labels(text, source) == expected


def test_equal_ones_share_an_id_across_sources() -> None:
    passages = [
        Evidence("a", "Cities, City is José María, People is 1,234", "table"),
        Evidence("b", "He went to Jose Maria with 1234 men.", "text"),
    ]
    table, text = find_entities(passages)
    assert {e.id for e in table.entities} & {e.id for e in text.entities} == {"jose maria", "1234"}


def test_passages_with_entities_stay_and_theirs_are_reused() -> None:
    lima = Entity("Q2868", "Lima", ("the capital",))
    given_passage = Evidence("a", "Ana Diaz lives in Lima", "text", (lima,))
    bare = Evidence("b", "She saw Lima and Ana Diaz.", "text")
    first, second = find_entities([given_passage, bare])
    assert first is given_passage
    assert second.entities == (Entity("Q2868", "Lima"), Entity("ana diaz", "Ana Diaz"))
    extended = find_entities([given_passage, bare], extend=True)[0]
    assert extended.entities == (lima, Entity("ana diaz", "Ana Diaz"))


@pytest.mark.parametrize("text", ["", " ", "7", "−5", "٧", "-", "A", "x" * 101])
def test_what_is_no_entity(text: str) -> None:
    assert entity_of(text) is None


def test_star_edges() -> None:
    passages = [
        Evidence("0", "", "kb", (Entity("a", "a"), Entity("b", "b"))),
        Evidence("1", "", "kb", (Entity("a", "a"), Entity("c", "c"))),
        Evidence("2", "", "kb", (Entity("a", "a"), Entity("c", "c"))),
    ]
    assert count_entity_edges(passages) == (3, 2, 3)


def test_pools_are_completed_once_and_stay_shared(caplog: pytest.LogCaptureFixture) -> None:
    shared = tuple(pool("He saw Ana Diaz.", "She is Ana Diaz.", "it is 1999"))
    full = (Evidence("0", "Ana Diaz", "text", (Entity("Q1", "Ana"),)),)
    own = tuple(pool("in Cusco"))
    conversations = [
        Conversation("a", "", (Turn("0", "x", evidence=own), Turn("1", "y")), shared),
        Conversation("b", "", (Turn("0", "x", evidence=full),), shared),
        Conversation("c", "", (Turn("0", "x"),), full),
    ]
    with caplog.at_level(logging.INFO):
        a, b, c = complete_entities(conversations)
    assert a.evidence is b.evidence
    assert [[e.id for e in passage.entities] for passage in a.evidence] == [
        ["ana diaz"],
        ["ana diaz"],
        ["1999"],
    ]
    assert [e.id for e in a.turns[0].evidence[0].entities] == ["cusco"]
    assert b.turns[0].evidence is full
    assert c.evidence is full
    assert caplog.messages == [
        "found 3 entities in 4 passages, 1 in at least two passages; these give up to 1 entity "
        "edge, where they are in at most half of a question's passages"
    ]
    caplog.clear()
    assert complete_entities([c]) == [c]
    assert caplog.messages == []


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.builds(
            Evidence,
            st.just("0"),
            st.text(alphabet='Aa9 ,."is日é-\n|', max_size=40),
            st.sampled_from(SOURCES),
        ),
        max_size=4,
    )
)
def test_whatever_is_found_stands_in_the_text(passages: list[Evidence]) -> None:
    found = find_entities(passages)
    assert [replace(passage, entities=()) for passage in found] == passages
    for passage in found:
        names = [entity.id for entity in passage.entities]
        assert len(set(names)) == len(names)
        for entity in passage.entities:
            assert any(fold(m) in fold(passage.text) for m in (entity.label, *entity.mentions))


@pytest.mark.parametrize("mark", ["“ab ", "«c ", "„d ", "「e ", "『f "])
def test_quotation_marks_that_never_close_cost_what_their_text_does(mark: str) -> None:
    """With a cost that grows by the square this would run for minutes."""
    [found] = find_entities([Evidence("e", mark * 20_000 + "“Dune”", "text")])
    assert [entity.label for entity in found.entities] == ["Dune"]
