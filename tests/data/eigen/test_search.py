"""Best-first search: the paper's Algorithm 1 at gamma 0, edges, budgets, quoted themes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turngraph.data.eigen import eigen_index
from turngraph.data.eigen.eigen_index import EigenIndex
from turngraph.data.eigen.search import Hit, NodeGraph, SearchSettings, best_first, fuse
from turngraph.data.eigen.shared_names import SharedNames
from turngraph.data.eigen.similarity_graph import Neighbours, nearest_neighbours
from turngraph.data.eigen.themes import Theme
from turngraph.data.types import Entity, Evidence
from turngraph.tests.data.eigen.planted import by_words, planted


def algorithm_1(prompt: np.ndarray, nodes: list[np.ndarray], budget: int) -> list[int]:
    """GEM-RAG's Algorithm 1 as printed: add argmax over n not in C of cos(v_p, v_ni)."""
    found: list[int] = []
    while len(found) < budget:
        best, closest = -1, -np.inf
        for node, vectors in enumerate(nodes):
            for vector in vectors:
                if node not in found and prompt @ vector > closest:
                    best, closest = node, float(prompt @ vector)
        found.append(best)
    return found


@given(st.integers(0, 10**6), st.integers(1, 12))
@settings(max_examples=40, deadline=None)
def test_gamma_zero_on_the_complete_graph_is_algorithm_1(seed: int, budget: int) -> None:
    rng = np.random.default_rng(seed)
    nodes = [planted(3, 3, 3.0, seed + i)[0].astype(np.float64) for i in range(14)]
    prompt = nodes[int(rng.integers(14))][0] + 0.3 * rng.standard_normal(48)
    prompt /= np.linalg.norm(prompt)
    scores = np.array([(vectors @ prompt).max() for vectors in nodes])
    own = np.array([vectors[0] for vectors in nodes], np.float32)
    graph = nearest_neighbours(own, own, 13)
    chosen = SearchSettings(gamma=0, num_starts=1, max_pops=budget)
    hits = best_first(scores, [int(scores.argmax())], graph, chosen)
    assert [hit.node for hit in hits] == algorithm_1(prompt, nodes, budget)


def chain(*weights: float) -> Neighbours:
    """Return the graph 0 - 1 - 2 ... with one weight an edge."""
    count = len(weights) + 1
    rows = [[(i - 1, weights[i - 1])] * (i > 0) + [(i + 1, w) for w in weights[i : i + 1]]
            for i in range(count)]  # fmt: skip
    flat = [pair for row in rows for pair in row]
    starts = np.cumsum([0, *(len(row) for row in rows)])
    return Neighbours(starts, np.array([c for c, _ in flat]), np.array([w for _, w in flat]))


def test_neighbours_inherit_a_share_of_the_score() -> None:
    graph, own = chain(1.0, 0.5, 1.0), np.array([0.8, 0.1, 0.1, 0.3])
    hits = best_first(own, [0], graph, SearchSettings(gamma=0.5))
    assert hits == [Hit(0, 0.8), Hit(1, 0.4), Hit(2, 0.1), Hit(3, 0.3)]


@given(st.integers(0, 10**6), st.integers(1, 12))
@settings(max_examples=40, deadline=None)
def test_fewer_pops_find_the_first_of_what_more_find(seed: int, pops: int) -> None:
    rng = np.random.default_rng(seed)
    themes = [
        Theme(1.0, rng.permutation(60)[:40], np.sort(rng.random(40))[::-1], np.ones(2))
        for _ in range(3)
    ]
    own = rng.integers(-3, 10, 63) / 10  # many are equal
    graph = NodeGraph(60, [(np.arange(4), chain(1.0, 0.5, 1.0))], themes)
    few, many = SearchSettings(max_pops=pops), SearchSettings(max_pops=1000)
    assert best_first(own, [0], graph, few) == best_first(own, [0], graph, many)[:pops]


def test_a_theme_whose_quotes_are_found_is_skipped() -> None:
    theme = Theme(1.0, np.array([0, 1]), np.ones(2), np.ones(2, np.float32))
    graph = NodeGraph(2, [], [theme])
    own = np.array([0.9, 0.2, 0.5])
    quoted_later = best_first(own, [0], graph, quoted=[[1]])
    assert [hit.node for hit in quoted_later] == [0, 2, 1]
    quoted_before = best_first(own, [0], graph, quoted=[[0]])
    assert [hit.node for hit in quoted_before] == [0, 1]


def test_graph_joins_chunks_themes_and_themes_of_themes() -> None:
    lower = [Theme(1.0, np.array(m), np.ones(len(m)), np.ones(2)) for m in ([0, 1], [2])]
    upper = [Theme(1.0, np.array([1, 0]), np.array([1.0, 0.5]), np.ones(2))]
    graph = NodeGraph(3, [(np.array([0, 1, 2]), chain(0.7, 0.6))], lower, upper)
    assert graph.num_nodes == 6
    assert sorted(graph.of(0)[0].tolist()) == [1, 3]
    assert sorted(graph.of(3)[0].tolist()) == [0, 1, 5]
    assert dict(zip(*[part.tolist() for part in graph.of(5)], strict=True)) == {4: 1.0, 3: 0.5}


@pytest.mark.parametrize("wrong", [{"gamma": -1}, {"num_starts": 0}, {"max_pops": 0}])
def test_bad_settings_are_named(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SearchSettings(**wrong)


def test_fusion_counts_ranks() -> None:
    assert fuse([np.array([2, 0]), np.array([2, 1])], 4).tolist() == [2, 0, 1, 3]


TOPICS = {
    "sea": "harbour ship captain sails waves",
    "bread": "oven flour baker dough crust",
    "law": "judge court trial verdict jury",
}


def pool(count: int = 30) -> list[Evidence]:
    names = list(TOPICS)
    made = []
    for i in range(count):
        topic = TOPICS[names[i % 3]].split()
        text = f"{' '.join(topic[i % 4 :])} number{i} of {names[i % 3]}"
        made.append(Evidence(f"e{i}", text, "text", (Entity(f"n{i}", f"number{i}"),)))
    return made


def test_index_ranks_a_pool() -> None:
    passages = pool()
    index = EigenIndex(passages, by_words)
    found = index.rank("Which baker has dough and flour?", 5, turn=2)
    assert all("bread" in item.evidence.text for item in found)
    assert all(item.from_turn == 2 for item in found)
    scores = [item.score for item in found]
    assert scores == sorted(scores, reverse=True)
    everything = index.rank([("judge", 1.0), ("baker", 0.2)], 99)
    assert len({item.evidence.id for item in everything}) == 30
    assert "law" in everything[0].evidence.text
    assert len(index.themes) >= 2


def test_index_makes_themes_of_every_source_apart() -> None:
    passages = [*pool(24), Evidence("blank", " ", "text")]
    sources = [f"file{i % 2}" for i in range(25)]
    index = EigenIndex(passages, by_words, sources=sources)
    for theme in index.themes:
        assert len({sources[member] for member in theme.members.tolist()}) == 1
    assert index.rank("judge", 99)[-1].evidence.id == "blank"


def test_index_without_passages() -> None:
    assert EigenIndex([], by_words).rank("judge", 3) == []


def test_the_best_passages_raise_those_that_share_a_rare_name() -> None:
    names = [["Ann", "Bo"], ["ANN"], ["Cy"], ["bo", "Cy"]]
    found = SharedNames(names).gains(np.array([1.0, 0.2, 0.1, 0.0]))
    assert found.tolist() == [0.2, 1.0, 0.0, 1.0]
    three = SharedNames([["Ann"]] * 3).gains(np.array([0.5, 0.1, -1.0]))
    assert three.tolist() == pytest.approx([0.1 / 2**0.5, 0.5 / 2**0.5, 0.5 / 2**0.5])
    assert not SharedNames([["Ann"]] * 11).gains(np.ones(11)).any()
    assert SharedNames([["Ann"]] * 2 + [[]] * 5).gains(-np.arange(7.0)).tolist()[:2] == [0.0, 0.0]


def test_a_passage_of_the_second_hop_is_found_by_a_shared_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = Evidence("hop", "unlike everything else", "text", (Entity("x", "Number0"),))
    for weight in (0.0, 0.5):
        monkeypatch.setattr(eigen_index, "SHARED_WEIGHT", weight)
        index = EigenIndex([*pool(), other], by_words)
        found = [item.evidence.id for item in index.rank("harbour ship number0", 31)]
        assert found[0] == "e0"
        assert (found.index("hop") < 6) == (weight > 0), found


def test_index_names_a_bad_vector_by_its_passage() -> None:
    def broken(texts: object) -> np.ndarray:
        vectors = by_words([one.text for one in pool()])
        vectors[4] = np.nan
        return vectors

    with pytest.raises(ValueError, match="passage 4: its vector is not finite"):
        EigenIndex(pool(), broken)
