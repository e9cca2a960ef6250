"""Forged checkpoint folders, whose manifest matches: each is refused in one line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from turngraph.configs.schema import Config, ModelConfig, TrainingConfig
from turngraph.model import evidence_model
from turngraph.model.checkpoint import hashes, load_checkpoint, read_checkpoint, save_checkpoint
from turngraph.model.make_model import make_model
from turngraph.model.tensor_files import read_tensors
from turngraph.tests.tiny import LORA
from turngraph.training.trainer_state import load_optimizer, load_random, read_progress

ENCODER, ADAPTER = "graph_encoder.safetensors", "adapter/adapter_model.safetensors"
WEIGHT = "layers.0.lin_l.weight"
Forge = Callable[[Path], None]


def rehash(folder: Path) -> None:
    """Make the manifest match the files."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text()) | {"files": hashes(folder)}
    path.write_text(json.dumps(manifest))


@pytest.fixture(scope="module")
def untrained(tiny_folder: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained checkpoint of a random tiny model."""
    config = Config(
        model=ModelConfig(base_model=tiny_folder, dtype="float32", lora=LORA),
        training=TrainingConfig(max_steps=0),
    )
    folder = tmp_path_factory.mktemp("untrained") / "best"
    save_checkpoint(make_model(config.model), config, {}, folder)
    return folder


@pytest.fixture
def folder(untrained: Path, tmp_path: Path) -> Path:
    """A copy of it to forge."""
    return shutil.copytree(untrained, tmp_path / "best")


def tensor(file: str, change: Callable[[torch.Tensor], Any], name: str | None = None) -> Forge:
    """Change a tensor of a file; None removes it."""

    def forge(folder: Path) -> None:
        state = load_file(folder / file)
        key = name or sorted(state)[0]
        changed = change(state.pop(key))
        save_file(state if changed is None else state | {key: changed.contiguous()}, folder / file)

    return forge


def option(name: str, value: Any) -> Forge:
    """Change a field of config.yaml."""

    def forge(folder: Path) -> None:
        config = yaml.safe_load((folder / "config.yaml").read_text())
        *sections, last = name.split(".")
        section = config
        for part in sections:
            section = section[part]
        section[last] = value
        (folder / "config.yaml").write_text(yaml.safe_dump(config))

    return forge


def content(file: str, data: bytes | Callable[[bytes], bytes]) -> Forge:
    """Change the bytes of a file."""

    def forge(folder: Path) -> None:
        path = folder / file
        path.write_bytes(data if isinstance(data, bytes) else data(path.read_bytes()))

    return forge


def not_finite(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda t: torch.cat([t.flatten()[:-1], torch.tensor([value])]).view(t.shape)


HARMED_TENSORS: dict[str, Callable[[torch.Tensor], Any]] = {
    "nan": not_finite(float("nan")),
    "infinite_not_finite": not_finite(float("inf")),
    "bool": lambda t: t.bool(),
    "bfloat16": lambda t: t.bfloat16(),
    "scalar": lambda t: t.sum(),
    "transposed": lambda t: t.T,
    "empty": lambda t: t[:0],
    "missing": lambda t: None,
}
HARMED_CONTENT: dict[str, bytes | Callable[[bytes], bytes]] = {
    "no_bytes": b"",
    "header_too_long": lambda data: b"\xff" * 8 + data[8:],
    "header_of_huge_tensor": (60).to_bytes(8, "little")
    + b'{"a":{"dtype":"F32","shape":[9999999999],"data_offsets":[0,4]}}'[:60],
    "truncated": lambda data: data[:-8],
    "longer": lambda data: data + b"12345678",
    "pickle": b"\x80\x04K\x01.",
}
DEEP = b"[" * 100_000
FORGED: dict[str, Forge] = {
    **{f"encoder_{n}": tensor(ENCODER, change, WEIGHT) for n, change in HARMED_TENSORS.items()},
    **{f"adapter_{n}": tensor(ADAPTER, HARMED_TENSORS[n]) for n in ("nan", "transposed")},
    **{f"encoder_{n}": content(ENCODER, data) for n, data in HARMED_CONTENT.items()},
    **{f"adapter_{n}": content(ADAPTER, data) for n, data in HARMED_CONTENT.items()},
    "gate_not_finite": tensor(ENCODER, not_finite(float("nan")), "residual_gates"),
    "gate_scalar": tensor(ENCODER, lambda t: t[0], "residual_gates"),
    "heads": option("model.encoder.heads", 3),
    "heads_for_16_gb": option("model.encoder.heads", 2_000_000),
    "heads_beyond_64_bits": option("model.encoder.heads", 10**30),
    "many_layers": option("model.encoder.num_layers", 10**12),
    "other_layers": option("model.encoder.num_layers", 3),
    "another_convolution": option("model.encoder.conv", "TransformerConv"),
    "no_such_convolution": option("model.encoder.conv", "MessagePassing"),
    "gate_beyond_floats": option("model.encoder.residual_gate", 10**400),
    "no_gate": option("model.encoder.residual_gate", None),
    "rank": option("model.lora.r", 10**6),
    "rank_beyond_64_bits": option("model.lora.r", 10**30),
    "alpha_beyond_floats": option("model.lora.lora_alpha", 10**400),
    "other_layer_adapted": option("model.lora.target_modules", ["o_proj"]),
    "layer_adapted_by_empty_name": option("model.lora.target_modules", [""]),
    "base_of_another_kind": option("model.base_model", ["a"]),
    "base_nowhere": option("model.base_model", "./nowhere"),
    "base_with_nul": option("model.base_model", "a\0b"),
    "unknown_field": option("model.unknown", 1),
    "config_empty": content("config.yaml", b""),
    "config_no_mapping": content("config.yaml", b"- 1\n"),
    "config_deep": content("config.yaml", b"data: " + DEEP),
    "config_not_utf8": content("config.yaml", b"\xff\xfe\xff"),
    "config_with_python": content("config.yaml", b"data: !!python/object/apply:os.getcwd []\n"),
    "config_of_itself": content("config.yaml", b"&a\ndata: *a\n"),
    "config_with_long_number": content("config.yaml", b"model: {lora: {r: " + b"9" * 5000 + b"}}"),
    "config_key_is_a_list": content("config.yaml", b"? [a, b]\n: 1\n"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_folder_is_refused_in_one_line(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names file or field; but for values, it comes before a model is loaded."""
    if "finite" not in name and "nan" not in name:
        monkeypatch.setattr(evidence_model, "load_base_model", None)
    FORGED[name](folder)
    rehash(folder)
    with pytest.raises(ValueError, match=r"best/|config field|model '|model \"") as raised:
        load_checkpoint(folder)
    assert len(str(raised.value)) < 1000


MANIFESTS: dict[str, bytes | dict[str, Any]] = {
    "no_files": {"files": {}},
    "files_is_a_list": {"files": [["config.yaml", "0"]]},
    "no_config": {"files": {"metrics.json": ""}},
    "no_weights": {"files": {"config.yaml": None, "metrics.json": None}},
    "no_metrics": {"files": dict.fromkeys(("config.yaml", ENCODER, ADAPTER))},
    "file_outside": {"files": {"config.yaml": None, "metrics.json": None, "../x": ""}},
    "file_elsewhere": {"files": {"config.yaml": None, "metrics.json": None, "/dev/zero": ""}},
    "hash_is_a_number": {"files": {"config.yaml": 1, "metrics.json": 1}},
    "fingerprint_is_a_number": {"base_model_fingerprint": 1},
    "fingerprint_is_null": {"base_model_fingerprint": None},
    "format_is_a_list": {"format": [2]},
    "deep": DEEP,
    "long_number": b'{"format": ' + b"9" * 5000 + b"}",
    "a_list": b"[]",
    "empty": b"",
    "cut": b'{"format": 1, "fi',
    "not_utf8": b"\xff",
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_forged_manifest_is_refused_in_one_line(name: str, folder: Path) -> None:
    """A null hash stands for the right one."""
    path, forged = folder / "manifest.json", MANIFESTS[name]
    if isinstance(forged, dict):
        manifest = json.loads(path.read_text())
        right, forged = manifest["files"], manifest | forged
        if isinstance(forged["files"], dict):
            files = {n: right[n] if h is None else h for n, h in forged["files"].items()}
            forged["files"] = files
        forged = json.dumps(forged).encode()
    path.write_bytes(forged)
    with pytest.raises(ValueError, match=r"best/(manifest|config)"):
        load_checkpoint(folder)


def test_metrics_that_are_no_object_are_named(folder: Path) -> None:
    (folder / "metrics.json").write_text("[1]")
    rehash(folder)
    with pytest.raises(ValueError, match=r"metrics\.json: damaged"):
        dict(read_checkpoint(folder).metrics)


def damaged_base(file: str, data: bytes) -> Forge:
    """Copy the base model next to the checkpoint, with one file changed."""

    def forge(folder: Path) -> None:
        config = yaml.safe_load((folder / "config.yaml").read_text())
        copy = folder.parent / "base"
        shutil.copytree(config["model"]["base_model"], copy)
        (copy / file).write_bytes(data)
        option("model.base_model", str(copy))(folder)

    return forge


@pytest.mark.parametrize(
    ("file", "data"),
    [
        ("config.json", b"{"),
        ("config.json", b"[]"),
        ("config.json", b'{"model_type": "no_such"}'),
        ("config.json", b'{"model_type": "llama", "hidden_size": "a"}'),
        ("model.safetensors", b""),
        ("model.safetensors", b"\xff" * 100),
    ],
)
def test_a_damaged_base_model_is_named(file: str, data: bytes, folder: Path) -> None:
    damaged_base(file, data)(folder)
    rehash(folder)
    with pytest.raises(ValueError, match=r"model '.*base'"):
        load_checkpoint(folder)


def test_a_number_may_be_saved_with_or_without_a_dimension(tmp_path: Path) -> None:
    """As older versions saved it, as a weight and as what the optimizer knows of it."""
    path = tmp_path / "trainer_state" / "optimizer.safetensors"
    path.parent.mkdir()
    for value in (torch.tensor(0.5), torch.tensor([0.5])):
        save_file({"bias/exp_avg": value, "bias/step": torch.tensor(3.0)}, path)
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.Adam(model.parameters())
        load_optimizer(model, optimizer, tmp_path)
        state = optimizer.state[model.bias]
        assert (state["exp_avg"].tolist(), state["step"].tolist()) == ([0.5], 3.0)
        save_file({"gate": value}, tmp_path / "weights")
        read = read_tensors(tmp_path / "weights", {"gate": torch.ones(1)})
        assert read["gate"].tolist() == [0.5]
        for other in (torch.ones(2), torch.ones(1).bfloat16()):
            with pytest.raises(ValueError, match="weights, tensor gate: it has shape"):
                read_tensors(tmp_path / "weights", {"gate": other})


@pytest.mark.parametrize("file", ["optimizer.safetensors", "random.safetensors", "progress.json"])
def test_damaged_state_to_resume_from_is_named(file: str, folder: Path) -> None:
    """As the run that resumes reads it."""
    (folder / "trainer_state").mkdir()
    (folder / "trainer_state" / file).write_bytes(b"[1, 2]")
    model = torch.nn.Linear(1, 1)
    reads: dict[str, Callable[[], object]] = {
        "optimizer": lambda: load_optimizer(model, torch.optim.Adam(model.parameters()), folder),
        "random": lambda: load_random(folder, 0),
        "progress": lambda: read_progress(folder),
    }
    with pytest.raises(ValueError, match=f"trainer_state/{file}: damaged"):
        reads[file.partition(".")[0]]()


@pytest.mark.parametrize(
    "tensors",
    [
        {"bias/exp_avg": torch.ones(2)},
        {"bias/exp_avg": torch.ones(1, dtype=torch.int64)},
        {"weight/exp_avg": torch.full((1, 1), float("nan"))},
        {"other/exp_avg": torch.ones(1)},
        {"step": torch.ones(())},
    ],
)
def test_forged_optimizer_state_is_refused(
    tensors: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    (tmp_path / "trainer_state").mkdir()
    save_file(tensors, tmp_path / "trainer_state" / "optimizer.safetensors")
    model = torch.nn.Linear(1, 1)
    with pytest.raises(ValueError, match=r"optimizer\.safetensors, tensor"):
        load_optimizer(model, torch.optim.Adam(model.parameters()), tmp_path)


@pytest.mark.parametrize("progress", [{}, {"step": "3"}, {"step": 3.5}])
def test_forged_progress_is_refused(progress: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "trainer_state").mkdir()
    (tmp_path / "trainer_state" / "progress.json").write_text(json.dumps(progress))
    with pytest.raises(ValueError, match=r"progress\.json, field step: must be a whole number"):
        read_progress(tmp_path)


def test_forged_random_states_are_refused(tmp_path: Path) -> None:
    (tmp_path / "trainer_state").mkdir()
    save_file({"0/torch": torch.zeros(3)}, tmp_path / "trainer_state" / "random.safetensors")
    with pytest.raises(ValueError, match=r"random\.safetensors: damaged"):
        load_random(tmp_path, 0)
