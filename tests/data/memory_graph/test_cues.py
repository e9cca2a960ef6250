"""Cues: texts that cannot contradict a new statement are skipped."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import pytest

from turngraph.data.memory_graph.extract.aspect_words import ASPECTS, ENDINGS, LOSSES, cues
from turngraph.data.memory_graph.extract.aspects import claims, find_replaced
from turngraph.data.memory_graph.extract.statements import read_sentence
from turngraph.data.memory_graph.extract.word_lists import VERB_FORMS
from turngraph.data.memory_graph.memory_types import (
    Episode,
    Fact,
    LazyFacts,
    Thesis,
    Triplet,
    Update,
)

MOVED = Triplet("Eva", "moved to", "Milan")


def test_a_text_is_read_if_it_may_claim_the_aspect() -> None:
    married = cues(frozenset({"= married", "spouse", "marriage"}), frozenset({"anna b"}))
    assert married("Bob is said to marry Anna B.")
    assert not married("Bob is said to marry Eva.")
    assert not married("Anna B lives in Paris.")
    assert cues(frozenset({"old"}), frozenset({"anna"}))(
        "Anna is 30."
    )  # an aspect without words: all texts are read
    assert cues(frozenset({"= is on"}), frozenset({"2019-05-03"}))("It is on 3 May 2019.")


@pytest.mark.parametrize("negation", ["{}", "no longer {}", "did not {}", "stopped {}"])
def test_a_text_that_claims_an_aspect_is_never_skipped(negation: str) -> None:
    relations = {*ASPECTS, *ENDINGS, *LOSSES, *VERB_FORMS, "frobnifies", "is the CEO of", "has job"}
    objects = ("Acme", "single", "red")
    some = sorted(relations)[:: 1 if negation == "{}" else 4]
    for relation, object_ in zip(some, cycle(objects), strict=False):
        ends = "Anna's sister", negation.format(relation), object_
        spoken = f"{ends[0]} {negation.format(relation)} {object_}."
        _is_never_passed_over(spoken, [ends])
        told = [(t.subject, t.relation, t.object) for t in read_sentence(spoken)]
        _is_never_passed_over(spoken, told)


def _is_never_passed_over(text: str, told: list[tuple[str, str, str]]) -> None:
    for ends in told:
        for claim in claims(*ends):
            assert cues(frozenset({claim.aspect}), frozenset({claim.owner}))(text), (text, claim)


def test_the_owner_need_not_be_where_a_relation_has_it() -> None:
    text = "Air Georgian: Its main business is its operation as Air Canada Express."
    told = [(t.subject, t.relation, t.object) for t in read_sentence(text)]
    assert "is Air Georgian's operation as" in [relation for _, relation, _ in told]
    _is_never_passed_over(text, told)


@pytest.mark.parametrize("new", [MOVED, Thesis("Eva moved to Milan.", span=(0, 19))])
def test_texts_that_cannot_be_replaced_are_not_parsed(new: Triplet | Thesis) -> None:
    texts = [("Eva lives in Rome", ("Eva", "lives in", "Rome")), ("Eva lives in Rome.", None)]
    texts += [("Bob lives in Rome", ("Bob", "lives in", "Rome")), ("Eva likes Rome.", None)]
    loaded = []

    def load(keys: Sequence[int]) -> list[Fact]:
        loaded.extend(keys)
        return [Fact(key, "simple", *texts[key]) for key in keys]

    known = LazyFacts(lambda: range(4), lambda keys: [texts[key] for key in keys], load)
    found = find_replaced(Update(new, Episode("Eva moved to Milan."), known), [MOVED])
    assert list(found) == loaded == ([0] if isinstance(new, Triplet) else [1])
