"""What remembering writes: nodes, edges, names, provenance, each once."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import (
    EDGE_TYPES,
    NODE_TYPES,
    Episode,
    Extraction,
    Thesis,
    Triplet,
    Update,
)
from turngraph.data.memory_graph.names import well_formed
from turngraph.data.memory_graph.record import ingest
from turngraph.data.memory_graph.record.ingest import remember_batches, remember_many
from turngraph.data.memory_graph.record.store import Store
from turngraph.data.memory_graph.upkeep.check import check
from turngraph.tests.data.memory_graph.scripted import Scripted, nothing


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "my.db") as store:
        yield store
        assert check(store) == []


def nodes(store: Store) -> dict[str, list[str]]:
    """Texts by type of node."""
    found: dict[str, list[str]] = {name: [] for name in NODE_TYPES}
    for type, text in store.db.execute("SELECT type, text FROM nodes ORDER BY id"):
        found[NODE_TYPES[type]].append(text)
    return found


def edges(store: Store) -> list[tuple[str, str, str]]:
    """Type and texts of the ends of every edge."""
    sql = """SELECT e.type, s.text, t.text FROM edges e
        JOIN nodes s ON s.id = e.source JOIN nodes t ON t.id = e.target"""
    return sorted((EDGE_TYPES[type], *ends) for type, *ends in store.db.execute(sql))


def test_one_text_with_everything(store: Store) -> None:
    text = "Anna moved to Paris in 2015. She may like it."
    said = Extraction(
        (Triplet("Anna", "lives in", "Paris", valid_from="2015", span=(0, 28)),),
        (
            Thesis("Anna moved to Paris.", ("Anna", "Paris"), valid_from="2015", span=(0, 28)),
            Thesis("Anna may like Paris.", ("Anna", "Paris"), hypothesis=True, span=(29, 45)),
        ),
        times=("2015",),
        entities=("France",),
    )
    extractor = Scripted({text: said})
    episode = Episode(text, "2020-05", "diary", "page 1", "Anna", {"mood": "good"})
    got = remember_many(store, extractor, [episode])
    assert (got.episodes, got.skipped, got.superseded) == (1, 0, 0)
    assert (got.objects, got.theses, got.triplets) == (3, 2, 1)
    assert got.cost == {"texts": 1.0}
    assert nodes(store) == {
        "object": ["France", "Anna", "Paris"],
        "thesis": ["Anna moved to Paris.", "Anna may like Paris."],
        "episodic": [text],
        "time": ["2015", "2020-05"],
    }
    moved, may = nodes(store)["thesis"]
    assert edges(store) == sorted(
        [
            ("simple", "Anna", "Paris"),
            *(("hyper", name, thesis) for name in ("Anna", "Paris") for thesis in (moved, may)),
            *(("episodic", name, text) for name in ("Anna", "Paris", "France", moved, may)),
            *(("time", time, text) for time in ("2020-05", "2015")),
            ("time", "2015", moved),
            ("time", "2020-05", may),
        ]
    )
    [fact] = store.facts([3])
    assert (fact.text, fact.ends) == ("2015: Anna lives in Paris", ("Anna", "lives in", "Paris"))
    [place] = fact.provenance
    assert (place.span, place.source, place.speaker, place.said) == (
        (0, 28), "diary", "Anna", "2020-05",
    )  # fmt: skip
    row = store.db.execute("SELECT source, origin, speaker, extractor, properties FROM episodes")
    assert row.fetchone() == ("diary", "page 1", "Anna", "scripted", '{"mood": "good"}')


def test_equal_origins_are_remembered_once(store: Store) -> None:
    extractor = Scripted()
    first = [Episode("Anna likes Paris", origin="1"), Episode("Bob likes Rome", origin="1")]
    assert (remember_many(store, extractor, first).episodes, store.revision) == (1, 1)
    again = [Episode("Anna likes Paris", origin="1"), Episode("Anna likes Paris")]
    got = remember_many(store, extractor, again)
    assert (got.episodes, got.skipped, got.triplets) == (1, 1, 0)
    assert [e.origin for e in extractor.extracted] == ["1", None]
    got = remember_many(store, extractor, first)
    assert (got.episodes, got.skipped, store.revision) == (0, 2, 2)
    assert remember_many(store, extractor, []).episodes == 0


def test_what_another_process_remembers_meanwhile_is_skipped(store: Store) -> None:
    class Slow(Scripted):
        def extract(self, episodes: list[Episode]) -> list[Extraction]:
            with Store(store.path) as other:
                remember_many(other, Scripted(), episodes[:1])
            return super().extract(episodes)

    episodes = [Episode("Anna likes Paris", origin="1"), Episode("Anna likes Rome", origin="2")]
    got = remember_many(store, Slow(judge=nothing), episodes)
    assert (got.episodes, got.skipped) == (1, 1)
    assert len(nodes(store)["episodic"]) == 2


def test_a_fact_that_will_end_is_said_again_in_a_later_write_until_it_has(store: Store) -> None:
    until = Extraction((Triplet("Anna", "likes", "Paris", valid_to="2030"),))
    extractor = Scripted({"until 2030": until}, nothing)
    said = [("until 2030", "2020"), ("Anna likes Paris", "2021"), ("Anna likes Paris", "2031")]
    new = [remember_many(store, extractor, [Episode(*one)]).triplets for one in said]
    assert new == [1, 0, 1]


def test_a_fact_said_again_has_two_places(store: Store) -> None:
    episodes = [Episode("Anna likes Paris", "2020"), Episode("Anna likes Paris", "2021")]
    got = remember_many(store, Scripted(), episodes)
    assert (got.triplets, got.theses, got.episodes) == (1, 1, 2)
    simple, thesis = store.facts([3, 2 * 4])
    for fact in (simple, thesis):
        assert [place.said for place in fact.provenance] == ["2020", "2021"]
    assert Counter(edges(store))["hyper", "Anna", "Anna likes Paris"] == 1


def test_other_entities_of_a_thesis_said_again_join_it(store: Store) -> None:
    script = {
        "one": Extraction(theses=(Thesis("It rains.", ("Paris",)),)),
        "two": Extraction(theses=(Thesis("It rains.", ("Rome",)), Thesis("It rains.", ("Oslo",)))),
    }
    remember_many(store, Scripted(script), [Episode("one")])
    remember_many(store, Scripted(script), [Episode("two")])
    hyper = [edge[1] for edge in edges(store) if edge[0] == "hyper"]
    assert (hyper, nodes(store)["thesis"]) == (["Oslo", "Paris", "Rome"], ["It rains."])


def test_spellings_are_one_object_and_remember_where_they_were_seen(store: Store) -> None:
    texts = ["The Café opened", "the café CLOSED", "Cafe moved"]
    said = {text: Extraction(entities=(" ".join(text.split()[:-1]),)) for text in texts}
    remember_many(store, Scripted(said), [Episode(text) for text in texts[:2]])
    remember_many(store, Scripted(said), [Episode(texts[2])])
    assert nodes(store)["object"] == ["The Café"]
    sql = """SELECT a.spelling, n.text FROM sightings s JOIN aliases a ON a.id = s.alias
        JOIN nodes n ON n.id = s.episode ORDER BY n.id"""
    assert store.db.execute(sql).fetchall() == [
        ("The Café", texts[0]), ("the café", texts[1]), ("Cafe", texts[2]),
    ]  # fmt: skip
    assert store.objects("CAFÉ") == store.objects("a cafe") != []
    assert len(store.db.words.best_names(["cafe"], 9)) == 3


def test_a_shared_name_means_who_was_seen_last_in_the_same_source(tmp_path: Path) -> None:
    with MemoryGraph.open(tmp_path / "my.db", extractor=Scripted(judge=nothing)) as graph:
        graph.remember("Anna likes Paris", source="home")
        graph.remember("Anna likes Rome", source="work")
        [anna] = graph.store.objects("Anna")
        sql = "SELECT node FROM episodes WHERE source = 'work'"
        other = graph.split(anna, "Anna", episodes=graph.store.db.execute(sql).fetchone())
        for source, city in (("work", "Oslo"), ("home", "Bonn"), ("elsewhere", "Kyiv")):
            graph.remember(f"Anna likes {city}", source=source)

        def cities(node: int) -> set[str]:
            return {fact.ends[2] for fact in graph.history(node) if fact.ends}

        assert cities(other) == {"Rome", "Oslo"}
        assert cities(anna) == {"Paris", "Bonn", "Kyiv"}
        assert graph.check() == []


def test_a_triplet_with_a_long_or_missing_end_is_kept_as_a_thesis(store: Store) -> None:
    long = "one two three four five six seven eight"
    said = Extraction(
        (
            Triplet("Anna", "says", long, hypothesis=True),
            Triplet("Anna", "", "Paris"),
            Triplet("Anna", "knows", "one two three four five six seven"),
            Triplet("Anna", "reads", "A B C D E F G H"),
        ),
        (Thesis("A book.", ("A B C D E F G H",)),),
    )
    got = remember_many(store, Scripted({"text": said}), [Episode("text")])
    assert (got.triplets, got.theses) == (1, 4)
    assert nodes(store)["thesis"] == [
        "A book.", f"Anna says {long}", "Anna Paris", "Anna reads A B C D E F G H",
    ]  # fmt: skip
    hyper = {edge[1:] for edge in edges(store) if edge[0] == "hyper"}
    assert ("Anna", f"Anna says {long}") in hyper
    assert ("A B C D E F G H", "Anna reads A B C D E F G H") in hyper
    sql = "SELECT hypothesis FROM nodes WHERE text LIKE 'Anna says%'"
    assert store.db.execute(sql).fetchone() == (1,)


ODD = [
    "",
    "\x00",
    "a\x00b",
    "lone \ud83d half",
    "\x01\x1b\x7f\u202e\ufeff",
    "'; DROP TABLE nodes; --",
    '" OR 1=1 NEAR(a b) a* -b ^c {x}:y',
    "Ελλάδα العربية 日本語 ไทย हिन्दी 🙂",
    "\u0645\u0631\u062d\u0628\u0627",
    "e\u0301" * 50,
    "x" * 100_000,
]


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
def test_odd_texts_are_kept_and_found(store: Store, text: str) -> None:
    said = Extraction(
        (Triplet(text, text, text),),
        (Thesis(text, (text,)), Thesis(f"Anna said {text}", ("Anna",))),
        entities=(text, "Anna"),
    )
    episode = Episode(text, None, text, text, text, {text: text})
    remember_many(store, Scripted({well_formed(text): said}, nothing), [episode])
    assert remember_many(store, Scripted(), [episode]).skipped == 1
    [(node, kept)] = store.db.execute("SELECT id, text FROM nodes WHERE type = 2").fetchall()
    assert kept == text.replace("\ud83d", "\ufffd")
    assert store.facts([2 * node])[0].text == kept
    assert store.db.execute("SELECT source, origin FROM episodes").fetchone() == (kept, kept)
    if text.strip() and len(text) < 200:
        assert len(store.objects(text)) == 1
    assert f"Anna said {kept}" in nodes(store)["thesis"]


@pytest.mark.parametrize(
    ("episode", "message"),
    [
        (Episode("x", time="soon"), "episode 1: field time: not a time"),
        (Episode(b"x"), "episode 1: field text: must be a text, not bytes"),
        (Episode("x", source=3), "episode 1: field source: must be a text, not int"),
    ],
)
def test_a_wrong_episode_is_named_and_nothing_of_its_batch_stays(
    store: Store, episode: Episode, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        remember_many(store, Scripted(), [Episode("fine"), episode])
    assert store.revision == 0


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (Extraction((Triplet("a", "b", "c", valid_from="soon"),)), "scripted: valid_from: not a"),
        (Extraction(theses=(Thesis("a", span=(0, 5)),)), r"span \(0, 5\) is not in a text of 4"),
        (Extraction(times=("never",)), "scripted: a time: not a time"),
    ],
)
def test_a_wrong_extraction_names_the_extractor_and_no_text(
    store: Store, said: Extraction, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        remember_many(store, Scripted({"text": said}), [Episode("text")])
    assert nodes(store)["episodic"] == []


@pytest.mark.parametrize("often", [0, 700, 10**6])
def test_cycles_are_looked_for_as_before_when_a_write_has_ended(store: Store, often: int) -> None:
    meanwhile = []

    def wrong(_: Update) -> tuple[int, ...]:
        meanwhile.append(gc.get_threshold()[0])
        return (3,)

    before = gc.get_threshold()
    gc.set_threshold(often, 7, 9)
    try:
        remember_many(store, Scripted(judge=nothing), [Episode("Anna likes Paris")])
        message = r"scripted: replaces a fact that is not in Update\.known"
        with pytest.raises(ValueError, match=message):
            remember_many(store, Scripted(judge=wrong), [Episode("Bob likes Rome")])
        assert gc.get_threshold() == (often, 7, 9)
        assert meanwhile[0] == {0: 0, 700: 100_000, 10**6: 10**6}[often]
    finally:
        gc.set_threshold(*before)


def test_a_batch_is_reported_after_its_commit(store: Store) -> None:
    episodes = (Episode(f"Anna likes P{i}") for i in range(5))
    with Store(store.path, read_only=True) as reader:
        for number, part in enumerate(remember_batches(store, Scripted(), episodes, batch=2), 1):
            assert part.episodes == (2, 2, 1)[number - 1]
            assert reader.revision == number
            assert len(nodes(reader)["episodic"]) == (2, 4, 5)[number - 1]


def test_a_long_write_is_committed_in_between(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "MAX_SECONDS", 0.0)
    episodes = [Episode(f"Anna likes P{i}", origin=str(i % 3)) for i in range(4)]
    parts = list(remember_batches(store, Scripted(), episodes))
    assert [(part.episodes, part.skipped) for part in parts] == [(1, 1), (1, 0), (1, 0)]


def test_names_that_are_looked_up_together_are_found_again(store: Store) -> None:
    names = (*ODD[1:3], *ODD[4:9], *(f"Name {number}" for number in range(1200)))
    said = {text: Extraction(entities=names) for text in ("once", "twice")}
    remember_many(store, Scripted(said), [Episode("once")])
    first = nodes(store)["object"]
    assert len(first) == len(names)
    remember_many(store, Scripted(said), [Episode("twice")])
    assert nodes(store)["object"] == first
    assert store.db.execute("SELECT count(*) FROM aliases").fetchone() == (len(names),)
