"""Entity spans: whole words, longest first, any script, offsets in the original text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngraph.data.graph.entity_spans import entity_spans
from turngraph.data.name_finder import MAX_NAME_CHARS
from turngraph.data.normalise import fold
from turngraph.data.types import Entity, Evidence
from turngraph.tests.growing import assert_grows_linearly, cpu_seconds


def entity(name: str, id_: str | None = None, *mentions: str) -> Entity:
    return Entity(id_ or name, name, mentions)


def passage(text: str, *entities: Entity) -> Evidence:
    return Evidence(text, text, "text", entities)


def spans_of(text: str, *labels: str) -> list[tuple[str, str]]:
    """(entity, the characters of its span) in a passage that lists entities of these labels."""
    (found,) = entity_spans([passage(text, *map(entity, labels))])
    return [(span.entity, text[span.start : span.end]) for span in found]


@pytest.mark.parametrize(
    ("text", "label", "expected"),
    [
        ("Lima is big, Lima!", "Lima", ["Lima", "Lima"]),
        ("the LIMA of lima", "Lima", ["LIMA", "lima"]),
        ("Limas and Alima and Lima2", "Lima", ["Lima"]),  # as no whole word is there
        ("Limas and Lima", "Lima", ["Lima"]),
        ("서울에는 한강이 흐른다.", "서울", ["서울"]),
        ("Asuu Helsingissä ja on Helsinginkin ystävä.", "Helsingi", ["Helsingi", "Helsingi"]),
        ("وصل والقاهرة بعيدة", "القاهرة", ["القاهرة"]),
        ("two New Yorkers", "New York", ["New York"]),
        ("party", "art", []),
        ("Megalima, Megaparis", "Paris", ["paris"]),
        ("Megalima, Megaparis", "Lima", []),  # too short inside a word
        ("किताबें", "किताब", []),  # a vowel sign is part of the letter before it
        ("(Lima) Lima-Callao Lima's", "Lima", ["Lima", "Lima", "Lima"]),
        ("in 1967, not 21967 or 19670", "1967", ["1967"]),
        ("since the 1980s", "1980", []),
        ("New  York\nand New\tYork", "New York", ["New  York", "New\tYork"]),
        ("New York\u00a0City", "new york city", ["New York\u00a0City"]),
        ("", "Lima", []),
        ("Lima", "Lima is the capital", []),
    ],
)
def test_whole_words_in_any_case_and_spacing(text: str, label: str, expected: list[str]) -> None:
    assert spans_of(text, label) == [(label, form) for form in expected]


@pytest.mark.parametrize(
    ("text", "label", "expected"),
    [
        ("Die Straße, die STRASSE", "strasse", ["Straße", "STRASSE"]),
        ("ß", "s", []),
        ("Perú und Peru\u0301 hier", "Peru", ["Perú", "Peru\u0301"]),
        ("Peru", "Perú", ["Peru"]),
        ("in İstanbul'da", "Istanbul", ["İstanbul"]),
        ("ﬁlm and film", "film", ["ﬁlm", "film"]),
        ("½ or 1", "1", ["1"]),
        ("½ or 2", "2", ["2"]),
        ("ΟΔΥΣΣΕΥΣ und Οδυσσεύς", "Οδυσσεύς", ["ΟΔΥΣΣΕΥΣ", "Οδυσσεύς"]),
        ("日本の東京都", "東京", ["東京"]),
        ("東京2020と東京", "東京", ["東京", "東京"]),
        ("東京Łódźと東京", "東京", ["東京", "東京"]),
        ("バスとパス", "バス", ["バス"]),
        ("ハスとハ\u3099ス", "バス", ["ハ\u3099ス"]),
        ("यह किताब है", "किताब", ["किताब"]),
        ("यह किताब है", "क", []),
        ("की2 है की", "की", ["की"]),
        ("กรุงเทพมหานคร", "กรุงเทพ", ["กรุงเทพ"]),
        ("МОСКВА и Москвариум", "Москва", ["МОСКВА"]),
        ("😀 Lima 😀😀", "Lima", ["Lima"]),
        ("I ❤️ Lima", "❤", ["❤"]),
        ("a 🎸 b", "🎸", ["🎸"]),
        ("각", "가", []),
    ],
)
def test_unicode_with_offsets_in_the_text_as_it_stands(
    text: str, label: str, expected: list[str]
) -> None:
    assert spans_of(text, label) == [(label, form) for form in expected]


def test_offsets_stay_right_behind_characters_that_fold_to_more_or_fewer() -> None:
    text = "ß ﬁ İ e\u0301 ½ 日本 😀  — Lima, Perú."
    (found,) = entity_spans([passage(text, entity("Lima"), entity("Peru"))])
    assert [text[s.start : s.end] for s in found] == ["Lima", "Perú"]


def test_longest_first_and_nothing_overlaps() -> None:
    assert spans_of("New York City Hall", "York", "New York City", "City Hall") == [
        ("New York City", "New York City")
    ]
    assert spans_of("York, New York", "York", "New York") == [
        ("York", "York"),
        ("New York", "New York"),
    ]
    assert spans_of("old New York City", "old New", "New York City") == [
        ("New York City", "New York City")
    ]
    assert spans_of("aa bb cc", "aa bb", "bb cc") == [("aa bb", "aa bb")]  # a tie goes by place


def test_mentions_find_the_entity_too() -> None:
    (found,) = entity_spans([passage("NYC is big", entity("New York", "Q60", "NYC", "Big Apple"))])
    assert [(s.entity, s.start, s.end) for s in found] == [("Q60", 0, 3)]


def test_every_passage_is_searched_for_the_entities_of_all() -> None:
    sentence = passage("Thom Yorke sings on Kid A.")
    row = passage("Kid A | 2000", entity("Kid A"), entity("2000"))
    found = entity_spans([sentence, row])
    assert [s.entity for s in found[0]] == ["Kid A"]
    assert [s.entity for s in found[1]] == ["Kid A", "2000"]


def test_an_ambiguous_mention_is_the_passages_own_else_the_best_ranked() -> None:
    album, letter = entity("Kid A", "album"), entity("Kid A", "song")
    passages = [passage("Kid A, 2000", album), passage("song Kid A", letter), passage("on Kid A")]
    assert [[s.entity for s in found] for found in entity_spans(passages)] == [
        ["album"],
        ["song"],
        ["album"],
    ]


@pytest.mark.parametrize(
    ("label", "elsewhere"),
    [("12", False), ("US", False), ("123", False), ("1967", True), ("Rio", True), ("東", True)],
)
def test_a_short_mention_is_believed_only_where_it_is_listed(label: str, elsewhere: bool) -> None:
    row, other = passage(f"rank {label} x", entity(label)), passage(f"some {label} there")
    found = entity_spans([row, other])
    assert len(found[0]) == 1
    assert len(found[1]) == elsewhere


def test_a_part_of_a_word_is_a_mention_only_where_its_entity_is_listed() -> None:
    listed, other = passage("two New Yorkers", entity("New York")), passage("all New Yorkers")
    assert [len(found) for found in entity_spans([listed, other])] == [1, 0]


def test_no_entities_and_empty_labels() -> None:
    assert entity_spans([]) == []
    assert entity_spans([passage("Lima"), passage("")]) == [[], []]
    assert entity_spans([passage("Lima  x", entity("", "e"), entity("\u0301", "a"))]) == [[]]


LABELS = st.lists(
    st.text(st.sampled_from("aAbß é\u0301İı日ハ\u3099क\u093f1½-. "), min_size=1, max_size=4),
    max_size=5,
)


@given(LABELS, st.lists(st.sampled_from([" ", "  ", "\n", "-", "", "x", "é"]), max_size=6))
def test_every_span_reads_as_a_name_of_its_entity(labels: list[str], between: list[str]) -> None:
    texts = ["".join(a + b for a, b in zip(labels, between, strict=False)), " ".join(labels)]
    entities = [entity(label) for label in dict.fromkeys(labels)]
    passages = [passage(texts[0], *entities[:2]), passage(texts[1], *entities[2:])]
    for item, found in zip(passages, entity_spans(passages), strict=True):
        end = 0
        for span in found:
            assert end <= span.start < span.end <= len(item.text)
            assert fold(item.text[span.start : span.end]) == fold(span.entity)
            end = span.end


@given(LABELS)
def test_a_listed_label_that_stands_alone_is_found(labels: list[str]) -> None:
    label = "x" + "".join(labels)
    (found,) = entity_spans([passage(f". {label} .", entity(label))])
    assert [span.start for span in found] == [2]


@pytest.mark.parametrize("more", [0, 1])
def test_a_name_that_is_too_long_is_not_found(more: int) -> None:
    name = "Lima " + "x" * (MAX_NAME_CHARS - 5 + more)
    assert spans_of(f"in {name}", name) == [(name, name)] * (1 - more)


def test_names_inside_each_other_are_bounded() -> None:
    """300 names that end everywhere: the longest still wins."""
    words = ["aa"] * 500
    entities = tuple(Entity(f"e{k}", " ".join(words[:k])) for k in range(1, 301))
    [spans] = entity_spans([Evidence("a", " ".join(words), "text", entities)])
    longest = [span for span in spans if span.entity == "e300"]
    assert len(longest) == 1
    assert longest[0].end - longest[0].start == 3 * 300 - 1


def test_many_entities_of_one_name_are_looked_through_once_a_passage() -> None:
    def seconds(num: int) -> float:
        named = tuple(Entity(f"anna {n}", "Anna") for n in range(num))
        passages = [Evidence("all", "Anna. " * num, "text"), Evidence("one", "Anna", "text", named)]
        return cpu_seconds(lambda: entity_spans(passages))

    assert_grows_linearly(seconds, 1_000)
