"""Restart distribution, worked by hand, and the ranking of episodes by it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import EPISODIC, THESIS, Episode
from turngraph.data.memory_graph.recall.pagerank import ppr, rank_episodes, spread
from turngraph.data.memory_graph.recall.recall import RecallSettings
from turngraph.data.memory_graph.recall.restart_distribution import restart_distribution
from turngraph.data.memory_graph.recall.traverse_settings import PPR, Restart, Traversal
from turngraph.tests.data.memory_graph.hashing import Hashing
from turngraph.tests.data.memory_graph.tiny_view import TinyView

TYPES = {"Anna works": THESIS, "one": EPISODIC, "two": EPISODIC, "three": EPISODIC}
TRIPLES = [
    ("Anna", "", "Anna works"),
    ("Acme", "", "Anna works"),
    ("Anna works", "", "one"),
    ("Anna", "", "one"),
    ("Acme", "", "one"),
    ("Anna", "", "two"),
    ("Bob", "owns", "Acme"),
    ("Bob", "", "three"),
]
NOTHING = Restart(objects=0, num_facts=0, facts=0, episodes=0)


def starts(view: TinyView, settings: Restart) -> dict[str, float]:
    nodes, shares = restart_distribution(view, settings)
    assert np.array_equal(nodes, np.unique(nodes))
    return {view.names_of[n]: s for n, s in zip(nodes.tolist(), shares, strict=True) if s > 0}


def test_named_objects_are_weighted_by_their_number_of_episodes() -> None:
    view = TinyView(TRIPLES, ["Anna", "Acme", "works"], TYPES)
    # Anna is in two episodes, Acme in one; "works" is no proper name
    only_objects = Restart(objects=1, num_facts=0, episodes=0)
    assert starts(view, only_objects) == pytest.approx({"Anna": 1 / 3, "Acme": 2 / 3})
    # a question without proper names uses all its names
    assert starts(TinyView(TRIPLES, ["works"], TYPES), only_objects) == {"works": 1}


def test_objects_of_the_closest_facts() -> None:
    cosines = {"one": 0.9, "Anna works": 0.8, "Bob owns Acme": 0.4, "two": 0.3}
    view = TinyView(TRIPLES, [], TYPES, cosines)
    # episodes are no such facts; the thesis gives Anna 1 / 2 episodes and Acme 1 / 1
    one = Restart(objects=0, num_facts=1, episodes=0)
    assert starts(view, one) == pytest.approx({"Anna": 1 / 3, "Acme": 2 / 3})
    # the triplet, half as close, gives Bob 1/2 and Acme the mean of 1 and 1/2
    two = Restart(objects=0, num_facts=2, episodes=0)
    parts = {"Anna": 0.5, "Acme": 0.75, "Bob": 0.5}
    assert starts(view, two) == pytest.approx({name: p / 1.75 for name, p in parts.items()})


def test_episodes_by_vectors_and_words_and_those_beside_them() -> None:
    view = TinyView(TRIPLES, [], TYPES, {"one": 0.8, "two": 0.4}, worded={"two": 6.0, "three": 3.0},
                    talk=["one", "two", "three"])  # fmt: skip
    # 1 for one, 1/2 + 2 * 1 for two, 2 * 1/2 for three; by the best of them, then squared
    chosen = Restart(num_facts=0, words=2, sharpness=2)
    parts = {"one": 0.16, "two": 1, "three": 0.16}
    assert starts(view, chosen) == pytest.approx({n: p / 1.32 for n, p in parts.items()})
    # a tenth of each for the adjacent episodes
    adjacent = Restart(num_facts=0, words=2, sharpness=2, adjacent=0.1)
    parts = {"one": 0.16 + 0.1, "two": 1 + 0.016 + 0.016, "three": 0.16 + 0.1}
    total = sum(parts.values())
    assert starts(view, adjacent) == pytest.approx({n: p / total for n, p in parts.items()})
    # of one episode by each, the third is no candidate
    assert starts(view, Restart(num_facts=0, num_episodes=1, sharpness=1e-9)).keys() == {
        "one",
        "two",
    }


def test_without_names_and_close_facts_nothing_starts() -> None:
    view = TinyView(TRIPLES, [], TYPES)
    assert starts(view, NOTHING) == {}
    assert len(ppr(view, PPR(restart=NOTHING)).facts) == 0
    assert len(rank_episodes(view, PPR(restart=NOTHING))[0]) == 0


def test_forbidden_episodes_are_no_start_nodes() -> None:
    cosines = {"one": 0.8, "Anna works": 0.5}
    view = TinyView(TRIPLES, ["Anna"], TYPES, cosines, forbidden="E", worded={"one": 2.0})
    assert starts(view, Restart()).keys() == {"Anna", "Acme"}


def test_score_flows_from_and_back_to_the_start_nodes() -> None:
    view = TinyView([("a", "to", "b")], [], {"x": EPISODIC}, {"a to b": 1.0}, lone=["x"],
                    worded={"x": 3.0})  # fmt: skip
    chosen = PPR(restart=Restart(num_facts=1, facts=1, episodes=2), threshold=0, num_rounds=60)
    # it starts at a and b (1 each) and x (2); x has no way out, so its half returns to the
    # start nodes: x keeps 1/2 of 1/2, 1/2 of 1/8, ... = 1/4 / (1 - 1/4) = 1/3
    flow = spread(view, chosen)
    assert flow.scores[view.ids["x"]] == pytest.approx(1 / 3)
    assert flow.scores.sum() == pytest.approx(1)
    episodes, scores = rank_episodes(view, chosen)
    assert (view.names(episodes), scores) == (["x"], pytest.approx([1 / 3]))


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[MemoryGraph]:
    with MemoryGraph.open(tmp_path / "a.db", embed=Hashing()) as graph:
        graph.remember_many(
            [
                Episode("Hank Snow sang Hello Love.", origin="song"),
                Episode("Hank Snow lived in Tennessee.", origin="singer"),
                Episode("Publix has 42 stores in Tennessee.", origin="shops"),
                Episode("Love is a feeling, say hello to it.", origin="other"),
            ]
        )
        yield graph


def test_ask_episodes_finds_episodes_without_shared_words(graph: MemoryGraph) -> None:
    origins = dict(graph.store.db.execute("SELECT node, origin FROM episodes"))
    found = graph.ask_episodes("Where did the singer of Hello Love live?").facts
    ranked = [origins[fact.key // 2] for fact in found]
    assert ranked[0] == "song"
    assert ranked.index("singer") < ranked.index("shops")
    assert [f.score for f in found] == sorted((f.score for f in found), reverse=True)
    assert found[0].provenance[0].episode == found[0].key // 2
    few = RecallSettings(Traversal(ppr=PPR(top_k=1)))
    assert [f.key for f in graph.ask_episodes("Hello Love", settings=few).facts] == [found[0].key]


@pytest.mark.parametrize("speaker", [None, "Ben"])
def test_turns_lead_to_the_turns_beside_them(tmp_path: Path, speaker: str | None) -> None:
    """A reply that shares no word with the question is found in a dialogue, not among passages."""
    texts = ["Who painted the harbour?", "It was Vera.", "Rain again.", "Who owns the boat?"]
    with MemoryGraph.open(tmp_path / "my.db", embed=Hashing()) as graph:
        graph.remember_many(
            Episode(text, source="talk", origin=str(i), speaker=speaker)
            for i, text in enumerate(texts)
        )
        found = [fact.text for fact in graph.ask_episodes("Who painted the harbour?").facts]
    assert found[0] == texts[0]
    assert (texts[1] in found[:2]) == (speaker is not None)


def test_ask_with_restart_needs_no_linked_object(graph: MemoryGraph) -> None:
    settings = RecallSettings(Traversal("ppr", ppr=PPR(restart=Restart())))
    assert not graph.ask("who feels what", settings=RecallSettings(Traversal("ppr"))).facts
    texts = [fact.text for fact in graph.ask("a feeling", settings=settings).facts]
    assert texts[0].startswith("Love is a feeling")


@pytest.mark.parametrize("wrong", [{"objects": -1}, {"num_facts": -1}, {"num_episodes": 0},
                                   {"sharpness": 0}, {"adjacent": -0.1}])  # fmt: skip
def test_settings_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Restart(**wrong)
