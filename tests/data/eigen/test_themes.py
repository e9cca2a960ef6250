"""Themes: planted topics are found, eigenpairs hold, bad vectors are named by their number."""

from __future__ import annotations

import numpy as np
import pytest

from turngraph.data.eigen import similarity_graph
from turngraph.data.eigen import themes as themes_module
from turngraph.data.eigen.similarity_graph import (
    nearest_neighbours,
    own_and_asked,
    similarities,
    unit_vectors,
)
from turngraph.data.eigen.spectrum import complete_part, connected_parts
from turngraph.data.eigen.themes import (
    SourceThemes,
    Theme,
    source_themes,
    themes_of_themes,
)
from turngraph.tests.data.eigen.planted import planted


def plain_weights(vectors: np.ndarray, questions: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """W of the paper's similarities, symmetric and shifted, one pair at a time."""
    count = len(vectors)
    asked = []
    for t in range(count):
        own = [(questions[j] + vectors[t]) / 2 for j in np.flatnonzero(owners == t)]
        asked.append([v / np.linalg.norm(v) for v in own] or [vectors[t]])
    directed = np.array(
        [[np.mean([a @ vectors[v] for a in asked[t]]) for v in range(count)] for t in range(count)]
    )
    weights = (1 + (directed + directed.T) / 2) / 2
    np.fill_diagonal(weights, 0)
    return weights


def with_questions(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    vectors, _ = planted(count, 3, 2.0)
    owners = np.repeat(np.arange(0, count, 2), 2)
    return vectors, planted(len(owners), 3, 2.0, seed=5)[0], owners


def purity(themes: tuple[Theme, ...], topics: np.ndarray) -> float:
    tops = [topics[theme.members[:10]] for theme in themes]
    return float(np.mean([np.bincount(top).max() / len(top) for top in tops]))


def assert_equal(one: SourceThemes, other: SourceThemes) -> None:
    assert len(one.themes) == len(other.themes)
    for a, b in zip(one.themes, other.themes, strict=True):
        assert a.eigenvalue == b.eigenvalue
        assert np.array_equal(a.members, b.members)
        assert np.array_equal(a.weights, b.weights)


def test_similarities_are_those_of_a_plain_implementation() -> None:
    vectors, questions, owners = with_questions(20)
    asked = own_and_asked(vectors, questions, owners)
    found = similarities(vectors, asked, slice(0, 20))
    np.fill_diagonal(found, 0)
    assert np.allclose(found, plain_weights(vectors, questions, owners), atol=1e-5)
    assert found.min() >= 0
    assert found.max() <= 1


def test_eigenpairs_of_the_complete_graph_are_those_of_its_matrix() -> None:
    vectors, questions, owners = with_questions(60)
    weights = plain_weights(vectors, questions, owners).astype(np.float64)
    scale = 1 / np.sqrt(weights.sum(axis=1))
    values, pairs = np.linalg.eigh(scale[:, None] * weights * scale)
    part = complete_part(vectors, own_and_asked(vectors, questions, owners), 5)
    assert np.allclose(part.values, values[::-1][:5], atol=1e-5)
    assert part.values[0] == 1
    assert part.residual < 1e-4
    overlap = np.abs(part.vectors.T @ pairs[:, ::-1][:, :5])
    assert np.allclose(overlap[:3, :3], np.eye(3), atol=1e-2)


def test_eigenvalues_lie_in_one_and_the_trace_is_zero() -> None:
    vectors, _ = planted(40, 4, 1.5)
    part = complete_part(vectors, vectors, 38)
    assert part.values[0] == 1 == part.values.max()
    graph = nearest_neighbours(vectors, vectors, 39)
    whole = connected_parts(graph, 40)[0]
    assert whole.values.sum() == pytest.approx(0, abs=1e-9)
    assert whole.values.min() >= -1


def test_the_trivial_pair_is_not_found_again_where_all_others_are_negative() -> None:
    vectors = np.eye(12, dtype=np.float32)
    part = complete_part(vectors, vectors, 3)
    assert part.values.tolist() == pytest.approx([1, -1 / 11, -1 / 11])
    assert part.residual < 1e-6


def test_neighbours_are_exact_and_symmetric() -> None:
    vectors, _ = planted(90, 3, 2.0)
    graph = nearest_neighbours(vectors, vectors, 5)
    near = np.round((1 + vectors.astype(np.float64) @ vectors.T) / 2, 4)
    np.fill_diagonal(near, -1)
    best = {(i, int(j)) for i in range(90) for j in np.argsort(-near[i], kind="stable")[:5]}
    edges = {(i, int(j)) for i in range(90) for j in graph.of(i)[0]}
    assert edges == {(j, i) for i, j in edges}
    assert len(edges ^ (best | {(j, i) for i, j in best})) <= 4  # equal after rounding here


def test_of_many_equal_neighbours_the_first_are_taken_in_every_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(similarity_graph, "BLOCK_ENTRIES", 1000)  # two rows and a bit
    vectors = np.eye(7, dtype=np.float32)[np.random.default_rng(0).integers(0, 7, 400)]
    vectors[::3, 0] += 1
    vectors = unit_vectors(vectors, "chunk")
    near = np.round((1 + vectors @ vectors.T) / 2, similarity_graph.DECIMALS)
    np.fill_diagonal(near, -1)
    best = {(i, int(j)) for i in range(400) for j in np.argsort(-near[i], kind="stable")[:5]}
    graph = nearest_neighbours(vectors, vectors, 5)
    edges = {(i, int(j)) for i in range(400) for j in graph.of(i)[0]}
    assert edges == best | {(j, i) for i, j in best}


@pytest.mark.parametrize("noise", [1.0, 2.0])
def test_planted_topics_are_found(noise: float) -> None:
    vectors, topics = planted(400, 8, noise)
    found = source_themes(vectors)
    assert len(found.themes) == 8  # by the spectral gap
    assert purity(found.themes, topics) > 0.98
    members = np.concatenate([theme.members for theme in found.themes])
    assert sorted(members.tolist()) == list(range(400))


def test_a_large_source_is_a_complete_graph_without_a_matrix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(themes_module, "MAX_EXACT", 100)
    vectors, topics = planted(200, 4, 1.0)
    found = source_themes(vectors)
    assert found.neighbours is None
    assert len(found.themes) > 1
    assert purity(found.themes, topics) > 0.95


def test_larger_parts_are_solved_without_a_dense_matrix() -> None:
    vectors, topics = planted(1400, 4, 2.0)
    found = source_themes(vectors).themes
    assert len(found) > 1
    assert purity(found, topics) > 0.95


def test_the_same_vectors_have_the_same_themes() -> None:
    vectors, _ = planted(300, 5, 3.0)
    assert_equal(source_themes(vectors), source_themes(vectors.copy()))


def test_themes_follow_a_permutation_of_the_chunks() -> None:
    vectors, topics = planted(160, 4, 1.0)
    moved = np.random.default_rng(3).permutation(160)
    one, other = source_themes(vectors), source_themes(vectors[moved])
    groups = {frozenset(theme.members.tolist()) for theme in one.themes}
    assert groups == {frozenset(moved[theme.members].tolist()) for theme in other.themes}
    assert purity(one.themes, topics) == 1


def test_few_chunks_have_no_themes_and_equal_ones_a_single_theme() -> None:
    vectors, _ = planted(7, 2, 1.0)
    assert source_themes(vectors).themes == ()
    assert source_themes(np.zeros((0, 4))).themes == ()
    (theme,) = source_themes(np.tile(vectors[:1], (20, 1))).themes
    assert theme.members.tolist() == list(range(20))
    assert set(theme.weights.tolist()) == {1.0}


@pytest.mark.parametrize(("value", "wrong"), [(np.nan, "not finite"), (0.0, "zero")])
def test_bad_vectors_are_named_by_their_chunk(value: float, wrong: str) -> None:
    vectors, _ = planted(20, 2, 1.0)
    vectors[7] = value
    with pytest.raises(ValueError, match=f"chunk 7: its vector is {wrong}"):
        source_themes(vectors)


def test_questions_need_owners_and_the_width_of_chunks() -> None:
    vectors, questions, owners = with_questions(20)
    with pytest.raises(ValueError, match="needs an owner"):
        source_themes(vectors, questions)
    with pytest.raises(ValueError, match="needs an owner"):
        source_themes(vectors, questions[:, :3], owners)
    with pytest.raises(ValueError, match="not from 0 to 19"):
        source_themes(vectors, questions, owners + 19)
    with pytest.raises(ValueError, match="2"):
        source_themes(vectors[0])


def test_residuals_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(themes_module, "MAX_RESIDUAL", 0.0)
    vectors, _ = planted(40, 2, 3.0)
    with pytest.raises(ValueError, match="residual"):
        source_themes(vectors)


def test_no_convergence_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from scipy.sparse.linalg import ArpackNoConvergence

    def fails(*args: object, **kwargs: object) -> None:
        raise ArpackNoConvergence("no convergence", np.zeros(0), np.zeros((0, 0)))

    monkeypatch.setattr("turngraph.data.eigen.spectrum.eigsh", fails)
    monkeypatch.setattr(themes_module, "MAX_EXACT", 10)
    vectors, _ = planted(40, 2, 3.0)
    with pytest.raises(ValueError, match="did not converge"):
        source_themes(vectors)


def test_themes_of_themes_group_them() -> None:
    vectors, topics = planted(24, 3, 0.3)
    themes = [Theme(1.0, np.array([i]), np.ones(1), v) for i, v in enumerate(vectors)]
    upper = themes_of_themes(themes)
    assert purity(upper, topics) > 0.9
    assert themes_of_themes(themes[:7]) == ()
