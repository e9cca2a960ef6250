"""Forgetting: nothing of it is left, in the record or in any byte, and all else is as before."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from turngraph.configs.memory_schema import MemoryGraphConfig
from turngraph.data.memory_graph.conversation import ChatGraph
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode, Extraction, Thesis, Triplet
from turngraph.data.memory_graph.ontology.compute import compute
from turngraph.data.memory_graph.ontology.lens import Lens
from turngraph.data.memory_graph.ontology.ontology import load_ontology
from turngraph.data.memory_graph.ontology.typed_plan import NoPlan
from turngraph.data.memory_graph.recall.word_vectors import word_vectors
from turngraph.data.memory_graph.record.ingest import remember_many
from turngraph.data.memory_graph.record.store import Store
from turngraph.data.memory_graph.times import start
from turngraph.data.memory_graph.upkeep import purge
from turngraph.data.memory_graph.upkeep.forget import forget
from turngraph.data.memory_graph.upkeep.purge import finish
from turngraph.tests.data.memory_graph.hashing import Hashing
from turngraph.tests.data.memory_graph.scripted import Scripted, nothing


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[MemoryGraph]:
    with MemoryGraph.open(tmp_path / "my.db", extractor=Scripted()) as graph:
        yield graph
        assert graph.check() == []


def files_with(graph: MemoryGraph, *texts: str) -> list[tuple[str, str]]:
    """Every file of a graph beside each text that its bytes have, in UTF-8 or as JSON escapes."""
    if not graph.store.is_file:
        return []  # of the server's files it is said in docs/cluster.md when they lose a text
    path = graph.store.path
    files = [*path.parent.glob(f"{path.name}*"), *graph.store.derived.rglob("*")]
    forms = [(t, form) for t in texts for form in (t.encode(), json.dumps(t)[1:-1].encode())]
    contents = [(file, file.read_bytes()) for file in files if file.is_file()]
    assert len(contents) >= 3
    found = {(file.name, t) for file, data in contents for t, form in forms if form in data}
    return sorted(found)


def found_by_words(graph: MemoryGraph, word: str) -> int:
    words = graph.store.db.words
    return len(words.facts(word)) + len(words.best_names([word], 999))


def episode_of(graph: MemoryGraph, text: str) -> int:
    sql = "SELECT id FROM nodes WHERE type = 2 AND text = ?"
    return graph.store.db.execute(sql, (text,)).fetchone()[0]


def content(graph: MemoryGraph) -> list[tuple[str, list[tuple]]]:
    """All tables without what may differ: ids given, revisions, what derived indexes drop."""
    texts = dict(graph.store.db.execute("SELECT id, text FROM nodes"))
    facts = graph.store.facts(
        key for (key,) in graph.store.db.execute(
            "SELECT 2 * id FROM nodes WHERE type IN (1, 2)"
            " UNION SELECT 2 * id + 1 FROM edges WHERE type = 0"
        )
    )  # fmt: skip
    edges = graph.store.db.execute("SELECT type, source, target FROM edges").fetchall()
    names = graph.store.db.execute(
        "SELECT a.alias, a.spelling, n.text, e.text FROM aliases a JOIN nodes n ON n.id = a.node"
        " LEFT JOIN sightings s ON s.alias = a.id LEFT JOIN nodes e ON e.id = s.episode"
    ).fetchall()
    said = graph.store.db.execute("SELECT type, text, said FROM nodes").fetchall()
    return [
        ("facts", sorted(
            (f.text, f.type, str(f.valid_from), str(f.valid_to), f.hypothesis,
             sorted(name for _, name in f.entities),
             sorted((texts[p.episode], p.span, str(p.said)) for p in f.provenance))
            for f in facts
        )),
        ("edges", sorted((kind, texts[s], texts[t]) for kind, s, t in edges)),
        ("names", sorted(map(str, names))),
        ("nodes", sorted(map(str, said))),
    ]  # fmt: skip


@pytest.mark.sqlite
def test_an_episode_goes_with_all_that_only_it_gave(graph: MemoryGraph) -> None:
    graph.remember("Anna likes Paris", "2018", source="a")
    before = content(graph)
    text = "ANNA met Zorglub near Quuxville"
    thesis = Thesis("Zorglub was met by Anna in Quuxville", ("ANNA", "Zorglub"), valid_from="1717")
    said = Extraction((Triplet("Zorglub", "resides in", "Quuxville"),), (thesis,), ("1616",))
    graph.extractor.script = {text: said}
    graph.remember(text, "1919", "secretsource", "Speakerine", "originality", {"key": "valuable"})
    secrets = (
        "ANNA", "Zorglub", "zorglub", "Quuxville", "quuxville", "resides", "1717", "1616", "1919",
        "secretsource", "Speakerine", "originality", "valuable",
    )  # fmt: skip
    assert {secret for _, secret in files_with(graph, *secrets)} == set(secrets)
    got = graph.forget(episode=episode_of(graph, text))
    assert (got.episodes, got.theses, got.triplets, got.objects, got.names) == (1, 1, 1, 2, 3)
    assert files_with(graph, *secrets) == []
    assert content(graph) == before
    assert files_with(graph, "Paris") != []


def test_what_others_said_too_stays_with_what_they_gave_of_it(graph: MemoryGraph) -> None:
    graph.extractor.script = {
        "firstly": Extraction(
            (Triplet("THE ANNA", "likes", "Paris"),), (Thesis("It was so.", ("THE ANNA", "Bob")),)
        ),
        "second": Extraction(
            (Triplet("Anna", "likes", "Paris"),), (Thesis("It was so.", ("Anna",)),)
        ),
        "third": Extraction(entities=("Bob",)),
    }
    remembered = [Episode("firstly", "1901"), Episode("second", "1902"), Episode("third")]
    graph.remember_many(remembered)
    got = graph.forget(episode=episode_of(graph, "firstly"))
    assert (got.theses, got.triplets, got.objects, got.names) == (0, 0, 0, 1)
    assert files_with(graph, "THE ANNA", "firstly", "1901") == []
    with MemoryGraph.open(graph.store.path.with_name("new.db"), None, graph.extractor) as other:
        other.remember_many(remembered[1:])
        assert content(graph) == content(other)
    [fact] = [fact for fact in graph.history("Anna") if fact.ends]
    assert fact.text == "Anna likes Paris"
    assert graph.check(rebuild=True) == []


def test_unless_another_fact_still_closes_it(graph: MemoryGraph) -> None:
    for year, city in (("2018", "Paris"), ("2022", "Rome"), ("2020", "Oslo")):
        graph.remember(f"Anna likes {city}", year)
    assert {fact.valid_to for fact in graph.history("Paris")} == {"2020"}
    assert graph.forget(episode=episode_of(graph, "Anna likes Oslo")).reopened == 0
    assert {fact.valid_to for fact in graph.history("Paris")} == {"2022"}
    assert graph.forget(episode=episode_of(graph, "Anna likes Rome")).reopened == 2
    assert {fact.valid_to for fact in graph.history("Paris")} == {None}


def test_what_began_where_a_forgotten_fact_ended_loses_that_begin(graph: MemoryGraph) -> None:
    graph.remember("Anna likes Paris", "2018")
    graph.remember("Anna likes Rome", "2020")
    graph.forget(episode=episode_of(graph, "Anna likes Paris"))
    assert {(f.valid_from, f.valid_to) for f in graph.history("Anna")} == {(None, None)}


def test_a_boundary_moves_to_who_still_says_it(graph: MemoryGraph) -> None:
    for year, city in (("2018", "Paris"), ("2020", "Rome"), ("2022", "Rome")):
        graph.remember(f"Anna likes {city}", year, source=year)
    assert graph.forget(source="2020").reopened == 0
    assert {fact.valid_to for fact in graph.history("Paris")} == {"2022"}
    assert {fact.valid_from for fact in graph.history("Rome")} == {"2022"}
    assert files_with(graph, "2020") == []


def test_an_entity_goes_with_every_episode_that_mentions_it(graph: MemoryGraph) -> None:
    graph.extractor.script = {"it rained on zorglub today": Extraction()}
    graph.remember_many(
        [
            Episode("Anna likes Paris"),
            Episode("Zorglub likes Paris"),
            Episode("Anna met Zorglub"),
            Episode("it rained on zorglub today"),  # linked to nothing
            Episode("Zorglubs are many"),  # another word
            Episode("Anna sang", speaker="Zorglub"),
        ]
    )
    graph.add_alias("Zorglub", "zorglub")
    graph.rename("Zorglub", "Bulgroz")
    dry = graph.forget(entity="Bulgroz", dry_run=True)
    assert dry.episodes == 4
    assert len(graph.history("zorglub")) == 4
    assert graph.forget(entity="Bulgroz") == dry
    with pytest.raises(ValueError, match="no object is named"):
        graph.show("Zorglub")
    assert files_with(graph, "Bulgroz", "orglub ", "orglub\x00", "bulgroz", "ainted") == []
    assert found_by_words(graph, "zorglub") == 0
    assert found_by_words(graph, "zorglubs") == 4  # a name and three facts
    assert [fact.text for fact in graph.history("Anna") if fact.ends] == ["Anna likes Paris"]


def test_one_of_two_with_a_name_goes_alone(graph: MemoryGraph) -> None:
    graph.extractor.judge = nothing
    graph.remember("Anna likes Paris", source="home")
    graph.remember("Anna likes Rome", source="work")
    [anna] = graph.store.objects("Anna")
    other = graph.split(anna, "Anna", episodes=[episode_of(graph, "Anna likes Rome")])
    with pytest.raises(ValueError, match="2 objects are named 'Anna'"):
        graph.forget(entity="Anna")
    assert graph.forget(entity=other).episodes == 1
    assert [fact.ends[2] for fact in graph.history("Anna") if fact.ends] == ["Paris"]


@pytest.mark.parametrize("other", ["Anna", "Annette"])
def test_facts_of_a_renamed_object_are_found_by_their_words(graph: MemoryGraph, other: str) -> None:
    """An object that loses its name gets another spelling, and word search finds that one."""
    graph.extractor.judge = nothing
    graph.remember("ANNA likes Paris", source="home")
    graph.remember(f"{other} likes Rome", source="work")
    if other == "Annette":
        graph.merge("ANNA", "Annette")
    [anna] = graph.store.objects(other)
    assert graph.show(anna).name == "ANNA"
    [rome] = [fact.key for fact in graph.history("Rome") if fact.ends]
    graph.forget(source="home")
    assert graph.show(anna).name == other

    def found(word: str) -> bool:
        return rome in graph.store.db.words.facts(word.lower())

    assert found(other)
    assert found("Rome")
    assert found("ANNA") == (other == "Anna")
    assert graph.check() == []


def test_nothing_can_be_undone_afterwards(graph: MemoryGraph) -> None:
    graph.remember("Anna likes Paris")
    graph.remember("Annette likes Rome")
    graph.merge("Anna", "Annette")
    graph.forget(episode=episode_of(graph, "Annette likes Rome"))
    assert files_with(graph, "Annette", "annette") == []
    with pytest.raises(ValueError, match="no edit to undo"):
        graph.undo()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "exactly one of episode"),
        ({"episode": 1, "source": "a.txt"}, "exactly one of episode"),
        ({"episode": 2}, "#2 is not an episode"),
        ({"source": "notes/b.txt"}, "no episode has the source 'notes/b.txt'$"),
        ({"source": "notes/a.txt"}, r"the source 'notes/a.txt'; did you mean 'a.txt'\?$"),
    ],
)
def test_what_cannot_be_forgotten_is_told(
    graph: MemoryGraph, arguments: dict, message: str
) -> None:
    graph.remember("Anna likes Paris", source="a.txt")
    with pytest.raises(ValueError, match=message):
        graph.forget(**arguments)
    assert graph.store.revision == 1


def test_its_vectors_go_as_well(tmp_path: Path) -> None:
    embed = Hashing()
    with MemoryGraph.open(tmp_path / "my.db", embed, Scripted()) as graph:
        graph.remember_many([Episode(f"Anna likes P{i}", source="a") for i in range(20)])
        graph.remember("Zorglub likes Rome", source="b")
        graph.ask("Who likes Rome?")
        graph._recall.close()
        vectors = [v.astype(np.float16).tobytes() for v in embed(["Zorglub likes Rome", "Zorglub"])]

        def written() -> list[bool]:
            files = [f.read_bytes() for f in graph.store.derived.rglob("*") if f.is_file()]
            return [any(vector in data for data in files) for vector in vectors]

        assert written() == [True, True]
        graph.forget(source="b")
        assert written() == [False, False]
        assert all("Zorglub" not in fact.text for fact in graph.ask("Who is Zorglub?").facts)


def test_what_was_forgotten_comes_back_by_no_way_of_asking(tmp_path: Path) -> None:
    """Every way was asked before, so that whatever it keeps holds what is forgotten."""
    path = tmp_path / "my.db"
    question = "Where does Zoe Arlington live?"
    things = ("bread", "cake", "soup", "beans", "rice", "plums", "pears", "nuts")
    kept = [f"Anna baked {one} with {other}." for one in things for other in things if one < other]
    with MemoryGraph.open(path, word_vectors) as graph:
        graph.remember_many([Episode(text, "2023", "kept") for text in kept])
        gone = "Zoe Arlington lives in Quimper. Zoe Arlington baked cake with nuts in Quimper."
        graph.remember(gone, "2023", "gone")
        graph.make_themes()
        lens = Lens(graph.store, load_ontology())
        chat = ChatGraph(path, MemoryGraphConfig(vectors="words"), None)
        ways = (graph.ask, graph.ask_both, graph.ask_episodes, graph.ask_planned, graph.ask_themes)

        def told() -> list[str]:
            """Return what each way of asking tells."""
            try:
                computed = compute(lens, question).answer
            except NoPlan:
                computed = ""
            recalled = [item.evidence.text for item in chat.recall(question, [], 0)]
            listed = [fact.text for fact in graph.history("Anna")]
            return [computed, str(recalled), str(listed), *(str(way(question)) for way in ways)]

        assert sum("Quimper" in one for one in told()) >= 6
        graph.forget(source="gone")
        assert not [one for one in told() if "Quimper" in one]
        chat.close()


def test_its_times_go_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also out of the arrays of who has the graph open, when these are written again."""
    monkeypatch.setattr("turngraph.data.memory_graph.recall.adjacency.MAX_DELTA", 1)
    with MemoryGraph.open(tmp_path / "my.db", Hashing()) as graph:
        graph.remember("Anna lives in Bonn. Bert lives in Rome.", time="2018")
        graph.remember("Anna lives in Paris.", time="2019-05-03", source="a")
        graph.remember("Bert lives in Oslo.", time="2021-08-07", source="b")
        graph.ask("Where does Anna live?")
        moments = [
            start(day).to_bytes(8, "little", signed=True) for day in ("2019-05-03", "2021-08-07")
        ]

        def written() -> list[bool]:
            files = graph.store.derived.glob("adjacency-*/*.npy")
            data = b"".join(file.read_bytes() for file in files)
            return [moment in data for moment in moments]

        assert written() == [True, True]
        graph.forget(source="b")
        assert written() == [False, False]
        graph.remember("Cem lives in Oslo. Cem knows Dora. Dora lives in Bonn.")
        assert "Anna" in graph.ask("Where does Anna live?").facts[0].text
        assert written() == [True, False]


@pytest.mark.sqlite
def test_no_byte_is_left_of_what_went_through_many_pages(graph: MemoryGraph) -> None:
    """Rows move from page to page as trees grow and shrink, and leave copies behind."""
    draw = random.Random(0)

    def name(number: int) -> str:
        letters = draw.choices("abcdefgh", k=draw.choice((3, 10, 40, 300, 900)))
        return f"Q{number:05d}x" + "".join(letters)

    names = [name(number) for number in draw.sample(range(99_999), 600)]
    texts = [" likes ".join(pair) for pair in zip(names[::2], names[1::2], strict=True)]
    graph.extractor.judge = nothing
    episodes = [Episode(t, source=str(i % 7), origin=t) for i, t in enumerate(texts)]
    graph.remember_many(episodes, batch=50)
    for source in "0123":
        graph.forget(source=source)
    beginnings = [{n[:6], n[:6].lower()} for n in names]
    gone = [b for i, both in enumerate(beginnings) if i // 2 % 7 < 4 for b in both]
    assert files_with(graph, *gone) == []
    assert len(files_with(graph, *beginnings[-1])) == 2


@pytest.mark.sqlite
def test_a_reader_in_the_way_is_told_and_the_next_opening_finishes(tmp_path: Path) -> None:
    path = tmp_path / "my.db"
    with (
        MemoryGraph.open(path, extractor=Scripted(), wait=0.2) as graph,
        Store(path, read_only=True) as reader,
    ):
        graph.remember("Anna likes Zorglub", source="a")
        with reader.reading():
            reader.db.execute("SELECT count(*) FROM nodes").fetchall()
            with pytest.raises(ValueError, match=r"forgotten, but .*-wal still has the text"):
                graph.forget(source="a")
        assert files_with(graph, "Zorglub") != []
        with MemoryGraph.open(path, extractor=Scripted()):
            assert files_with(graph, "Zorglub", "zorglub") == []


@pytest.mark.sqlite
def test_a_process_that_is_killed_in_between_is_finished_by_the_next(
    graph: MemoryGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.remember("Anna likes Zorglub", source="a")

    def killed(_: Store, **__: object) -> None:
        raise KeyboardInterrupt

    for step in ("_merge_words", "_vacuum", "_purge_derived", "_empty_wal"):
        graph.remember("Anna likes Zorglub", source="a")
        with monkeypatch.context() as patch:
            patch.setattr(purge, step, killed)
            with pytest.raises(KeyboardInterrupt):
                forget(graph.store, source="a")
        finish(graph.store)
        assert files_with(graph, "Zorglub", "zorglub") == []
    assert [*graph.store.db.execute("SELECT name FROM meta")] == [("revision",)]


def test_forgetting_everything_leaves_nothing_but_revisions(graph: MemoryGraph) -> None:
    script = {"text": Extraction((Triplet("A", "b", "A"),), times=("2020",), entities=("C",))}
    graph.extractor.script = script
    graph.remember("text", "2021", source="s")
    graph.forget(source="s")
    for table in ("nodes", "edges", "episodes", "aliases", "sightings", "provenance", "journal"):
        assert graph.store.db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
    graph.remember("text", "2021", source="s")  # ids are never used twice
    ids = {row[0] for row in graph.store.db.execute("SELECT id FROM nodes")}
    removed = {row[0] for row in graph.store.db.execute("SELECT id FROM removed WHERE kind = 0")}
    assert not ids & removed


def test_a_forgotten_origin_may_be_remembered_again(graph: MemoryGraph) -> None:
    graph.remember("Anna likes Paris", origin="1", source="a")
    graph.forget(source="a")
    assert graph.remember("Anna likes Paris", origin="1").episodes == 1


@pytest.mark.sqlite
@pytest.mark.parametrize("seed", range(3))
def test_forgetting_is_as_if_it_had_never_been_said(tmp_path: Path, seed: int) -> None:
    """In any order of saying, where what is left contradicts what is left as it did before."""
    draw = random.Random(seed)
    episodes = [
        Episode(
            f"{draw.choice(['Anna', 'Bob'])} likes {draw.choice('KLMN')}",
            f"20{10 + i}", source=draw.choice("ab"),
        )
        for i in range(12)
    ]  # fmt: skip
    with (
        MemoryGraph.open(tmp_path / "all.db", None, Scripted(judge=nothing)) as graph,
        MemoryGraph.open(tmp_path / "b.db", None, Scripted(judge=nothing)) as wanted,
    ):
        graph.remember_many(episodes)
        graph.forget(source="a")
        wanted.remember_many([episode for episode in episodes if episode.source == "b"])
        assert content(graph) == content(wanted)
        assert graph.check() == []
        for table in ("fact_words", "name_words"):
            assert vocabulary(graph.store, table) == vocabulary(wanted.store, table)


def vocabulary(store: Store, table: str) -> list[tuple[str, int, int]]:
    """Every word of a word index, in how many rows and how often."""
    with closing(sqlite3.connect(store.path)) as db:
        db.execute(f"CREATE VIRTUAL TABLE temp.v USING fts5vocab('main', '{table}', 'row')")
        return db.execute("SELECT * FROM temp.v").fetchall()


def test_forgetting_many_at_once(graph: MemoryGraph) -> None:
    graph.extractor.judge = nothing
    remember_many(graph.store, graph.extractor, [Episode(f"Anna likes P{i}") for i in range(50)])
    sql = "SELECT node FROM episodes WHERE node % 2 = 1 ORDER BY node LIMIT 10"
    numbers = [node for (node,) in graph.store.db.execute(sql)]
    assert graph.forget(episode=numbers).episodes == len(numbers) > 3
