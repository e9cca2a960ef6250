"""Checkpoints: what is in the folder, what comes back, what is refused."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import peft
import pytest
import torch
from transformers import AutoModelForCausalLM

import turngraph.model.base_model
import turngraph.model.checkpoint
from turngraph.configs.parse import read_config
from turngraph.configs.schema import Config, EncoderConfig, LoraConfig, ModelConfig, TrainingConfig
from turngraph.data.batches.collate import collate
from turngraph.model.base_model import fingerprint, load_base_model
from turngraph.model.checkpoint import (
    CARD,
    check_manifest,
    checkpoint_config,
    commit,
    hashes,
    is_replaceable,
    load_checkpoint,
    read_checkpoint,
    save_checkpoint,
)
from turngraph.model.evidence_model import EvidenceModel
from turngraph.model.make_model import make_model
from turngraph.tests.tiny import END_ID, LORA, save_tiny, stir, tiny_base, tiny_examples

NO_TRAINING = TrainingConfig(max_steps=0)


def run_config(base_model: str, **settings: Any) -> Config:
    defaults: dict[str, Any] = {"dtype": "float32", "lora": LORA}
    return Config(
        model=ModelConfig(base_model=base_model, **defaults | settings), training=NO_TRAINING
    )


def trained(config: Config) -> EvidenceModel:
    """A model whose trainable weights differ from their initial values."""
    return stir(make_model(config.model)).eval()


def logits(model: EvidenceModel) -> torch.Tensor:
    with torch.no_grad():
        return model.logits(collate(tiny_examples(3), "left", with_target=False))


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def saved_once(
    tiny_folder: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[EvidenceModel, Path]:
    config, folder = run_config(tiny_folder), tmp_path_factory.mktemp("saved") / "best"
    lm = trained(config)
    save_checkpoint(lm, config, {"hit_at_1": 0.5}, folder)
    return lm, folder


@pytest.fixture
def saved(saved_once: tuple[EvidenceModel, Path], tmp_path: Path) -> tuple[EvidenceModel, Path]:
    """The model, which no test changes, and a copy of its checkpoint."""
    return saved_once[0], shutil.copytree(saved_once[1], tmp_path / "best")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"encoder": EncoderConfig(num_layers=3, heads=1)},
        {"encoder": EncoderConfig(residual_gate=None)},
        {"evidence": "text"},
        {"lora": None},
        {"lora": None, "evidence": "text"},
        {"dtype": "bfloat16"},
    ],
    ids=["graph", "three_layers", "ungated", "text", "encoder_only", "zero_shot", "bfloat16"],
)
def test_save_load_and_the_logits_are_equal(
    settings: dict[str, Any], tiny_folder: str, tmp_path: Path
) -> None:
    config = run_config(tiny_folder, **settings)
    lm = trained(config)
    save_checkpoint(lm, config, {}, tmp_path / "last")
    again = load_checkpoint(tmp_path / "last")
    assert torch.equal(logits(again), logits(lm))
    assert not again.training
    batch = collate(tiny_examples(2), "left", with_target=False)
    assert torch.equal(again.generate(batch, 4, END_ID).ids, lm.generate(batch, 4, END_ID).ids)
    trainable = {name for name, p in again.named_parameters() if p.requires_grad}
    assert trainable == {name for name, p in lm.named_parameters() if p.requires_grad}


def test_the_folder_holds_what_the_design_says(saved_once: tuple[EvidenceModel, Path]) -> None:
    _, folder = saved_once
    assert files(folder) == {
        "config.yaml",
        "manifest.json",
        "metrics.json",
        "graph_encoder.safetensors",
        "adapter/adapter_config.json",
        "adapter/adapter_model.safetensors",
    }
    assert (folder / "metrics.json").read_text() == '{\n "hit_at_1": 0.5\n}'
    assert (folder / "manifest.json").read_text().startswith('{\n "format": 4,\n "base_model": ')
    assert [path.name for path in folder.parent.iterdir()] == ["best"]  # nothing left beside it
    pickled = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK\x03\x04")
    for name in files(folder):
        assert not (folder / name).read_bytes().startswith(pickled)


def test_parts_that_a_row_has_not_got_are_not_there(tiny_folder: str, tmp_path: Path) -> None:
    config = run_config(tiny_folder, lora=None, evidence="text")
    save_checkpoint(make_model(config.model), config, {}, tmp_path / "zero")
    assert files(tmp_path / "zero") == {"config.yaml", "manifest.json", "metrics.json"}
    config = run_config(tiny_folder, evidence="text")
    save_checkpoint(make_model(config.model), config, {}, tmp_path / "text")
    assert "graph_encoder.safetensors" not in files(tmp_path / "text")


def test_the_manifest_says_what_the_checkpoint_came_from(saved: tuple[EvidenceModel, Path]) -> None:
    lm, folder = saved
    manifest = check_manifest(folder)
    assert set(manifest["files"]) == files(folder) - {"manifest.json"}
    assert manifest["base_model_fingerprint"] == fingerprint(lm.lm)
    assert manifest["commit"] == commit()
    assert manifest["versions"]["torch"] == torch.__version__
    assert {"transformers", "peft", "torch-geometric"} <= set(manifest["versions"])


def test_the_config_comes_back_whole(saved: tuple[EvidenceModel, Path]) -> None:
    lm, folder = saved
    config = read_config(folder / "config.yaml")
    assert config == replace(Config(training=NO_TRAINING), model=lm.config)
    assert checkpoint_config(folder) == checkpoint_config(str(folder)) == config


def test_plain_peft_loads_the_adapter(saved: tuple[EvidenceModel, Path], tiny_folder: str) -> None:
    lm, folder = saved
    base = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32)
    theirs = peft.PeftModel.from_pretrained(base, folder / "adapter").eval()
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        assert torch.allclose(theirs(input_ids=ids).logits, lm.lm(input_ids=ids).logits, atol=1e-6)
        assert not torch.allclose(
            theirs(input_ids=ids).logits, tiny_base()(input_ids=ids).logits, atol=1e-2
        )


def test_a_hub_name_stays_a_name(
    tiny_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder that a name led to on this machine means nothing on another."""
    monkeypatch.setattr(turngraph.model.base_model, "resolve_model", lambda name: tiny_folder)
    config = run_config("someone/tiny-lm")
    save_checkpoint(trained(config), config, {}, tmp_path / "best")
    adapter = json.loads((tmp_path / "best/adapter/adapter_config.json").read_text())
    assert adapter["base_model_name_or_path"] == "someone/tiny-lm"
    for name in files(tmp_path / "best"):
        content = (tmp_path / "best" / name).read_bytes()
        assert tiny_folder.encode() not in content
        assert str(Path.home()).encode() + b"/" not in content


def test_the_base_model_may_have_moved(saved: tuple[EvidenceModel, Path], tmp_path: Path) -> None:
    lm, folder = saved
    elsewhere = save_tiny(tmp_path / "elsewhere")
    again = load_checkpoint(folder, base_model=elsewhere)
    assert again.config.base_model == elsewhere
    assert torch.equal(logits(again), logits(lm))


@pytest.mark.parametrize(
    "name",
    ["graph_encoder.safetensors", "adapter/adapter_model.safetensors", "config.yaml",
     "metrics.json", "adapter/adapter_config.json"],
)  # fmt: skip
@pytest.mark.parametrize("harm", ["truncated", "changed", "missing"])
def test_a_harmed_file_is_refused_by_name(
    name: str, harm: str, saved: tuple[EvidenceModel, Path]
) -> None:
    path = saved[1] / name
    content = path.read_bytes()
    if harm == "truncated":
        path.write_bytes(content[:-100])
    elif harm == "changed":
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    else:
        path.unlink()
    with pytest.raises(ValueError, match=rf"best/{name}: (missing|changed .*SHA-256)"):
        load_checkpoint(saved[1])


def test_another_format_is_refused(saved: tuple[EvidenceModel, Path]) -> None:
    path = saved[1] / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    with pytest.raises(ValueError, match="format: 99"):
        load_checkpoint(saved[1])


@pytest.mark.parametrize("there", [True, False])
def test_what_is_no_checkpoint_is_refused(there: bool, tmp_path: Path) -> None:
    folder = tmp_path / "nothing"
    if there:
        folder.mkdir()
    reason = "not a checkpoint" if there else "no such folder"
    with pytest.raises(ValueError, match=f"nothing: {reason}"):
        load_checkpoint(folder)


def test_the_folder_of_a_run_names_the_checkpoint_in_it(
    saved: tuple[EvidenceModel, Path], tmp_path: Path
) -> None:
    shutil.copytree(saved[1], tmp_path / "run" / "best")
    with pytest.raises(ValueError, match=r"did you mean .*best\?"):
        load_checkpoint(tmp_path / "run")


def test_the_fingerprint_is_that_of_the_weights(tiny_folder: str, tmp_path: Path) -> None:
    base = tiny_base()
    expected = fingerprint(base)
    elsewhere = save_tiny(tmp_path / "elsewhere")
    assert fingerprint(load_base_model(elsewhere, "float32")) == expected
    assert fingerprint(load_base_model(tiny_folder, "bfloat16")) == expected
    base.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    assert fingerprint(load_base_model(str(tmp_path / "shards"), "float32")) == expected
    half = tiny_base().bfloat16()
    half.save_pretrained(tmp_path / "half")
    for dtype in ("bfloat16", "float32"):
        assert fingerprint(load_base_model(str(tmp_path / "half"), dtype)) == expected


def test_the_fingerprint_leaves_adapters_out(tiny_folder: str) -> None:
    expected = fingerprint(tiny_base())
    layers = ("q_proj", "k_proj", "up_proj", "down_proj")
    config = ModelConfig(tiny_folder, lora=LoraConfig(r=4, target_modules=layers), dtype="float32")
    assert fingerprint(stir(make_model(config)).lm) == expected


@pytest.mark.parametrize(
    ("name", "from_"),
    [
        ("model.embed_tokens.weight", 0),
        ("model.layers.1.mlp.up_proj.weight", 0),
        ("model.norm.weight", 1),
    ],
)
def test_the_fingerprint_sees_a_change_in_any_layer(name: str, from_: int) -> None:
    base = tiny_base()
    before = fingerprint(base)
    with torch.no_grad():
        dict(base.named_parameters())[name].view(-1)[from_::2].mul_(1.05)
    assert fingerprint(base) != before


def test_the_fingerprint_stays_what_earlier_checkpoints_have() -> None:
    base = tiny_base()
    with torch.no_grad():
        for index, (_, weight) in enumerate(sorted(base.named_parameters())):
            weight.copy_(torch.arange(index, index + weight.numel()).view(weight.shape) % 101)
    assert [part[:12] for part in fingerprint(base).split("/")] == ["7661a4e0b48c", "575ee0582596"]


SOURCE = str(Path(turngraph.model.checkpoint.__file__).resolve().parents[1])
GIT: dict[str, tuple[list[tuple[int, str]], str | None]] = {
    "a checkout": ([(0, SOURCE), (0, "model/checkpoint.py"), (0, "0123abcd+")], "0123abcd+"),
    "no repository": ([(128, "")], None),
    "in another repository": ([(0, str(Path(SOURCE).parent))], None),
    "not of the repository": ([(0, SOURCE), (1, "")], None),
    "no commit yet": ([(0, SOURCE), (0, "model/checkpoint.py"), (128, "")], None),
    "no git": ([], None),
}
"""Where the code lies, exit status and output of each of git's commands there; the commit."""


@pytest.mark.parametrize("place", GIT)
def test_the_commit_is_that_of_a_checkout_of_turngraph(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, expected = GIT[place]
    replies = [SimpleNamespace(returncode=code, stdout=f"{said}\n") for code, said in answers]
    run = MagicMock(side_effect=replies or FileNotFoundError("git"))
    monkeypatch.setattr(turngraph.model.checkpoint, "subprocess", SimpleNamespace(run=run))
    assert commit.__wrapped__() == expected
    assert run.call_count == max(len(answers), 1)


def fail_to_hash(path: Path) -> str:
    raise OSError(28, "No space left on device")


def test_a_save_that_fails_leaves_the_checkpoint_before(
    saved: tuple[EvidenceModel, Path], tiny_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm, folder = stir(trained(run_config(tiny_folder)), seed=1), saved[1]
    before = {name: (folder / name).read_bytes() for name in files(folder)}
    monkeypatch.setattr(turngraph.model.checkpoint, "file_hash", fail_to_hash)
    with pytest.raises(ValueError, match="No space left"):
        save_checkpoint(lm, run_config(lm.config.base_model), {}, folder)
    assert {name: (folder / name).read_bytes() for name in files(folder)} == before
    assert [path.name for path in folder.parent.iterdir()] == ["best"]


def test_a_rename_that_fails_leaves_the_checkpoint_before(
    saved: tuple[EvidenceModel, Path], tiny_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm, folder = stir(trained(run_config(tiny_folder)), seed=1), saved[1]
    expected, rename = logits(saved[0]), turngraph.model.checkpoint.os.rename

    def refuse(source: Any, target: Any) -> None:
        if Path(target) == folder and not str(source).endswith("-old"):
            raise OSError(13, "Permission denied")
        rename(source, target)

    monkeypatch.setattr(turngraph.model.checkpoint.os, "rename", refuse)
    with pytest.raises(ValueError, match="Permission denied"):
        save_checkpoint(lm, run_config(lm.config.base_model), {}, folder)
    assert torch.equal(logits(load_checkpoint(folder)), expected)


def test_a_second_save_replaces_the_first_whole(
    saved: tuple[EvidenceModel, Path], tiny_folder: str
) -> None:
    _, folder = saved
    (folder.parent / ".best-old" / "of a save that was killed").mkdir(parents=True)
    config = run_config(tiny_folder, evidence="text")
    lm = trained(config)
    save_checkpoint(lm, config, {"step": 2}, folder)
    assert "graph_encoder.safetensors" not in files(folder)
    assert torch.equal(logits(load_checkpoint(folder)), logits(lm))
    assert [path.name for path in folder.parent.iterdir()] == ["best"]


def test_only_checkpoints_and_what_is_empty_may_be_replaced(
    saved: tuple[EvidenceModel, Path], tmp_path: Path
) -> None:
    lm, folder = saved
    for name in ("empty", "full"):
        (tmp_path / name).mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "loose").symlink_to(tmp_path / "free")
    deep = tmp_path / "new" / "folders" / "deep"
    for path in (folder, tmp_path / "free", tmp_path / "empty", deep):
        assert is_replaceable(path)
        save_checkpoint(lm, run_config(lm.config.base_model), {}, path)
        check_manifest(path)
    before = files(tmp_path)
    for path in (tmp_path / name for name in ("full", "full/file", "link", "loose")):
        assert not is_replaceable(path)
        with pytest.raises(ValueError, match="not a checkpoint, so it is not replaced"):
            save_checkpoint(lm, run_config(lm.config.base_model), {}, path)
    assert files(tmp_path) == before


def test_a_checkpoint_is_known_by_its_files_and_its_base_model(
    saved: tuple[EvidenceModel, Path], tmp_path: Path
) -> None:
    found = read_checkpoint(saved[1])
    moved = read_checkpoint(shutil.move(saved[1], tmp_path / "moved"))
    assert moved.hash == found.hash
    (moved.folder / CARD).write_text("What I trained.")
    assert check_manifest(moved.folder)["files"] == hashes(moved.folder)
    for change in ({"base_model_fingerprint": "other"}, {"files": {}}):
        assert replace(moved, manifest=moved.manifest | change).hash != found.hash


def test_all_of_a_checkpoint_is_on_the_disk_before_it_gets_its_name(
    tiny_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, config = set[str](), run_config(tiny_folder)
    real_sync, real_open, opened = os.fsync, os.open, dict[int, str]()

    def note(path: Any, *given: Any, **named: Any) -> int:
        descriptor = real_open(path, *given, **named)
        opened[descriptor] = str(path)
        return descriptor

    def sync(descriptor: int) -> None:
        synced.add(Path(opened.get(descriptor, "")).name)
        real_sync(descriptor)

    monkeypatch.setattr(os, "open", note)
    monkeypatch.setattr(os, "fsync", sync)
    model, num_open = trained(config), len(os.listdir("/proc/self/fd"))
    save_checkpoint(model, config, {}, tmp_path / "best")
    assert len(os.listdir("/proc/self/fd")) == num_open
    assert (tmp_path / "best").stat().st_mode & 0o777 == 0o755
    assert synced >= {path.name for path in (tmp_path / "best").rglob("*")}
    assert any(name.startswith(".best-") for name in synced), "the folder's own entries"
