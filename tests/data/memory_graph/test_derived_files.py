"""Derived files that are torn, foreign or just being replaced: they are made anew."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.recall import vector_matrix
from turngraph.data.memory_graph.recall.derived_files import locked, read_arrays, write_arrays
from turngraph.data.memory_graph.recall.recall import RecallSettings
from turngraph.data.memory_graph.recall.traverse_settings import Traversal
from turngraph.tests.data.memory_graph.hashing import Hashing

QUESTION = "Where does Anna live?"


def arrays_of(derived: Path) -> Path:
    [found] = derived.glob("adjacency-*")
    return found


def edit_manifest(path: Path, **fields: object) -> None:
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | fields))


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:7])


def of_another_graph(derived: Path) -> None:
    path = derived.parent / "other.db"
    with MemoryGraph.open(path, Hashing()) as other:
        other.remember("Zoe lives in Oslo. Zoe knows Bob.", "2019")
        other.ask(QUESTION)
    shutil.rmtree(derived)
    shutil.copytree(f"{path}.derived", derived)


def huge_keys(derived: Path) -> None:
    [labels] = (derived / "names").glob("labels-*")
    labels.write_bytes(b"\x7f" * labels.stat().st_size)


def other_keys(derived: Path) -> None:
    """Keys of a vector of no fact and of no object."""
    for name, key in (("facts", 7001), ("names", 7000)):
        [path] = (derived / name).glob("labels-*")
        labels = np.fromfile(path, "i8").reshape(-1, 2)
        labels[-1, 0] = key
        path.write_bytes(labels.tobytes())


def no_node(derived: Path) -> None:
    path = arrays_of(derived) / "others.npy"
    others = np.load(path)
    others[0] = 2**30
    np.save(path, others)


def noise(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"{'descr'", b"(('descr'"))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "an array is gone": lambda d: (arrays_of(d) / "node_type.npy").unlink(),
    "an array is cut": lambda d: shorten(arrays_of(d) / "edge_fact.npy"),
    "an array is empty": lambda d: (arrays_of(d) / "starts.npy").write_bytes(b""),
    "an array has another size": lambda d: np.save(arrays_of(d) / "others.npy", np.zeros(2, "i4")),
    "an array has another type": lambda d: np.save(arrays_of(d) / "others.npy", np.array(["a"])),
    "the manifest is cut": lambda d: shorten(arrays_of(d) / "manifest.json"),
    "the manifest is a list": lambda d: (arrays_of(d) / "manifest.json").write_text("[]"),
    "the manifest has no revision": lambda d: edit_manifest(
        arrays_of(d) / "manifest.json", revision=None
    ),
    "arrays of an older program": lambda d: edit_manifest(
        arrays_of(d) / "manifest.json", arrays={"starts": ["<i8", 3]}
    ),
    "a folder of another name": lambda d: (d / "adjacency-new").mkdir(),
    "a file in place of the arrays": lambda d: (d / "adjacency-99999").write_text("mine"),
    "vectors whose manifest is a list": lambda d: (d / "facts" / "manifest.json").write_text("[1]"),
    "vectors whose counts are none": lambda d: edit_manifest(
        d / "facts" / "manifest.json", count="many"
    ),
    "vectors whose probe is none": lambda d: edit_manifest(
        d / "facts" / "manifest.json", probe=["a"]
    ),
    "vectors whose manifest lacks a field": lambda d: (d / "names" / "manifest.json").write_text(
        '{"format": 2, "revision": 1}'
    ),
    "labels that no vector can have": huge_keys,
    "an array leads to no node": no_node,
    "the head of an array is noise": lambda d: noise(arrays_of(d) / "edge_fact.npy"),
    "an index of another name": lambda d: (d / "names" / "index-1-all").write_text("mine"),
    "the folder of another graph": of_another_graph,
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGE)
def test_what_is_damaged_or_foreign_is_made_anew(tmp_path: Path, what: str) -> None:
    path = tmp_path / "my.db"
    with MemoryGraph.open(path, Hashing()) as graph:
        graph.remember("Anna lives in Paris. Bob met Anna.", "2020", "a")
        graph.remember("Bob lives in Rome.", "2020", "b")
        wanted = [(fact.key, fact.score) for fact in graph.ask(QUESTION).facts]
    assert wanted
    DAMAGE[what](graph.store.derived)
    for read_only in (True, False, False):
        with MemoryGraph.open(path, Hashing(), read_only=read_only) as graph:
            assert [(fact.key, fact.score) for fact in graph.ask(QUESTION).facts] == wanted
    with MemoryGraph.open(path, Hashing()) as graph:
        assert graph.check() == []
        assert graph.forget(source="b").episodes == 1
        assert any("Paris" in fact.text for fact in graph.ask(QUESTION).facts)


def test_vectors_of_what_is_not_there_are_not_found(tmp_path: Path) -> None:
    path = tmp_path / "my.db"
    with MemoryGraph.open(path, Hashing()) as graph:
        graph.remember("Anna lives in Paris. Bob met Anna.", "2020", "a")
        graph.ask(QUESTION)
    other_keys(graph.store.derived)
    settings = RecallSettings(traversal=Traversal("flat"))
    for question in (QUESTION, "Who is Anne?", "Where is Bobby?"):
        with MemoryGraph.open(path, Hashing(), read_only=True) as graph:
            assert all(fact.text for fact in graph.ask(question, settings=settings).facts)
            problems = graph.check()
    assert [problem.derived for problem in problems] == [True, True]


def test_arrays_that_are_replaced_meanwhile_are_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_arrays(tmp_path, "some", {"revision": 1}, {"one": np.arange(3)})
    load = np.load

    def replaced(*arguments: object, **settings: object) -> np.ndarray:
        monkeypatch.setattr(np, "load", load)
        write_arrays(tmp_path, "some", {"revision": 2}, {"one": np.arange(4)})
        return load(*arguments, **settings)

    monkeypatch.setattr(np, "load", replaced)
    found = read_arrays(tmp_path, "some")
    assert found is not None
    assert (found[0]["revision"], found[1]["one"].tolist()) == (2, [0, 1, 2, 3])


def test_a_lock_is_waited_for_and_not_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from turngraph.data.memory_graph.record import patience

    now = [0.0]
    monkeypatch.setattr(patience.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(patience.time, "sleep", lambda _: now.__setitem__(0, now[0] + 1))
    with locked(tmp_path) as first, locked(tmp_path, wait=7) as second:
        assert (first, second) == (True, False)
    assert now[0] == 7
    [record] = caplog.records  # one message, however long it takes
    assert "another process is writing to it; waiting up to 7 s" in record.getMessage()
    with locked(tmp_path, wait=7) as again:
        assert again


def full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_disk_that_is_full_is_no_reason_not_to_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(np, "save", full)
    monkeypatch.setattr(vector_matrix, "write_json", full)
    with MemoryGraph.open(tmp_path / "my.db", Hashing()) as graph:
        graph.remember("Anna lives in Paris.")
        assert graph.ask(QUESTION).facts
    said = "stay in memory: No space left on device"
    assert caplog.text.count(said) == 3  # arrays, vectors of names, vectors of facts


def test_vectors_that_cannot_be_erased_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MemoryGraph.open(tmp_path / "my.db", Hashing()) as graph:
        graph.remember("Anna lives in Paris.", source="a")
        graph.ask(QUESTION)
    with monkeypatch.context() as patch, MemoryGraph.open(tmp_path / "my.db") as graph:
        patch.setattr(vector_matrix, "write_json", full)
        with pytest.raises(ValueError, match=r"forgotten, but .* cannot be written: No space left"):
            graph.forget(source="a")
    MemoryGraph.open(tmp_path / "my.db").close()
    labels = np.fromfile(next((tmp_path / "my.db.derived" / "facts").glob("labels-*")), "i8")
    assert set(labels.reshape(-1, 2)[:, 0].tolist()) <= {-1}
