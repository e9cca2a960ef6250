"""The filter keeps the closest facts, each once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngraph.data.memory_graph.memory_types import THESIS
from turngraph.data.memory_graph.recall.filter_facts import bm25, closest_facts
from turngraph.data.memory_graph.recall.word_index import WordIndex
from turngraph.tests.data.memory_graph.random_record import RandomRecord

TEXTS = ("anna likes paris", "anna sings", "bruno likes the red dog", "anna sings", "x")


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RandomRecord:
    made = RandomRecord(tmp_path_factory.mktemp("filter") / "a.db")
    with made.store.writing() as revision:
        made.keys = [2 * made.node(revision, THESIS, text) for text in TEXTS]
    return made


def test_counts_follow_forgotten_facts(tmp_path: Path) -> None:
    record = RandomRecord(tmp_path / "a.db")
    with record.store.writing() as revision:
        nodes = [record.node(revision, THESIS, text) for text in TEXTS * 40]
    with record.store.writing() as revision:
        for node in nodes[5:]:
            record.drop_node(revision, node)
    assert WordIndex(record.db).counts() == (5, 13)
    assert WordIndex(record.db).frequency("anna") == 3


def test_bm25_by_hand(record: RandomRecord) -> None:
    # 5 facts, 13 words, 2.6 on average; "anna" in 3, "paris" in 1; "the" is not counted
    scores = bm25(WordIndex(record.db), "The Anna, Paris?", TEXTS[:2])
    anna, paris = np.log(1 + 2.5 / 3.5), np.log(1 + 4.5 / 1.5)
    three, two = (2.5 / (1 + 1.5 * (0.25 + 0.75 * n / 2.6)) for n in (3, 2))
    np.testing.assert_allclose(scores, [(anna + paris) * three, anna * two])
    assert bm25(WordIndex(record.db), "who is it?", TEXTS).tolist() == [0] * 5


def test_fusion_by_hand(record: RandomRecord) -> None:
    texts = dict(zip(record.keys, TEXTS, strict=True))
    cosines = dict(zip(record.keys, (0.5, 0.6, -0.2, 0.6, 0.59), strict=True))
    # BM25 over its highest: paris 1; all others 0
    found = closest_facts(WordIndex(record.db), "paris", texts, cosines, 10)
    first, second, third, _, last = record.keys
    expected = [(first, 0.55), (second, 0.54), (last, 0.531), (third, -0.18)]
    assert [key for key, _ in found] == [key for key, _ in expected]  # equal texts once
    np.testing.assert_allclose([score for _, score in found], [score for _, score in expected])
    assert closest_facts(WordIndex(record.db), "paris", texts, cosines, 2) == found[:2]
    assert closest_facts(WordIndex(record.db), "paris", {}, {}, 2) == []


@given(
    facts=st.lists(st.tuples(st.sampled_from(TEXTS), st.floats(-1, 1)), max_size=12),
    question=st.sampled_from(["anna", "paris dog", "likes sings x", "?"]),
    num=st.integers(1, 5),
    order=st.randoms(use_true_random=False),
)
def test_the_closest_fact_is_never_lost_to_a_farther_one(
    record: RandomRecord, facts: list[tuple[str, float]], question: str, num: int, order
) -> None:
    by_text = dict(facts)  # the same text has the same vector
    texts = {2 * i: text for i, (text, _) in enumerate(facts, 1)}
    cosines = {key: by_text[text] for key, text in texts.items()}
    everything = closest_facts(WordIndex(record.db), question, texts, cosines, 100)
    kept = closest_facts(WordIndex(record.db), question, texts, cosines, num)
    assert kept == everything[:num]
    assert len(everything) == len(by_text)
    scores = [score for _, score in everything]
    assert scores == sorted(scores, reverse=True)
    shuffled = list(texts.items())
    order.shuffle(shuffled)
    again = closest_facts(WordIndex(record.db), question, dict(shuffled), cosines, num)
    assert [(texts[k], s) for k, s in again] == [(texts[k], s) for k, s in kept]
    if everything and question == "?":  # without words in common, the cosine alone
        assert cosines[everything[0][0]] == pytest.approx(max(cosines.values()), abs=2e-6)
