"""Retrieval by links: passages bring those that share a rare entity with them."""

from __future__ import annotations

import random
from math import log

import numpy as np
import pytest

from turngraph.data.retrieval.bm25 import EvidenceIndex
from turngraph.data.retrieval.links import MAX_SHARE, LinkedIndex
from turngraph.data.types import Entity, Evidence


def passage(number: int, text: str, ids: str) -> Evidence:
    return Evidence(str(number), text, "text", tuple(Entity(id_, id_) for id_ in ids.split()))


def others(num: int) -> list[Evidence]:
    return [passage(10 + i, f"filler {i}", "page") for i in range(num)]


def test_a_row_that_matches_brings_the_passage_that_its_cell_links_to() -> None:
    pool = [
        *others(8),
        passage(0, "Gold, heavyweight, Rudolf", "page Rudolf"),
        passage(1, "Her nickname is Li", "Bo"),
        passage(2, "His nickname is Starke", "Rudolf"),
    ]
    query = "nickname of the gold heavyweight"
    assert [one.evidence.id for one in EvidenceIndex(pool).rank(query, 3)] == ["0", "1", "2"]
    found = LinkedIndex(pool, "bm25s", "none").rank(query, 3, turn=2)
    assert [one.evidence.id for one in found] == ["0", "2", "1"]
    assert found[0].from_turn == 2
    assert found[1].score > found[2].score


@pytest.mark.parametrize("num", [6, 12, 20])
@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_the_definition(seed: int, num: int) -> None:
    rng = random.Random(seed)
    pool = [
        passage(i, " ".join(rng.choices("abcdef", k=3)), " ".join(rng.choices("qrstuvwxyz", k=3)))
        for i in range(num)
    ]
    index, plain = LinkedIndex(pool, "bm25s", "none"), EvidenceIndex(pool).query_scores("a b c")
    above = plain - plain.min()
    expected = plain.copy()
    ids = [{entity.id for entity in one.entities} for one in pool]
    for i in range(len(pool)):
        brought = [0.0]
        for id_ in ids[i]:
            having = [j for j in range(len(pool)) if id_ in ids[j]]
            if 2 <= len(having) <= max(2, int(MAX_SHARE * len(pool))):
                rarity = 1 - log(len(having)) / log(len(pool))
                brought.append(rarity * max(above[j] for j in having if j != i))
        expected[i] += max(brought)
    assert np.allclose(index.query_scores("a b c"), expected, atol=1e-5)
    assert not np.allclose(expected, plain)


def test_frequent_entities_and_pools_without_entities_bring_nothing() -> None:
    for pool in (
        [],
        others(1),
        others(2),
        others(10),
        [passage(0, "gold", ""), passage(1, "nickname", "")],
    ):
        plain, linked = EvidenceIndex(pool), LinkedIndex(pool, "bm25s", "none")
        for query in ("filler gold", [("filler 1", 0.5), ("nickname", 1.0)], ""):
            assert linked.query_scores(query).tolist() == plain.query_scores(query).tolist()
