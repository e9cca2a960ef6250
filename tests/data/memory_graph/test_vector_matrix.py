"""Vector matrix: nearest rows, however it was filled, and files after kills and corruption."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from turngraph.data.memory_graph.recall import neighbour_index as module
from turngraph.data.memory_graph.recall.derived_files import State, locked
from turngraph.data.memory_graph.recall.vector_matrix import Row, VectorMatrix

WIDTH = 32


def unit(rng: np.random.Generator, count: int, width: int = WIDTH) -> np.ndarray:
    vectors = rng.standard_normal((count, width))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def clusters(rng: np.random.Generator, count: int, centres: np.ndarray) -> np.ndarray:
    vectors = centres[rng.integers(0, len(centres), count)]
    vectors = vectors + 0.12 * rng.standard_normal((count, centres.shape[1]))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def rows(keys: list[int]) -> list[Row]:
    return [Row(key, 7 * key) for key in keys]


def filled(folder: Path, keys: list[int], vectors: np.ndarray, part: int = 10) -> VectorMatrix:
    """Return a matrix written in parts; the last part stays in memory."""
    matrix = VectorMatrix(folder)
    for begin in range(0, len(keys), part):
        if begin:
            assert matrix.save(State(1), [1.0])
        chosen = keys[begin : begin + part]
        matrix.put(rows(chosen), vectors[chosen])
    return matrix


def test_nearest_is_exact_whatever_the_order_of_insertion(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    vectors = unit(rng, 95)
    vectors[40] = vectors[41] = vectors[7]  # ties are broken by key
    query = vectors[7].astype(np.float16)
    exact = vectors.astype(np.float16).astype(np.float64) @ query.astype(np.float64)
    expected = sorted(range(95), key=lambda key: (-round(exact[key], 5), key))[:20]
    results = []
    for seed in range(3):
        keys = list(range(95))
        random.Random(seed).shuffle(keys)
        matrix = filled(tmp_path / str(seed), keys, vectors)
        found, scores = matrix.nearest(query, 20)
        assert found.tolist() == expected
        np.testing.assert_allclose(scores, exact[expected], atol=1e-5)
        results.append(scores.tolist())
        places = matrix.rows(np.array([3, 90, 200, 5]))
        assert places[2] == -1
        np.testing.assert_allclose(
            matrix.dot(places[[0, 1, 3]], query), exact[[3, 90, 5]], atol=1e-5
        )
    assert results[0] == results[1] == results[2]  # to the last bit


def test_a_new_row_replaces_the_old_and_a_dropped_row_is_zeroed(tmp_path: Path) -> None:
    vectors = unit(np.random.default_rng(2), 60)
    matrix = filled(tmp_path, list(range(20)), vectors)
    matrix.put([Row(3, 1)], vectors[50:51])
    matrix.drop(np.array([4, 15, 99]))
    query = vectors[50].astype(np.float16)
    for _ in range(2):
        assert matrix.nearest(query, 1)[0].tolist() == [3]
        assert set(matrix.nearest(query, 99)[0].tolist()) == set(range(20)) - {4, 15}
        assert matrix.hash_of(3) == 1
        assert matrix.hash_of(4) is None
        matrix.save(State(2), [1.0])
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for gone in (3, 4, 15):
        assert vectors[gone].astype(np.float16).tobytes() not in stored
        assert np.int64(7 * gone).tobytes() not in stored or 7 * gone < 20
    assert vectors[5].astype(np.float16).tobytes() in stored


def test_files_shrink_when_most_rows_are_dropped(tmp_path: Path) -> None:
    vectors = unit(np.random.default_rng(3), 1500)
    matrix = filled(tmp_path, list(range(1500)), vectors, 700)
    matrix.save(State(1), [1.0])
    before = sum(path.stat().st_size for path in tmp_path.iterdir())
    matrix.drop(np.arange(0, 1500, 3))
    matrix.drop(np.arange(1, 1500, 3))
    matrix.put(rows([3000]), vectors[:1])
    matrix.save(State(2), [1.0])
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 0.4 * before
    again = VectorMatrix(tmp_path)
    assert len(again.keys) == again.count == 501
    np.testing.assert_allclose(again.vectors(np.array([2])), vectors[2:3], atol=1e-3)
    assert again.nearest(vectors[0].astype(np.float16), 1)[0].tolist() == [3000]


def test_another_width_is_an_error(tmp_path: Path) -> None:
    matrix = filled(tmp_path, [0, 1], unit(np.random.default_rng(4), 2))
    with pytest.raises(ValueError, match=r"width 5.* 32"):
        matrix.put(rows([2]), unit(np.random.default_rng(4), 1, 5))


def test_two_writers_do_not_mix_rows(tmp_path: Path) -> None:
    vectors = unit(np.random.default_rng(5), 9)
    one, two = VectorMatrix(tmp_path), VectorMatrix(tmp_path)
    one.put(rows([1, 2]), vectors[1:3])
    two.put(rows([3, 4, 5]), vectors[3:6])
    with locked(tmp_path):
        assert not one.save(State(1), [1.0])
    assert one.save(State(1), [1.0])
    assert not two.save(State(1), [1.0])  # another process has written since
    two.reload()
    assert two.rows(np.array([1, 2, 3])).tolist() == [0, 1, -1]
    np.testing.assert_allclose(two.vectors(np.array([2])), vectors[2:3], atol=1e-3)


@pytest.mark.parametrize("damage", ["manifest.json", "rows-*", "labels-*"])
def test_corrupt_files_are_rebuilt(tmp_path: Path, damage: str) -> None:
    vectors = unit(np.random.default_rng(7), 20)
    filled(tmp_path, list(range(20)), vectors)
    [path] = tmp_path.glob(damage)
    path.write_bytes(path.read_bytes()[:20])
    matrix = VectorMatrix(tmp_path)
    assert (matrix.count, matrix.manifest["revision"]) == (0, -1)
    matrix.put(rows([1]), vectors[1:2])
    assert matrix.save(State(1), [1.0])
    assert VectorMatrix(tmp_path).rows(np.array([1, 2])).tolist() == [0, -1]


WRITER = """
import sys
from pathlib import Path
import numpy as np
from turngraph.data.memory_graph.recall.derived_files import State
from turngraph.data.memory_graph.recall.vector_matrix import VectorMatrix, Row
matrix = VectorMatrix(Path(sys.argv[1]))
while True:
    keys = range(matrix.count, matrix.count + 50)
    vectors = np.zeros((50, 64)); vectors[range(50), [k % 64 for k in keys]] = 1
    matrix.put([Row(k, k) for k in keys], vectors)
    matrix.save(State(matrix.count), [1.0])
    print(matrix.count, flush=True)
"""


def test_a_kill_at_any_moment_leaves_valid_rows_intact(tmp_path: Path) -> None:
    reported = 0
    for wait in (1, 3, 2):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(wait):
            reported = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        matrix = VectorMatrix(tmp_path)
        assert matrix.count >= reported
        keys = np.arange(matrix.count)
        assert matrix.vectors(keys).argmax(axis=1).tolist() == (keys % 64).tolist()
        assert matrix.manifest["revision"] == matrix.count


def test_the_index_finds_nearly_the_same_as_exact_search(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_EXACT", 4000)
    rng = np.random.default_rng(8)
    centres = unit(rng, 100, 64)
    count = module.MAX_EXACT + 2000
    vectors, queries = clusters(rng, count, centres), clusters(rng, 40, centres)
    matrix = VectorMatrix(tmp_path)
    matrix.put([Row(key, key) for key in range(count)], vectors)
    exact = [matrix.nearest(query, 50)[0] for query in queries.astype(np.float16)]
    assert matrix.save(State(1), [1.0], index=True)
    assert matrix.neighbours.num_rows == count  # from here on the index is searched
    monkeypatch.setattr(matrix, "dot_all", lambda _, begin: np.empty(matrix.count - begin))
    found = [matrix.nearest(query, 50)[0] for query in queries.astype(np.float16)]
    shares = [len(set(f) & set(e)) / 50 for f, e in zip(found, exact, strict=True)]
    assert np.mean(shares) >= 0.98
    closest = [f[0] == e[0] for f, e in zip(found, exact, strict=True)]
    assert np.mean(closest) >= 0.98


def test_the_index_and_later_rows_are_searched_together(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_EXACT", 100)
    rng = np.random.default_rng(9)
    vectors = unit(rng, 400)
    matrix = VectorMatrix(tmp_path)
    matrix.put(rows(list(range(200))), vectors[:200])
    matrix.save(State(1), [1.0], index=True)
    assert matrix.neighbours.num_rows == 200
    matrix.put(rows(list(range(200, 290))), vectors[200:290])
    matrix.put([Row(5, 0)], vectors[300:301])
    matrix.drop(np.array([6]))
    for _ in range(2):
        for key, at in ((7, 7), (250, 250), (5, 300)):
            assert matrix.nearest(vectors[at].astype(np.float16), 3)[0][0] == key
        assert 6 not in matrix.nearest(vectors[6].astype(np.float16), 50)[0]
        matrix.save(State(2), [1.0], index=True)
        assert matrix.neighbours.num_rows == 200
    stored = matrix.neighbours._index.get(np.array([5, 6, 7]), dtype="i8")
    assert [bool(row.any()) for row in np.array(stored)] == [False, False, True]  # erased there too
    matrix.put(rows(list(range(290, 400))), vectors[290:400])
    matrix.save(State(3), [1.0], index=True)
    assert matrix.neighbours.num_rows == matrix.count
    assert list(tmp_path.glob("index-*")) == [matrix.neighbours.path]
    for key in (8, 250, 399):
        assert matrix.nearest(vectors[key].astype(np.float16), 3)[0][0] == key


def test_a_region_that_the_index_overlooks_is_found(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_EXACT", 100)
    rng = np.random.default_rng(11)
    centres = unit(rng, 2)
    vectors = np.concatenate([clusters(rng, 500, centres[i : i + 1]) for i in range(2)])
    matrix = VectorMatrix(tmp_path)
    matrix.put(rows(list(range(1000))), vectors)
    query = centres[1].astype(np.float16)
    expected = matrix.nearest(query, 20)[0].tolist()
    assert min(expected) >= 500
    matrix.save(State(1), [1.0], index=True)
    monkeypatch.setattr(matrix.neighbours, "search", lambda _, k: np.arange(2 * k))
    assert matrix.nearest(query, 20)[0].tolist() == expected


def test_an_index_of_another_size_or_with_a_changed_byte_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A neighbour outside of the file would end the process."""
    monkeypatch.setattr(module, "MAX_EXACT", 50)
    vectors = unit(np.random.default_rng(14), 200)
    matrix = filled(tmp_path, list(range(200)), vectors)
    matrix.put(rows([300]), vectors[:1])
    matrix.save(State(2), [1.0], index=True)
    path, width = matrix.neighbours.path, matrix.width
    assert path is not None
    whole, begin = path.read_bytes(), 8 + 201 * width
    places = (begin, (begin + len(whole)) // 2, len(whole) - 1)
    changed = [whole[:at] + bytes([whole[at] ^ 64]) + whole[at + 1 :] for at in places]
    for damaged in (b"\0" * 20, *changed):
        path.write_bytes(damaged)
        matrix = VectorMatrix(tmp_path)
        assert matrix.neighbours.num_rows == 0
        assert matrix.nearest(vectors[3].astype(np.float16), 1)[0].tolist() == [3]
    path.write_bytes(whole[:8] + bytes(width) + whole[8 + width :])  # as an erased row is
    assert VectorMatrix(tmp_path).neighbours.num_rows == 201


def test_recreated_files_are_never_mistaken_for_the_old_ones(tmp_path: Path) -> None:
    vectors = unit(np.random.default_rng(11), 40)
    folder = tmp_path / "facts"
    filled(folder, list(range(20)), vectors).save(State(1), [1.0])
    old = VectorMatrix(folder)
    old.copy_hub(np.arange(20))
    old.put(rows([30]), vectors[30:31])
    shutil.rmtree(folder)
    filled(folder, list(range(39, 9, -1)), vectors)
    assert old.is_outdated()
    assert not old.save(State(2), [1.0])  # other processes' rows stay
    old.reload()
    assert not len(old.hub_vectors.rows)
    np.testing.assert_allclose(old.vectors(np.array([39, 22])), vectors[[39, 22]], atol=1e-3)


def test_leftovers_of_a_killed_index_build_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_EXACT", 50)
    vectors = unit(np.random.default_rng(12), 200)
    matrix = filled(tmp_path, list(range(200)), vectors)
    matrix.put(rows([300]), vectors[:1])
    matrix.save(State(2), [1.0], index=True)
    index = matrix.neighbours.path
    assert index is not None
    smaller = index.with_name(index.name.replace("-201", "-100"))
    partial = index.with_name(f".{index.name}.partial")
    for path in (smaller, partial):
        shutil.copy(index, path)
    matrix.drop(np.array([6]))
    matrix.save(State(3), [1.0])
    assert index.exists()
    assert not smaller.exists()
    assert not partial.exists()
