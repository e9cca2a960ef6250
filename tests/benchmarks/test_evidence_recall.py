"""The recall of retrievers and of evidence memories, on small pools."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from turngraph.benchmarks.quality import evidence_recall
from turngraph.benchmarks.quality.evidence_recall import ask_turns
from turngraph.benchmarks.quality.memory_recall import ROWS, MemoryRow, Remembered, remember
from turngraph.benchmarks.quality.pool_rankings import PoolRankings, kept_vectors
from turngraph.configs.schema import EvidenceConfig
from turngraph.data.examples import ExampleBuilder
from turngraph.data.jsonlines import write_conversations
from turngraph.data.normalise import words
from turngraph.data.prompt import Prompt
from turngraph.data.retrieval.bm25 import EvidenceIndex
from turngraph.data.retrieval.dense import FusedIndex
from turngraph.data.retrieval.links import LinkedIndex
from turngraph.data.types import Answer, Conversation, Evidence, Turn
from turngraph.tests.tiny import tiny_conversation, tiny_tokenizer

ROW = {row.name: row for row in ROWS}


def embed(texts: Sequence[str]) -> np.ndarray:
    """Embed texts by their hashed words, as unit vectors."""
    vectors = np.full((len(texts), 64), 1e-3)
    for vector, text in zip(vectors, texts, strict=True):
        for word in words(text):
            vector[hashlib.sha256(word.encode()).digest()[0] % 64] += 1
    unit: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def builder_of(**evidence: object) -> ExampleBuilder:
    """An example builder of the tiny tokenizer."""
    config = EvidenceConfig(**evidence)  # type: ignore[arg-type]
    return ExampleBuilder(Prompt(tiny_tokenizer()), config, embed)


def rankings_of(top_k: int = 5, max_nodes: int = 60) -> PoolRankings:
    """Rankings within a budget of tokens."""
    return PoolRankings(embed, builder_of(max_nodes=max_nodes), top_k, max_nodes)


def test_stems_join_the_forms_of_a_word() -> None:
    pool = (
        Evidence("0", "Who knows who likes it?", "text"),
        Evidence("1", "There they die.", "text"),
    )
    rankings = rankings_of()
    assert rankings.order("bm25", pool, "who is dying").tolist() == [0, 1]
    assert rankings.order("bm25_stem", pool, [("dying", 1.0)]).tolist() == [1, 0]


def test_the_orders_are_those_of_the_product() -> None:
    pool = tiny_conversation(1).evidence
    rankings = rankings_of()
    for q_t in ("City of N'Djamena", [("pay in Chad", 0.5), ("How many people?", 1.0)]):
        for name, index in (
            ("bm25", EvidenceIndex(pool)),
            ("links", LinkedIndex(pool)),
            ("rrf", FusedIndex(pool, embed)),
        ):
            expected = [item.evidence.id for item in index.rank(q_t, len(pool))]
            assert [pool[i].id for i in rankings.order(name, pool, q_t)] == expected


@pytest.mark.parametrize("weight", [1.0, 0.4])
@pytest.mark.parametrize("mode", ["none", "rerank"])
def test_prompts_and_memories_are_those_of_the_product(mode: str, weight: float) -> None:
    conversation = tiny_conversation(2)
    examples = builder_of(memory=mode, max_nodes=60, top_k=5, history_weight=weight).conversation(
        conversation
    )
    row = MemoryRow("third", share=1 / 3 if mode == "rerank" else 0.0)
    asked = ask_turns(conversation, 2, weight, 128)
    found = remember(row, asked, {0, 1, 2}, rankings_of())
    expected = [bool(example.answer_sources) for example in examples]
    assert [bool(one.values[0]) for one in found] == expected


def two_turns() -> list[Remembered]:
    """What memories make of a second question whose answer only the first turn retrieved."""
    pool = (
        Evidence("0", "alpha beta delta Oslo", "text"),
        Evidence("1", "alpha beta gamma Rome", "text"),
        Evidence("2", "delta epsilon one", "text"),
        Evidence("3", "delta epsilon two", "text"),
    )
    turns = (
        Turn("0", "alpha beta", (Answer("Rome"),)),
        Turn("1", "delta epsilon", (Answer("Oslo"),)),
    )
    asked = ask_turns(Conversation("d", "", turns, pool), 1, 0.0, 128)
    rankings = rankings_of(top_k=2, max_nodes=200)
    rows = ("none", "rerank", "rerank, of answers", "random")
    return [
        remember(
            MemoryRow(n, ROW[n].order, share=ROW[n].share * 1.5, remembers=ROW[n].remembers),
            asked,
            {1},
            rankings,
        )[0]
        for n in rows
    ]


def test_what_a_memory_brings_and_displaces_is_counted() -> None:
    none, rerank, answers, random = two_turns()
    assert none.values.tolist() == [0, 1, 0, 0, 0, 0, 0, 0]  # M_t holds it, whose share is 0
    # one passage of E_t gives way to "alpha beta delta Oslo", which M_t and then the prompt hold
    assert rerank.values.tolist() == [1, 1, 1, 1, 0, 1, 0, 0]
    # the first turn's own answer is all that is remembered, and it is not this turn's
    assert answers.values.tolist() == [0, 0, 1, 0, 1, 1, 0, 0]
    assert 0 < random.values[0] <= 1
    assert random.values[2] == 1


def test_the_command_prints_every_table_and_keeps_vectors(
    tiny_folder: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, vectors, hits = (tmp_path / name for name in ("tune.jsonl", "kept/v.npz", "hits.csv"))
    write_conversations(path, [tiny_conversation(number) for number in range(3)])
    rows = ["text", "text_memory", "graph", "graph_memory"]
    rows += ["text_random_memory", "graph_random_memory"]
    lines = [",".join(["conversation", "turn", *(f"{row}/0" for row in rows)])]
    lines += [f"c{c},{t}{',1' * len(rows)}" for c in range(3) for t in range(3)]
    hits.write_text("\n".join(lines) + "\n")
    computed: list[str] = []

    def counted(texts: Sequence[str]) -> np.ndarray:
        computed.extend(texts)
        return embed(texts)

    monkeypatch.setattr(evidence_recall, "sentence_encoder", lambda *_: counted)
    argv = ["--input", str(path), "--base_model", tiny_folder, "--vectors", str(vectors)]
    argv += ["--depths", "1", "2", "--top_k", "5", "--max_nodes", "60"]
    argv += ["--history_weights", "1", "0.4", "--retrievers", "bm25", "dense", "rrf_stem"]
    argv += ["--memory", "bm25", "--hits", str(hits)]
    evidence_recall.main(argv)
    printed = capsys.readouterr().out
    first, heads, _, *lines = printed.splitlines()
    assert first.startswith("9 single-answer questions")
    assert heads.startswith("| retriever | history_weight | top 1 | top 2 | all | prompt |")
    assert [line.split(" | ")[:2] for line in lines[:2]] == [["| bm25", "1"], ["| dense", "1"]]
    for line in lines[:6]:
        shares = [float(cell) for cell in line.split(" | ")[2:5]]
        assert shares == sorted(shares)
        assert shares[-1] == 100.0
    for row in ROWS:
        assert printed.count(f"| {row.name} | ") == (4 if row.name == "none" else 6)
    assert "The evidence memory, E_t by bm25 with history_weight 0.4:" in printed
    assert "turn 3, 3 questions" in printed
    assert "| text_memory / text, 1 seed | the same passages | " in printed
    assert len(computed) == len(set(computed)) > 0
    computed.clear()
    evidence_recall.main(argv)
    assert not computed
    assert capsys.readouterr().out == printed


def test_vectors_without_a_file_are_computed_once() -> None:
    computed: list[str] = []

    def counted(texts: Sequence[str]) -> np.ndarray:
        computed.extend(texts)
        return embed(texts)

    encoder = kept_vectors(counted, None)
    assert np.array_equal(encoder.embed(["a b", "c"])[1], encoder.embed(["c", "a b"])[0])
    encoder.save()
    assert computed == ["a b", "c"]
