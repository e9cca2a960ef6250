"""The memory graph in ``infer.py chat`` and in training, as a user runs them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from turngraph import infer, train
from turngraph.configs.memory_schema import MemoryGraphConfig
from turngraph.configs.schema import (
    Config,
    EvidenceConfig,
    ModelConfig,
    TrainingConfig,
)
from turngraph.data.jsonlines import write_pool
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.model.checkpoint import save_checkpoint
from turngraph.model.make_model import make_model
from turngraph.tests.runs import command, losses, options
from turngraph.tests.tiny import LORA, stir, tiny_conversation


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, tiny_folder: str) -> str:
    """A checkpoint of a random tiny model whose memory compares by words."""
    config = Config(
        evidence=EvidenceConfig(memory="none", top_k=4),
        memory_graph=MemoryGraphConfig(vectors="words"),
        model=ModelConfig(tiny_folder, lora=LORA, dtype="float32"),
        training=TrainingConfig(max_steps=0),
    )
    folder = tmp_path_factory.mktemp("chat") / "checkpoint"
    save_checkpoint(stir(make_model(config.model)), config, {}, folder)
    return str(folder)


def test_a_later_chat_knows_what_was_said_in_an_earlier_one(
    checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """What is remembered stands beside the passages of a pool."""
    db, pool = tmp_path / "my.db", tmp_path / "pool.jsonl"
    write_pool(pool, tiny_conversation(0).evidence)
    chat = ("chat", "--checkpoint", checkpoint, "--memory", str(db), "--max_new_tokens", "4")
    chat += ("--evidence", str(pool), "--passages", "9")
    monkeypatch.setattr("sys.stdin", io.StringIO("I moved to Lima in 2019. What is Lima like?\n"))
    infer.main(chat)
    assert "[memory" not in capsys.readouterr().out
    second = command("infer.py", *chat, text="Who moved to Lima?\n")
    assert "[memory, " in second
    assert "[kb, " in second
    assert "remembered] user: I moved to Lima in 2019." in " ".join(second.split())
    with MemoryGraph.open(db) as graph:
        assert graph.stats().nodes["episodic"] == 4  # a question and an answer of each chat
        sources = {row[0] for row in graph.store.db.execute("SELECT source FROM episodes")}
        stated = {said.source for fact in graph.history("Lima") for said in fact.provenance}
    assert all(source.startswith("chat 20") for source in sources)
    assert len(sources) in (1, 2)  # one where both chats begin in the same second
    assert len(stated) == 1  # the second chat states nothing


@pytest.mark.slow
def test_training_with_a_memory_graph_and_workers_gives_the_same_losses(
    tiny_data: Path, tiny_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for workers in (0, 2):
        monkeypatch.setenv("TURNGRAPH_CACHE", str(tmp_path / f"cache{workers}"))
        graph = {"memory_graph.vectors": "words", "data.num_workers": workers}
        train.main(options(tiny_folder, tiny_data, tmp_path / f"run{workers}", **graph))
        found.append(losses(tmp_path / f"run{workers}"))
    assert found[0] == found[1]
    train.main(options(tiny_folder, tiny_data, tmp_path / "without"))
    assert losses(tmp_path / "without") != found[0]
