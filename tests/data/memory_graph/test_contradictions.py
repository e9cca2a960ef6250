"""50 hand-written contradictions and near misses: what holds as of several moments."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from turngraph.data.memory_graph.extract.given import GivenExtractor
from turngraph.data.memory_graph.extract.rules import RulesExtractor
from turngraph.data.memory_graph.memory_types import (
    SIMPLE,
    THESIS,
    Episode,
    Extractor,
    edge_key,
)
from turngraph.data.memory_graph.record.ingest import remember_many
from turngraph.data.memory_graph.record.store import Store
from turngraph.data.memory_graph.times import end, start

Case = dict[str, Any]
CASES: list[Case] = [
    json.loads(line)
    for line in (Path(__file__).parent / "contradictions.jsonl").read_text("utf-8").splitlines()
]


def name_of(case: Case) -> str:
    return f"{case['kind']}: {case['name']}"


def given_lines(case: Case) -> Iterator[str]:
    """Return a case as lines of given statements, from ``[subject, relation, object, {more}]``."""
    names = ("subject", "relation", "object")
    for said in case["said"]:
        triplets = []
        for *ends, more in (t if len(t) == 4 else [*t, {}] for t in said["triplets"]):
            replaces = [dict(zip(names, old, strict=True)) for old in more.get("replaces", [])]
            triplets.append(dict(zip(names, ends, strict=True)) | more | {"replaces": replaces})
        yield json.dumps(said | {"triplets": triplets})


def episodes(case: Case) -> list[Episode]:
    return [
        Episode(said["text"], said["time"], speaker=said.get("speaker")) for said in case["said"]
    ]


def holding(store: Store, as_of: str) -> list[str]:
    """Return the simple facts that hold at the end of a period, without hypotheses."""
    moment = end(as_of) - 1
    rows = store.db.execute("SELECT id FROM edges WHERE type = ?", (SIMPLE,)).fetchall()
    return sorted(
        " ".join(fact.ends or ())
        for fact in store.facts(edge_key(edge) for (edge,) in rows)
        if not fact.hypothesis
        and (fact.valid_from is None or start(fact.valid_from) <= moment)
        and (fact.valid_to is None or start(fact.valid_to) > moment)
    )


def check(case: Case, store: Store) -> None:
    for asked in case["asked"]:
        assert holding(store, asked["as_of"]) == sorted(asked["holds"]), asked["as_of"]


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of an empty graph: a copy is faster than a new one."""
    path = tmp_path_factory.mktemp("empty") / "memory.db"
    Store(path).close()
    return path


Remember = Callable[[Extractor, Iterable[Episode]], Store]


@pytest.fixture
def remember(empty: Path, tmp_path: Path) -> Iterator[Remember]:
    """Remember episodes in a new graph."""
    with Store(shutil.copy(empty, tmp_path / "memory.db")) as store:
        if store.is_file:
            store.db.execute("PRAGMA synchronous = OFF")  # no power cut is tested here

        def run(extractor: Extractor, said: Iterable[Episode]) -> Store:
            remember_many(store, extractor, said)
            return store

        yield run


@pytest.mark.parametrize("case", [c for c in CASES if c["rules"]], ids=name_of)
def test_rules(case: Case, remember: Remember) -> None:
    check(case, remember(RulesExtractor(), episodes(case)))


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_given(case: Case, remember: Remember, tmp_path: Path) -> None:
    path = tmp_path / "given.jsonl"
    path.write_text("\n".join(given_lines(case)), encoding="utf-8")
    extractor = GivenExtractor()
    check(case, remember(extractor, extractor.read(path)))


def theses_holding(store: Store, as_of: str) -> list[str]:
    moment = end(as_of) - 1
    rows = store.db.execute(
        "SELECT text, valid_from, valid_to FROM nodes WHERE type = ? ORDER BY id", (THESIS,)
    )
    return [
        text
        for text, since, until in rows.fetchall()
        if (since is None or start(since) <= moment) and (until is None or start(until) > moment)
    ]


def test_a_thesis_ends_with_its_triplet_if_it_states_nothing_else(remember: Remember) -> None:
    said = [
        Episode(
            "I live in Paris. I live in Paris because the food is cheap.",
            "2010-01-01",
            speaker="Anna",
        ),
        Episode("Anna moved to Berlin in 2015.", "2016-01-01"),
    ]
    store = remember(RulesExtractor(), said)
    old = ["Anna: I live in Paris.", "Anna: I live in Paris because the food is cheap."]
    assert theses_holding(store, "2014") == old
    assert theses_holding(store, "2016") == [*old[1:], "Anna moved to Berlin in 2015."]


def test_a_wish_or_a_question_closes_no_thesis(remember: Remember) -> None:
    said = [
        Episode("Anna lives in Paris.", "2010-01-01"),
        Episode("Anna wants to move to Berlin. Does Anna live in Rome?", "2016-01-01"),
        Episode("Bob lives in Berlin.", "2017-01-01"),
    ]
    assert "Anna lives in Paris." in theses_holding(remember(RulesExtractor(), said), "2018")
