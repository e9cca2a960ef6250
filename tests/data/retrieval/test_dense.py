"""Retrievers by vectors rank as a plain implementation does, and are chosen by the config."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from transformers import PreTrainedTokenizerBase

from turngraph.configs.schema import EvidenceConfig
from turngraph.data.eigen.eigen_index import EigenIndex
from turngraph.data.examples import ExampleBuilder
from turngraph.data.prompt import Prompt
from turngraph.data.retrieval.bm25 import EvidenceIndex
from turngraph.data.retrieval.dense import CANDIDATES, DenseIndex, FusedIndex
from turngraph.data.retrieval.links import LinkedIndex
from turngraph.data.retrieval.reciprocal_ranks import fuse, fuse_retrieved, fused_scores
from turngraph.data.turn_retrieval import TurnRetrieval, needs_embed
from turngraph.data.types import Evidence, Query, Retrieved
from turngraph.tests.data.retrieval.test_bm25 import make_pool

TEXTS = ["lima is in peru", "the river rhine", "peru has a river", "", "lima is in peru"]
QUERIES: list[Query] = ["river in peru", "lima", [("lima", 1.0), ("the rhine", 0.3)]]


def letters(texts: Sequence[str]) -> np.ndarray:
    counts = np.array([[1 + text.count(letter) for letter in "abcdehilmnprsuv"] for text in texts])
    unit: np.ndarray = counts / np.linalg.norm(counts, axis=1, keepdims=True)
    return unit.astype(np.float32)


def plain_cosines(query: Query) -> list[float]:
    turns = [(query, 1.0)] if isinstance(query, str) else query
    total = sum(weight for _, weight in turns)
    each = [weight * letters(TEXTS) @ letters([text])[0] / total for text, weight in turns]
    return [round(float(value), 6) for value in sum(each)]


@pytest.mark.parametrize("query", QUERIES)
def test_dense_ranks_by_cosine_ties_by_position(query: Query) -> None:
    found = DenseIndex(make_pool(TEXTS), letters).rank(query, 99, turn=3)
    cosines = plain_cosines(query)
    expected = sorted(range(5), key=lambda i: (-cosines[i], i))
    assert [item.evidence.id for item in found] == [f"e{i}" for i in expected]
    assert [item.score for item in found] == pytest.approx([cosines[i] for i in expected], abs=1e-5)
    assert {item.from_turn for item in found} == {3}


@pytest.mark.parametrize("query", QUERIES)
def test_fusion_sums_reciprocal_ranks(query: Query) -> None:
    pool = make_pool(TEXTS)
    scores = dict.fromkeys((passage.id for passage in pool), 0.0)
    for index in (EvidenceIndex(pool), DenseIndex(pool, letters)):
        for rank, item in enumerate(index.rank(query, 99), start=1):
            scores[item.evidence.id] += 1 / (60 + rank)
    found = FusedIndex(pool, letters, "bm25s", "none").rank(query, 2)
    assert [i.evidence.id for i in found] == sorted(scores, key=lambda e: (-scores[e], e))[:2]


def test_fusion_embeds_only_what_words_rank_first() -> None:
    texts = [f"lima {'x ' * (i % 7)}{i}" for i in range(200)] + ["the rhine"] * 100
    pool, asked = make_pool(texts), list[str]()

    def noted(new: Sequence[str]) -> np.ndarray:
        asked.extend(new)
        return letters(new)

    found = FusedIndex(pool, noted, "bm25s", "none").rank("lima", 5)
    first = EvidenceIndex(pool).rank("lima", CANDIDATES)
    assert {item.evidence.id for item in found} <= {item.evidence.id for item in first}
    assert sorted(asked) == sorted(["lima"] + [item.evidence.text for item in first])
    asked.clear()
    assert len(FusedIndex(pool, noted, "bm25s", "none").rank("lima", 150)) == 150 == len(asked) - 1


@pytest.mark.parametrize(("cosine", "found"), [(0.29, []), (0.3, ["e0"]), (0.31, ["e0"])])
def test_fusion_finds_nothing_without_a_word_or_a_near_vector(
    cosine: float, found: list[str]
) -> None:
    vectors = {"opera": [1.0, 0.0], "rhine": [cosine, (1 - cosine**2) ** 0.5]}
    pool = make_pool(["rhine"])

    def embed(texts: Sequence[str]) -> np.ndarray:
        return np.array([vectors[text] for text in texts])

    index = FusedIndex(pool, embed, "bm25s", "none")
    assert [item.evidence.id for item in index.rank("opera", 3)] == found


def test_ranks_are_fused_with_a_constant_of_60() -> None:
    rankings = [np.array([1, 0]), np.array([1, 2])]
    scores = fused_scores(rankings, 4).tolist()
    assert scores == [round(1 / 62, 12), round(2 / 61, 12), round(1 / 62, 12), 0.0]
    assert fuse(rankings, 4).tolist() == [1, 0, 2, 3]
    lima, oslo = (Retrieved(one, 5.0, 0) for one in make_pool(["lima", "oslo"]))
    found = fuse_retrieved([[oslo, lima], [lima]], 2)
    assert [item.evidence.text for item in found] == ["lima", "oslo"]
    assert [item.score for item in found] == [round(1 / 61 + 1 / 62, 12), round(1 / 61, 12)]
    assert fuse_retrieved([[oslo], [lima]], 1)[0].evidence == oslo.evidence


def test_many_equal_passages_stay_in_order() -> None:
    pool = make_pool(["lima", "the rhine"] * 50)
    expected = [f"e{i}" for i in range(0, 100, 2)]
    for index in (DenseIndex(pool, letters), FusedIndex(pool, letters, "bm25s", "none")):
        assert [item.evidence.id for item in index.rank("lima", 50)] == expected
    longest_first = make_pool([f"lima{' x' * (39 - i)}" for i in range(40)])  # equal to vectors
    index = FusedIndex(longest_first, lambda texts: np.ones((len(texts), 1)), "bm25s", "none")
    found = [item.evidence.id for item in index.rank("lima", 40)]
    assert found == [f"e{i}" for first in range(20) for i in (first, 39 - first)]
    assert fuse([np.array([7])], 100).tolist() == [7, *range(7), *range(8, 100)]


def test_an_equal_text_of_another_source_is_another_passage() -> None:
    text, row = (Evidence("e", "lima", source) for source in ("text", "table"))
    found = fuse_retrieved([[Retrieved(text, 1.0, 0)], [Retrieved(row, 1.0, 0)]], 2)
    assert [item.evidence for item in found] == [text, row]
    again = fuse_retrieved([[Retrieved(text, 1.0, 0)], [Retrieved(text, 2.0, 1)]], 2)
    assert [item.from_turn for item in again] == [0]


def test_fusion_takes_the_stemmer() -> None:
    pool = make_pool(["abc def", "the abc", "die"])
    same = [FusedIndex(pool, letters, "bm25s", s) for s in ("none", "english")]
    plain, stemmed = ([item.score for item in index.rank("dying", 3)] for index in same)
    assert max(stemmed) > max(plain)


def test_the_config_chooses_the_stemmer() -> None:
    pool = make_pool(["who knows", "there they die"])
    for stemmer, expected in (("none", []), ("english", ["e1"])):
        config = EvidenceConfig(stemmer=stemmer, memory="none")
        index = TurnRetrieval().index(pool, config, None)
        assert [item.evidence.id for item in index.rank("Dying", 1)] == expected


def test_empty_pools_have_no_passages() -> None:
    assert DenseIndex([], letters).rank("lima", 3) == []
    assert FusedIndex([], letters, "bm25s", "none").rank("lima", 3) == []


@pytest.mark.parametrize(
    ("retriever", "memory", "is_needed"),
    [("bm25", "none", False), ("bm25", "rerank", True), ("links", "random", False)],
)
def test_the_memory_may_need_an_encoder_that_the_retriever_does_not(
    retriever: Any, memory: Any, is_needed: bool
) -> None:
    assert needs_embed(EvidenceConfig(retriever=retriever, memory=memory)) == is_needed


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bm25", EvidenceIndex),
        ("links", LinkedIndex),
        ("dense", DenseIndex),
        ("rrf", FusedIndex),
        ("eigen", EigenIndex),
    ],
)
def test_the_config_chooses_the_retriever(
    inst_tokenizer: PreTrainedTokenizerBase, name: str, kind: type
) -> None:
    builder = ExampleBuilder(
        Prompt(inst_tokenizer), EvidenceConfig(retriever=name, memory="none"), letters
    )
    assert builder.needs_embed == (name not in ("bm25", "links"))
    index = builder.retrieval.index(make_pool(TEXTS), builder.config, builder.embed)
    assert type(index) is kind
    assert index.rank("lima in peru", 1)[0].evidence.text == TEXTS[0]
