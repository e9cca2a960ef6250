"""The recall of retrievers, on small pools."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from turngraph.benchmarks import embedding_cache
from turngraph.benchmarks.quality import evidence_recall
from turngraph.benchmarks.quality.evidence_recall import config_of, hits_of
from turngraph.data.examples import ExampleBuilder
from turngraph.data.jsonlines import write_conversations
from turngraph.data.prompt import Prompt
from turngraph.tests.data.eigen.planted import by_words
from turngraph.tests.tiny import tiny_conversation, tiny_tokenizer


@pytest.mark.parametrize("weight", [1.0, 0.4])
@pytest.mark.parametrize("name", ["bm25", "rrf"])
def test_prompts_are_those_of_the_product(name: str, weight: float) -> None:
    conversation, args = tiny_conversation(2), Namespace(max_nodes=60)
    prompt = Prompt(tiny_tokenizer())
    product, deeper = (
        ExampleBuilder(prompt, config_of(name, weight, top_k, args), by_words) for top_k in (5, 8)
    )
    found = [hits_of(deeper, conversation, turn, [1], 5)[-1] for turn in range(3)]
    examples = product.conversation(conversation)
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
        return by_words(texts)

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
