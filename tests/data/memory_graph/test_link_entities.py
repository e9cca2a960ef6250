"""Linking of names to objects, and names that hold query syntax."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from turngraph.data.memory_graph.memory_types import OBJECT
from turngraph.data.memory_graph.recall.link_entities import (
    RRF,
    candidates,
    link_entities,
    objects_by_words,
)
from turngraph.data.memory_graph.recall.vectors import Vectors
from turngraph.data.memory_graph.recall.view import QuestionEntity
from turngraph.data.memory_graph.record.sqlite_database import match_any, quoted
from turngraph.data.normalise import words
from turngraph.tests.data.memory_graph.hashing import Hashing
from turngraph.tests.data.memory_graph.random_record import RandomRecord

NAMES = ("Anna Berg", "Anna Stein", "Paris", "The Blue Cat", "Anna Berg")


class Linked:
    """A record with objects of some names, and linking in it."""

    def __init__(self, path: Path, names: tuple[str, ...] = NAMES) -> None:
        self.record = RandomRecord(path)
        with self.record.store.writing() as revision:
            self.nodes = [self.record.node(revision, OBJECT, name) for name in names]
        self.vectors = Vectors(self.record.db, self.record.store.derived, Hashing())
        self.vectors.refresh()

    def link(self, *names: str, **settings: float) -> tuple[QuestionEntity, ...]:
        self.embedded: list[str] = []

        def embed(texts: Sequence[str]) -> np.ndarray:
            self.embedded += texts
            return Hashing()(texts)

        return link_entities(self.record.db, names, embed, self.vectors.names, **settings)


def test_an_exact_name_is_linked_to_all_namesakes(tmp_path: Path) -> None:
    linked = Linked(tmp_path / "a.db")
    one, stein, paris, cat, two = linked.nodes
    assert linked.link("the PARIS", "blue cat") == (("the PARIS", paris), ("blue cat", cat))
    assert linked.embedded == []  # only a name that is no alias needs a vector
    assert linked.link("anna berg") == (("anna berg", one), ("anna berg", two))
    assert linked.link("anna berg", top_k=1) == (("anna berg", one),)
    with linked.record.store.writing():
        linked.record.alias(stein, "Ann")
    assert linked.link("ann") == (("ann", stein),)


def test_the_closest_name_is_linked_unless_it_is_too_far(tmp_path: Path) -> None:
    linked = Linked(tmp_path / "a.db")
    cat = linked.nodes[3]
    assert linked.link("Cat", min_similarity=0.3) == (("Cat", cat),)
    assert linked.link("Cat", min_similarity=0.99) == ()
    assert linked.link("Zorblax", min_similarity=0.5) == ()
    assert linked.link() == ()


def test_reciprocal_ranks_by_hand(tmp_path: Path) -> None:
    linked = Linked(tmp_path / "a.db", ("Anna Berg", "Anna Stein", "Paris"))
    berg, stein, paris = linked.nodes
    # dense: the shared word ranks both Annas before Paris; BM25 finds only the Annas, equally
    [vector] = Hashing()(["Anna Stone"])
    cosines = linked.vectors.names.vectors(np.array(linked.nodes)) @ vector
    first, second = (berg, stein) if cosines[0] > cosines[1] else (stein, berg)
    found = candidates(linked.record.db, "Anna Stone", vector, linked.vectors.names, 5)
    assert objects_by_words(linked.record.db, ["anna", "stone"]) == [berg, stein]
    ranks = {first: 1, second: 2, paris: 3}
    sparse = {berg: 1, stein: 2}
    scores = {
        node: 1 / (RRF + ranks[node]) + (1 / (RRF + sparse[node]) if node in sparse else 0)
        for node in linked.nodes
    }
    assert {c.node: c.score for c in found} == pytest.approx(scores)
    assert [c.score for c in found] == sorted(scores.values(), reverse=True)
    expected = [cosines[linked.nodes.index(c.node)] for c in found]
    np.testing.assert_allclose([c.similarity for c in found], expected, atol=2e-3)


def test_an_object_without_a_vector_is_a_candidate_like_nothing(tmp_path: Path) -> None:
    """As where it was remembered since the vectors were made: its words find it."""
    linked = Linked(tmp_path / "a.db", ("Paris",))
    with linked.record.store.writing() as revision:
        new = linked.record.node(revision, OBJECT, "Anna Stone")
    [vector] = Hashing()(["Anna Stone"])
    found = candidates(linked.record.db, "Anna Stone", vector, linked.vectors.names, 5)
    assert {c.node: c.similarity for c in found}[new] == 0


@pytest.mark.sqlite
@pytest.mark.parametrize(
    "name", ['a" OR "b', "NEAR(a b)", "words:a*", "a AND NOT b", "(", "'; DROP TABLE nodes; --",
             "\0", "", "^a", "-", "Anna\0Berg", "𝔸nna", "安娜"],
)  # fmt: skip
def test_nothing_in_a_name_is_query_syntax(tmp_path: Path, name: str) -> None:
    linked = Linked(tmp_path / "a.db")
    linked.link(name)
    for query in (quoted(name), match_any(words(name)) or '""'):
        sql = "SELECT rowid FROM name_words WHERE name_words MATCH ?"
        linked.record.db.execute(sql, (query,)).fetchall()
