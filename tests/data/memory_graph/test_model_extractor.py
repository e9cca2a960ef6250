"""Extraction by a language model: prompts, excerpts and reading of its replies."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngraph.data.memory_graph.extract.local_lm import LmExtractor
from turngraph.data.memory_graph.extract.model_extractor import (
    EXCERPT_CHARACTERS,
    ModelExtractor,
    Prompt,
    Reply,
    excerpt_spans,
    extraction_prompt,
    prompt_text,
)
from turngraph.data.memory_graph.extract.replies import (
    EXAMPLE_NAMES,
    MAX_TRIPLETS,
    Excerpt,
    Reader,
)
from turngraph.data.memory_graph.memory_types import (
    Episode,
    Extraction,
    Fact,
    Thesis,
    Triplet,
    Update,
)
from turngraph.data.memory_graph.record.clean import clean_extraction

EMPTY: dict[str, Any] = {"theses": [], "triplets": [], "times": []}
TEXT = "Anna has lived in Oslo since 2020. Her brother\nBen may follow her."


def triplet(*ends: str, when: str = "", hypothesis: bool = False) -> dict[str, Any]:
    names = dict(zip(("subject", "relation", "object"), ends, strict=True))
    return names | {"when": when, "hypothesis": hypothesis}


def thesis(text: str, *entities: str, when: str = "", hypothesis: bool = False) -> dict[str, Any]:
    return {"text": text, "entities": list(entities), "when": when, "hypothesis": hypothesis}


def read(text: str = TEXT, **value: Any) -> tuple[Extraction, Counter[str]]:
    counts: Counter[str] = Counter()
    excerpt = Excerpt(0, Episode(text), (0, len(text)))
    return Reader(excerpt, "", counts).extraction(EMPTY | value), +counts


def extract(text: str, answer: Callable[[str], Reply], **episode: Any) -> list[Extraction]:
    asked = ModelExtractor("test", lambda prompts: [answer(excerpt_of(p)) for p in prompts])
    return asked.extract([Episode(text, **episode)])


def excerpt_of(prompt: Prompt) -> str:
    return prompt.text.rpartition("Passage: ")[2].strip()


def test_triplets_and_theses_with_their_spans() -> None:
    said, counts = read(
        triplets=[
            triplet("Anna", "lives in", "Oslo", when="2020/"),
            triplet("Ben", "is a brother of", "Anna"),
            triplet("ben", "may  follow", "her", hypothesis=True),
        ],
        theses=[thesis("Her brother Ben may follow her.", "Ben", hypothesis=True)],
        times=["2020", "2020"],
    )
    assert said.triplets == (
        Triplet("Anna", "lives in", "Oslo", "2020", span=(0, 34)),  # the sentence with both ends
        Triplet("Ben", "is a brother of", "Anna"),  # no sentence has both
        Triplet("ben", "may follow", "her", hypothesis=True, span=(47, 65)),  # verbatim
    )
    assert TEXT[47:65] == "Ben may follow her"
    assert said.theses[0].span == (35, 65)
    assert said.times == ("2020",)
    assert not counts


def test_the_span_of_an_excerpt_is_never_the_whole_text() -> None:
    reader = Reader(Excerpt(0, Episode(TEXT), (35, 66)), TEXT[:34], Counter())
    said = reader.extraction(EMPTY | {"triplets": [triplet("Ben", "is a brother of", "Anna")]})
    assert said.triplets[0].span == (35, 66)


def test_long_ends_are_not_lost() -> None:
    long = "a small red house that stands by the sea"
    said, _ = read(triplets=[triplet("Anna", "bought", long), triplet("Ben", "left", "")])
    clean = clean_extraction(said, len(TEXT), "test")
    assert clean.triplets == ()
    assert [(one.text, one.entities) for one in clean.theses] == [
        (f"Anna bought {long}", ("Anna",)),
        ("Ben left", ("Ben",)),
    ]


def test_empty_statements_are_left_out() -> None:
    said, _ = read(triplets=[triplet("", "", "")], theses=[thesis("")], times=[])
    assert said == Extraction()


def test_when() -> None:
    def times(when: str) -> tuple[str | None, str | None]:
        found = read(theses=[thesis("Anna is here.", when=when)])[0].theses[0]
        return found.valid_from, found.valid_to

    assert times("") == (None, None)
    assert times("2019-05-03") == ("2019-05-03", None)
    assert times("2010/2012-01") == ("2010", "2012-01")
    assert times("/2012") == (None, "2012")
    assert times("2019-02-31/") == (None, None)
    assert times("2012/2010") == (None, None)
    assert read(times=["2019-13"])[1] == {"unread_times": 1}


def test_names_that_are_not_in_the_text_are_kept_and_counted() -> None:
    said, counts = read(theses=[thesis("Anna is in Norway.", "Anna", "Norway", "anna", "")])
    assert said.theses[0].entities == ("Anna", "Norway")
    assert counts == {"unseen_names": 1}
    inflected = read("Анна живёт в Москве.", theses=[thesis("Анна в Москве.", "Анна", "Москва")])
    assert not inflected[1]


def test_what_is_copied_from_the_example_is_left_out_and_the_rules_fill_in() -> None:
    copied = EMPTY | {"theses": [thesis("Eskil may sail.", "Eskil")], "times": ["2020"]}
    [said] = extract("Anna is here.", lambda _: Reply(copied, True))
    assert said == Extraction(theses=(Thesis("Anna is here.", ("Anna",), span=(0, 13)),))
    [said] = extract("Eskil is here.", lambda _: Reply(copied, True))  # a real person of that name
    assert said.theses[0].text == "Eskil may sail."
    renamed = EMPTY | {"triplets": [triplet("Anna", "sold", "zither")]}
    [said] = extract("Anna is here.", lambda _: Reply(renamed, True))
    assert said.triplets == ()
    example = prompt_text("extract", speaker="", said="", before="", passage="").casefold()
    assert all(name in example for name in EXAMPLE_NAMES)


def test_a_full_reply_is_requested_in_parts() -> None:
    full = EMPTY | {"triplets": [triplet("Anna", "knows", str(n)) for n in range(MAX_TRIPLETS)]}
    asked = []

    def answer(text: str) -> Reply:
        asked.append(text)
        return Reply(full if len(asked) == 1 else EMPTY, True)

    [said] = extract("Anna is here. Ben is there.", answer)
    assert asked == ["Anna is here. Ben is there.", "Anna is here.", "Ben is there."]
    assert said == Extraction()


def test_parts_keep_the_order_of_the_text_and_nothing_twice() -> None:
    sentences = [f"Anna saw thing number {n} on that day." for n in range(60)]

    def answer(text: str) -> Reply:
        found = [thesis(part.strip() + ".") for part in text.split(".") if part.strip()]
        return Reply(EMPTY | {"theses": found}, len(found) < 3)

    [said] = extract(" ".join(sentences), answer)
    assert [one.text for one in said.theses] == sentences
    [said] = extract("Anna is here. " * 50, answer)
    assert len({one.text for one in said.theses}) == 1


def test_an_empty_text_sends_no_request() -> None:
    assert extract(" \n ", lambda _: pytest.fail("asked")) == [Extraction()]


@given(st.text(st.sampled_from("ab. \n漢。!Ä"), max_size=3000))
def test_excerpts_hold_all_of_a_text_and_are_short(text: str) -> None:
    spans = excerpt_spans(text, EXCERPT_CHARACTERS)
    covered = "".join(text[start:stop] for start, stop in spans)
    assert "".join(covered.split()) == "".join(text.split())
    assert all(0 < stop - start <= EXCERPT_CHARACTERS for start, stop in spans)
    assert all(stop <= after for (_, stop), (after, _) in pairwise(spans))


def test_the_extraction_prompt_has_speaker_time_and_context() -> None:
    episode = Episode("One. " * 100 + "Two $x {y}.", "2020-01-02", speaker="Anna", origin="o")
    prompt = extraction_prompt(Excerpt(0, episode, (500, 511)))
    assert prompt.text.endswith(
        f"Speaker: Anna\nSaid: 2020-01-02\nRead before, for names only: {'One. ' * 58}One.\n"
        "Passage: Two $x {y}.\n"
    )
    assert prompt.subject == "the episode o"
    plain = extraction_prompt(Excerpt(0, Episode("a"), (0, 1))).text
    assert plain.endswith(
        "Speaker: unknown\nSaid: unknown\nRead before, for names only: nothing\nPassage: a\n"
    )


def test_the_lm_gets_one_batch_per_schema_and_replies_keep_their_order() -> None:
    calls = []

    def generate(prompts: Sequence[str], schema: Any) -> list[tuple[str, bool]]:
        most = schema["properties"]["replaced"]["maxItems"]
        calls.append((len(prompts), most))
        return [(json.dumps({"replaced": [most]}), True) for _ in prompts]

    facts = [Fact(2 * n + 1, "simple", f"fact {n}") for n in range(3)]
    updates = [
        Update(Thesis("x"), Episode("x"), tuple(facts[:count])) for count in (3, 1, 2, 3, 0, 1)
    ]
    lm = LmExtractor(generate)
    assert lm.replaced(updates) == [(5,), (1,), (3,), (5,), (), (1,)]
    assert calls == [(2, 3), (2, 1), (1, 2)]
    assert lm.name == "lm"
    assert lm.cost()["requests"] == 5


@pytest.mark.parametrize("text", ['{"entities":', "{}", "null"])
def test_an_unconstrained_lm_is_an_error(text: str) -> None:
    lm = LmExtractor(lambda prompts, _: [(text, True)] * len(prompts))
    with pytest.raises(ValueError, match="the question: the LM's reply breaks the prompt's schema"):
        lm.entities("Where?")
