"""The benchmark of planned asking: its reading of sub-questions, its choice, and a whole run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turngraph.benchmarks.memory_graph import memory_plan
from turngraph.benchmarks.memory_graph.memory_plan import Row, choose
from turngraph.benchmarks.memory_graph.planted_hops import COMPARISONS, planted_hops
from turngraph.benchmarks.memory_graph.retrieval_data import Question, given_steps
from turngraph.data.memory_graph.recall.word_vectors import word_vectors

PASSAGES = [
    {"title": "Anna", "text": "Anna was born in Norway."},
    {"title": "Norway", "text": "Jonas Store leads Norway."},
    {"title": "France", "text": "Pierre Dubois leads France."},
    {"title": "Rice", "text": "Rice is grown in Italy."},
]
ITEM = {
    "question": "Who leads the country where Anna was born?",
    "paragraphs": [
        {"title": p["title"], "paragraph_text": p["text"], "is_supporting": i < 2}
        for i, p in enumerate(PASSAGES)
    ],
    "question_decomposition": [
        {"question": "Anna >> country", "answer": "Norway", "paragraph_support_idx": 0},
        {"question": "Who leads #1 ?", "answer": "Jonas Store", "paragraph_support_idx": 1},
    ],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    extracted = [one | {"extracted_triples": [], "extracted_entities": []} for one in PASSAGES]
    files = {
        "musique_100.json": [ITEM, ITEM],
        "musique_100_corpus.json": PASSAGES,
        "musique_100_openie.json": extracted,
    }
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content), "utf-8")
    return tmp_path


def test_given_sub_questions_have_gold_answers_filled_in(folder: Path) -> None:
    steps = [("Anna country", "0"), ("Who leads Norway ?", "1")]
    assert given_steps(folder) == [steps, steps]


def test_settings_are_those_of_the_other_half() -> None:
    questions = [Question(str(i), frozenset({"gold"})) for i in range(4)]
    good, bad = (Row(passages=[[name]] * 4) for name in ("gold", "other"))
    row, chosen = choose([bad, good], questions, seed=0, depth=5)
    assert chosen == [1, 1]
    assert row.passages == good.passages
    assert row.calls == []


def test_planted_questions_are_the_same_for_a_seed_and_their_passages_answer_them() -> None:
    planted = planted_hops(1)
    assert planted == planted_hops(1) != planted_hops(2)
    texts = [episode.text for episode in planted.collection.episodes]
    assert len(planted.kinds) == len(planted.collection.questions) == 7 * 4 * 2
    for question, kind in zip(planted.collection.questions, planted.kinds, strict=True):
        gold = [texts[int(number)] for number in question.gold]
        titles = [text.partition("\n")[0] for text in gold]
        asked = [title for title in titles if title in question.text]
        assert len(asked) == (2 if kind in COMPARISONS else 1), question
        found = asked  # each other passage is named by one that is found
        while more := [t for t in titles if t not in found
                       and any(t in text for text, title in zip(gold, titles, strict=True)
                               if title in found)]:  # fmt: skip
            found = [*found, *more]
        assert sorted(found) == sorted(titles), question


def test_the_recall_of_each_kind_is_told() -> None:
    report = {"each": {"one question": [1, 0, 0.5], "fixed plan": [1, 1, 0]}}
    assert memory_plan.by_kind(report, ["a", "b", "a"]) == {
        "one question": {"a": 0.75, "b": 0.0},
        "fixed plan": {"a": 0.5, "b": 1.0},
    }


def test_the_whole_benchmark_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(memory_plan, "sentence_encoder", lambda name: word_vectors)
    monkeypatch.setattr(memory_plan, "cache_folder", lambda: folder / "cache")
    monkeypatch.setattr(memory_plan, "make_embed", lambda name: word_vectors)
    output, graphs = folder / "out.json", folder / "graphs"
    words = ["--data", str(folder), "--benchmarks", "musique", "--graphs", str(graphs), "--fresh"]
    memory_plan.main([*words, "--output", str(output)])
    printed = capsys.readouterr().out
    assert "| oracle (a ceiling)" in printed
    episodes, facts = json.loads(output.read_text("utf-8"))["reports"]
    for report in (episodes, facts):
        assert report["rows"]["revised by rules"]["recall"]["10"][0] == 1.0
        assert report["rows"]["revised by rules"]["calls"] == 0
        assert report["decomposition"]["same number of steps"] == 1.0
    memory_plan.main([*words[:-1], "--over", "episodes"])  # the kept graph is opened
    assert "revised by rules" in capsys.readouterr().out
