"""Tests that a model's own Python code never runs, unless its name is trusted."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from turngraph.configs.models import sentence_encoder
from turngraph.configs.schema import Config, ModelConfig, TrainingConfig
from turngraph.inference.load import load_builder
from turngraph.model.base_model import load_base_model

NOTHING = TrainingConfig(max_steps=0)
ALLOWS = "which runs only if model.trust_remote_code"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model folder whose code makes a file; standard input agrees to everything."""
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n" * 9))
    folder = tmp_path / "model"
    folder.mkdir()
    code = f"open({str(tmp_path / 'ran')!r}, 'w').close()\nclass Own:\n    pass\n"
    (folder / "own.py").write_text(code, encoding="utf-8")
    classes = {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own"}
    files = {
        "config.json": {"model_type": "own", "auto_map": classes},
        "tokenizer_config.json": {"auto_map": {"AutoTokenizer": ["own.Own", None]}},
        "modules.json": [{"idx": 0, "name": "0", "path": "", "type": "own.Own"}],
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("part", ["base model", "tokenizer", "sentence encoder"])
def test_code_of_a_model_runs_only_if_trusted(folder: Path, part: str, trusted: bool) -> None:
    """The error names the option that would allow it."""
    name = str(folder)
    names = (name,) if trusted else ()

    def load() -> None:
        if part == "base model":
            load_base_model(name, "float32", trusted=names)
        elif part == "tokenizer":
            load_builder(
                Config(model=ModelConfig(base_model=name), training=NOTHING), trusted=names
            )
        else:
            sentence_encoder(name, trusted=names)(["a text"])

    if trusted:
        with pytest.raises((AttributeError, TypeError, ValueError)):
            load()  # the code runs, but is not a model
    else:
        with pytest.raises(ValueError, match=ALLOWS):
            load()
    assert (folder.parent / "ran").exists() == trusted
