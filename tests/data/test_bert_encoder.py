"""The encoder in NumPy against sentence-transformers, and which encoders it leaves to it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from turngraph.configs.models import resolve_model, sentence_encoder
from turngraph.data.bert_encoder import bert_encoder
from turngraph.data.embedding import few_or_many
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.inference.model_options import make_embed

NAME = "sentence-transformers/all-MiniLM-L6-v2"
TEXTS = (
    "Where does Anna live?",
    "Anna",
    "anna",
    "",
    "   ",
    " Anna\tlives\n in Gdynia. ",
    "Zażółć gęślą jaźń: 12,5 km², naïve café",
    "日本語の文 and שלום \U0001f600",
    "\x00 a NUL",
    "the harbour and the bridge " * 120,  # more than the encoder reads
)


def folder() -> Path:
    return Path(resolve_model(NAME))


def copied(target: Path) -> Path:
    shutil.copytree(folder(), target)
    return target


def rewrite(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_vectors_are_those_of_sentence_transformers() -> None:
    light = bert_encoder(folder())
    assert light is not None
    found = light(TEXTS)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, sentence_encoder(NAME)(TEXTS), atol=1e-5)
    np.testing.assert_allclose(light(TEXTS[::-1]), found[::-1], atol=1e-6)
    assert light([]).shape == (0, 384)


def test_settings_of_the_folder_are_followed(tmp_path: Path) -> None:
    model = copied(tmp_path / "model")
    rewrite(model / "sentence_bert_config.json", max_seq_length=6, do_lower_case=True)
    light = bert_encoder(model)
    assert light is not None
    found = light(TEXTS)
    np.testing.assert_allclose(found, sentence_encoder(str(model))(TEXTS), atol=1e-5)
    whole = bert_encoder(folder())
    assert whole is not None
    assert np.abs(found[-1] - whole(TEXTS)[-1]).max() > 1e-3


@pytest.mark.parametrize(
    ("file", "fields"),
    [
        ("config.json", {"model_type": "mpnet"}),
        ("config.json", {"hidden_act": "relu"}),
        ("config.json", {"position_embedding_type": "relative_key"}),
        ("1_Pooling/config.json", {"pooling_mode_cls_token": True}),
        ("1_Pooling/config.json", {"pooling_mode_mean_tokens": False}),
        ("config_sentence_transformers.json", {"default_prompt_name": "query"}),
    ],
)
def test_another_kind_of_encoder_is_left_to_sentence_transformers(
    tmp_path: Path, file: str, fields: dict[str, Any]
) -> None:
    model = copied(tmp_path / "model")
    rewrite(model / file, **fields)
    assert bert_encoder(model) is None


def test_other_layers_and_other_weights_are_left_to_it_too(tmp_path: Path) -> None:
    model = copied(tmp_path / "model")
    modules = json.loads((model / "modules.json").read_text())
    (model / "modules.json").write_text(json.dumps(modules[:2]))
    assert bert_encoder(model) is None
    modules[0]["type"] = "custom.Transformer"
    (model / "modules.json").write_text(json.dumps(modules))
    assert bert_encoder(model) is None
    shutil.copy(folder() / "modules.json", model)
    weights = load_file(model / "model.safetensors")
    save_file({f"bert.{name}": w for name, w in weights.items()}, model / "model.safetensors")
    assert bert_encoder(model) is None
    half = {name: w.astype(np.float16) for name, w in weights.items()}
    save_file(half, model / "model.safetensors")
    assert bert_encoder(model) is None
    (model / "model.safetensors").unlink()
    assert bert_encoder(model) is None


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    model = copied(tmp_path / "model")
    (model / "modules.json").write_text("{")
    with pytest.raises(ValueError, match=r"modules\.json: not JSON"):
        bert_encoder(model)


def test_many_texts_are_computed_by_the_other_form() -> None:
    asked: list[tuple[str, int]] = []

    def form(name: str) -> Any:
        return lambda texts: (asked.append((name, len(texts))), np.zeros((len(texts), 1)))[1]

    embed = few_or_many(form("few"), form("many"), max_few=2)
    for count in (1, 2, 3):
        assert embed(["a text"] * count).shape == (count, 1)
    assert asked == [("few", 1), ("few", 2), ("many", 3)]


def test_asking_finds_the_same_facts_with_both(tmp_path: Path) -> None:
    found = []
    for number, embed in enumerate((make_embed(NAME), sentence_encoder(NAME))):
        with MemoryGraph.open(tmp_path / f"{number}.db", embed) as graph:
            graph.remember("Anna lives in Gdynia. She works at the port. Ben sells maps in Oslo.")
            graph.remember("The bridge was opened by Piotr in 2019. Anna saw it.")
            found.append(
                [
                    graph.ask(question).facts
                    for question in ("Where does Anna live?", "Who opened the bridge?", "Maps?")
                ]
            )
    for light, heavy in zip(*found, strict=True):
        assert light
        assert [fact.key for fact in light] == [fact.key for fact in heavy]
        np.testing.assert_allclose(
            [fact.score for fact in light], [fact.score for fact in heavy], atol=1e-3
        )


def test_asking_does_not_import_torch(tmp_path: Path) -> None:
    db = tmp_path / "my.db"
    with MemoryGraph.open(db) as graph:
        graph.remember("Anna lives in Gdynia.")
    code = (
        "import sys; from turngraph import memory; "
        f"memory.main(['ask', '--db', {str(db)!r}, '--no_reader', 'Where does Anna live?']); "
        "slow = {'torch', 'transformers', 'sentence_transformers'} & set(sys.modules); "
        "assert not slow, slow"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Anna lives in Gdynia" in done.stdout
