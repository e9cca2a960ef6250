"""Steps of questions by rules."""

from __future__ import annotations

import pytest

from turngraph.data.memory_graph.plan.decompose import coordinated, decompose, wanted_kind


@pytest.mark.parametrize(
    ("question", "steps"),
    [
        (
            "Who leads the country where Anna was born?",
            ["country where Anna was born", "Who leads [1]"],
        ),
        (
            "When did the country containing Springfield leave the empire?",
            ["country containing Springfield", "When did [1] leave the empire"],
        ),
        (
            "What is the largest hotel in Oddny's city of birth?",
            ["Oddny's city of birth", "What is the largest hotel in [1]"],
        ),
        (
            "Who ruled the country where the composer of Winter Tales was a citizen?",
            ["composer of Winter Tales", "country where [1] was a citizen", "Who ruled [2]"],
        ),
        (
            "Which year did the company Blue Fox Airways is part of dissolve?",
            ["company Blue Fox Airways is part of", "Which year did [1] dissolve"],
        ),
        (
            "What county borders the county in which Greenhill, Ohio is located?",
            ["county in which Greenhill, Ohio is located", "What county borders [1]"],
        ),
        (
            "When did the state whose official sport is jousting change its flag?",
            ["state whose official sport is jousting", "When did [1] change its flag"],
        ),
        (
            "Oddny Berg was a professor at a university that is located in what city?",
            ["university that Oddny Berg was a professor at", "[1] is located in what city"],
        ),
        (
            'What did the person who wrote "The Long Plan" study?',
            ['person who wrote "The Long Plan"', "What did [1] study"],
        ),
    ],
)
def test_bridges_are_followed_from_the_innermost_name(question: str, steps: list[str]) -> None:
    assert list(decompose(question)) == steps


@pytest.mark.parametrize(
    "question",
    [
        "Who is the wife of Kim Jong-chul?",  # nothing is left to ask about her
        "Where does Anna live?",
        "what about the weather?",
        "Who met Anna in a city that has a harbour?",  # the clause asks nothing
        "Wer regiert das Land, in dem Anna geboren wurde?",
        "?",
        "",
    ],
)
def test_a_plain_question_is_its_only_step(question: str) -> None:
    assert decompose(question) == (question,)


def test_two_coordinated_names_make_two_questions() -> None:
    assert coordinated("Are Oslo and Bergen both ports?") == (
        "Are Oslo ports?",
        "Are Bergen ports?",
    )
    assert coordinated("Which is older, Oslo or Bergen?") == (
        "Which is older, Oslo?",
        "Which is older, Bergen?",
    )


@pytest.mark.parametrize(
    "question",
    [
        "Did Anna and Berta move to Oslo?",
        "Where is Oslo?",
        "Are they from Oslo's harbour and Bergen?",
    ],
)
def test_in_doubt_a_question_is_not_split(question: str) -> None:
    assert coordinated(question) == (question,)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("country where Anna was born", "country"),
        ("Anna's place of birth", "place"),
        ("What old city is near Oslo?", "city"),
        ("Whom did Anna marry?", "who"),
        ("When did Anna marry?", "when"),
        ("Did Anna marry?", "whether"),
        ("Anna married", None),
        ("", None),
    ],
)
def test_the_wanted_kind_is_the_head_noun_or_the_question_word(text: str, kind: str | None) -> None:
    assert wanted_kind(text)[0] == kind
