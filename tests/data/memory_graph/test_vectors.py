"""Vectors follow the record: none is missing, none is left over, none is computed twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from turngraph.data.memory_graph.memory_types import OBJECT, SIMPLE, THESIS
from turngraph.data.memory_graph.recall import vectors as module
from turngraph.data.memory_graph.recall.vectors import PROBE, Vectors, purge
from turngraph.data.memory_graph.record.fact_texts import fact_texts
from turngraph.tests.data.memory_graph.hashing import Hashing
from turngraph.tests.data.memory_graph.random_record import RandomRecord


def expected(record: RandomRecord) -> tuple[dict[int, str], dict[int, str]]:
    """Return names by node and facts by key from the record."""
    sql = f"SELECT id, text FROM nodes WHERE type = {OBJECT}"
    names = dict(record.db.execute(sql).fetchall())
    keys = [2 * n for (n,) in record.db.execute("SELECT id FROM nodes WHERE type IN (1, 2)")]
    keys += [2 * e + 1 for (e,) in record.db.execute("SELECT id FROM edges WHERE type = 0")]
    return names, fact_texts(record.db, keys)


def assert_follows(vectors: Vectors, record: RandomRecord) -> None:
    for matrix, texts in zip((vectors.names, vectors.facts), expected(record), strict=True):
        live = matrix.labels[: matrix.count, 0]
        assert sorted(live[live >= 0].tolist()) == sorted(texts)
        if not texts:
            continue
        found = matrix.vectors(np.array(list(texts)))
        np.testing.assert_allclose(found, Hashing()(list(texts.values())), atol=2e-3)


@pytest.mark.parametrize("seed", range(3))
def test_vectors_follow_random_writes(tmp_path: Path, seed: int) -> None:
    record = RandomRecord(tmp_path / "a.db", seed)
    record.write(4)
    embed = Hashing()
    vectors = Vectors(record.db, record.store.derived, embed)
    for round in range(4):
        assert vectors.refresh() == record.store.revision == vectors.revision
        assert_follows(vectors, record)
        embed.seen.clear()
        vectors.refresh()
        assert embed.seen == []
        if round == 2:
            vectors.save()
            vectors = Vectors(record.db, record.store.derived, embed)
            embed.seen.clear()
        record.write(4)


def test_only_changed_texts_are_embedded(tmp_path: Path) -> None:
    record = RandomRecord(tmp_path / "a.db")
    record.write(6)
    embed = Hashing()
    vectors = Vectors(record.db, record.store.derived, embed)
    vectors.refresh()
    embed.seen.clear()
    with (
        record.store.writing() as revision
    ):  # closing changes no text, renaming changes those around
        record.db.execute("UPDATE nodes SET valid_to = '2020', revision = ?", (revision,))
        node = record.some(OBJECT)
        sql = "UPDATE nodes SET text = 'New Name' WHERE id = ?"
        record.db.execute(sql, (node,))
    vectors.refresh()
    sql = "SELECT count(*) FROM edges WHERE type = 0 AND (source = ?1 OR target = ?1)"
    around = record.db.execute(sql, (node,)).fetchone()[0]
    assert len(embed.seen) == 1 + around
    assert all("New Name" in text for text in embed.seen)
    assert_follows(vectors, record)


def test_a_killed_long_run_resumes(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "BATCH", 10)
    monkeypatch.setattr(module, "SAVE_EVERY", 20)
    record = RandomRecord(tmp_path / "a.db")
    with record.store.writing() as revision:
        for _ in range(100):
            record.node(revision, THESIS)

    class Killed(BaseException):
        pass

    class Dying(Hashing):
        def __call__(self, texts: list[str]) -> np.ndarray:
            if len(self.seen) > 60:
                raise Killed
            return super().__call__(texts)

    with pytest.raises(Killed):
        Vectors(record.db, record.store.derived, Dying()).refresh()
    embed = Hashing()
    vectors = Vectors(record.db, record.store.derived, embed)
    assert 0 < vectors.facts.count < 100
    assert vectors.revision == -1  # not all vectors are there
    vectors.refresh()
    assert len(embed.seen) <= 1 + 100 - 40
    assert_follows(vectors, record)


def test_another_embedder_recomputes_with_a_warning(tmp_path: Path, caplog) -> None:
    record = RandomRecord(tmp_path / "a.db")
    record.write(4)
    vectors = Vectors(record.db, record.store.derived, Hashing(seed=1))
    vectors.refresh()
    vectors.save()
    again = Vectors(record.db, record.store.derived, Hashing())
    assert "of another encoder" in caplog.text
    again.refresh()
    assert_follows(again, record)
    again.save()
    narrow = Vectors(record.db, record.store.derived, lambda texts: np.ones((len(texts), 1)))
    narrow.refresh()
    assert narrow.facts.width == 1


def test_purged_vectors_are_in_no_file(tmp_path: Path) -> None:
    record = RandomRecord(tmp_path / "a.db", 2)
    record.write(8)
    vectors = Vectors(record.db, record.store.derived, Hashing())
    vectors.refresh()
    vectors.save()
    node = record.some(THESIS)
    row = vectors.facts.vectors(np.array([2 * node])).astype(np.float16).tobytes()
    other = [key for key in expected(record)[1] if key != 2 * node]
    kept = vectors.facts.vectors(np.array(other[:1])).astype(np.float16).tobytes()
    with record.store.writing() as revision:
        record.drop_node(revision, node)
    purge(record.db, record.store.derived, revision, wait=1)
    stored = b"".join(p.read_bytes() for p in record.store.derived.rglob("*") if p.is_file())
    assert kept in stored
    assert row not in stored
    vectors.refresh()  # a process that had it open before
    assert_follows(vectors, record)
    vectors.save()
    stored = b"".join(p.read_bytes() for p in record.store.derived.rglob("*") if p.is_file())
    assert row not in stored


def test_a_reader_keeps_new_vectors_in_memory(tmp_path: Path) -> None:
    record = RandomRecord(tmp_path / "a.db")
    record.write(4)
    vectors = Vectors(record.db, record.store.derived, Hashing(), writable=False)
    vectors.refresh()
    vectors.save()
    assert_follows(vectors, record)
    assert not record.store.derived.exists()


def test_two_processes_write_one_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "SAVE_FROM", 1)
    record = RandomRecord(tmp_path / "a.db")
    record.write(3)
    one, two = (Vectors(record.db, record.store.derived, Hashing()) for _ in range(2))
    for writer, other in ((one, two), (two, one), (one, two)):
        writer.refresh()
        record.write(2)
        other.refresh()
        assert_follows(other, record)
    again = Vectors(record.db, record.store.derived, embed := Hashing())
    again.refresh()
    assert embed.seen == [PROBE]
    assert_follows(again, record)


def test_deleted_files_are_rebuilt(tmp_path: Path) -> None:
    record = RandomRecord(tmp_path / "a.db")
    record.write(4)
    vectors = Vectors(record.db, record.store.derived, Hashing())
    vectors.refresh()
    vectors.save()
    shutil.rmtree(record.store.derived)
    record.write(2)
    vectors.refresh()
    assert_follows(vectors, record)
    vectors.save()
    again = Vectors(record.db, record.store.derived, embed := Hashing())
    again.refresh()
    assert embed.seen == [PROBE]
    assert_follows(again, record)


def test_a_long_run_builds_the_index_and_a_question_does_not(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("turngraph.data.memory_graph.recall.neighbour_index.MAX_EXACT", 10)
    record = RandomRecord(tmp_path / "a.db")
    with record.store.writing() as revision:
        for _ in range(50):
            record.node(revision, THESIS)
    vectors = Vectors(record.db, record.store.derived, Hashing())
    vectors.refresh()
    vectors.save()
    assert vectors.facts.neighbours.num_rows == 0
    monkeypatch.setattr(module, "SAVE_EVERY", 30)
    with record.store.writing() as revision:
        for _ in range(40):
            record.node(revision, THESIS)
    vectors.refresh()
    assert vectors.facts.neighbours.num_rows == 90
    assert_follows(vectors, record)


def test_a_huge_text_is_cut_before_it_is_embedded(tmp_path: Path) -> None:
    record = RandomRecord(tmp_path / "a.db")
    with record.store.writing() as revision:
        record.edge(revision, SIMPLE, record.node(revision, OBJECT), record.node(revision, OBJECT))
        record.node(revision, THESIS, "word " * 100_000)
    embed = Hashing()
    Vectors(record.db, record.store.derived, embed).refresh()
    assert max(map(len, embed.seen)) == module.MAX_CHARS
