"""Huge, tiny and odd texts are read back unchanged and survive export and import."""

from __future__ import annotations

import filecmp
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode, Extraction, Thesis, Triplet
from turngraph.data.memory_graph.names import well_formed
from turngraph.data.memory_graph.upkeep.transfer import export_jsonl, import_jsonl
from turngraph.tests.data.memory_graph.scripted import Scripted
from turngraph.tests.data.memory_graph.small_graphs import exported

SYNTAX = (
    "Robert'); DROP TABLE nodes;--",
    '" OR 1=1 --',
    'words: NEAR(a b, 2) AND NOT "c" * ^d {e} - +',
    "rank MATCH 'x' OR fact_words",
    "'delete' optimize rowid = 1 ; COMMIT",
    "%s {0} \\u0000 \\ud800 \\",
)
SCRIPTS = (
    "Анна живёт в Париже.", "アンナはパリに住んでいます。", "آنا تعيش في باريس",
    "अन्ना पेरिस में रहती है।", "안나는 파리에 산다.", "แอนนาอาศัยอยู่ในปารีส", "安娜住在巴黎。",
    "\u202eאנה גרה בפריז\u202c", "🦆 lives in 🏞️.", "ﬁ ǅ ß İ ı ſ", "e\u0301 \u0065\u0301 é",
    "\ufeffBOM lives in Unicode.",
)  # fmt: skip
CONTROLS = "a\x00b\x01\x1b[31m\x7f\x85\u2028\u2029\r\n\t\x0b"
TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=60)


def texts_of(graph: MemoryGraph) -> list[str]:
    sql = "SELECT n.text FROM episodes e JOIN nodes n ON n.id = e.node ORDER BY n.id"
    return [text for (text,) in graph.store.db.execute(sql)]


def round_trip(graph: MemoryGraph, folder: Path) -> None:
    """Check that a graph exported and imported holds the same."""
    before, after = folder / "before.jsonl", folder / "after.jsonl"
    export_jsonl(graph.store, before)
    with MemoryGraph.open(folder / f"{uuid4()}.db") as other:
        import_jsonl(other.store, before)
        export_jsonl(other.store, after)
        assert filecmp.cmp(before, after, shallow=False)
        assert other.check() == []


def test_every_script_and_every_syntax_is_text(tmp_path: Path) -> None:
    texts = [*SYNTAX, *SCRIPTS, CONTROLS, "", " ", "\x00", "'", '"', "a" * 100_000]
    with MemoryGraph.open(tmp_path / "memory.db") as graph:
        for text in texts:
            graph.remember(text, source=text, speaker=text, origin=text, properties={text: text})
        assert texts_of(graph) == texts
        assert graph.check() == []
        round_trip(graph, tmp_path)
        for number, text in enumerate(texts):
            assert graph.forget(source=text).episodes == 1
            assert number % 16 or graph.check() == []
        assert graph.check() == []
        assert texts_of(graph) == []


@given(st.lists(st.tuples(TEXT, TEXT, TEXT), min_size=1, max_size=4))
@example([(SYNTAX[0], SYNTAX[1], SYNTAX[2]), (CONTROLS, "\ud800", "The")])
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_may_be_a_name(tmp_path: Path, told: list[tuple[str, str, str]]) -> None:
    script = {
        f"{number}": Extraction(
            (Triplet(*triplet),), (Thesis(" ".join(triplet), (triplet[0],)),), (), triplet
        )
        for number, triplet in enumerate(told)
    }
    with MemoryGraph.open(tmp_path / f"{uuid4()}.db", extractor=Scripted(script)) as graph:
        graph.remember_many(Episode(text) for text in script)
        assert graph.check() == []
        sql = "SELECT DISTINCT spelling FROM aliases WHERE NOT given"
        names = {name for (name,) in graph.store.db.execute(sql)}
        assert names <= {well_formed(name) for triplet in told for name in triplet}
        for name in sorted(names):
            [node] = graph.store.objects(name)
            assert graph.show(f"#{node}").node == node
        if len(names) > 1:
            one, other, *_ = sorted(names)
            before = exported(graph, tmp_path)
            if graph.store.objects(one) != graph.store.objects(other):
                graph.merge(graph.store.objects(one)[0], graph.store.objects(other)[0])
                assert graph.check() == []
                graph.undo()
            assert exported(graph, tmp_path) == before
        round_trip(graph, tmp_path)


@given(st.lists(TEXT, min_size=1, max_size=5))
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_remembered_as_it_was(tmp_path: Path, texts: list[str]) -> None:
    with MemoryGraph.open(tmp_path / f"{uuid4()}.db") as graph:
        graph.remember_many(Episode(text, source=text, speaker=text) for text in texts)
        assert texts_of(graph) == [well_formed(text) for text in texts]
        assert graph.check() == []
        round_trip(graph, tmp_path)


def long_text(megabytes: int) -> str:
    """Return a text of many different words and few sentences."""
    words = " ".join(f"word{number}" for number in range(90_000 * megabytes))
    return f"Anna lives in Paris. {words[: megabytes << 20]}. Bob lives in Rome."


def test_a_text_of_a_megabyte(tmp_path: Path) -> None:
    text = long_text(1)
    found = Extraction((Triplet("Anna", "lives in", "Paris", span=(len(text) - 9, len(text))),))
    with MemoryGraph.open(tmp_path / "memory.db", extractor=Scripted({text: found})) as graph:
        graph.remember(text)
        assert texts_of(graph) == [text]
        assert graph.show("Anna").facts[0].provenance[0].span[1] == len(text)
        assert graph.check() == []
        round_trip(graph, tmp_path)


@pytest.mark.slow
def test_a_text_of_ten_megabytes_by_rules(tmp_path: Path) -> None:
    text = long_text(10)
    with MemoryGraph.open(tmp_path / "memory.db") as graph:
        graph.remember(text)
        assert texts_of(graph) == [text]
        assert graph.store.objects("Anna")
        assert graph.store.objects("Bob")
        assert graph.check() == []
        round_trip(graph, tmp_path)


def tiny_texts(count: int) -> list[Episode]:
    return [Episode(f"t{number}", origin=str(number)) for number in range(count)]


@pytest.mark.slow
def test_a_million_tiny_texts(tmp_path: Path) -> None:
    with MemoryGraph.open(tmp_path / "memory.db") as graph:
        assert graph.remember_many(tiny_texts(1_000_000), batch=5000).episodes == 1_000_000
        assert graph.remember_many(tiny_texts(4_000), batch=500).skipped == 4_000
        assert graph.check() == []
        round_trip(graph, tmp_path)
