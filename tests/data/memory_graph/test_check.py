"""What check finds, what rebuild puts right, and what is saved of a damaged file."""

from __future__ import annotations

import json
import mmap
import os
import sqlite3
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode
from turngraph.data.memory_graph.recall.adjacency import Adjacency
from turngraph.data.memory_graph.recall.derived_files import read_arrays
from turngraph.data.memory_graph.recall.vector_matrix import VectorMatrix
from turngraph.data.memory_graph.record.schema import SCHEMA_VERSION
from turngraph.data.memory_graph.upkeep import pages
from turngraph.data.memory_graph.upkeep.check import check, check_file
from turngraph.data.memory_graph.upkeep.salvage import salvage
from turngraph.tests.data.memory_graph.small_graphs import (
    TEXTS,
    embed,
    exported,
    node_of,
    small_graph,
)

BREAKS = {
    "nodes of an unknown type": "UPDATE nodes SET type = 7 WHERE text = 'tea'",
    "edges of an unknown type": "UPDATE edges SET type = 7 WHERE id = 3",
    "simple edges that do not join two objects": "UPDATE edges SET target = 999 WHERE id = 1",
    "hyper edges that do not join": "UPDATE edges SET source = 999 WHERE type = 1",
    "episodic edges that do not join": "DELETE FROM nodes WHERE id = 1",
    "time edges that do not join": "DELETE FROM nodes WHERE type = 3",
    "simple edges without a relation": "UPDATE edges SET relation = NULL WHERE id = 1",
    "edges that are there twice": "INSERT INTO edges (type, source, target, revision)"
    " SELECT type, source, target, 1 FROM edges WHERE type = 2",
    "episodes without their record": "DELETE FROM episodes WHERE node = 1",
    "records of no episode": "INSERT INTO episodes (node, extractor) VALUES (2, 'x')",
    "aliases of no object": "UPDATE aliases SET node = 1 WHERE spelling = 'tea'",
    "objects whose name is not among": "UPDATE nodes SET text = 'coffee' WHERE text = 'tea'",
    "sightings of no alias": "INSERT INTO sightings VALUES (999, 1)",
    "sightings in no episode": "INSERT INTO sightings VALUES (1, 2)",
    "provenance of no fact": "INSERT INTO provenance VALUES (9999, 1, 0, 1)",
    "provenance in no episode": "UPDATE provenance SET episode = 2 WHERE fact = 3",
    "provenance outside of its": "UPDATE provenance SET stop = 999 WHERE fact = 3",
    "simple edges without provenance": "DELETE FROM provenance WHERE fact = 3",
    "theses without provenance": "DELETE FROM provenance WHERE NOT fact & 1",
    "supersessions of no fact": "INSERT INTO supersessions VALUES (3, 999, '2020', NULL, NULL)",
    "theses that are not joined": "DELETE FROM edges WHERE type = 2 AND source = {thesis}",
    "subjects of triplets that are not joined": "DELETE FROM edges WHERE type = 2 AND source = 2",
    "objects of triplets that are not joined": "DELETE FROM edges WHERE type = 2 AND source = 3",
    "objects that are not joined to the episodes where": "DELETE FROM edges WHERE type = 2"
    " AND source = 2",
    "objects and times that are joined to nothing": "INSERT INTO nodes (type, revision, text)"
    " VALUES (0, 1, 'lonely')",
    "texts that are not as they were written": "UPDATE nodes SET text = 'x' WHERE id = {thesis}",
    "aliases that are not as they were": "UPDATE aliases SET spelling = 'x' WHERE id = 1",
    "nodes with a time that is none": "UPDATE nodes SET said = 'soon' WHERE id = 1",
    "edges that end before they begin": "UPDATE edges SET valid_from = '2020', valid_to = '2019'"
    " WHERE id = 1",
    "name_words and what it indexes": "DELETE FROM aliases WHERE id = 1",
    "fact_words and what it indexes": "UPDATE nodes SET text = 'x' WHERE id = 1",
}


@pytest.mark.parametrize("what", BREAKS)
def test_what_does_not_hold_is_found(tmp_path: Path, what: str) -> None:
    with small_graph(tmp_path / "memory.db") as graph:
        assert graph.check() == []
        thesis = node_of(graph, "Eve: Anna likes tea.")
        graph.store.db.execute(BREAKS[what].format(thesis=thesis))
        found = [problem for problem in graph.check() if problem.what.startswith(what)]
        assert len(found) == 1
        assert found[0].count >= 1
        assert not any(text in str(found[0]) for text in ("Anna", "tea"))


def test_rebuild_makes_word_indexes_and_arrays_anew(tmp_path: Path) -> None:
    with small_graph(tmp_path / "memory.db") as graph:
        before = exported(graph, tmp_path)
        Adjacency(graph.store.db, graph.store.derived).refresh()
        [array] = graph.store.derived.glob("*/edge_target.npy")
        np.save(array, np.load(array)[::-1])
        graph.store.db.execute("INSERT INTO fact_words (rowid, words) VALUES (1000, 'nothing')")
        problems = graph.check()
        assert [problem.derived for problem in problems] == [True, True]
        assert "`check --rebuild` rebuilds it" in str(problems[0])
        assert graph.check(rebuild=True) == []
        assert list(graph.store.derived.glob("*/")) == []
        assert exported(graph, tmp_path) == before


def test_arrays_that_lag_behind_are_no_problem_and_say_their_revision(tmp_path: Path) -> None:
    with small_graph(tmp_path / "memory.db") as graph:
        Adjacency(graph.store.db, graph.store.derived).refresh()
        old = graph.store.revision
        graph.merge("Anna", "Annie")
        graph.remember("Carl knows Anna.")
        assert graph.check() == []
        assert read_arrays(graph.store.derived, "adjacency")[0]["revision"] == old
        graph.store.db.execute("UPDATE edges SET target = 3 WHERE id = 2")
        assert any("do not show the record" in problem.what for problem in graph.check())


def test_vectors_are_of_the_texts_as_they_were_at_their_revision(tmp_path: Path) -> None:
    with small_graph(tmp_path / "memory.db") as graph:
        graph.embed = embed
        graph.ask("Where does Anna live?")
    with MemoryGraph.open(tmp_path / "memory.db") as graph:
        graph.rename("Anna", "Anna Schmidt")
        assert graph.check() == []
        names = np.array(VectorMatrix(graph.store.derived / "names").labels)
        assert len(names) == graph.stats().nodes["object"]
        [labels] = (graph.store.derived / "names").glob("labels-*")
        names[:, 1] += 1
        labels.write_bytes(names.tobytes())
        [problem] = graph.check()
        assert problem.derived
        assert problem.what.endswith("/names do not show revision 1")
        assert problem.count == len(names) - 1  # Anna's is of another revision
        assert graph.check(rebuild=True) == []


def test_stats_count_everything(tmp_path: Path) -> None:
    with small_graph(tmp_path / "memory.db") as graph:
        graph.remember("Anna lives in Rome.", time="2021")
        graph.rename("Anna", "Anna Schmidt")
        stats = graph.stats()
    assert stats.nodes["episodic"] == len(TEXTS) + 1
    assert stats.nodes["object"] == 10
    assert sum(stats.edges.values()) > 60
    assert (stats.first, stats.last) == ("2020-01-01", "2021")
    assert (stats.sources, stats.edits, stats.revision) == (1, 1, 3)
    assert stats.schema_version == SCHEMA_VERSION
    assert (stats.closed, stats.superseded) == (2, 2)  # the triplet and the thesis of Paris
    assert stats.aliases == 11
    assert stats.bytes["memory.db"] > 0


def large_graph(path: Path) -> list[str]:
    """A closed database of some hundred pages, and its texts."""
    texts = [f"Person {n} lives in City {n % 7}. " + "It " + "was said " * 90 for n in range(60)]
    with MemoryGraph.open(path) as graph:
        episodes = (
            Episode(text, "2020", f"file {n % 3}", f"origin {n}", "Eve", {"page": f"{n:0200}"})
            for n, text in enumerate(texts)
        )
        graph.remember_many(episodes, batch=10)  # so that all tables are all over the file
    return texts


def overwrite(path: Path, begin: int, stop: int) -> None:
    with path.open("r+b") as file:
        file.seek(begin)
        file.write(b"\xa5" * (stop - begin))


DAMAGE: dict[str, Callable[[Path, int], None]] = {
    "overwritten in the middle": lambda path, size: overwrite(path, size // 2, size // 2 + 20_000),
    "one page overwritten": lambda path, size: overwrite(path, 4096 * 30, 4096 * 31),
    "cut short": lambda path, size: os.truncate(path, size * 2 // 3),
    "cut inside a page": lambda path, size: os.truncate(path, size * 4 // 5 + 77),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_file_is_recognised_and_says_what_can_be_saved(tmp_path: Path, name: str) -> None:
    path, output = tmp_path / "memory.db", tmp_path / "saved.jsonl"
    texts = large_graph(path)
    DAMAGE[name](path, path.stat().st_size)
    problems = check_file(path)
    assert problems[0].damage
    assert "export --db" in problems[-1].what
    assert not any("Person" in str(problem) for problem in problems)
    saved = salvage(path, output)
    lines = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert 0 < saved.episodes == len(lines) <= len(texts)
    assert saved.total == len(texts)
    assert problems[-1].what.startswith(f"{saved.episodes} of {len(texts)} episodes can still")
    assert {line["text"] for line in lines} <= set(texts)
    whole = [line for line in lines if "origin" in line]
    assert whole
    assert int(whole[0]["properties"]["page"]) == int(whole[0]["origin"].split()[1])
    with MemoryGraph.open(tmp_path / "new.db") as graph:
        known = Episode.__dataclass_fields__
        graph.remember_many(Episode(**{k: line[k] for k in known if k in line}) for line in lines)
        assert graph.check() == []
        assert graph.stats().nodes["episodic"] == len(lines)


def test_a_text_that_is_overwritten_in_part_is_not_saved_as_if_it_were_whole(
    tmp_path: Path,
) -> None:
    path, output = tmp_path / "memory.db", tmp_path / "saved.jsonl"
    texts = large_graph(path)
    inside = path.read_bytes().index(texts[7].encode()) + 300  # in the middle of its words
    overwrite(path, inside, inside + 5)
    assert salvage(path, output) == (len(texts) - 1, len(texts))
    lines = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert [line["text"] for line in lines] == texts[:7] + texts[8:]


def test_a_text_in_which_the_file_ends_is_not_saved_with_zeros_for_its_rest(
    tmp_path: Path,
) -> None:
    path, output = tmp_path / "memory.db", tmp_path / "saved.jsonl"
    texts = large_graph(path)
    last = path.read_bytes().index(texts[40].encode())
    os.truncate(path, last + 300)
    assert salvage(path, output).episodes > 5
    lines = [json.loads(line)["text"] for line in output.read_text(encoding="utf-8").splitlines()]
    assert set(lines) <= set(texts) - {texts[40]}


def test_a_text_that_ends_in_zeros_is_saved_where_it_is_whole(tmp_path: Path) -> None:
    path, output = tmp_path / "memory.db", tmp_path / "saved.jsonl"
    with MemoryGraph.open(path) as graph:
        graph.remember("Anna met Bob.\0")
    assert salvage(path, output) == (1, 1)
    assert json.loads(output.read_text(encoding="utf-8"))["text"] == "Anna met Bob.\0"


@pytest.mark.parametrize(
    ("written", "size"), [(512, 512), (4096, 4096), (1, 65536), (256, 4096), (768, 4096), (0, 4096)]
)
def test_a_page_size_is_a_power_of_two_from_512(tmp_path: Path, written: int, size: int) -> None:
    path = tmp_path / "forged.db"
    path.write_bytes(bytes(16) + written.to_bytes(2, "big") + bytes(494))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
        assert pages._page_size(raw) == size


def test_pages_that_nothing_leads_to_any_more_are_read_as_well(tmp_path: Path) -> None:
    path, output = tmp_path / "memory.db", tmp_path / "saved.jsonl"
    texts = large_graph(path)
    texts.append("Zoe said: " + "long, " * 20_000)  # a chain of pages
    with MemoryGraph.open(path) as graph:
        graph.remember(texts[-1], origin="long")
    overwrite(path, 0, 4096)
    problems = check_file(path)
    assert problems[0].what == "damaged file, or never a memory graph: file is not a database"
    assert problems[-1].what.startswith(f"{len(texts)} episodes can still be read")
    assert salvage(path, output) == (len(texts), None)
    lines = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert {line["text"] for line in lines} == set(texts)
    assert len({line["origin"] for line in lines}) == len(texts)


def test_a_record_is_no_longer_than_its_file(tmp_path: Path) -> None:
    """A circular chain of pages is not read until the memory is full."""
    path, size = tmp_path / "memory.db", 512
    leaf = bytearray(size)
    leaf[16:18] = size.to_bytes(2, "big")
    leaf[100], leaf[103:105] = 13, (1).to_bytes(2, "big")  # a leaf with one row
    leaf[108:110] = (200).to_bytes(2, "big")
    length = 40 + (size - 4) * 2**36  # 40 bytes here, the rest on other pages
    groups = [length >> shift & 127 for shift in range(49, -1, -7)]
    leaf[200:209] = bytes(group | 128 for group in groups[:-1]) + bytes([groups[-1], 1])
    leaf[249:253] = (2).to_bytes(4, "big")
    path.write_bytes(bytes(leaf) + (2).to_bytes(4, "big") + bytes(size - 4))
    assert list(pages.rows(path)) == []


def test_a_page_that_is_cut_off_is_not_read(tmp_path: Path) -> None:
    """A whole page is, as its file's last one."""
    path = tmp_path / "memory.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE texts (text TEXT)")
        db.execute("INSERT INTO texts VALUES ('at its end'), ('on the last page')")
        db.commit()
    assert (2, ["on the last page"]) in pages.rows(path)
    path.write_bytes(path.read_bytes()[:-1])
    assert (2, ["on the last page"]) not in pages.rows(path)


def varint(number: int) -> bytes:
    """SQLite's form of a number."""
    groups = [number >> shift & 127 for shift in range(56, -1, -7)]
    while len(groups) > 1 and not groups[0]:
        del groups[0]
    return bytes(group | 128 for group in groups[:-1]) + bytes(groups[-1:])


def forged(cells: list[bytes], size: int, rest: bytes = b"", times: int = 1) -> bytes:
    """A file whose first page has these cells, each named so many times."""
    page = bytearray(size)
    page[16:18] = (size if size < 65536 else 1).to_bytes(2, "big")
    at, pointers = size, b""
    for cell in cells:
        at -= len(cell)
        page[at : at + len(cell)] = cell
        pointers += at.to_bytes(2, "big") * times
    page[100], page[103:105] = 13, (len(pointers) // 2).to_bytes(2, "big")
    page[108 : 108 + len(pointers)] = pointers
    return bytes(page) + rest


def forgeries() -> dict[str, tuple[bytes, int]]:
    """Files of forged rows, and how many rows each has at most."""
    size, length = 512, 40 * 508 + 39
    record = varint(40) + bytes([8]) * (39 - len(varint(40)))  # 39 columns, then no more
    chain = b"".join((n + 3 if n < 39 else 0).to_bytes(4, "big") + b"\1" * 508 for n in range(40))
    text = varint(3 + 2 * length)
    shared = bytes([1 + len(text)]) + text + b"a" * length
    cells = [
        varint(len(shared)) + varint(row) + shared[: 39 + (len(shared) - 39) % 508]
        + (2).to_bytes(4, "big") for row in range(1, 9)
    ]  # fmt: skip
    long = bytes([4]) + varint(12 + 2 * 30_000 + 1) + b"a" * 30_000
    big = varint(len(long)) + varint(1) + long
    many = varint(60_002) + bytes([8]) * 60_000
    wide = varint(len(many)) + varint(1) + many
    huge = varint(2**62) + varint(1) + record
    deep = varint(39) + varint(1) + varint(2**40) + record[: 39 - len(varint(2**40))]
    return {
        "one row named a thousand times": (forged([big], 65536, times=1000), 1),
        "a row of sixty thousand columns": (forged([wide], 65536), 0),
        "a length of exabytes": (forged([huge], size, chain), 0),
        "a head of terabytes": (forged([deep], size, chain), 0),
        "many rows of one chain": (forged(cells * 1, size, chain * 3), 13),
        "rows that overlap": (
            forged([], 65536, b"")[:100] + bytes([13, 0, 0, 0x7f, 0xff, 0, 0, 0])
            + b"".join(at.to_bytes(2, "big") for at in range(200, 33_000))[:65_000].ljust(
                65_428, b"\2"
            ), 70_000,
        ),
    }  # fmt: skip


@pytest.mark.parametrize("what", forgeries())
def test_forged_files_take_no_more_memory_than_they_have(tmp_path: Path, what: str) -> None:
    data, most = forgeries()[what]
    path = tmp_path / "forged.db"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        counts = [sum(len(v) if isinstance(v, str | bytes) else 1 for v in values)
                  for _, values in pages.rows(path)]  # fmt: skip
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(counts) <= most
    assert sum(counts) <= (1 + pages.COPIES) * len(data)
    assert peak < 8 * len(data) + 4_000_000  # a page of 64 KiB has 32,000 pointers
    with pytest.raises(ValueError, match="no episode can be read in it"):
        salvage(path, tmp_path / "saved.jsonl")


def test_where_nothing_is_left_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    large_graph(path)
    overwrite(path, 0, path.stat().st_size)
    problems = check_file(path)
    assert problems[0].damage
    assert "no episode can be read in it" in problems[-1].what
    with pytest.raises(ValueError, match="no episode can be read in it"):
        salvage(path, tmp_path / "saved.jsonl")
    assert not (tmp_path / "saved.jsonl").exists()


def test_a_text_that_was_overwritten_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    large_graph(path)
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"Person 47 lives", b"Person 47 loves"))
    assert path.read_bytes() != raw
    problems = check_file(path)
    assert any(problem.damage for problem in problems)


def test_what_is_no_memory_graph_is_not_called_damaged(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such memory graph"):
        check_file(tmp_path / "none.db")
    with sqlite3.connect(tmp_path / "other.db") as db:
        db.execute("CREATE TABLE t (x)")
    with pytest.raises(ValueError, match="not a memory graph"):
        check_file(tmp_path / "other.db")


def test_check_reads_only(tmp_path: Path) -> None:
    small_graph(tmp_path / "memory.db").close()
    before = (tmp_path / "memory.db").read_bytes()
    with MemoryGraph.open(tmp_path / "memory.db", read_only=True) as graph:
        assert check(graph.store) == []
        with pytest.raises(ValueError, match="reading only"):
            graph.check(rebuild=True)
    assert (tmp_path / "memory.db").read_bytes() == before
