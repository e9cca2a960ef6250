"""Recall from the question to the evidence, over graphs that were really remembered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from string import ascii_lowercase as ALPHABET

import pytest

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode, Extraction, Thesis, Triplet
from turngraph.data.memory_graph.recall.recall import RecallSettings
from turngraph.data.memory_graph.recall.traverse_settings import Traversal
from turngraph.data.memory_graph.recall.vectors import PROBE
from turngraph.data.memory_graph.recall.word_vectors import word_vectors
from turngraph.data.memory_graph.times import start
from turngraph.data.memory_graph.upkeep.html_page import page_data
from turngraph.data.types import Entity
from turngraph.tests.data.memory_graph.hashing import Hashing
from turngraph.tests.data.memory_graph.scripted import Scripted, same_relation
from turngraph.tests.growing import assert_grows_linearly, cpu_seconds

BERLIN, PARIS = "Anna lives in Berlin.", "Anna lives in Paris."
CAT = "Bruno has a blue cat."
SINGS = "Anna sings."
SCRIPT = {
    BERLIN: Extraction(
        (Triplet("Anna", "lives in", "Berlin"),), (Thesis(BERLIN, ("Anna", "Berlin")),)
    ),
    PARIS: Extraction((Triplet("Anna", "lives in", "Paris"),), (Thesis(PARIS, ("Anna", "Paris")),)),
    SINGS: Extraction((), (Thesis(SINGS, ("Anna",)),)),
    CAT: Extraction((Triplet("Bruno", "has", "blue cat"),), (Thesis(CAT, ("Bruno", "blue cat")),)),
}


class Asked(Scripted):
    """Extractor by rules whose question entities are capitalised words, except the first."""

    def entities(self, question: str) -> list[str]:
        return [word.strip("?") for word in question.split()[1:] if word[0].isupper()]


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[MemoryGraph]:
    extractor = Asked(SCRIPT, same_relation)
    with MemoryGraph.open(tmp_path / "a.db", embed=Hashing(), extractor=extractor) as graph:
        graph.remember(BERLIN, time="2018-03-01", speaker="Anna", source="diary")
        graph.remember(PARIS, time="2021-07-01", speaker="Anna", source="diary")
        graph.remember(CAT, time="2021-08-01")
        yield graph


def texts(recollection) -> list[str]:
    return [fact.text for fact in recollection.facts]


def has(recollection, words: str) -> bool:
    return any(words in text for text in texts(recollection))


def remembered(path: Path, *said: str) -> MemoryGraph:
    graph = MemoryGraph.open(path, embed=Hashing(), extractor=Asked(SCRIPT, same_relation))
    for text in said:
        graph.remember(text)
    return graph


@pytest.mark.sqlite
@pytest.mark.parametrize("more", [(), (CAT,)])
def test_derived_files_of_a_deleted_graph_are_not_used(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    path = tmp_path / "b.db"
    with remembered(path, CAT, CAT, SINGS) as graph:
        graph.ask("What has Bruno?")
    path.unlink()
    with remembered(path, BERLIN, SINGS, PARIS, *more) as graph:
        assert len(list(tmp_path.glob("b.db.derived/adjacency-3"))) == 1  # the old one's
        assert not [problem for problem in graph.check() if problem.derived]
        assert has(graph.ask("Where does Anna live?"), "Anna lives in Paris")
        assert has(graph.ask("What has Bruno?"), "blue cat") == bool(more)
        assert not graph.check()


@pytest.mark.sqlite
def test_a_restored_backup_ignores_later_revisions(tmp_path: Path) -> None:
    path = tmp_path / "b.db"
    with remembered(path, SINGS) as graph:
        graph.backup(tmp_path / "copy.db")
        graph.remember(CAT)
        graph.ask("What has Bruno?")
    (tmp_path / "copy.db").replace(path)
    with remembered(path, PARIS, BERLIN) as graph:
        assert has(graph.ask("Where does Anna live?"), "Anna lives in Berlin")
        assert not has(graph.ask("What has Bruno?"), "blue cat")
        assert not graph.check()


def test_facts_as_of_now_and_as_of_then(graph: MemoryGraph) -> None:
    without_episodes = RecallSettings(forbidden=("E",))
    now = graph.ask("Where does Anna live?", settings=without_episodes)
    assert has(now, "Anna lives in Paris")
    assert not has(now, "Berlin")
    then = graph.ask("Where does Anna live?", as_of="2019", settings=without_episodes)
    assert has(then, "Anna lives in Berlin")
    assert not has(then, "Paris")
    assert now.entities == (("Anna", now.entities[0].node),)


def test_an_episode_whose_facts_all_ended_is_not_recalled(graph: MemoryGraph) -> None:
    episodes = RecallSettings(forbidden=("T", "O"))
    assert texts(graph.ask("Where does Anna live?", settings=episodes)) == [PARIS]
    assert texts(graph.ask("Where does Anna live?", "2019", episodes)) == [BERLIN]
    ranked = [fact.text for fact in graph.ask_episodes("Where does Anna live?").facts]
    assert PARIS in ranked
    assert BERLIN not in ranked


def test_facts_come_with_scores_and_provenance(graph: MemoryGraph) -> None:
    found = graph.ask("Where does Anna live?")
    scores = [fact.score for fact in found.facts]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > 0
    paris = next(fact for fact in found.facts if fact.text == PARIS and fact.type == "thesis")
    [place] = paris.provenance
    assert (place.speaker, place.source, place.said) == ("Anna", "diary", "2021-07-01")
    assert found.revision == graph.store.revision
    assert set(found.milliseconds) == {
        "entities", "embedding", "refresh", "link", "traverse", "filter",
    }  # fmt: skip


def test_facts_are_unique_by_text(graph: MemoryGraph) -> None:
    found = texts(graph.ask("Does Bruno or Anna have a cat in Paris?"))
    assert len(found) == len(set(found)) > 3


def test_facts_become_evidence(graph: MemoryGraph) -> None:
    found = graph.ask("What does Bruno have?")
    passages = found.evidence()
    assert [passage.text for passage in passages] == texts(found)
    assert {passage.source for passage in passages} == {"memory"}
    assert len({passage.id for passage in passages}) == len(passages)
    cat = next(passage for passage in passages if passage.text == CAT)
    assert set(cat.entities) >= {Entity("bruno", "Bruno"), Entity("blue cat", "blue cat")}


def test_namesakes_are_different_entities(graph: MemoryGraph) -> None:
    anna = graph.ask("Where does Anna live?").entities[0].node
    graph.remember(SINGS, time="2021-09-01")
    sung = [fact for fact in graph.history(anna) if SINGS in fact.text]
    episodes = [place.episode for fact in sung for place in fact.provenance]
    graph.split(anna, "Anna", episodes=episodes)
    found = graph.ask("Where does Anna live?")
    assert len(found.entities) == 2
    ids = {e.id for passage in found.evidence() for e in passage.entities if e.label == "Anna"}
    assert ids == {f"anna #{entity.node}" for entity in found.entities}


def test_without_a_linked_object_there_is_no_answer(graph: MemoryGraph) -> None:
    for question in ("Where does Zorblax live?", "where?", ""):
        found = graph.ask(question)
        assert found.no_answer
        assert found.facts == found.entities == ()
        assert found.evidence() == []


def test_without_a_close_fact_there_is_no_answer(graph: MemoryGraph) -> None:
    question = "Where does Anna live?"
    best = max(fact.score for fact in graph.ask(question).facts)
    assert not graph.ask(question, settings=RecallSettings(min_similarity=0.2)).no_answer
    nothing = graph.ask(question, settings=RecallSettings(min_similarity=best + 0.1))
    assert nothing.no_answer
    assert nothing.entities


def test_an_empty_graph_has_no_answer(tmp_path: Path) -> None:
    with MemoryGraph.open(tmp_path / "b.db", embed=Hashing(), extractor=Asked()) as graph:
        for mixture in ("BeamSearch + WaterCircles", "A* + ppr", "flat"):
            settings = RecallSettings(traversal=Traversal(mixture=mixture))
            assert graph.ask("Where does Anna live?", settings=settings).no_answer


@pytest.mark.parametrize("mixture", ["BeamSearch", "A*", "WaterCircles", "flat", "ppr",
                                     "A* + flat + ppr"])  # fmt: skip
def test_every_traversal_answers(graph: MemoryGraph, mixture: str) -> None:
    settings = RecallSettings(traversal=Traversal(mixture=mixture))
    assert has(graph.ask("Is Anna in Paris?", settings=settings), "Anna lives in Paris")


def test_at_most_num_facts_are_returned_the_closest(graph: MemoryGraph) -> None:
    question = "Does Anna live in Paris?"
    everything = graph.ask(question)
    few = graph.ask(question, settings=RecallSettings(num_facts=2))
    assert few.facts == everything.facts[:2]


def test_forbidden_types_are_not_among_the_facts(graph: MemoryGraph) -> None:
    for mixture in ("BeamSearch + WaterCircles", "flat", "ppr"):
        for forbidden, types in (
            (("E",), {"simple", "thesis"}),
            (("T", "E"), {"simple"}),
        ):
            settings = RecallSettings(Traversal(mixture=mixture), forbidden)
            found = {fact.type for fact in graph.ask("Where is Anna?", settings=settings).facts}
            assert found
            assert found <= types


def test_facts_just_remembered_or_forgotten_count(graph: MemoryGraph) -> None:
    question = "What does Clara have?"
    assert graph.ask(question).no_answer
    graph.remember("Clara has 3 dogs.", source="late")
    first = graph.ask(question)
    assert has(first, "Clara has 3 dogs.")
    graph.forget(source="late")
    assert graph.ask(question).no_answer
    assert graph.ask(question).revision > first.revision


def test_another_process_reads_while_one_writes(graph: MemoryGraph) -> None:
    path = graph.store.path
    with MemoryGraph.open(path, Hashing(), Asked(), read_only=True) as reader:
        before = reader.ask("Where does Anna live?")
        graph.remember("Anna lives in Rome.", time="2022-01-01")
        after = reader.ask("Where does Anna live?")
        assert after.revision == graph.store.revision > before.revision
        assert has(after, "Rome")
    assert not (graph.store.derived / "facts").exists()  # a reader writes no files
    assert texts(graph.ask("Where does Anna live?")) == texts(after)


def test_a_reopened_graph_answers_the_same(graph: MemoryGraph) -> None:
    question = "Where does Anna live?"
    before = graph.ask(question)
    path = graph.store.path
    graph.close()
    embed = Hashing()
    with MemoryGraph.open(path, embed, Asked()) as again:
        assert again.ask(question).facts == before.facts
    assert embed.seen == [PROBE, question]  # a known name needs no vector


@pytest.mark.parametrize("as_of", ["soon", "2019-13", ""])
def test_an_invalid_time_is_refused(graph: MemoryGraph, as_of: str) -> None:
    with pytest.raises(ValueError, match=r"time|day"):
        graph.ask("Where does Anna live?", as_of=as_of)


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="num_facts: 0"):
        RecallSettings(num_facts=0)
    with pytest.raises(ValueError, match="forbidden: 'X'"):
        RecallSettings(forbidden=("X",))


def test_a_question_without_a_known_name_is_answered_by_similarity(tmp_path: Path) -> None:
    """Nothing that is not similar enough is found."""
    with MemoryGraph.open(tmp_path / "my.db", word_vectors) as graph:
        graph.remember("There a queen opened some bridge. We hope for the release soon.")
        found = graph.ask("who opened a bridge")
        assert found.by_similarity
        assert "opened" in found.facts[0].text
        assert graph.ask("when is the release").facts[0].text == "We hope for the release soon."
        assert graph.ask("is it tasty").no_answer
        strict = RecallSettings(by_similarity=False)
        assert graph.ask("who opened a bridge", settings=strict).no_answer


def test_a_text_without_facts_is_found_beside_what_a_name_leads_to(tmp_path: Path) -> None:
    krakow = "Rozmawiałem z Anną, mieszka w Krakowie."
    script = {BERLIN: SCRIPT[BERLIN], krakow: Extraction()}
    extractor = Asked(script, same_relation)
    with MemoryGraph.open(tmp_path / "a.db", word_vectors, extractor) as graph:
        graph.remember(BERLIN)
        graph.remember("Deszcz pada na Maltę.")
        assert texts(graph.ask("Gdzie mieszka Anna w Krakowie?"))[0] != krakow
        graph.remember(krakow)
        assert texts(graph.ask("Gdzie mieszka Anna w Krakowie?"))[0] == krakow
        assert krakow not in texts(graph.ask("Where lives Anna?"))
        settings = RecallSettings(by_similarity=False)
        assert krakow not in texts(graph.ask("Gdzie mieszka Anna w Krakowie?", settings=settings))


PARTS = [
    ("Mia lived in Cork until 2010.", {"2004"}, "2010"),
    ("Bob lived in Cork until 2010, and works at Acme.", {"2004", "2024"}, None),
    ("Eva lived in Cork until 2010. Eva adopted a cat in 2012.", {"2004", "2012", "2024"}, None),
]


@pytest.mark.parametrize(("text", "when", "until"), PARTS)
def test_a_text_holds_as_its_triplets_do(
    text: str, when: set[str], until: str | None, tmp_path: Path
) -> None:
    with MemoryGraph.open(tmp_path / "my.db", word_vectors) as graph:
        graph.remember(text, time="2023-06-01")
        question = f"Where did {text[:3]} live in Cork, and what of Acme and a cat?"
        found = {time: graph.ask(question, as_of=time).facts for time in ("2004", "2011", "2012")}
        found["2024"] = graph.ask(question, as_of="2024").facts
        whole = {
            time: [fact for fact in facts if fact.text == text and fact.type != "simple"]
            for time, facts in found.items()
        }
        assert {time for time, facts in whole.items() if facts} == when
        for facts in found.values():
            assert {fact.valid_to for fact in facts if fact.text == text} <= {until}
        page = page_data(graph.store.db, "my.db")
    [node] = [node for node in page["nodes"] if node["text"] == text and node["type"] == 2]
    assert node.get("to") == until
    pairs = list(zip(node["holds"][::2], node["holds"][1::2], strict=True))
    for time in ("2004", "2011", "2012", "2024"):
        second = start(f"{time}-12-31")
        held = any((a is None or a <= second) and (b is None or second < b) for a, b in pairs)
        assert held == (time in when), time


def test_what_became_partly_untrue_is_marked_and_ranks_below_what_holds(tmp_path: Path) -> None:
    with MemoryGraph.open(tmp_path / "my.db", word_vectors) as graph:
        graph.remember("Cem lives in Rome. Cem lives in Rome and plays chess.", time="2018")
        graph.remember("Cem lives in Oslo.", time="2020-03")
        graph.remember("Ida lives in Rome. Ida plays chess.", time="2019")
        found = graph.ask("Where does Cem live and what does Cem play?").facts
        before = graph.ask("Where does Cem live?", as_of="2019").facts
        lists = [found, graph.show("Cem").facts, graph.history("Cem")]
    for facts in lists:
        marked = {fact.text for fact in facts if fact.partly_until == "2020-03"}
        assert "Cem lives in Rome and plays chess." in marked
        assert marked.isdisjoint({"Cem lives in Oslo.", "Ida lives in Rome. Ida plays chess."})
    [episode] = [fact for fact in found if fact.text.startswith("Cem lives in Rome. Cem")]
    assert episode.partly_until == "2020-03"
    [old] = [fact for fact in found if fact.text == "Cem lives in Rome and plays chess."]
    assert found[-1] == old
    assert [fact for fact in found if fact.partly_until] == [episode, old]
    assert all(fact.partly_until is None for fact in before)
    assert old.key in {fact.key for fact in before}


def test_both_ranks_by_facts_and_episodes_together(tmp_path: Path) -> None:
    with MemoryGraph.open(tmp_path / "both.db", word_vectors) as graph:
        for number, text in enumerate(("Anna sells old maps.", "Ben lives in Oslo.", "Anna rows.")):
            graph.remember(text, time=f"202{number}", speaker="Eva")
        found = graph.ask_both("Who sells old maps?")
        assert "sells old maps" in found.facts[0].text
        assert found.mode == "both"
        first = {fact.provenance[0].said for fact in found.facts[:1]}
        assert first == {"2020"}
        assert graph.ask_both("Zanzibar?").no_answer
        some = graph.ask_both("Anna?", settings=RecallSettings(num_facts=1))
        assert len(some.facts) == 1


def test_the_time_of_asking_grows_as_the_question_does(tmp_path: Path) -> None:
    """With each name come circles of facts, and words that facts are compared with."""
    names = [f"{first}{second}ina" for first in "BCDFGHKLMNPRST" for second in ALPHABET]
    settings = RecallSettings(traversal=Traversal("WaterCircles"))
    with MemoryGraph.open(tmp_path / "a.db", embed=Hashing()) as graph:
        knows = (f"{name} knows {names[7 * i % 364]}." for i, name in enumerate(names))
        graph.remember_many(Episode(text) for text in knows)

        def seconds(num: int) -> float:
            question = f"Who knows {', '.join(names[:num])}?"
            assert len(graph.ask(question, settings=settings).entities) == num
            return cpu_seconds(lambda: graph.ask(question, settings=settings))

        assert_grows_linearly(seconds, 90)
