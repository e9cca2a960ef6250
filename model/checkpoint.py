"""A checkpoint folder: weights, config and manifest; safetensors, YAML and JSON, no pickle."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from peft import PeftModel
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from turngraph.configs.parse import read_config, write_config
from turngraph.configs.schema import Config
from turngraph.model.base_model import NoAttentionError, same_base
from turngraph.model.distributed import placed_like, whole
from turngraph.model.graph_lm import GraphLM

logger = logging.getLogger(__name__)
ADAPTER = "adapter"
GRAPH_FILES = {"encoder": "graph_encoder.safetensors", "scorer": "node_answers.safetensors"}
"""Parts of a ``GraphLM`` that read the graph, and their files."""
MANIFEST, CONFIG, METRICS = "manifest.json", "config.yaml", "metrics.json"
FORMAT = 1
OLD = "-old"
"""What a folder that gives way is called until its successor has its name."""
PACKAGES = ("torch", "torch-geometric", "transformers", "peft", "accelerate")


def trained_weights(model: GraphLM) -> dict[str, Tensor]:
    """All trained weights by name, on CPU; shards are gathered, so that all processes must call."""
    weights = {
        f"{part}.{name}": whole(tensor)
        for part in GRAPH_FILES
        if (module := getattr(model, part)) is not None
        for name, tensor in module.saved_state().items()
    }
    lora = model.lm.named_parameters() if isinstance(model.lm, PeftModel) else ()
    weights |= {f"lm.{name}": whole(p) for name, p in lora if "lora_" in name}
    return weights


def save_weights(model: GraphLM, weights: dict[str, Tensor], folder: Path) -> None:
    """Write adapter and encoder, as ``trained_weights`` gave them, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    part = {
        name: {n.removeprefix(f"{name}."): t for n, t in weights.items() if n.startswith(name)}
        for name in ("lm", *GRAPH_FILES)
    }
    if isinstance(model.lm, PeftModel):
        # PEFT would write the local path that the name led to
        model.lm.peft_config["default"].base_model_name_or_path = model.config.base_model
        model.lm.save_pretrained(
            str(folder / ADAPTER), save_embedding_layers=False, state_dict=part["lm"]
        )
        (folder / ADAPTER / "README.md").unlink(missing_ok=True)  # PEFT's empty model card
    for name, file in GRAPH_FILES.items():
        if getattr(model, name) is not None:
            save_file(part[name], folder / file)


def save_checkpoint(
    model: GraphLM,
    config: Config,
    metrics: dict[str, Any],
    folder: Path,
    weights: dict[str, Tensor] | None = None,
    write_more: Callable[[Path], None] | None = None,
    make_room: Callable[[], None] | None = None,
) -> None:
    """Write a whole checkpoint; it appears under its name only when it is complete.

    Args:
        model: the trained model.
        config: the resolved config of the run.
        metrics: what was measured on it, for ``metrics.json``.
        folder: replaced if it exists.
        weights: of ``trained_weights``, where the model is sharded.
        write_more: writes further files into the folder that it is given.
        make_room: called when all is written, before the checkpoint takes its name.

    Raises:
        ValueError: it cannot be written; a checkpoint of that name stays as it was.
    """
    partial = _new_folder(folder)
    try:
        save_weights(model, trained_weights(model) if weights is None else weights, partial)
        if write_more is not None:
            write_more(partial)
        (partial / CONFIG).write_text(write_config(config), encoding="utf-8")
        (partial / METRICS).write_text(json.dumps(metrics, indent=1), encoding="utf-8")
        _write_manifest(model, config, partial)
        if make_room is not None:
            make_room()
        replace_folder(partial, folder)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{folder}: checkpoint cannot be written: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _new_folder(folder: Path) -> Path:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise ValueError(f"{folder}: checkpoint cannot be written: {error}") from None
    partial.chmod(0o755)
    return partial


def _write_manifest(model: GraphLM, config: Config, folder: Path) -> None:
    """The manifest; then everything reaches the disk before the folder gets its name."""
    manifest = {
        "format": FORMAT,
        "base_model": config.model.base_model,
        "base_model_fingerprint": model.base_fingerprint,
        "files": hashes(folder),
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "commit": commit(),
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    for path in (*folder.rglob("*"), folder):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def replace_folder(new: Path, folder: Path) -> None:
    """Give a folder its name; an older one of that name stays until the new one has it."""
    if not folder.exists():
        os.rename(new, folder)
        return
    old = folder.with_name(f".{folder.name}{OLD}")
    shutil.rmtree(old, ignore_errors=True)
    os.rename(folder, old)
    try:
        os.rename(new, folder)
    except OSError:
        os.rename(old, folder)
        raise
    shutil.rmtree(old)


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of every file in a folder but its manifest, by its name there."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    return {
        name: file_hash(folder / name) for name in sorted(str(p.relative_to(folder)) for p in found)
    }


def file_hash(path: str | Path) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checkpoint_hash(folder: str | Path) -> str:
    """What a checkpoint holds, whatever its path: another one after it was trained again.

    Raises:
        ValueError: there is no whole checkpoint.
    """
    manifest = check_manifest(Path(folder))
    known = json.dumps([manifest["files"], manifest.get("base_model_fingerprint")])
    return hashlib.sha256(known.encode("utf-8")).hexdigest()


def commit() -> str | None:
    """The commit of the source tree that runs, with ``+`` behind it where files were changed."""
    here = Path(__file__).resolve().parent
    command = ["git", "-C", str(here), "describe", "--always", "--dirty=+", "--abbrev=40"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:  # no git: the manifest then says null
        return None
    return result.stdout.strip() or None


def check_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a checkpoint whose files are all there and unchanged.

    Raises:
        ValueError: no checkpoint, a missing or changed file, or an unknown format.
    """
    path = folder / MANIFEST
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder")
    if not path.is_file():
        inside = [entry.parent.name for entry in sorted(folder.glob(f"*/{MANIFEST}"))]
        hint = f"; did you mean {folder / inside[0]}?" if inside else ""
        raise ValueError(f"{folder}: not a checkpoint, it has no {MANIFEST}{hint}")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        files, version = dict(manifest["files"]), manifest["format"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path}: damaged, not a manifest of a checkpoint") from None
    if version != FORMAT:
        raise ValueError(f"{path}, field format: {version!r}, this version reads {FORMAT}")
    for name, expected in files.items():
        if not (folder / name).is_file():
            raise ValueError(f"{folder / name}: missing from the checkpoint")
        if file_hash(folder / name) != expected:
            raise ValueError(f"{folder / name}: changed or truncated since it was saved (SHA-256)")
    return manifest


def checkpoint_config(folder: str | Path) -> Config:
    """The config that a checkpoint was trained with."""
    return read_config(Path(folder) / CONFIG)


def load_checkpoint(
    folder: str | Path,
    base_model: str | None = None,
    quantization: Literal["none", "4bit"] | None = None,
) -> GraphLM:
    """Load a model from a checkpoint folder and the base model, nothing else.

    Args:
        folder: a checkpoint.
        base_model: where the base model is now, if not where the config says.
        quantization: of the base model, if not as it was trained on. Adapters fit either,
            though answers then differ a little from those that were measured.

    Raises:
        ValueError: a file is missing or changed (by hash), or the base model's weights are
            not those that were trained on (by fingerprint).
    """
    folder = Path(folder)
    check_manifest(folder)
    overrides = [] if base_model is None else [f"--model.base_model={base_model}"]
    overrides += [] if quantization is None else [f"--model.quantization={quantization}"]
    config = read_config(folder / CONFIG, *overrides).model
    if config.attn_implementation != "eager":  # the others compute the same, and not everywhere
        config = replace(config, attn_implementation="sdpa")
    try:
        model = GraphLM(config)
    except NoAttentionError:  # some models have but flex or flash attention beside it
        model = GraphLM(replace(config, attn_implementation="eager"))
    check_base(model, folder)
    load_weights(model, folder)
    return model.eval()


def check_base(model: GraphLM, folder: Path) -> None:
    """Whether a checkpoint was trained on the model's base model.

    Raises:
        ValueError: on another one.
    """
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    found, trained_on = model.base_fingerprint, manifest["base_model_fingerprint"]
    if not same_base(found, trained_on):
        raise ValueError(
            f"{folder}: trained on another base model than {model.config.base_model!r} "
            f"(fingerprint {trained_on[:12]}, this one has {found[:12]})"
        )


@torch.no_grad()
def load_weights(model: GraphLM, folder: Path) -> None:
    """Fill a model's trained weights, sharded or not, from a checkpoint folder."""
    if model.config.lora is not None:
        load_adapter(model, folder / ADAPTER)
    for part, file in GRAPH_FILES.items():
        if (module := getattr(model, part)) is None:
            continue
        state, own = load_file(folder / file), module.saved_state()
        assert state.keys() == own.keys(), state.keys() ^ own.keys()
        for name, tensor in own.items():
            tensor.copy_(placed_like(state[name], tensor))


def load_adapter(model: GraphLM, folder: Path) -> None:
    """Fill a model's LoRA weights from a PEFT adapter folder."""
    state = load_file(folder / "adapter_model.safetensors")
    own = {
        name.replace(".default.", "."): parameter
        for name, parameter in model.lm.named_parameters()
        if "lora_" in name
    }
    if state.keys() != own.keys():
        names = sorted(state.keys() ^ own.keys())
        raise ValueError(f"{folder}: adapter weights for other layers: {names[:3]}")
    for name, parameter in own.items():
        parameter.copy_(placed_like(state[name], parameter))
