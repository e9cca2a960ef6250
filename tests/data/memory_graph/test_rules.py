"""Rules: sentences, dates, mentions and what is replaced, on any text."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turngraph.data.memory_graph.extract.aspects import find_replaced
from turngraph.data.memory_graph.extract.dates import find_dates
from turngraph.data.memory_graph.extract.rules import RulesExtractor
from turngraph.data.memory_graph.extract.sentences import MAX_SENTENCE_CHARS, split_episode
from turngraph.data.memory_graph.memory_types import (
    Episode,
    Extraction,
    Fact,
    Provenance,
    Triplet,
    Update,
)

RULES = RulesExtractor()
SAID = "2023-05-08T13:56"  # a Monday


def extract(text: str, **more: str) -> Extraction:
    return RULES.extract([Episode(text, **more)])[0]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Dr. Smith met J. K. Rowling. She left.", ["Dr. Smith met J. K. Rowling.", "She left."]),
        ("In the U.S. it rains, e.g. today.", ["In the U.S. it rains, e.g. today."]),
        ("安娜住在巴黎。她很好！", ["安娜住在巴黎。", "她很好！"]),
        ("अन्ना दिल्ली में है। वह खुश है॥", ["अन्ना दिल्ली में है।", "वह खुश है॥"]),
        ("- milk and eggs\n- Anna's bread", ["milk and eggs", "Anna's bread"]),
        ("One.\n\nTwo", ["One.", "Two"]),
    ],
)
def test_sentences(text: str, sentences: list[str]) -> None:
    assert [sentence.text for sentence in split_episode(Episode(text))] == sentences


def test_a_wrapped_line_is_joined_and_a_heading_is_the_topic() -> None:
    text = (
        "# Anna Berg\nShe was born in the old town of Malmö and came from there to\nParis in 1990."
    )
    thesis = extract(text).theses[0]
    assert len(extract(text).theses) == 1
    assert thesis.text.startswith("Anna Berg: She was born")
    assert thesis.text.endswith("to Paris in 1990.")
    assert thesis.entities[0] == "Anna Berg"


def test_the_first_of_wrapped_lines_is_no_heading() -> None:
    for text in (
        "Ida Brown founded the brewery in Leeds in 1998 and has run it alone\nsince 2004. "
        "She was born in\nYork.",
        "Ida Brown founded the brewery in Leeds, which is by now as old as\nBo Hale's. "
        "It has a small garden and a museum with a shop.\n",
    ):
        assert extract(text).theses[0].text == text.partition(". ")[0].replace("\n", " ") + "."
    assert extract("The brewery in Leeds and its owners\nIda runs it.").theses[0].text == (
        "The brewery in Leeds and its owners: Ida runs it."
    )


def test_lines_of_a_dialogue_have_speakers() -> None:
    found = extract("Anna: I live in Rome.\nBob: My dog is old. I like him.")
    assert [t.text for t in found.theses] == [
        "Anna: I live in Rome.",
        "Bob: My dog is old.",
        "Bob: I like him.",
    ]
    assert [t.subject for t in found.triplets] == ["Anna", "Bob's dog"]


def test_a_long_text_without_a_full_stop_is_cut_between_words() -> None:
    text = "word " * 1000
    passages = [thesis.text for thesis in extract(text).theses]
    assert all(len(passage) <= MAX_SENTENCE_CHARS for passage in passages)
    assert " ".join(passages).split() == text.split()


@pytest.mark.parametrize(
    ("text", "first", "after", "label"),
    [
        ("yesterday", "2023-05-07", "2023-05-08", "7 May 2023"),
        ("last week", "2023-05-01", "2023-05-08", "1 May 2023 to 7 May 2023"),
        ("last Friday", "2023-05-05", "2023-05-06", "5 May 2023"),
        ("next month", "2023-06", "2023-07", "June 2023"),
        ("last June", "2022-06", "2022-07", "June 2022"),
        ("last March", "2023-03", "2023-04", "March 2023"),
        ("last May", "2022-05", "2022-06", "May 2022"),
        ("next March", "2024-03", "2024-04", "March 2024"),
        ("next June", "2023-06", "2023-07", "June 2023"),
        ("two years ago", "2021", "2022", "2021"),
        ("on 3 December", "2022-12-03", "2022-12-04", "3 December 2022"),
        ("on 3 May 2019", "2019-05-03", "2019-05-04", None),
        ("in 1999", "1999", "2000", None),
        ("in Dec. 2019", "2019-12", "2020-01", None),
    ],
)
def test_dates(text: str, first: str, after: str, label: str | None) -> None:
    (date,) = find_dates(f"She came {text}.", SAID)
    assert (date.first, date.after, date.label) == (first, after, label)


@pytest.mark.parametrize("text", ["1999 books", "31 June 2020", "we may go", "12345", "1.2.3"])
def test_no_dates(text: str) -> None:
    assert find_dates(text, SAID) == []


@pytest.mark.parametrize(
    ("said", "first"),
    [
        ("2023-05-08", ["2023-05-07", "2023-05-01", "2023-04", "2022"]),
        ("2023-05", ["2023-04", "2022"]),
        ("2023", ["2022"]),
        (None, []),
    ],
)
def test_relative_dates_need_a_time_that_is_precise_enough(
    said: str | None, first: list[str]
) -> None:
    found = find_dates("She came yesterday, last week, last month and last year.", said)
    assert [date.first for date in found] == first


def test_a_date_is_put_into_the_thesis() -> None:
    found = extract("I went to a support group yesterday.", time=SAID, speaker="Caroline")
    (thesis,) = found.theses
    assert thesis.text == "Caroline: I went to a support group yesterday (7 May 2023)."
    assert thesis.entities[:2] == ("Caroline", "7 May 2023")
    assert "support group" in thesis.entities
    assert found.times == ("2023-05-07",)


@pytest.mark.parametrize(
    ("text", "thesis"),
    [
        ("The pool is closed until May.", "The pool is closed until May (May 2023)."),
        ("The pool is closed until Dec.", "The pool is closed until Dec (December 2022)."),
        ("It opened on 3 Sept. and shut.", "It opened on 3 Sept. (3 September 2022) and shut."),
    ],
)
def test_a_full_stop_after_a_date_is_the_sentences(text: str, thesis: str) -> None:
    """Unless it abbreviates, and the sentence goes on."""
    assert extract(text, time=SAID).theses[0].text == thesis


@pytest.mark.parametrize(
    ("text", "entities"),
    [
        ("The University of St. Gallen is old.", ["University of St. Gallen"]),
        ("Hey Mel! I met Anna's sister.", ["Mel", "Anna"]),
        ('When AT&T paid for "The Big Sleep", Bob left.', ["AT&T", "The Big Sleep", "Bob"]),
        ("It was [Paris](http://x.y), then [[Berlin|the city]].", ["Paris", "Berlin"]),
        ("We saw 55 friends and two cats on 3 May 2019.", ["55 friends", "two cats", "3 May 2019"]),
        ("Write to anna@example.org now.", ["anna@example.org"]),
        ("安娜读了《红楼梦》。", ["红楼梦"]),
        ("Will went home with Will.", ["Will"]),
        ("However, pottery is fun. Pottery helps.", []),
        ("Cooper's Rest is old. Ida met Bo's Oslo team.",
         ["Cooper's Rest", "Cooper", "Ida", "Bo", "Oslo"]),
    ],
)  # fmt: skip
def test_entities(text: str, entities: list[str]) -> None:
    found = [name for thesis in extract(text).theses for name in thesis.entities]
    assert set(found) == set(entities)


@pytest.mark.parametrize(
    ("question", "entities"),
    [
        (
            "When did Caroline go to the LGBTQ support group?",
            ["Caroline", "LGBTQ", "support group"],
        ),
        ("what pottery class did melanie join?", ["pottery class", "melanie join"]),
        ('Who wrote "Dune" in 1965?', ["Dune", "1965"]),
        ("", []),
    ],
)
def test_entities_of_a_question_keep_its_order(question: str, entities: list[str]) -> None:
    assert RULES.entities(question) == entities


def fact(key: int, ends: tuple[str, str, str]) -> Fact:
    return Fact(key, "simple", " ".join(ends), ends)


@pytest.mark.parametrize(
    ("new", "old", "is_replaced"),
    [
        (("Carl", "is married to", "Anna"), ("Bob", "has wife", "Anna"), True),
        (("Acme", "acquired", "Foo"), ("Globex", "owns", "Foo"), True),
        (("Acme", "acquired", "Foo"), ("Acme", "acquired", "Bar"), False),
        (("Anna", "lives_in", "Paris"), ("Anna", "home", "Berlin"), True),
        (("Anna", "lives in", "a small house"), ("Anna", "lives in", "Berlin"), False),
        (("Anna", "sold", "red car"), ("Anna", "has", "red car"), True),
        (("Anna", "sold", "red car"), ("Anna", "has", "bicycle"), False),
        (("Anna", "does not like", "tea"), ("Anna", "likes", "tea"), True),
        (("Anna", "did not move to", "Rome"), ("Anna", "moved to", "Rome"), True),
        (("Anna", "is", "single"), ("Anna", "is married to", "Bob"), True),
        (("Anna", "is", "married"), ("Anna", "is married to", "Bob"), False),
        (("Anna", "was born on", "3 May 1990"), ("Anna", "was born in", "1990"), False),
        (("Bob", "was the CEO of", "Acme"), ("Anna", "is the CEO of", "Acme"), False),
        (("Bob", "left", "Anna"), ("Bob", "is the brother of", "Anna"), False),
        (("Anna", "is called", "Annie"), ("Anna", "is called", "Beth"), False),
        (("shop", "is", "closed"), ("shop", "is", "open"), True),
        (("headquarters of Acme", "is in", "Hull"), ("Acme", "is based in", "Leeds"), True),
        (("Acme", "is based in", "Hull"), ("Acme's headquarters", "is in", "Leeds"), True),
    ],
)
def test_aspects(new: tuple[str, str, str], old: tuple[str, str, str], is_replaced: bool) -> None:
    update = Update(Triplet(*new), Episode(" ".join(new)), (fact(7, old),))
    assert find_replaced(update) == ((7,) if is_replaced else ())


def test_a_hypothesis_replaces_nothing_and_none_is_replaced() -> None:
    old = fact(7, ("Anna", "lives in", "Paris"))
    new = Triplet("Anna", "lives in", "Rome")
    episode = Episode("Anna lives in Rome.")
    assert find_replaced(Update(new, episode, (old,))) == (7,)
    assert find_replaced(Update(replace(new, hypothesis=True), episode, (old,))) == ()
    assert find_replaced(Update(new, episode, (replace(old, hypothesis=True),))) == ()


def test_statements_of_one_sentence_do_not_replace_each_other() -> None:
    sentence = [Triplet("Eva", "works as", job) for job in ("writer", "teacher")]
    known = (fact(7, ("Eva", "works as", "writer")), fact(9, ("Eva", "works as", "nurse")))
    update = Update(sentence[1], Episode("Eva works as writer and teacher."), known)
    assert find_replaced(update) == (7, 9)
    assert find_replaced(update, sentence) == (9,)


def test_a_correction_replaces_the_last_statement() -> None:
    told = [("2020-01", 9), ("2020-03", 5), ("2020-02", 7)]
    known = tuple(
        replace(
            fact(key, ("Eva", "visited", f"City {key}")),
            provenance=(Provenance(1, (0, 9), said=said),),
        )
        for said, key in told
    )
    new = Triplet("Eva", "visited", "Milan")
    assert find_replaced(Update(new, Episode("Eva visited Milan."), known)) == ()
    assert find_replaced(Update(new, Episode("No, Eva visited Milan."), known)) == (5,)
    assert find_replaced(Update(new, Episode("Actually, Eva visited Milan."), known)) == (5,)


def test_known_facts_are_not_read_if_none_can_be_replaced() -> None:
    class Unseen(tuple):
        def __iter__(self) -> None:
            raise AssertionError("looked at")

    update = Update(Triplet("Anna", "likes", "tea"), Episode("Anna likes tea."), Unseen((1,)))
    assert find_replaced(update) == ()


PARTS = [
    "Anna", "Bob", " lives in ", " moved to ", " my ", " and ", " is not ", "'s", "’", '"', "[",
    "](", ")", "|", ". ", ", ", "!", "?\n", ": ", "\t", "\x00", " 1999", "・", "「", "」", "。",
    "है",
]  # fmt: skip
TEXTS = st.text(st.characters(codec="utf-8"), max_size=200) | st.lists(
    st.sampled_from(PARTS), max_size=30
).map("".join)


@settings(max_examples=50)
@given(TEXTS, st.none() | st.just("Mel"))
def test_any_text_is_extracted_without_loss(text: str, speaker: str | None) -> None:
    found = RULES.extract([Episode(text, SAID, speaker=speaker)])[0]
    assert found == RULES.extract([Episode(text, SAID, speaker=speaker)])[0]
    for statement in (*found.triplets, *found.theses):
        start, stop = statement.span or (-1, -1)
        assert 0 <= start < stop <= len(text)
    for triplet in found.triplets:
        assert triplet.subject.strip()
        assert triplet.object.strip()
        assert max(len(triplet.subject.split()), len(triplet.object.split())) <= 7
    if speaker is not None:  # no heading is removed
        told = {i for thesis in found.theses for i in range(*thesis.span or (0, 0))}
        assert not any(text[i].isalpha() for i in range(len(text)) if i not in told)
    RULES.entities(text)


def test_a_relative_clause_may_be_one_unknown_word() -> None:
    text = "Then back to the toothbrush man, who bowed."
    assert [thesis.text for thesis in extract(text).theses] == [text]


def test_each_episode_is_read_alone() -> None:
    episodes = [
        Episode("Anna lives in Paris."),
        Episode("She likes tea."),
        Episode("Pottery helps."),
    ]
    together = RULES.extract(episodes)
    assert together == [RULES.extract([episode])[0] for episode in episodes]
    assert together[1].triplets == ()
