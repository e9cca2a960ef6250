"""A checkpoint folder: weights, config and manifest; safetensors, YAML and JSON, no pickle."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from peft import PeftModel
from safetensors.torch import load_file, save_file

from configs.load import read_config, write_config
from configs.schema import Config
from model.base_model import fingerprint
from model.graph_lm import GraphLM

ADAPTER, ENCODER = "adapter", "graph_encoder.safetensors"
MANIFEST, CONFIG, METRICS = "manifest.json", "config.yaml", "metrics.json"
FORMAT = 1
PACKAGES = ("torch", "torch-geometric", "transformers", "peft", "accelerate")


def save_weights(model: GraphLM, folder: Path) -> None:
    """Write adapter and encoder into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(model.lm, PeftModel):
        # PEFT would write the local path that the name led to
        model.lm.peft_config["default"].base_model_name_or_path = model.config.base_model
        model.lm.save_pretrained(str(folder / ADAPTER), save_embedding_layers=False)
        (folder / ADAPTER / "README.md").unlink(missing_ok=True)  # PEFT's empty model card
    if model.encoder is not None:
        state = {
            name: t.detach().cpu().contiguous() for name, t in model.encoder.saved_state().items()
        }
        save_file(state, folder / ENCODER)


def save_checkpoint(model: GraphLM, config: Config, metrics: dict[str, Any], folder: Path) -> None:
    """Write a whole checkpoint; it appears under its name only when it is complete.

    Args:
        model: the trained model.
        config: the resolved config of the run.
        metrics: what was measured on it, for ``metrics.json``.
        folder: replaced if it exists.

    Raises:
        OSError: it cannot be written; a checkpoint of that name stays as it was.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        partial.chmod(0o755)
        save_weights(model, partial)
        (partial / CONFIG).write_text(write_config(config), encoding="utf-8")
        (partial / METRICS).write_text(json.dumps(metrics, indent=1), encoding="utf-8")
        manifest = {
            "format": FORMAT,
            "base_model": config.model.base_model,
            "base_model_fingerprint": fingerprint(model.lm),
            "files": {name: _sha256(partial / name) for name in _files(partial)},
            "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
            "commit": commit(),
        }
        (partial / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        _replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _replace(new: Path, folder: Path) -> None:
    if not folder.exists():
        os.rename(new, folder)
        return
    old = folder.with_name(f".{folder.name}-old")
    shutil.rmtree(old, ignore_errors=True)
    os.rename(folder, old)
    try:
        os.rename(new, folder)
    except OSError:
        os.rename(old, folder)
        raise
    shutil.rmtree(old)


def _files(folder: Path) -> list[str]:
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    return sorted(str(path.relative_to(folder)) for path in found)


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
        if _sha256(folder / name) != expected:
            raise ValueError(f"{folder / name}: changed or truncated since it was saved (SHA-256)")
    return manifest


def checkpoint_config(folder: str | Path) -> Config:
    """The config that a checkpoint was trained with."""
    return read_config(Path(folder) / CONFIG)


def load_checkpoint(folder: Path, base_model: str | None = None) -> GraphLM:
    """A model from a checkpoint; see ``GraphLM.from_pretrained``."""
    manifest = check_manifest(folder)
    overrides = [] if base_model is None else [f"--model.base_model={base_model}"]
    config = read_config(folder / CONFIG, *overrides).model
    model = GraphLM(config)
    found = fingerprint(model.lm)
    if found != manifest["base_model_fingerprint"]:
        raise ValueError(
            f"{folder}: trained on another base model than {config.base_model!r} (fingerprint "
            f"{manifest['base_model_fingerprint'][:12]}, this one has {found[:12]})"
        )
    if config.lora is not None:
        load_adapter(model, folder / ADAPTER)
    if model.encoder is not None:
        state = load_file(folder / ENCODER)
        missing, unexpected = model.encoder.load_state_dict(state, strict=False)
        assert not unexpected, unexpected
        assert all("embeddings" in name for name in missing), missing
    return model.eval()


def load_adapter(model: GraphLM, folder: Path) -> None:
    """Fill a model's LoRA weights from a PEFT adapter folder."""
    from peft import set_peft_model_state_dict

    state = load_file(folder / "adapter_model.safetensors")
    result = set_peft_model_state_dict(model.lm, state)
    if result.unexpected_keys:
        raise ValueError(
            f"{folder}: adapter weights for other layers: {result.unexpected_keys[:3]}"
        )
