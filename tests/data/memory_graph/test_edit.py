"""Merge, split, rename and alias: what they change, and that undo changes it back exactly."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode, Extraction, Thesis, Triplet
from turngraph.data.memory_graph.upkeep.journal import COLUMNS
from turngraph.tests.data.memory_graph.scripted import Scripted
from turngraph.tests.data.memory_graph.small_graphs import (
    TEXTS,
    exported,
    node_of,
    small_graph,
    triplets,
)


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[MemoryGraph]:
    with small_graph(tmp_path / "memory.db") as graph:
        yield graph


def found(graph: MemoryGraph, words: str) -> set[int]:
    """Keys of the simple triplets that the word index finds."""
    keys = (set(graph.store.db.words.facts(word).tolist()) for word in words.split())
    return {key for key in set.intersection(*keys) if key & 1}


def rows(graph: MemoryGraph, sql: str, *values: object) -> list[tuple]:
    return graph.store.db.execute(sql, values).fetchall()


def test_one_person_under_two_names_becomes_one(graph: MemoryGraph) -> None:
    anna, annie, paris = (node_of(graph, name) for name in ("Anna", "Annie", "Paris"))
    assert graph.merge("Anna", "Annie") == anna
    assert {node for name in ("Anna", "annie") for node in graph.store.objects(name)} == {anna}
    assert ("Anna", "works at", "Acme") in triplets(graph)
    assert not any("Annie" in triplet for triplet in triplets(graph))
    assert rows(graph, "SELECT 1 FROM nodes WHERE id = ?", annie) == []
    # equal edges become one with the provenance of both
    sql = "SELECT id, said FROM edges WHERE type = 0 AND source = ? AND target = ?"
    [(edge, said)] = rows(graph, sql, anna, paris)
    [fact] = graph.store.facts([2 * edge + 1])
    assert said == "2020-01-01"
    assert [place.said for place in fact.provenance] == ["2020-01-01", "2020-01-02"]
    assert graph.check() == []


def test_two_people_under_one_name_become_two(graph: MemoryGraph) -> None:
    old = node_of(graph, "Anna")
    new = graph.split("Anna", "Anna", episodes=[node_of(graph, TEXTS[2])])
    assert graph.store.objects("anna") == [old, new]
    assert {text for _, _, text in triplets(graph)} >= {"Anna"}
    sql = "SELECT source, target FROM edges WHERE relation = 'met' AND valid_from = '2019'"
    assert rows(graph, sql) == [(node_of(graph, "Bob"), new)]
    assert graph.check() == []
    with pytest.raises(ValueError, match=rf"2 objects are named 'Anna': #{old} .*#{new} Anna"):
        graph.show("Anna")
    assert graph.show(f"#{new}").num_episodes == graph.show(new).num_episodes == 1


@pytest.mark.parametrize(
    ("text", "left", "moved"),
    [(TEXTS[3], "2020-01-01", "2020-01-04"), (TEXTS[0], "2020-01-04", "2020-01-01")],
)
def test_a_fact_that_others_say_as_well_is_then_said_of_both_by_their_own_episodes(
    graph: MemoryGraph, text: str, left: str, moved: str
) -> None:
    old, tea = node_of(graph, "Anna"), node_of(graph, "tea")
    new = graph.split("Anna", "Anna Schmidt", episodes=[node_of(graph, text)])
    sql = "SELECT source, said FROM edges WHERE type = 0 AND target = ? ORDER BY source"
    assert rows(graph, sql, tea) == [(old, left), (new, moved)]
    sql = "SELECT source FROM edges WHERE type = 1 AND target = ?"
    mentioned = rows(graph, sql, node_of(graph, "Eve: Anna likes tea."))
    assert {node for (node,) in mentioned} >= {old, new}
    assert graph.check() == []


def test_a_single_fact_moves_and_both_are_mentioned_where_it_was_said(graph: MemoryGraph) -> None:
    old = node_of(graph, "Anna")
    edge = rows(graph, "SELECT id FROM edges WHERE relation = 'likes' AND source = ?", old)[0][0]
    new = graph.split("Anna", "Anna Schmidt", facts=[2 * edge + 1])
    assert ("Anna Schmidt", "likes", "tea") in triplets(graph)
    assert ("Anna", "likes", "tea") not in triplets(graph)
    sql = "SELECT source FROM edges WHERE type = 2 AND target = ? AND source IN (?, ?)"
    assert len(rows(graph, sql, node_of(graph, TEXTS[0]), old, new)) == 2
    assert graph.check() == []


def test_a_new_name_is_read_everywhere_and_the_old_one_still_found(graph: MemoryGraph) -> None:
    anna = node_of(graph, "Anna")
    assert graph.rename("Anna", " Anna  Schmidt ") == anna
    assert ("Anna Schmidt", "lives in", "Paris") in triplets(graph)
    assert graph.store.objects("ANNA") == graph.store.objects("anna schmidt") == [anna]
    assert found(graph, "schmidt paris")
    assert graph.store.db.words.best_names(["schmidt"], 9) == [anna]
    assert rows(graph, "SELECT revision FROM nodes WHERE id = ?", anna) == [(graph.store.revision,)]
    assert graph.check() == []


EDITS: dict[str, Callable[[MemoryGraph], object]] = {
    "merge": lambda g: g.merge("Anna", "Annie"),
    "merge the other way": lambda g: g.merge("Annie", "Anna"),
    "split by episode": lambda g: g.split("Anna", "Anna", episodes=[node_of(g, TEXTS[3])]),
    "split by fact": lambda g: g.split(
        "Annie", "Ann", facts=[2 * node_of(g, "Eve: Annie works at Acme.")]
    ),
    "rename": lambda g: g.rename("Paris", "Lutetia"),
    "rename to another's name": lambda g: g.rename("Paris", "Rome"),
    "alias": lambda g: g.add_alias("Paris", "City of Light"),
}


def as_rows(graph: MemoryGraph) -> dict[str, set[tuple]]:
    """Every table of the record, without revisions."""
    db, shown = graph.store.db, {}
    for table, names in COLUMNS.items():
        shown[table] = set(db.execute(f"SELECT {', '.join(names)} FROM {table}"))
    return shown


@pytest.mark.parametrize("name", EDITS)
def test_undo_takes_an_edit_back_exactly(graph: MemoryGraph, tmp_path: Path, name: str) -> None:
    before, all_rows = exported(graph, tmp_path), as_rows(graph)
    revision = graph.store.revision
    EDITS[name](graph)
    assert graph.check() == []
    assert exported(graph, tmp_path) != before
    assert graph.store.revision == revision + 1
    assert graph.undo().split()[0] == name.split()[0]
    assert exported(graph, tmp_path) == before
    assert as_rows(graph) == all_rows
    assert graph.store.revision == revision + 2
    assert graph.check() == []


WORDS = st.tuples(st.sampled_from("AAB"), st.sampled_from("rx"), st.sampled_from("ABC"))
TOLD = st.lists(st.lists(WORDS, min_size=1, max_size=3), min_size=2, max_size=5)
CHANGES = st.lists(
    st.tuples(st.sampled_from(["merge", "split", "facts", "rename"]), *[st.integers(0, 9)] * 2),
    min_size=1,
    max_size=4,
)


def change(graph: MemoryGraph, kind: str, first: int, second: int) -> None:
    """Run a random edit of random objects; ValueError if there is nothing to edit."""
    objects = [node for (node,) in rows(graph, "SELECT id FROM nodes WHERE type = 0 ORDER BY id")]
    one, other = objects[first % len(objects)], objects[second % len(objects)]
    if kind == "merge":
        graph.merge(one, other)
    elif kind == "split":
        told = rows(
            graph, "SELECT target FROM edges WHERE type = 2 AND source = ? ORDER BY id", one
        )
        graph.split(one, "A", episodes=[told[second % len(told)][0]])
    elif kind == "facts":
        facts = graph.history(one)
        graph.split(one, "B", facts=[facts[second % len(facts)].key])
    else:
        graph.rename(one, "ABCD"[second % 4])


def extraction(triplets: list[tuple[str, str, str]]) -> Extraction:
    """Some triplets, and a thesis about the ends of the first."""
    thesis = Thesis(" ".join(triplets[0]), (triplets[0][0], triplets[0][2]))
    return Extraction(tuple(Triplet(*triplet) for triplet in triplets), (thesis,))


@given(TOLD, CHANGES)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_edits_hold_together_and_are_undone(
    tmp_path: Path, told: list[list[tuple[str, str, str]]], changes: list[tuple[str, int, int]]
) -> None:
    script = {str(number): extraction(triplets) for number, triplets in enumerate(told)}
    with MemoryGraph.open(tmp_path / f"{uuid4()}.db", extractor=Scripted(script)) as graph:
        graph.remember_many(Episode(text, time=f"200{text}") for text in script)
        states = []
        for kind, first, second in changes:
            states.append(as_rows(graph))
            try:
                change(graph, kind, first, second)
            except ValueError:
                states.pop()
            assert graph.check() == []
        while states:
            graph.undo()
            assert as_rows(graph) == states.pop()
            assert graph.check() == []


def test_what_is_remembered_after_an_edit_stays_when_it_is_undone(graph: MemoryGraph) -> None:
    graph.merge("Anna", "Annie")
    graph.remember("Anna likes chess. Bob knows Carl.", time="2020-02-01")
    graph.undo()
    assert {("Anna", "likes", "chess"), ("Annie", "works at", "Acme")} <= triplets(graph)
    assert graph.check() == []


@pytest.mark.parametrize(
    "text", ["Annie likes chess.", "Anna works at Acme.", "Annie works at Umbrella."]
)
def test_undo_refuses_where_what_came_since_builds_on_the_edit(
    graph: MemoryGraph, tmp_path: Path, text: str
) -> None:
    graph.merge("Anna", "Annie")
    graph.remember(text, time="2020-02-01")
    before = exported(graph, tmp_path)
    with pytest.raises(ValueError, match=r"merge #\d+ #\d+ cannot be undone: later episodes"):
        graph.undo()
    assert exported(graph, tmp_path) == before


def test_undo_of_a_split_refuses_when_the_new_object_has_been_met_again(graph: MemoryGraph) -> None:
    graph.split("Anna", "Anna Schmidt", episodes=[node_of(graph, TEXTS[2])])
    graph.remember("Anna Schmidt likes chess.", time="2020-02-01")
    with pytest.raises(ValueError, match="cannot be undone"):
        graph.undo()


def test_undoing_a_name_leaves_it_findable_where_texts_have_used_it(graph: MemoryGraph) -> None:
    anna = graph.rename("Anna", "Anna Schmidt")
    graph.remember("Anna Schmidt likes chess.", time="2020-02-01")
    graph.undo()
    assert ("Anna", "likes", "chess") in triplets(graph)
    assert graph.store.objects("Anna Schmidt") == [anna]
    assert graph.check() == []


@pytest.mark.parametrize("name", EDITS)
def test_what_an_edit_has_left_can_be_forgotten(graph: MemoryGraph, name: str) -> None:
    EDITS[name](graph)
    graph.forget(episode=node_of(graph, TEXTS[3]))
    assert graph.check() == []
    graph.forget(source="talk")
    assert graph.check() == []
    assert sum(graph.stats().edges.values()) == 0


def test_a_superseded_fact_keeps_what_closed_it_through_merge_and_split(tmp_path: Path) -> None:
    with MemoryGraph.open(tmp_path / "memory.db") as graph:
        for day, text in enumerate(("Ann lives in Paris.", "Ann lives in Rome."), 1):
            graph.remember(text, time=f"2020-01-0{day}")
        graph.remember("Anna lives in Oslo.", time="2019-01-01")
        links = rows(graph, "SELECT * FROM supersessions")
        assert links
        graph.merge("Anna", "Ann")
        assert rows(graph, "SELECT * FROM supersessions") == links
        [(oslo,)] = rows(graph, "SELECT id FROM nodes WHERE type = 2 AND said = '2019-01-01'")
        graph.split("Anna", "Ann", episodes=[oslo])
        assert rows(graph, "SELECT * FROM supersessions") == links
        assert graph.check() == []


def test_errors_name_what_is_meant(graph: MemoryGraph) -> None:
    anna, annie = node_of(graph, "Anna"), node_of(graph, "Annie")
    thesis = node_of(graph, "Eve: Anna likes tea.")
    cases = [
        (lambda: graph.merge("Anna", "Ana"), rf"named 'Ana'; near names: Anna \(#{anna}\)"),
        (lambda: graph.merge("Anna", "zzzzqq"), "no object is named 'zzzzqq'$"),
        (lambda: graph.merge("anna", f"#{anna}"), f"are the same object already, #{anna}"),
        (lambda: graph.rename(10**30, "X"), "is not an object of this memory graph"),
        (lambda: graph.rename(f"#{thesis}", "X"), f"#{thesis} is not an object"),
        (lambda: graph.rename("Anna", "  "), "the new name is blank"),
        (lambda: graph.add_alias("Anna", "ANNIE"), f"names #{annie} already"),
        (lambda: graph.split("Anna", "A"), "name the episodes or facts"),
        (lambda: graph.split("Paris", "P", episodes=[5]), "episode 5 does not mention #"),
        (lambda: graph.split("Anna", "A", facts=[2 * 10**6]), "fact 2000000 does not mention"),
        (
            lambda: graph.split("Acme", "A", episodes=[node_of(graph, TEXTS[3])]),
            "nothing would be left of #",
        ),
    ]
    revision = graph.store.revision
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()
    assert graph.store.revision == revision
    assert rows(graph, "SELECT * FROM journal") == []


@pytest.mark.parametrize("entry", ["{", "[" * 50_000, "{}", '{"revision": 1, "changes": [[1]]}'])
def test_a_damaged_journal_of_edits_names_the_file(graph: MemoryGraph, entry: str) -> None:
    with graph.store.writing():
        sql = "INSERT INTO journal (operation, undo) VALUES ('merge', ?)"
        graph.store.db.execute(sql, [entry])
    with pytest.raises(ValueError, match=f"^{re.escape(str(graph.store))}: the journal is damaged"):
        graph.undo()
