"""Asking by themes: what is found, of which time, within how many words; and how it is printed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import create_autospec

import numpy as np
import pytest

from turngraph.data.eigen.search import SEARCH
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Provenance
from turngraph.data.memory_graph.recall import theme_search
from turngraph.data.memory_graph.recall.derived_files import read_arrays, write_arrays
from turngraph.data.memory_graph.recall.find_themes import facts_of_hits, named_speakers
from turngraph.data.memory_graph.recall.recall import RecallSettings
from turngraph.data.memory_graph.recall.recollection import each_once
from turngraph.data.memory_graph.recall.theme_arrays import (
    NONE,
    THEMES,
    join_rows,
    read_theme_arrays,
)
from turngraph.data.memory_graph.recall.theme_search import (
    AskThemes,
    ThemeIndex,
    best_themes,
)
from turngraph.data.memory_graph.recall.traverse import traverse
from turngraph.data.memory_graph.recall.traverse_settings import Eigen, Traversal
from turngraph.data.memory_graph.upkeep.theme_questions import Lm
from turngraph.inference.memory_printing import print_recollection, recollection_json
from turngraph.tests.data.memory_graph.hashing import Hashing
from turngraph.tests.data.memory_graph.talks import Script, opened, talk, with_talks

QUESTION = "What has Anna said of roses and tulips?"
EIGEN = RecallSettings(Traversal("eigen"))
NO_QUESTIONS = json.dumps({"questions": []})


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[MemoryGraph]:
    with with_talks(tmp_path / "my.db", "abcd") as graph:
        graph.make_themes()
        yield graph


@pytest.mark.parametrize(
    "found", [[(4, 0.3), (5, 0.3)], [(8, 0.3), (8, 0.3)], [(5, 0.3), (8, 0.3)]]
)
def test_hits_of_one_theme_count_together(found: list[tuple[int, float]]) -> None:
    index = create_autospec(ThemeIndex, instance=True, chunks=range(6))
    index.themes_of.side_effect = lambda chunk: [chunk // 2]
    hits = [(7, 0.5), *found]  # the theme 1, and what is of the theme 2
    assert best_themes(index, np.zeros(3), hits, 2) == [2, 1]


def test_the_themes_are_about_the_question_and_their_facts_in_order_of_time(
    graph: MemoryGraph,
) -> None:
    found = graph.ask_themes(QUESTION)
    assert found.mode == "themes"
    assert not found.no_answer
    assert not found.by_similarity
    assert 1 <= len(found.themes) <= AskThemes().num_themes
    assert all(theme.facts for theme in found.themes)
    assert found.themes[0].score > 0.1
    keys = [key for theme in found.themes for key in theme.facts]
    assert keys == [fact.key for fact in found.facts]
    assert len(keys) == len(set(keys))
    by_key = {fact.key: fact for fact in found.facts}
    for theme in found.themes:
        said = [by_key[key].provenance[0].said for key in theme.facts]
        assert said == sorted(said)
        assert all(len(by_key[key].provenance) == 1 for key in theme.facts)
        assert theme.quotes
    about = [fact.text for fact in found.facts if "roses" in fact.text or "tulips" in fact.text]
    assert len(about) >= 5
    assert [one.id for one in found.evidence()] == [f"memory {key}" for key in keys]


def test_words_are_counted_and_far_statements_left_out(graph: MemoryGraph) -> None:
    for words in (1, 30, 400):
        found = graph.ask_themes(QUESTION, settings=AskThemes(max_words=words))
        sizes = [len(fact.text.split()) for fact in found.facts]
        assert sum(sizes) <= words or len(sizes) == 1
    for most in (1, 2):
        few = graph.ask_themes(QUESTION, settings=AskThemes(max_facts=most))
        assert len(few.facts) == most
        assert sum(len(theme.facts) for theme in few.themes) == most
    near = graph.ask_themes(QUESTION, settings=AskThemes(min_similarity=0.3))
    assert all(fact.score >= 0.3 for fact in near.facts)
    assert len(near.facts) < len(found.facts)
    assert graph.ask_themes(QUESTION, settings=AskThemes(min_similarity=1.0)).no_answer


def test_what_a_named_speaker_said_comes_before_what_others_said(tmp_path: Path) -> None:
    with opened(tmp_path / "my.db") as graph:
        for day in range(1, 13):
            for person, text in (
                ("Anna Berg", "Roses need water"),
                ("Bob", "Anna has said much of roses"),
            ):
                graph.remember(f"{text} on day {day}.", f"2020-01-{day:02d}", "a", speaker=person)
        graph.make_themes()

        def speakers(others: float) -> set[str | None]:
            settings = AskThemes(max_words=30, others=others)
            facts = graph.ask_themes("What has Anna said of roses?", settings=settings).facts
            return {place.speaker for fact in facts for place in fact.provenance}

        assert "Bob" in speakers(1.0)
        assert speakers(0.0) == {"Anna Berg"}
    assert named_speakers("What has Anna Berg said of it?", ["Anna", "Bob", ""]) == {"Anna"}
    assert named_speakers("What has anna said?", ["Anna"]) == set()
    assert named_speakers("The end, Anna?", ["The Anna", "The Bob"]) == {"The Anna"}


def test_a_wrong_setting_is_named() -> None:
    for name in ("num_themes", "max_words", "max_facts"):
        with pytest.raises(ValueError, match=f"{name}: 0 given, must be at least 1"):
            AskThemes(**{name: 0})
    with pytest.raises(ValueError, match="min_similarity: 2 given"):
        AskThemes(min_similarity=2)


def test_a_search_starts_near_the_question_and_not_at_the_first_passages(
    graph: MemoryGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passages without utility questions have no ranking by them."""
    near: list[float] = []
    monkeypatch.setattr(
        theme_search, "best_first", lambda cosines, at, *_: near.extend(cosines[at]) or []
    )
    graph.ask(QUESTION, settings=EIGEN)
    assert len(near) == SEARCH.num_starts
    assert min(near) > 0.5


def test_eigen_is_a_traversal(graph: MemoryGraph) -> None:
    """It finds what the passages near the question state, what themes quote, and what holds."""
    found = graph.ask(QUESTION, settings=EIGEN)
    assert (found.mode, found.without_themes, found.behind) == ("facts", False, ())
    index = graph._recall._themes
    with graph._recall.view_of(QUESTION, None, EIGEN) as (view, _):
        _, hits = index.search(view, SEARCH)
        keys = facts_of_hits(graph.store.db, index, view, Eigen(top_k=10**6)).tolist()
        assert keys[:50] == traverse(view, EIGEN.traversal).facts.tolist()
    places = {(place.episode, place.span[0]) for key in keys for place in _places(graph, key)}
    of_hits = {int(index.episodes[node]) for node, _ in hits if node < len(index.chunks)}
    quoted = {q.episode for node, _ in hits if node >= len(index.chunks)
              for q in index.themes[node - len(index.chunks)].quotes}  # fmt: skip
    assert of_hits <= {episode for episode, _ in places}
    assert quoted
    first = next(node for node, _ in hits if node < len(index.chunks))
    assert index.episodes[first] in {place.episode for place in _places(graph, keys[0])}
    assert {fact.key for fact in found.facts} <= set(keys)
    forbidden = graph.ask(QUESTION, settings=replace(EIGEN, forbidden=("T",)))
    assert {fact.type for fact in forbidden.facts} == {"simple"}
    graph.remember("Anna likes cake.", source="new")
    assert graph.ask(QUESTION, settings=EIGEN).behind == ("new",)
    assert graph.ask(QUESTION).behind == ()


def _places(graph: MemoryGraph, key: int) -> tuple[Provenance, ...]:
    [fact] = graph.store.facts([key])
    return fact.provenance


def test_the_same_is_found_by_who_only_reads(graph: MemoryGraph) -> None:
    found = graph.ask_themes(QUESTION)
    with opened(graph.store.path, read_only=True) as reader:
        again = reader.ask_themes(QUESTION)
        assert (again.facts, again.themes) == (found.facts, found.themes)


def test_sources_that_are_behind_are_named(
    graph: MemoryGraph, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    graph.remember("Anna likes cake.", source="new")
    graph.remember("Anna likes roses.", source="b")
    found = graph.ask_themes(QUESTION)
    assert set(found.behind) == {"b", "new"}
    assert found.themes
    print_recollection(found, 10)
    assert "themes are older than what b, new say" in caplog.text


def test_few_texts_have_no_themes_and_are_searched_flat(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level("INFO")
    with with_talks(tmp_path / "few.db", "a", 7) as graph:
        made = graph.make_themes()
        assert (made.themes, made.chunks) == ((0, 0), 7)
        found = graph.ask_themes("What does Anna like?")
        assert (found.mode, found.without_themes, found.themes) == ("themes", True, ())
        assert found.facts
        print_recollection(found, 100)
        assert "no themes: all facts are searched by similarity instead" in caplog.text
        eigen = graph.ask("What does Anna like?", settings=EIGEN)
        assert (eigen.without_themes, eigen.facts) == (True, found.facts)
        assert capsys.readouterr().out.count("\n") == len(each_once(found.facts)) > 5


def test_what_is_printed(graph: MemoryGraph, capsys: pytest.CaptureFixture[str]) -> None:
    graph.make_themes(Script().lm())
    found = graph.ask_themes(QUESTION)
    print_recollection(found, 10)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"theme {found.themes[0].id}")
    assert len(lines) >= len(found.themes) + len(found.facts)
    assert any(line.endswith("say of it? (by lm:script)") for line in lines)
    told = recollection_json(found, None)["themes"]
    assert [theme["theme"] for theme in told] == [theme.id for theme in found.themes]


def test_a_theme_is_found_by_its_summary_and_the_questions_of_it(tmp_path: Path) -> None:
    """Also where the arrays of the themes are gone, and only the graph itself is left."""
    with with_talks(tmp_path / "my.db", "a") as graph:
        graph.make_themes(Script().lm())
    for _ in range(2):
        with opened(tmp_path / "my.db") as graph:
            graph.ask_themes(QUESTION)
            index = graph._recall._themes
            for number, theme in enumerate(index.themes):
                if theme.level == 1:
                    assert theme.summary is not None
                    said, asked = Hashing()(theme.summary.split("\n"))
                    mean = (said + asked) / np.linalg.norm(said + asked)
                    assert mean @ index._theme_vectors[number] == pytest.approx(1, abs=1e-5)
        shutil.rmtree(tmp_path / "my.db.derived")


def test_questions_are_searched_too(tmp_path: Path) -> None:
    """A chunk is found by a question that shares no word with its text."""
    with with_talks(tmp_path / "my.db", "a") as graph:
        script = Script()
        graph.make_themes(script.lm(summaries=False))
        index = graph._recall._themes
        graph.ask_themes(QUESTION)
        [asked_for] = graph.store.db.execute("SELECT text FROM questions WHERE kept").fetchone()
        text, asked = index._cosines(Hashing()([asked_for])[0].astype(np.float16))
        best = int(asked.argmax())
        assert asked[best] == pytest.approx(1, abs=1e-3)
        assert text[best] < 0.7


@pytest.mark.parametrize(
    "lm", [None, Lm("silent", lambda asked, _: [(NO_QUESTIONS, True)] * len(asked))]
)
def test_parts_of_a_long_text_are_compared_each_by_its_own_words(
    lm: Lm | None, tmp_path: Path
) -> None:
    """Also the first part, whose vector is the first of all where there are no questions."""
    with opened(tmp_path / "my.db") as graph:
        long = " ".join(episode.text for episode in talk("a", 60))
        graph.remember(long, "2020", "a")
        graph.make_themes(lm)
        graph.ask_themes(QUESTION)
        [query] = Hashing()([QUESTION]).astype(np.float16)
        text, _ = graph._recall._themes._cosines(query)
        spans = graph.store.db.execute("SELECT start, stop FROM chunks ORDER BY id").fetchall()
        parts = Hashing()([long[start:stop] for start, stop in spans])
        assert text == pytest.approx(parts @ query.astype(np.float32), abs=2e-3)


def test_a_graph_that_is_changed_by_others_is_read_again(graph: MemoryGraph) -> None:
    graph.ask_themes(QUESTION)
    with opened(graph.store.path) as other:
        other.remember_many(talk("e", 12))
        other.make_themes()
        other.forget(source="a")
        other.make_themes()
    found = graph.ask_themes(QUESTION)
    sources = {source for theme in found.themes for source in theme.sources}
    assert "a" not in sources
    assert {p.source for fact in found.facts for p in fact.provenance} <= {"b", "c", "d", "e"}


def test_arrays_without_a_column_are_not_read(graph: MemoryGraph) -> None:
    db, folder = graph.store.db, graph.store.derived
    stored = read_arrays(folder, THEMES)
    assert stored is not None
    assert read_theme_arrays(db, folder) is not NONE
    manifest, arrays = stored
    less = {name: np.array(array) for name, array in arrays.items() if name != "starts"}
    write_arrays(folder, THEMES, manifest, less | {"beginnings": np.zeros(1)})
    assert read_theme_arrays(db, folder) is NONE


def test_rows_of_sources_are_joined(graph: MemoryGraph) -> None:
    arrays = read_theme_arrays(graph.store.db, graph.store.derived)
    ids = arrays.chunks
    assert len(ids) == 96
    assert (np.diff(arrays.starts) >= 4).all()
    assert np.isin(arrays.others, ids).all()
    again = join_rows(arrays, [], ids[10:])
    assert again[0].tolist() == ids[10:].tolist()
    assert np.isin(again[2], ids[10:]).all()
    assert join_rows(NONE, [(ids, None)], ids)[1].tolist() == [0] * 97
