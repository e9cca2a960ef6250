"""Checkpoints that answer from a corpus: as from a pool, beside one, and what does not go."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import turngraph
from turngraph import infer
from turngraph.configs.schema import DataConfig, EvidenceConfig
from turngraph.data.corpus.build import CorpusBuilder
from turngraph.data.corpus.segment_writer import Encoder
from turngraph.data.corpus.source_files import find_sources
from turngraph.data.example_cache import load_examples
from turngraph.data.examples import ExampleBuilder
from turngraph.data.jsonlines import write_conversations, write_pool
from turngraph.data.prompt import Prompt
from turngraph.data.types import Conversation, Evidence
from turngraph.tests.chatting import Screen
from turngraph.tests.data.golden import embed
from turngraph.tests.test_memory_reader import fact, recalled
from turngraph.tests.tiny import tiny_conversation, tiny_tokenizer

CONVERSATION = tiny_conversation(0)
BARE = replace(CONVERSATION, evidence=())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of a conversation's pool."""
    return make(tmp_path_factory.mktemp("corpus"), CONVERSATION.evidence)


def make(folder: Path, pool: tuple[Evidence, ...], encoder: Encoder | None = None) -> Path:
    write_pool(folder / "pool.jsonl", pool)
    CorpusBuilder(folder / "corpus", encoder).build(find_sources([folder / "pool.jsonl"])[0])
    return folder / "corpus"


def ids(record: dict[str, Any]) -> list[str]:
    return [passage["id"].removeprefix("pool.jsonl#") for passage in record["evidence"]]


def test_answers_are_those_from_a_pool(graph_checkpoint: str, folder: Path) -> None:
    alone = turngraph.load(graph_checkpoint, device="cpu")
    of_pool = list(alone.answer([CONVERSATION]))
    qa = turngraph.load(graph_checkpoint, device="cpu", corpus=folder)
    question = CONVERSATION.turns[0].question
    recollection = replace(recalled(fact(1, "Tea is warm.")), question=question)
    assert qa.reader().read(recollection) == alone.reader().read(recollection)
    of_corpus = list(qa.answer([BARE]))
    assert [ids(r) for r in of_corpus] == [ids(r) for r in of_pool]
    assert [r["answer"] for r in of_corpus] == [r["answer"] for r in of_pool]
    screen = Screen(qa.chat(), interactive=True, width=1000)
    screen.chat.greet(0, None)
    first, *_ = screen.file.getvalue().splitlines()
    assert first == f"{len(CONVERSATION.evidence)} passages of {folder}."
    session = qa.chat(["Quito is the capital of Ecuador."])
    session.ask("What is the capital of Ecuador?")
    found = {item.evidence.id for item in session.last().example.evidence}
    assert "text#0" in found
    assert any(id_.startswith("pool.jsonl#") for id_ in found)


def test_the_command_answers_and_goes_on_only_with_the_same_corpus(
    graph_checkpoint: str, folder: Path, tmp_path: Path
) -> None:
    questions, output = tmp_path / "bare.jsonl", tmp_path / "out.jsonl"
    write_conversations(questions, [BARE])
    argv = ["answer", "--checkpoint", graph_checkpoint, "--input", str(questions)]
    argv += ["--output", str(output), "--device", "cpu"]
    infer.main([*argv, "--corpus", str(folder)])
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert all(passage["id"].startswith("pool.jsonl#") for passage in lines[0]["evidence"])
    other = make(tmp_path, tiny_conversation(1).evidence)
    with pytest.raises(ValueError, match="corpus"):
        infer.main([*argv, "--corpus", str(other)])
    with pytest.raises(ValueError, match="all conversations search the same corpus"):
        infer.main([*argv, "--corpus", str(folder), "--evidence_of", "other", "--fresh"])
    with pytest.raises(ValueError, match="nowhere: no such folder"):
        infer.main([*argv, "--corpus", "nowhere"])
    with pytest.raises(ValueError, match="retriever"):  # not that of the answers before
        infer.main([*argv, "--corpus", str(folder), "--retriever", "rrf"])
    with pytest.raises(ValueError, match=r"which rrf needs; .* --retriever bm25"):
        infer.main([*argv, "--corpus", str(folder), "--retriever", "rrf", "--fresh"])


def test_passages_are_retrieved_in_another_way_than_in_training(graph_checkpoint: str) -> None:
    trained, other = (
        list(turngraph.load(graph_checkpoint, device="cpu", retriever=name).answer([CONVERSATION]))
        for name in (None, "dense")
    )
    cosines = [passage["score"] for passage in other[0]["evidence"]]
    assert cosines == sorted(cosines, reverse=True)
    assert max(cosines) <= 1 < max(passage["score"] for passage in trained[0]["evidence"])
    with pytest.raises(ValueError, match="--retriever: 'tfidf' given, must be one of bm25, links"):
        turngraph.load(graph_checkpoint, device="cpu", retriever="tfidf")  # type: ignore[arg-type]


def builder(corpus: Path, **settings: object) -> ExampleBuilder:
    config = EvidenceConfig(corpus=str(corpus), memory="none", top_k=4, **settings)  # type: ignore[arg-type]
    return ExampleBuilder(Prompt(tiny_tokenizer()), config, embed=embed)


def test_cached_examples_hold_its_passages_and_follow_its_changes(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "bare.jsonl"
    write_conversations(path, [BARE])
    built, read = (load_examples(builder(folder), path, None, DataConfig(), 0) for _ in range(2))
    assert "read from" in caplog.text
    assert [one.evidence for one in read] == [one.evidence for one in built]
    assert all(len(one.evidence) == 4 for one in read)
    changed = make(tmp_path, tiny_conversation(1).evidence)
    of_other = load_examples(builder(changed), path, None, DataConfig(), 0)
    assert of_other[0].evidence != built[0].evidence


def test_a_retriever_needs_vectors_of_its_encoder(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no vectors, which rrf needs"):
        assert builder(folder, retriever="rrf").corpus
    other = make(tmp_path, CONVERSATION.evidence, Encoder("another", embed))
    with pytest.raises(ValueError, match=r"vectors by another, but evidence\.embedder is"):
        assert builder(other, retriever="dense").corpus
    fused = builder(other, retriever="rrf", embedder="another")
    examples = fused.conversation(Conversation("c", "", BARE.turns))
    assert all(len(one.evidence) == 4 for one in examples)
    for of_pools in ("links", "eigen"):
        with pytest.raises(ValueError, match=rf"'?{of_pools}'? given, must be bm25, dense or rrf"):
            EvidenceConfig(corpus="x", retriever=of_pools)  # type: ignore[arg-type]
