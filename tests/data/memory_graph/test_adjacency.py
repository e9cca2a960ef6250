"""Adjacency: equal to SQL at every revision, however it was reached."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from turngraph.data.memory_graph.memory_types import EPISODIC, OBJECT, SIMPLE, THESIS
from turngraph.data.memory_graph.recall.adjacency import Adjacency, Moment
from turngraph.data.memory_graph.recall.derived_files import locked
from turngraph.data.memory_graph.times import start
from turngraph.tests.data.memory_graph.random_record import RandomRecord

SECONDS = [start(year) for year in ("1980", "1999", "2004-12-31", "2005", "2012", "2030")]


def assert_says_what_sql_says(adjacency: Adjacency, record: RandomRecord) -> None:
    nodes = [number for (number,) in record.db.execute("SELECT id FROM nodes ORDER BY id")]
    assert np.flatnonzero(adjacency.node_types >= 0).tolist() == nodes
    for as_of in SECONDS[:: record.rng.randint(1, 3)]:
        for forbidden in ((), (EPISODIC,), (THESIS, OBJECT)):
            moment = Moment(as_of, forbidden)
            expected = [
                (edge, node, other)
                for node in nodes
                for edge, other in record.around(node, as_of, forbidden)
            ]
            found = adjacency.around_all(np.array(nodes), moment)
            assert list(zip(*(column.tolist() for column in found), strict=True)) == expected
            node = record.rng.choice(nodes)
            one = adjacency.around_all(np.array([node]), moment)
            assert list(zip(*(column.tolist() for column in one), strict=True)) == [
                row for row in expected if row[1] == node
            ]
        now = adjacency.around_all(np.array(nodes), Moment(as_of))
        until = adjacency.holds_until(as_of)
        assert as_of < until
        for later in [second for second in SECONDS if as_of < second < until]:
            then = adjacency.around_all(np.array(nodes), Moment(later))
            assert all(map(np.array_equal, now, then))


@pytest.mark.parametrize("seed", range(2))
def test_delta_and_csr_equal_sql_after_random_writes(tmp_path: Path, seed: int) -> None:
    record = RandomRecord(tmp_path / "a.db", seed)
    record.write(3)
    adjacency = Adjacency(record.db, record.store.derived)
    for _ in range(4):
        record.write(4)
        assert adjacency.refresh() == record.store.revision == adjacency.revision
        assert_says_what_sql_says(adjacency, record)
    adjacency.fold()
    [folder] = record.store.derived.glob("adjacency-*")
    assert folder.name == f"adjacency-{record.store.revision}"
    assert_says_what_sql_says(adjacency, record)
    record.write(4)
    again = Adjacency(record.db, record.store.derived)  # from the folded files
    assert again.revision == adjacency.revision
    again.refresh()
    assert_says_what_sql_says(again, record)


def test_facts_ends_and_types_of_triplets(tmp_path: Path) -> None:
    record = RandomRecord(tmp_path / "a.db", 5)
    record.write(12)
    adjacency = Adjacency(record.db, record.store.derived)
    adjacency.refresh()
    rows = record.db.execute("SELECT id, type, source, target FROM edges").fetchall()
    ids = np.array([row[0] for row in rows])
    assert adjacency.types(ids).tolist() == [row[1] for row in rows]
    assert adjacency.ends(ids).tolist() == [list(row[2:]) for row in rows]
    expected = [2 * row[0] + 1 if row[1] == SIMPLE else 2 * row[3] for row in rows]
    assert adjacency.fact_keys(ids).tolist() == expected


def test_linked_objects_are_walked_to_where_objects_are_forbidden(tmp_path: Path) -> None:
    record = RandomRecord(tmp_path / "a.db")
    with record.store.writing() as revision:
        one, two, three = (record.node(revision, OBJECT) for _ in range(3))
        record.rng.seed(3)  # triplets without times
        edges = [record.edge(revision, SIMPLE, one, other) for other in (two, three)]
        record.db.execute("UPDATE edges SET valid_from = NULL, valid_to = NULL")
    adjacency = Adjacency(record.db, record.store.derived)
    adjacency.refresh()
    found = adjacency.around_all(np.array([one]), Moment(0, (OBJECT,), (three,)))
    assert (found[0].tolist(), found[2].tolist()) == ([edges[1]], [three])


def test_a_self_loop_appears_once(tmp_path: Path) -> None:
    record = RandomRecord(tmp_path / "a.db")
    adjacency = Adjacency(record.db, record.store.derived)
    adjacency.refresh()
    with record.store.writing() as revision:
        one = record.node(revision, OBJECT)
        record.edge(revision, SIMPLE, one, one)
        record.db.execute("UPDATE edges SET valid_from = NULL, valid_to = NULL")
    adjacency.refresh()
    for _ in range(2):
        found = adjacency.around_all(np.array([one]), Moment(0))
        assert [column.tolist() for column in found] == [[1], [one], [one]]
        adjacency.fold()


def test_a_read_shows_one_revision_while_another_process_writes(tmp_path: Path) -> None:
    record = RandomRecord(tmp_path / "a.db")
    record.write(3)
    reader = RandomRecord(tmp_path / "a.db")
    adjacency = Adjacency(reader.db, reader.store.derived)
    with reader.store.reading() as revision:
        record.write(3)
        assert adjacency.refresh() == revision < record.store.revision
        assert_says_what_sql_says(adjacency, reader)
    assert adjacency.revision == revision
    assert adjacency.refresh() == record.store.revision


def test_a_replaced_older_database_is_read_again(tmp_path: Path) -> None:
    record = RandomRecord(tmp_path / "a.db")
    record.write(3)
    older = RandomRecord(tmp_path / "b.db", 9)
    older.write(1)
    adjacency = Adjacency(record.db, record.store.derived)
    adjacency.refresh()
    put_back = Adjacency(older.db, record.store.derived)
    assert put_back.refresh() == 1
    assert_says_what_sql_says(put_back, older)


def test_a_kill_while_writing_leaves_the_old_arrays_or_none(tmp_path: Path, monkeypatch) -> None:
    record = RandomRecord(tmp_path / "a.db")
    record.write(5)
    folder = record.store.derived

    class Killed(BaseException):
        pass

    def kill(*_: object) -> None:
        raise Killed

    monkeypatch.setattr("turngraph.data.memory_graph.recall.derived_files.os.rename", kill)
    with pytest.raises(Killed):
        Adjacency(record.db, folder).refresh()
    assert Adjacency(record.db, folder).revision == -1
    monkeypatch.undo()
    Adjacency(record.db, folder).refresh()
    assert [path.name for path in folder.iterdir() if path.is_dir()] == [
        f"adjacency-{record.store.revision}"
    ]


def test_readers_and_processes_without_the_lock_keep_arrays_in_memory(tmp_path: Path) -> None:
    record = RandomRecord(tmp_path / "a.db")
    record.write(5)
    adjacency = Adjacency(record.db, record.store.derived, writable=False)
    adjacency.refresh()
    assert_says_what_sql_says(adjacency, record)
    assert not record.store.derived.exists()
    with locked(record.store.derived) as mine:
        assert mine
        Adjacency(record.db, record.store.derived).refresh()
        assert not list(record.store.derived.glob("adjacency-*"))
