"""Caches of hubs: equal to the record at every moment and revision."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from turngraph.data.memory_graph.memory_types import EPISODIC
from turngraph.data.memory_graph.recall import hub_cache, vector_matrix
from turngraph.data.memory_graph.recall.adjacency import Adjacency, Moment
from turngraph.data.memory_graph.recall.csr import ALWAYS
from turngraph.data.memory_graph.recall.derived_files import State
from turngraph.data.memory_graph.recall.hub_cache import Hub, HubCache
from turngraph.data.memory_graph.recall.vector_matrix import Row, VectorMatrix
from turngraph.tests.data.memory_graph.random_record import RandomRecord


def check(adjacency: Adjacency, moment: Moment) -> None:
    for node in np.flatnonzero(adjacency.node_types >= 0).tolist():
        hub = adjacency.hub(node, moment)
        expected = adjacency.around_all(np.array([node]), moment)
        for column, right in zip(hub[:3], expected, strict=True):
            assert column.tolist() == right.tolist()
        assert hub.keys.tolist() == adjacency.fact_keys(expected[0]).tolist()


def test_a_hub_is_cached_only_while_it_is_valid(tmp_path: Path) -> None:
    record = RandomRecord(tmp_path / "a.db", 3)
    record.write(25)
    adjacency = Adjacency(record.db, record.store.derived, writable=False)
    for _ in range(3):
        adjacency.refresh()
        times = np.concatenate([adjacency.edges["since"], adjacency.edges["until"]])
        times = np.unique(times[(times > ALWAYS[0]) & (times < ALWAYS[1])])
        assert len(times) > 3
        for second in np.random.default_rng(0).permutation([*times, *(times - 1), *(times + 9)]):
            check(adjacency, Moment(int(second)))
        check(adjacency, Moment(int(times[0]), (EPISODIC,)))
        check(adjacency, Moment(int(times[0])))
        record.write(5)


def test_within_its_interval_a_hub_is_not_read_again(tmp_path: Path) -> None:
    record = RandomRecord(tmp_path / "a.db", 3)
    record.write(25)
    adjacency = Adjacency(record.db, record.store.derived, writable=False)
    adjacency.refresh()
    hub = adjacency.hub(1, Moment(0))
    assert adjacency.hub(1, Moment(hub.until - 1)) is hub
    assert adjacency.hub(1, Moment(0, (EPISODIC,))) is not hub
    assert adjacency.hub(1, Moment(max(hub.since, -9))) is hub


def test_the_oldest_hub_is_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_cache, "MAX_KEPT", 10)
    kept = HubCache()
    for node, size in ((1, 4), (2, 6), (3, 5), (4, 11)):
        kept.keep(node, Hub(*(np.arange(size) for _ in range(4)), *ALWAYS))
    assert [kept.get(node, 0) is not None for node in (1, 2, 3, 4)] == [False, False, True, False]


def test_the_rows_of_a_hub_are_cached_until_a_row_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_matrix, "MIN_HUB_ROWS", 3)
    made = VectorMatrix(tmp_path)
    made.put([Row(key, 0) for key in range(5)], np.eye(5))
    keys = np.arange(5)
    keys.flags.writeable = False
    assert made.rows(keys).tolist() == [0, 1, 2, 3, 4]
    assert made.rows(keys) is made.rows(keys)
    made.drop(np.array([2]))
    assert made.rows(keys).tolist() == [0, 1, -1, 3, 4]
    made.put([Row(2, 0)], np.eye(5)[:1])
    assert made.rows(keys).tolist() == [0, 1, 5, 3, 4]
    made.save(State(1), [1.0])
    made.clear()
    assert made.rows(keys).tolist() == [-1] * 5
