"""Question view: equal to the record, computed one fact at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import EPISODIC, OBJECT, SIMPLE, THESIS, TIME
from turngraph.data.memory_graph.recall import question_view, word_index
from turngraph.data.memory_graph.recall.adjacency import Adjacency
from turngraph.data.memory_graph.recall.derived_files import State
from turngraph.data.memory_graph.recall.question_view import CosineCache, QuestionView
from turngraph.data.memory_graph.recall.vector_matrix import Row, VectorMatrix
from turngraph.data.memory_graph.recall.vectors import Vectors
from turngraph.data.memory_graph.recall.view import QuestionEntity, View
from turngraph.data.memory_graph.recall.word_index import WordIndex
from turngraph.data.memory_graph.record.fact_texts import fact_texts
from turngraph.data.memory_graph.times import start
from turngraph.data.normalise import words
from turngraph.tests.data.memory_graph.hashing import Hashing
from turngraph.tests.data.memory_graph.random_record import RandomRecord

QUESTION = "Does Anna like the red cat in Paris?"
AS_OF = start("2004-06")


def see(record: RandomRecord, forbidden: tuple[int, ...] = ()) -> QuestionView:
    adjacency = Adjacency(record.db, record.store.derived, writable=False)
    vectors = Vectors(record.db, record.store.derived, Hashing(), writable=False)
    adjacency.refresh()
    vectors.refresh()
    node = record.db.execute(f"SELECT min(id) FROM nodes WHERE type = {OBJECT}").fetchone()[0]
    entities = (QuestionEntity("first", node), QuestionEntity("the first", node))
    [vector] = Hashing()([QUESTION])
    return QuestionView(
        record.db,
        adjacency,
        vectors,
        question=QUESTION,
        vector=vector,
        entities=entities,
        as_of=AS_OF,
        forbidden=forbidden,
    )


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RandomRecord:
    made = RandomRecord(tmp_path_factory.mktemp("view") / "a.db", 11)
    made.write(25)
    return made


def all_triplets(record: RandomRecord) -> list[tuple[int, int, int]]:
    return record.db.execute("SELECT id, type, target FROM edges ORDER BY id").fetchall()


def key_of(triplet: tuple[int, int, int]) -> int:
    edge, type, target = triplet
    return 2 * edge + 1 if type == SIMPLE else 2 * target


def test_similarity_is_the_cosine_of_a_triplet_s_text(record: RandomRecord) -> None:
    view: View = see(record)
    triplets = all_triplets(record)
    texts = fact_texts(record.db, {key_of(t) for t in triplets})
    expected = Hashing()([texts[key_of(t)] for t in triplets]) @ Hashing()([QUESTION])[0]
    ids = np.array([t[0] for t in triplets])
    np.testing.assert_allclose(view.similarity(ids[:3]), expected[:3], atol=2e-3)
    np.testing.assert_allclose(view.similarity(ids), expected, atol=2e-3)  # all rows at once
    np.testing.assert_allclose(view.similarity(ids[::-1]), expected[::-1], atol=2e-3)
    assert [view.text(t[0]) for t in triplets] == [texts[key_of(t)] for t in triplets]


@pytest.mark.parametrize("forbidden", [(), (EPISODIC,)])
def test_a_hub_is_viewed_like_any_other_node(
    record: RandomRecord, forbidden: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = see(record, forbidden)
    nodes = np.flatnonzero(plain.node_types >= 0)[::-1]
    expected = plain.around_all(nodes)
    monkeypatch.setattr(question_view, "HUB", 3)
    view = see(record, forbidden)
    for some in (nodes, nodes[:4], nodes):
        found = view.around_all(some)
        length = len(found[0])
        for column, right in zip(found, expected, strict=True):
            assert column.tolist() == right[:length].tolist()
        keys, cosines = view.facts_around(*found[:2])
        assert keys.tolist() == plain.fact_keys(found[0]).tolist()
        np.testing.assert_allclose(cosines, plain.similarity(found[0]), atol=1e-6)


def test_copied_rows_score_like_all_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(question_view, "MIN_HUB_ROWS", 8)
    monkeypatch.setattr(question_view, "EXACT", 40)
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((1600, 16))
    vectors = (vectors / np.linalg.norm(vectors, axis=1)[:, None]).astype(np.float16)
    matrix = VectorMatrix(tmp_path)
    matrix.put([Row(key, 0) for key in range(1500)], vectors[:1500])
    matrix.save(State(1), [1.0])
    matrix.put([Row(key, 0) for key in range(1500, 1600)], vectors[1500:])

    def check(*asked: np.ndarray) -> None:
        for query in rng.standard_normal((2, 16)).astype(np.float32):
            query /= np.linalg.norm(query)
            scores = CosineCache(matrix, query)
            for keys in asked:
                right = vectors[keys].astype(np.float32) @ query
                found = scores.of_hub(keys)
                np.testing.assert_allclose(found, right, atol=0.024)  # 4 * 0.5 * 2 / 127 at most
                closest = np.argsort(-right)[:20]
                np.testing.assert_allclose(found[closest], right[closest], atol=2e-3)
                np.testing.assert_allclose(scores.of(keys), right, atol=2e-3)

    hub = rng.permutation(1600)[:300]
    check(hub, np.arange(1600))
    assert 250 < len(matrix.hub_vectors.rows) < 1600  # rows that are only in memory are not copied
    other = VectorMatrix(tmp_path)  # another process, which gives the same indices to other rows
    other.put([Row(key, 0) for key in range(1599, 1499, -1)], vectors[:1499:-1])
    other.save(State(2), [1.0])
    matrix.reload()
    check(hub)
    assert 250 < len(matrix.hub_vectors.rows) < 1600
    matrix.drop(np.arange(900))
    matrix.save(State(3), [1.0])  # the files shrink, every row gets another index
    assert not len(matrix.hub_vectors.rows)
    check(np.arange(900, 1600))


@pytest.mark.parametrize("forbidden", [(), (EPISODIC,), (THESIS, EPISODIC), (OBJECT,)])
def test_restrictions_hold_except_for_linked_objects(
    record: RandomRecord, forbidden: tuple[int, ...]
) -> None:
    view = see(record, forbidden)
    [linked] = view.question_nodes.tolist()
    for (node,) in record.db.execute("SELECT id FROM nodes").fetchall():
        expected = [
            (edge, other)
            for edge, other in record.around(node, AS_OF)
            if view.node_types[other] not in forbidden or other == linked
        ]
        found = view.around(node)
        assert list(zip(*(c.tolist() for c in found), strict=True)) == expected


def test_mentions_are_whole_words_in_sequence(record: RandomRecord) -> None:
    view = see(record)
    keys = sorted({key_of(t) for t in all_triplets(record)})
    texts = fact_texts(record.db, keys)
    for name in ("Anna", "RED  blue", "sings reads", "ann", "", '"', "cat OR dog", "zorblax"):
        wanted = words(name)
        expected = []
        for key in keys:
            said = words(texts[key])
            places = range(len(said) - len(wanted) + 1)
            expected.append(any(said[i : i + len(wanted)] == wanted for i in places))
        found = view.mentions(np.array(keys), name)
        assert found.tolist() == (expected if wanted else [False] * len(keys))


def test_a_cached_name_is_read_again_at_another_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(word_index, "MIN_KEPT", 1)
    monkeypatch.setattr(word_index, "MAX_KEPT", 2)
    with MemoryGraph.open(tmp_path / "a.db") as graph:
        known = WordIndex(graph.store.db)
        for count in (1, 2):
            graph.remember(f"Anna has {count} cats.")
            known.show(graph.store.revision)
            for phrase in ("anna", "cats", "has", "anna"):  # one more than are cached
                again = WordIndex(graph.store.db).facts(phrase).tolist()
                assert known.facts(phrase).tolist() == again
                assert len(again) >= count
                assert known.frequency(phrase) == len(again)


@pytest.mark.parametrize("forbidden", [(), (EPISODIC,), (THESIS, EPISODIC), (OBJECT,)])
def test_nearest_are_the_closest_that_hold(
    record: RandomRecord, forbidden: tuple[int, ...]
) -> None:
    view = see(record, forbidden)
    keys = [2 * n for (n,) in record.db.execute("SELECT id FROM nodes WHERE type IN (1, 2)")]
    keys += [2 * e + 1 for (e,) in record.db.execute("SELECT id FROM edges WHERE type = 0")]
    allowed = [key for key in keys if holds(record, key) and type_of(view, key) not in forbidden]
    cosines = dict(zip(allowed, view.closeness(np.array(allowed)).tolist(), strict=True))
    expected = sorted(allowed, key=lambda key: (-cosines[key], key))
    for k in (1, 3, 10, len(allowed), 10_000):
        assert view.nearest(k).tolist() == expected[:k]


def type_of(view: QuestionView, key: int) -> int:
    return OBJECT if key % 2 else int(view.node_types[key // 2])


def holds(record: RandomRecord, key: int) -> bool:
    if key % 2 == 0:
        sql = "SELECT valid_from, valid_to FROM nodes WHERE id = ?"
    else:
        sql = "SELECT valid_from, valid_to FROM edges WHERE id = ?"
    since, until = record.db.execute(sql, (key // 2,)).fetchone()
    return (since is None or start(since) <= AS_OF) and (until is None or start(until) > AS_OF)


def test_node_vectors_are_those_of_names_and_texts_and_zeros_for_times(
    record: RandomRecord,
) -> None:
    view = see(record)
    rows = record.db.execute("SELECT id, type, text FROM nodes").fetchall()
    expected = Hashing()([text for *_, text in rows])
    expected[[type == TIME for _, type, _ in rows]] = 0
    ids = [node for node, *_ in rows]
    np.testing.assert_allclose(view.node_vectors(np.array(ids)), expected, atol=2e-3)
    assert view.names(ids) == [text for *_, text in rows]


def test_nearest_by_words_are_all_of_the_type_that_have_one(record: RandomRecord) -> None:
    view = see(record)
    asked = {"anna", "like", "red", "cat", "paris"}  # "does", "the" and "in" are stop words
    for kind in (THESIS, EPISODIC):
        nodes, scores = view.nearest_by_words(1000, kind)
        rows = record.db.execute("SELECT id, text FROM nodes WHERE type = ?", (kind,))
        expected = {n for n, text in rows if asked & set(words(text)) and holds(record, 2 * n)}
        assert set(nodes.tolist()) == expected
        assert len(nodes) == len(expected) > 1
        assert (np.diff(scores) <= 0).all()
