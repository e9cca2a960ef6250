"""The recall of retrievers, on small pools."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from turngraph.benchmarks import embedding_cache
from turngraph.benchmarks.quality import evidence_recall
from turngraph.benchmarks.quality.evidence_recall import ask_turn, hits_of
from turngraph.benchmarks.quality.pool_rankings import PoolRankings
from turngraph.configs.schema import EvidenceConfig
from turngraph.data.examples import ExampleBuilder
from turngraph.data.jsonlines import write_conversations
from turngraph.data.normalise import words
from turngraph.data.prompt import Prompt
from turngraph.data.retrieval.bm25 import EvidenceIndex
from turngraph.data.retrieval.dense import FusedIndex
from turngraph.data.retrieval.links import LinkedIndex
from turngraph.data.types import Evidence
from turngraph.tests.tiny import tiny_conversation, tiny_tokenizer


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
def test_prompts_are_those_of_the_product(weight: float) -> None:
    conversation = tiny_conversation(2)
    examples = builder_of(memory="none", max_nodes=60, top_k=5, history_weight=weight).conversation(
        conversation
    )
    asked = [ask_turn(conversation, turn, weight) for turn in range(3)]
    found = [hits_of(rankings_of(), one, "bm25", [1])[-1] for one in asked]
    assert found == [float(bool(example.answer_sources)) for example in examples]


def test_the_command_prints_every_table_and_keeps_vectors(
    tiny_folder: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "tune.jsonl"
    write_conversations(path, [tiny_conversation(number) for number in range(3)])
    computed: list[str] = []

    def counted(texts: Sequence[str]) -> np.ndarray:
        computed.extend(texts)
        return embed(texts)

    monkeypatch.setenv("TURNGRAPH_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(embedding_cache, "sentence_encoder", lambda *_: counted)
    argv = ["--input", str(path), "--base_model", tiny_folder]
    argv += ["--depths", "1", "2", "--top_k", "5", "--max_nodes", "60"]
    argv += ["--history_weights", "1", "0.4", "--retrievers", "bm25", "dense", "rrf_stem"]
    evidence_recall.main(argv)
    printed = capsys.readouterr().out
    first, heads, _, *lines = printed.splitlines()
    assert first.startswith("9 single-answer questions")
    assert heads.startswith("| retriever | history_weight | top 1 | top 2 | all | prompt |")
    assert [line.split(" | ")[:2] for line in lines[:2]] == [["| bm25", "1"], ["| dense", "1"]]
    for line in lines:
        shares = [float(cell) for cell in line.split(" | ")[2:5]]
        assert shares == sorted(shares)
        assert shares[-1] == 100.0
    assert len(computed) == len(set(computed)) > 0
    computed.clear()
    evidence_recall.main(argv)
    assert not computed
    assert capsys.readouterr().out == printed
