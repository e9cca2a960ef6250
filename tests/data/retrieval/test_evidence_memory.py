"""The evidence memory: equation 2, which passages are replaced, by which, and the cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngraph.configs.user_error import UserError
from turngraph.data.embedding import cached
from turngraph.data.retrieval.evidence_memory import EvidenceMemory
from turngraph.data.types import Evidence, Retrieved


def found(*names: str, turn: int = 0) -> list[Retrieved]:
    return [Retrieved(Evidence(name, name, "text"), 1.0, turn) for name in names]


def names(items: Sequence[Retrieved]) -> list[str]:
    return [item.evidence.text for item in items]


def always(items: list[Retrieved]) -> bool:
    return True


class Embedder:
    """Texts to unit vectors in the plane, by angles in degrees; counts what it was asked for."""

    def __init__(self, **angles: float) -> None:
        self.angles, self.seen = angles, Counter()

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        self.seen.update(texts)
        angles = np.radians([self.angles.get(text, 0.0) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def memory(mode: Any, *remembered: str, embed: Any = None, **options: Any) -> EvidenceMemory:
    made = EvidenceMemory(mode, embed=embed or Embedder(), **options)
    made.add(found(*remembered))
    return made


def test_the_lowest_third_gives_way_to_the_nearest_of_memory() -> None:
    embed = Embedder(m1=40, m2=10, m3=25, m4=90)
    merged = memory("rerank", "m1", "m2", "m3", "m4", embed=embed).merge(
        found("a", "b", "c", "d", "e", "f", turn=2), "Q", always
    )
    assert names(merged) == ["a", "b", "c", "d", "m2", "m3"]
    assert [item.from_turn for item in merged] == [2, 2, 2, 2, 0, 0]
    assert merged[4].score == pytest.approx(np.cos(np.radians(10)))


@pytest.mark.parametrize(
    ("num", "share", "gives_way"),
    [(2, 1 / 3, 0), (3, 1 / 3, 1), (5, 1 / 3, 1), (6, 1 / 3, 2), (30, 1 / 3, 10), (4, 0.5, 2),
     (4, 0.0, 0), (4, 1.0, 4)],
)  # fmt: skip
def test_how_many_give_way(num: int, share: float, gives_way: int) -> None:
    remembered = [f"m{i}" for i in range(num)]
    retrieved = found(*(f"e{i}" for i in range(num)), turn=1)
    merged = memory("rerank", *remembered, share=share).merge(retrieved, "Q", always)
    assert len(merged) == num
    assert sum(item.from_turn == 0 for item in merged) == gives_way


def test_the_memory_holds_what_bm25_gave_and_not_what_was_merged() -> None:
    embed = Embedder(m=0, c=5, a=60, b=60, x=60, y=60, z=60)
    filled = memory("rerank", "m", embed=embed)
    retrieved = found("a", "b", "c", turn=1)
    assert names(filled.merge(retrieved, "Q", always)) == ["a", "b", "m"]
    filled.add(retrieved)  # c gave way, and is remembered all the same
    merged = filled.merge(found(*"xyzuvw", turn=2), "Q", always)
    assert names(merged) == ["x", "y", "z", "u", "m", "c"]
    assert [item.from_turn for item in merged[-2:]] == [0, 1]


def test_a_passage_keeps_the_turn_that_found_it_first() -> None:
    filled = memory("rerank", "m")
    filled.add(found("m", "n", turn=1))
    assert len(filled) == 2
    assert filled.merge(found("a", "b", "c", turn=2), "Q", always)[-1].from_turn == 0


def test_passages_of_different_turns_that_share_an_id_are_different() -> None:
    first, second = Evidence("0", "of turn 0", "text"), Evidence("0", "of turn 1", "text")
    filled = EvidenceMemory("rerank", embed=Embedder(), share=0.5)
    filled.add([Retrieved(first, 1.0, 0)])
    merged = filled.merge([Retrieved(second, 1.0, 1), Retrieved(second, 1.0, 1)], "Q", always)
    assert names(merged) == ["of turn 1", "of turn 0"]


def test_the_same_text_under_another_id_is_the_same_passage() -> None:
    filled = EvidenceMemory("rerank", embed=Embedder(), share=0.5)
    filled.add([Retrieved(Evidence("old", "text", "kb"), 1.0, 0)])
    retrieved = [Retrieved(Evidence("new", "text", "kb"), 1.0, 1), *found("b", turn=1)]
    assert names(filled.merge(retrieved, "Q", always)) == ["text", "b"]


def test_each_passage_is_embedded_once_in_a_conversation() -> None:
    embed = Embedder()
    filled = memory("rerank", "m1", "m2", "m3", embed=cached(embed))
    for turn in range(1, 6):
        retrieved = found("a", "b", f"c{turn}", turn=turn)
        filled.merge(retrieved, f"Q{turn}", always)
        filled.add(retrieved)
    assert set(embed.seen.values()) == {1}
    assert {"m1", "m2", "m3", "c1", "Q5"} <= set(embed.seen)


@pytest.mark.parametrize("mode", ["none", "rerank", "random"])
def test_an_empty_memory_leaves_the_first_turn_as_it_is(mode: Any) -> None:
    embed = Embedder()
    retrieved = found("a", "b", "c")
    assert EvidenceMemory(mode, embed=embed).merge(retrieved, "Q", always) == retrieved
    assert not embed.seen


def test_a_state_counts_passages_and_copies_none() -> None:
    one = memory("none", "m1", "m2")
    state = one.state()
    one.add(found("m3"))
    assert state == (2, None, None)
    one.graph = Mock(restore=Mock(side_effect=UserError("cannot be written")))
    with pytest.raises(UserError):
        one.restore(state)
    assert len(one) == 3, "as the graph still has the turn"
    one.graph = None
    one.restore(state)
    assert one.state() == state
    one.add(found("m3", "m2", turn=1))
    assert one.state() == (3, None, None)


def test_a_cache_that_another_thread_clears_is_not_missed() -> None:
    def encode(texts: Sequence[str]) -> np.ndarray:
        if "b" in texts:
            embed(["c", "d", "e"])
        return np.array([[ord(text)] for text in texts])

    embed = cached(encode, max_texts=3)
    embed(["a"])
    assert embed(["a", "b", "a"]).tolist() == [[97], [98], [97]]


def test_none_leaves_what_was_retrieved_and_embeds_nothing() -> None:
    embed = Embedder()
    retrieved = found("a", "b", "c", turn=1)
    assert memory("none", "m", embed=embed).merge(retrieved, "Q", always) == retrieved
    assert not embed.seen


def random_names(seed: Any, query: str) -> list[str]:
    drawn = memory("random", *(f"m{i}" for i in range(20)), seed=seed)
    return names(drawn.merge(found(*(f"e{i}" for i in range(9)), turn=1), query, always))


def test_random_depends_on_the_seed_and_never_on_the_question() -> None:
    assert random_names("0/c1", "Q") == random_names("0/c1", "another question")
    assert random_names("0/c1", "Q") != random_names("1/c1", "Q")
    assert random_names("0/c1", "Q")[:6] == [f"e{i}" for i in range(6)]


def test_a_turn_that_is_asked_again_draws_the_same() -> None:
    drawn = memory("random", *(f"m{i}" for i in range(20)))
    state, retrieved = drawn.state(), found(*(f"e{i}" for i in range(9)), turn=1)
    first, second = (names(drawn.merge(retrieved, "Q", always)) for _ in range(2))
    drawn.restore(state)
    assert [names(drawn.merge(retrieved, "Q", always)) for _ in range(2)] == [first, second]
    assert first != second


def test_many_equally_near_passages_are_taken_in_the_order_of_memory() -> None:
    embed = Embedder(**{f"m{i}": 10 + 40 * (i % 2) for i in range(60)})
    made = memory("rerank", *embed.angles, embed=embed)
    merged = names(made.merge(found(*(f"e{i}" for i in range(90)), turn=1), "Q", always))
    assert merged[60:] == [f"m{i}" for i in range(0, 60, 2)]


def test_random_draws_any_passage_of_memory_and_embeds_nothing() -> None:
    embed, drawn = Embedder(), set()
    for seed in range(40):
        made = memory("random", "m1", "m2", "m3", "m4", embed=embed, seed=seed)
        drawn.add(names(made.merge(found("a", "b", "c", turn=1), "Q", always))[-1])
    assert drawn == {"m1", "m2", "m3", "m4"}
    assert not embed.seen


def test_rerank_without_an_embedder_is_an_error() -> None:
    with pytest.raises(ValueError, match="rerank"):
        EvidenceMemory("rerank")


def test_a_remembered_passage_that_does_not_fit_gives_its_place_to_the_next() -> None:
    def fits(items: list[Retrieved]) -> bool:
        return sum(len(item.evidence.text) for item in items) <= 6

    embed = Embedder(looong=0, m=30)
    filled = memory("rerank", "looong", "m", embed=embed)
    assert names(filled.merge(found("a", "b", "c", turn=1), "Q", fits)) == ["a", "b", "m"]
    full = memory("rerank", "looong", embed=embed)
    assert names(full.merge(found("a", "b", "c", turn=1), "Q", fits)) == ["a", "b", "c"]


@given(
    st.lists(st.sampled_from("abcdefgh"), unique=True),
    st.lists(st.sampled_from("abcdefgh"), unique=True),
    st.sampled_from(["rerank", "random"]),
)
def test_merged_is_as_many_distinct_passages_with_the_best_kept(
    retrieved: list[str], remembered: list[str], mode: str
) -> None:
    merged = names(memory(mode, *remembered).merge(found(*retrieved, turn=1), "Q", always))
    kept = retrieved[: len(retrieved) - len(retrieved) // 3]
    assert merged[: len(kept)] == kept
    assert len(merged) == len(set(merged)) == len(retrieved)
    assert set(merged) <= set(retrieved) | set(remembered)


def test_memory_is_ranked_by_the_weighted_turns() -> None:
    embed = Embedder(old=90, new=0, near_old=85, near_new=10)
    made = memory("rerank", "near_old", "near_new", embed=embed)
    for weight, nearest in ((0.2, "near_new"), (8.0, "near_old")):
        merged = made.merge(found("a", "b", "c", turn=1), [("old", weight), ("new", 1.0)], always)
        assert names(merged) == ["a", "b", nearest]
        asked = np.array([1.0, weight]) / np.hypot(1.0, weight)
        angle = np.radians(embed.angles[nearest])
        assert merged[-1].score == pytest.approx(asked @ [np.cos(angle), np.sin(angle)])
