"""The benchmark of the memory graph's retrieval: its reading, halves and whole run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from turngraph.benchmarks.memory_graph.memory_retrieval import measure, score
from turngraph.benchmarks.memory_graph.retrieval_data import Collection, Question, read
from turngraph.benchmarks.memory_graph.retrievers import Ranking
from turngraph.data.memory_graph.memory_types import Episode
from turngraph.data.memory_graph.recall.word_vectors import word_vectors

TEXTS = ("Hello Love\nHello Love is a song by Hank Snow.", "Hank Snow\nHank Snow lived in Utah.",
         "Publix\nPublix has 42 shops in Utah.", "Rice\nRice is grown in Italy.")  # fmt: skip
ASKED = {"Who sang Hello Love?": "0", "Where did Hank Snow live?": "1", "Where is Publix?": "2",
         "What is grown in Italy?": "3"}  # fmt: skip
NEVER_SAID = [f"Who likes {stone}?" for stone in "quartz jade onyx opal agate ruby".split()]
QUESTIONS = [Question(text, frozenset(gold)) for text, gold in ASKED.items()] + [
    Question(text, frozenset()) for text in NEVER_SAID
]


def collection(**extra: object) -> Collection:
    episodes = [Episode(text, origin=str(i), source="s") for i, text in enumerate(TEXTS)]
    return Collection("made up", episodes, QUESTIONS, **extra)


def unpacked(folder: Path) -> Path:
    """Files of MuSiQue and LoCoMo in their formats, with a passage or two, in a folder of it."""
    folder = folder / "all" / "files"
    folder.mkdir(parents=True)
    passages = [{"title": "A", "text": "b c"}, {"title": "D", "text": "e"}]
    support = [
        {"title": p["title"], "paragraph_text": p["text"], "is_supporting": p["title"] == "D"}
        for p in passages
    ]
    files = {
        "musique_100.json": [{"question": "e?", "paragraphs": support}],
        "musique_100_corpus.json": passages,
    }
    turns = [
        {"speaker": "Ann", "dia_id": f"D1:{i}", "text": f"t{i}", "blip_caption": caption}
        for i, caption in ((1, ""), (2, "a cat"))
    ]
    asked = [("q1", ["D1:2; D9:9"], 1), ("q2", ["D1:1"], 5), ("q3", [], 2)]
    qa = [{"question": q, "evidence": e, "category": c} for q, e, c in asked]
    session = {"session_1": turns, "session_1_date_time": "1:56 pm on 8 May, 2023"}
    files["locomo_3.json"] = [{"sample_id": "c1", "qa": qa, "conversation": session}]
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return folder


def test_musique_is_read(tmp_path: Path) -> None:
    [one] = read("musique", unpacked(tmp_path).parent)
    assert [(e.text, e.origin) for e in one.episodes] == [("A\nb c", "0"), ("D\ne", "1")]
    assert one.questions == [Question("e?", frozenset("1"))]


def test_locomo_is_read(tmp_path: Path) -> None:
    [one] = read("locomo", unpacked(tmp_path))
    assert [e.text for e in one.episodes] == ["Ann: t1", "Ann: t2 [shares a cat]"]
    assert {(e.time, e.source) for e in one.episodes} == {("2023-05-08T13:56", "c1, session 1")}
    assert one.dated[0] == "1:56 pm on 8 May, 2023 Ann: t1"
    # a question without evidence says nothing, one of category 5 should find nothing
    assert one.questions == [Question("q1", frozenset("1")), Question("q2", frozenset())]


def test_missing_data_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no hotpotqa_500"):
        read("hotpotqa", tmp_path)


def test_settings_are_found_on_the_other_half() -> None:
    questions = [Question(str(i), frozenset("r")) for i in range(40)]
    half = np.random.default_rng(0).permutation(40) % 2
    # the first setting is right on half 0 only, the second on half 1 only: each half's best is
    # wrong on the other
    rankings = [Ranking([["r"] if half[i] == h else [] for i in range(40)], [1.0] * 40)
                for h in (0, 1)]  # fmt: skip
    flat = Ranking([["r"] if i < 10 else ["x", "r"] for i in range(40)], [2.0] * 40)
    rows, base = score({"flat": [flat], "ask_episodes": rankings}, questions, ["flat"], 2, 0)
    assert rows["ask_episodes"].recall[2] == (0, 0, 0)
    assert rows["ask_episodes"].gain == (-1, -1, -1)
    assert sorted(rows["ask_episodes"].chosen) == [0, 1]
    assert rows["flat"].recall[0].mean == 1
    assert base == "flat"


def test_every_row_is_there() -> None:
    table = measure("locomo", [collection(dated=TEXTS)], word_vectors, 0)
    assert "### locomo, 4 questions" in table
    for row in ("BM25", "dense", "RRF, dated", "ask_episodes, default settings", "ask_episodes",
                "ask_episodes, edges shuffled"):  # fmt: skip
        assert f"| {row} |" in table
    assert "| ask_episodes | 1.000 [1.000, 1.000] |" in table
