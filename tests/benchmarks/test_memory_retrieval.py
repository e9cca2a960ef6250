"""The benchmark of the memory graph's retrieval: its reading, halves, thresholds and whole run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from turngraph.benchmarks.memory_graph import memory_speed
from turngraph.benchmarks.memory_graph.memory_retrieval import (
    markdown,
    measure,
    no_answer,
    score,
)
from turngraph.benchmarks.memory_graph.retrieval_data import Collection, Question, read
from turngraph.benchmarks.memory_graph.retrievers import Ranking
from turngraph.data.memory_graph.memory_types import Episode, Extraction, Triplet
from turngraph.data.memory_graph.recall.word_vectors import word_vectors

TEXTS = ("Hello Love\nHello Love is a song by Hank Snow.", "Hank Snow\nHank Snow lived in Utah.",
         "Publix\nPublix has 42 shops in Utah.", "Rice\nRice is grown in Italy.")  # fmt: skip
ASKED = {"Who sang Hello Love?": "0", "Where did Hank Snow live?": "1", "Where is Publix?": "2",
         "What is grown in Italy?": "3"}  # fmt: skip
NEVER_SAID = [f"Who likes {stone}?" for stone in "quartz jade onyx opal agate ruby".split()]
QUESTIONS = [Question(text, frozenset(gold)) for text, gold in ASKED.items()] + [
    Question(text, frozenset()) for text in NEVER_SAID
]
GIVEN = Extraction((Triplet("Hank Snow", "sang", "Hello Love"),))


def collection(**extra: object) -> Collection:
    episodes = [Episode(text, origin=str(i), source="s") for i, text in enumerate(TEXTS)]
    return Collection("made up", episodes, QUESTIONS, [GIVEN] * 4, **extra)


def unpacked(folder: Path, musique: bool = True) -> Path:
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
        "musique_100_openie.json": [
            passages[1] | {"extracted_triples": [["D", "is", "e"]], "extracted_entities": ["D"]},
            passages[0]
            | {"extracted_triples": [["A", "is"], ["A", "is", "1 2 3 4 5 6 7 8"]]}
            | {"extracted_entities": [""]},
        ],
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
    long, short = one.given
    # what is no triple of short ends is kept as a thesis
    expected = [("A is", ("A", "is")), ("A is 1 2 3 4 5 6 7 8", ("A",))]
    assert [(thesis.text, thesis.entities) for thesis in long.theses] == expected
    assert (short.triplets, short.entities) == ((Triplet("D", "is", "e"),), ("D",))


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
    report = score({"flat": [flat], "ask_episodes": rankings}, questions, ["flat"], 2, 0)
    rows = report["rows"]
    assert rows["ask_episodes"]["recall"][10] == [0, 0, 0]
    assert rows["ask_episodes"]["gain"] == [-1, -1, -1]
    assert sorted(rows["ask_episodes"]["chosen"]) == [0, 1]
    assert rows["flat"]["recall"][2][0] == 1
    assert report["baseline"] == "flat"


def test_the_threshold_is_found_on_the_other_half() -> None:
    questions = [Question(str(i), frozenset("r" if i % 2 else "")) for i in range(40)]
    half = np.random.default_rng(0).permutation(40) % 2
    # half 0 would be parted at 0.8, half 1 at 0.5: by the other's, nothing of the first is silent
    # and everything of the second
    lower, upper = (0.75, 0.85), (0.3, 0.7)
    closeness = [(upper if half[i] else lower)[i % 2] for i in range(40)]
    found = no_answer(closeness, questions, half)
    share = [half[i::2].mean() for i in (0, 1)]
    assert [found["rightly"], found["wrongly"]] == pytest.approx(share)
    assert found["thresholds"] == [0.31, 0.76]


@pytest.mark.parametrize("filling", ["rules", "given + rules"])
def test_every_row_is_there(tmp_path: Path, filling: str) -> None:
    report = measure("locomo", filling, [collection(dated=TEXTS)], word_vectors, 0)
    table = markdown(report)
    for row in ("BM25", "dense", "RRF, dated", "A*", "BeamSearch + WaterCircles", "ask_episodes",
                "ask_episodes, edges shuffled"):  # fmt: skip
        assert f"| {row} |" in table
    assert report["rows"]["ask_episodes"]["recall"][2][0] == 1
    assert "unanswerable questions" in table


def test_a_graph_is_filled_and_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_speed, "BATCH", 2)
    output = tmp_path / "speed.json"
    memory_speed.main(["--nodes", "100", "--questions", "2", "--output", str(output)])
    [report] = json.loads(output.read_text())["reports"]
    sizes = [row["nodes"] for row in report["filling"]]
    assert sizes == sorted(sizes)
    assert sizes[-1] >= 100
    assert all(row["per_second"] > 0 for row in report["filling"])
    assert {"opening", "asking", "asking after a text"} <= set(report["asking"])
    assert "| asking | " in capsys.readouterr().out
