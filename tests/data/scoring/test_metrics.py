"""Hand-computed cases of every metric, and what must hold for any answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein

from turngraph.data.scoring.metrics import (
    answer_in_evidence,
    answer_value,
    exact_match,
    guess_hit,
    hit,
    nearest_entities,
    same_entity,
    split_answer,
    substring_match,
    token_f1,
)
from turngraph.data.types import Answer, Entity, Evidence


def passage(*labels: str, text: str = "", source: str = "kb", id_: str = "e") -> Evidence:
    return Evidence(id_, text, source, tuple(Entity(f"Q-{label}", label) for label in labels))


def gold(*labels: str) -> list[Answer]:
    return [Answer(label) for label in labels]


CAPITALS = [passage("Lima", "Peru"), passage("Bogotá", "Colombia"), passage("La Paz", "Bolivia")]


# Nearest entities


def test_ties_go_to_the_entity_that_the_evidence_names_first():
    passages = [passage("cat"), passage("bat"), passage("rat", "cat")]
    assert [e.label for e in nearest_entities("hat", passages)] == ["cat", "bat", "rat"]
    assert [e.label for e in nearest_entities("hat", passages[::-1])] == ["rat", "cat", "bat"]


def test_nearest_entities_are_distinct_by_id_and_take_their_nearest_label():
    passages = [
        Evidence("0", "", "kb", (Entity("Q30", "United States of America"), Entity("Q16", "Ural"))),
        Evidence("1", "", "kb", (Entity("Q30", "USA"), Entity("Q31", "USA"))),
    ]
    found = nearest_entities("usa", passages)
    assert [(e.id, e.label) for e in found] == [("Q30", "USA"), ("Q31", "USA"), ("Q16", "Ural")]


@pytest.mark.parametrize("answer", ["", "  ", "; "])
def test_an_empty_answer_has_no_nearest_entity(answer: str):
    assert nearest_entities(answer, CAPITALS) == []
    assert not hit(answer, [], gold("Lima"), 5)
    assert not exact_match(answer, gold(""))


def test_dates_and_numbers_are_near_in_any_spelling():
    passages = [passage("3 October 2000", "1235"), passage("2000-10-02", "1,234")]
    assert nearest_entities("October 2, 2000", passages)[0].label == "2000-10-02"
    assert nearest_entities("1234.0", passages)[0].label == "1,234"


LABELS = st.lists(st.text("abc ;2é", min_size=1, max_size=6), min_size=1, max_size=12)


@given(st.text("abc ;2é", max_size=8), LABELS, st.integers(1, 6))
def test_nearest_entities_equal_a_plain_sort(answer: str, labels: list[str], k: int):
    passages = [passage(label) for label in labels]
    elements = split_answer(answer)
    expected = [
        sorted(
            dict.fromkeys(labels),
            key=lambda label: Levenshtein.distance(answer_value(element), answer_value(label)),
        )[:k]
        for element in elements
    ]
    found = [e.label for e in nearest_entities(answer, passages, k)]
    assert [found[i :: len(elements)] for i in range(len(elements))] == expected


def test_elements_of_a_list_stay_in_order_and_occur_once() -> None:
    assert split_answer("b; A; b; ; c;A") == ["b", "A", "c;A"]


@given(st.text("ab; ", max_size=8), st.lists(st.text("ab ", max_size=3), max_size=3), LABELS)
def test_metrics_are_ordered(answer: str, labels: list[str], names: list[str]):
    answers, candidates = gold(*labels), nearest_entities(answer, [passage(*names)])
    exact = exact_match(answer, answers)
    at_1, at_5 = (hit(answer, candidates, answers, k) for k in (1, 5))
    assert exact <= at_1 <= at_5
    assert exact <= token_f1(answer, answers) <= 1
    assert exact <= substring_match(answer, answers)


# H@1 and H@5


def test_an_exact_answer_needs_no_candidate():
    assert hit("  LIMA.", [], gold("Lima"), 1)
    assert not hit("Limo", [], gold("Lima"), 5)


def test_the_rank_of_the_nearest_entity_decides():
    found = nearest_entities("Bogota town", CAPITALS)
    assert hit("Bogota town", found, gold("Bogotá"), 1)
    assert not hit("Bogota town", found, gold("Colombia"), 1)
    assert hit("Bogota town", found, gold("Colombia"), 5)
    assert not hit("Bogota town", found, gold("Peru"), 5)


def test_by_id_where_both_have_one():
    film, novel = Entity("Q14", "Divergent"), Entity("Q627192", "Divergent")
    answer = Answer("Divergent", "Q627192")
    assert same_entity(novel, answer)
    assert not same_entity(film, answer)
    assert same_entity(Entity("Q627192", "Divergent (novel)"), answer)
    assert not hit("Divergentt", [film, novel], [answer], 1)
    assert hit("Divergentt", [film, novel], [answer], 5)
    assert hit("Q627192", [], [answer], 1)


def test_by_value_where_an_id_only_spells_the_label():
    answer = Answer("Lima", "Q2868")
    assert same_entity(Entity("Lima", "Lima"), answer)
    assert same_entity(Entity("lima", "Lima"), answer)
    assert same_entity(Entity("Q2868", "Lima"), gold("Lima")[0])
    date = Answer("2 October 2000", "2000-10-02T00:00:00Z")
    assert same_entity(Entity("2000-10-02", "October 2, 2000"), date)


def test_a_plain_number_as_id_is_not_an_answer():
    assert not hit("2", [], [Answer("Lima", "2")], 1)
    assert hit("2", [], [Answer("2", "2")], 1)


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("Lima; La Paz; Bogotá", True),
        ("La Paz; Lima; bogota", True),
        ("La Paz; Limma; Bogta", True),
        ("Lima; Lima; La Paz; Bogotá", True),
        ("Lima; La Paz", False),
        ("Lima", False),
        ("Lima; La Paz; Bogotá; Peru", False),
        ("Lima; La Paz; Peru", False),
        ("Lima; La Paz; Limma", False),
    ],
)
def test_a_list_counts_as_the_whole_set(answer: str, right: bool):
    answers = gold("Lima", "Bogotá", "La Paz")
    assert hit(answer, nearest_entities(answer, CAPITALS), answers, 1) is right


def test_hit_at_5_of_a_list_looks_at_five_entities_of_each_element():
    answers, answer = gold("Lima", "Peru"), "Lima; Per Bogota"
    found = nearest_entities(answer, CAPITALS)
    assert not hit(answer, found, answers, 1)
    assert hit("Lima; Lim", nearest_entities("Lima; Lim", CAPITALS), answers, 5)
    assert not hit("Lima", nearest_entities("Lima", CAPITALS), answers, 5)


def test_a_superfluous_element_makes_a_single_answer_wrong():
    found = nearest_entities("Lima; Peru", CAPITALS)
    assert not hit("Lima; Peru", found, gold("Lima"), 5)
    assert hit("Lima; Lima", nearest_entities("Lima; Lima", CAPITALS), gold("Lima"), 1)


def test_a_label_may_hold_the_list_separator():
    assert hit("Tom; Jerry", [], gold("Tom; Jerry"), 1)
    assert not hit("Tom; Spike", [], gold("Spike", "Tom; Jerry"), 1)
    assert hit("Spike; Tom; Jerry", [], gold("Spike", "Tom; Jerry"), 1)


def test_gold_answers_of_one_label_are_one_element():
    two = [Answer("John Smith", "Q1"), Answer("John Smith", "Q2")]
    assert hit("John Smith", [], two, 1)
    assert hit("John Smit", [Entity("Q2", "John Smith")], two, 1)


# Exact match, F1, substring


@pytest.mark.parametrize(
    ("answer", "label", "right"),
    [
        ("October 2, 2000", "2 October 2000", True),
        ("2000-10-02", "2 October 2000", True),
        ("2nd of Oct. 2000.", "2000-10-02T00:00:00Z", True),
        ("2 October 2001", "2 October 2000", False),
        ("1,234", "1234", True),
        ("1234.", "1,234", True),
        ("1235", "1,234", False),
        ("3.5", "35", False),
        ("“The Beatles”", "beatles", True),
        ("🎉", "🎉", True),
        ("🎉", "🎈", False),
        ("東京", "東京", True),
        ("東京", "京都", False),
        ("दाल", "दिल", False),
        ("МОСКВА", "Москва", True),
    ],
)
def test_exact_match_is_equality_of_values(answer: str, label: str, right: bool):
    assert exact_match(answer, gold(label)) is right
    assert token_f1(answer, gold(label)) == 1.0 if right else token_f1(answer, gold(label)) < 1


def test_exact_match_of_a_list_in_any_order():
    assert exact_match("b; a", gold("A", "B"))
    assert not exact_match("b", gold("A", "B"))
    assert not exact_match("Lima", [])
    assert not exact_match("42", gold("0042"))
    assert not exact_match("42", [Answer("The part", "0042")])
    assert not exact_match("0042", [Answer("The part", "0042")])


def test_token_f1_by_hand():
    # {city, of, lima} and {lima}: precision 1/3, recall 1
    assert token_f1("the city of Lima", gold("Lima")) == pytest.approx(0.5)
    # {lima, paz} and {lima, la, paz}: 2 * 2 / 5
    assert token_f1("Lima; Paz", gold("La Paz", "Lima")) == pytest.approx(0.8)
    assert token_f1("Peru", gold("Lima")) == 0
    assert token_f1("", gold("Lima")) == 0
    assert token_f1("1,234", gold("234")) == 0
    # repeated words count as often as they stand there: 2 * 1 / 4
    assert token_f1("lima lima lima", gold("Lima")) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("answer", "labels", "right"),
    [
        ("The capital is Lima.", ["Lima"], True),
        ("The capital is Limassol.", ["Lima"], False),
        ("Limassol is not Lima.", ["Lima"], True),
        ("Lima and La Paz", ["La Paz", "Lima"], True),
        ("Lima and Quito", ["La Paz", "Lima"], False),
        ("It was on October 2nd, 2000, I think", ["2000-10-02"], True),
        ("It was on 2 Oct. 2000", ["October 2, 2000"], True),
        ("It was on 12 October 2000", ["2 October 2000"], False),
        ("about 1,234 people", ["1234"], True),
        ("about 1,234 people", ["234"], False),
        ("part 0042 of it", ["42"], False),
        ("part 0042 of it", ["0042"], True),
        ("It was on 2. Oktober 2000", ["2000-10-02"], True),
        ("It was on 02.10.2000, I think", ["2 October 2000"], True),
        ("It was version 3.02.10.2000", ["2 October 2000"], False),
        ("3.5 goals", ["5"], False),
        ("3.50 goals", ["3.5"], False),
        ("首都は東京です", ["東京"], True),
        ("กินข้าว", ["กิน"], True),
        ("กินข้าว", ["ก"], False),  # a vowel sign is part of the letter before it
        ("", ["Lima"], False),
        ("Lima", [""], False),
    ],
)
def test_substring_as_whole_words(answer: str, labels: list[str], right: bool):
    assert substring_match(answer, gold(*labels)) is right


# The answer in the evidence


E_T = [
    passage("Lima", text="Peru capital Lima", source="kb", id_="0"),
    passage(text="Lima was founded on January 18, 1535 .", source="text", id_="1"),
    passage("10,092,000", text="Population: 10,092,000", source="infobox", id_="2"),
    passage("Q", text="Quito | 2,850", source="table", id_="3"),
]


@pytest.mark.parametrize(
    ("answers", "sources"),
    [
        (gold("Lima"), ["kb", "text"]),
        (gold("18 January 1535"), ["text"]),
        (gold("January 1535"), ["text"]),
        (gold("10092000"), ["infobox"]),
        (gold("lima", "Quito"), ["kb", "table", "text"]),
        (gold("Lima", "Bogotá"), []),
        (gold("Lim"), []),
        (gold("850"), []),
        (gold(""), []),
        ([], []),
        ([Answer("Ciudad de los Reyes", "Q-Lima")], ["kb"]),
    ],
)
def test_answer_in_evidence_names_the_sources(answers: list[Answer], sources: list[str]):
    assert answer_in_evidence(answers, E_T) == sources
    assert answer_in_evidence(answers, []) == []


def test_the_chance_level_is_that_of_a_random_ranking() -> None:
    names = ["Lima", "Quito", "Oslo", "Chad", "Peru", "Cuba", "Kenya", "Japan"]
    passages = [
        Evidence(name, f"{name} and Lima", "text", (Entity(name, name), Entity("Lima", "Lima")))
        for name in names
    ]
    both = [Answer("lima"), Answer("Lima")]  # one label
    for gold, right in (([Answer("Oslo", "Oslo")], 1), (both, 1), ([Answer("Rome")], 0)):
        assert guess_hit(gold, passages, 1) == pytest.approx(right / 8)
        assert guess_hit(gold, passages, 5) == pytest.approx(5 * right / 8)
    twice = [*passages, Evidence("x", "LIMA", "text", (Entity("Lima, Peru", "LIMA"),))]
    assert guess_hit(both, twice, 5) == pytest.approx(1 - (4 / 9) * (3 / 8))  # 2 of 9 are right
    assert guess_hit(both, passages[:2], 5) == 1.0  # fewer than five
    assert guess_hit([Answer("Lima"), Answer("Oslo")], passages, 5) == 0.0
    assert guess_hit(both, [], 5) == 0.0
