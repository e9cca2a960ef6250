"""Saves, reads and loads checkpoint folders: safetensors, YAML and JSON, no pickle."""

from __future__ import annotations

import errno
import hashlib
import importlib.metadata
import json
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from peft import PeftModel
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from turngraph.configs.json_files import file_hash, read_json_object
from turngraph.configs.models import LOADING
from turngraph.configs.parse import read_config, write_config
from turngraph.configs.schema import Config, ModelConfig
from turngraph.configs.user_error import UserError
from turngraph.model.base_model import LORA, NoAttentionError, empty_base_model, same_base
from turngraph.model.distributed import gather, placed_like
from turngraph.model.evidence_model import EvidenceModel
from turngraph.model.make_model import make_model
from turngraph.model.tensor_files import check_tensors, read_tensors

logger = logging.getLogger(__name__)
ADAPTER, ADAPTER_WEIGHTS = "adapter", "adapter_model.safetensors"
GRAPH_FILES = {
    "encoder": "graph_encoder.safetensors",
    "scorer": "node_answers.safetensors",
    "graph": "graph_at_layer.safetensors",
}
"""Files of the parts that read the graph, by ``EvidenceModel.graph_parts``."""
MANIFEST, CONFIG, METRICS = "manifest.json", "config.yaml", "metrics.json"
FORMAT = 4
OLD = "-old"
"""Suffix of a folder that is being replaced, until the new one has its name."""
PARTIAL = ".partial"
"""Suffix of a folder that is being written."""
PACKAGES = ("turngraph", "torch", "torch-geometric", "transformers", "peft", "accelerate")
_CAPTURED: dict[str, Any] = {"capture_output": True, "text": True, "check": False}
CARD = "README.md"
"""The model card; the manifest has no hash of it, as people edit it."""


def trained_weights(model: EvidenceModel) -> dict[str, Tensor]:
    """Return all trained weights by name, on CPU; every process must call it to gather shards."""
    weights = {
        f"{part}.{name}": gather(tensor)
        for part, module in model.graph_parts.items()
        for name, tensor in _saved(module).items()
    }
    lora = model.lm.named_parameters() if isinstance(model.lm, PeftModel) else ()
    weights |= {f"lm.{name}": gather(p) for name, p in lora if LORA in name}
    return weights


def _saved(part: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a part that are saved: all but those that the base model has."""
    tensors: dict[str, Tensor] = part.saved_state()  # type: ignore[operator]  # of each part
    return tensors


def save_weights(model: EvidenceModel, weights: dict[str, Tensor], folder: Path) -> None:
    """Write weights that ``trained_weights`` has returned into a folder, one file for each part."""
    part = {
        name: {
            n.removeprefix(f"{name}."): t for n, t in weights.items() if n.startswith(f"{name}.")
        }
        for name in ("lm", *GRAPH_FILES)
    }
    if isinstance(model.lm, PeftModel):
        # PEFT would write the local path to which the name was resolved
        model.lm.peft_config["default"].base_model_name_or_path = model.config.base_model
        card = folder / ADAPTER / CARD
        card.parent.mkdir(exist_ok=True)
        card.write_text("---\n{}\n---\n", encoding="utf-8")  # else PEFT renders one, slowly
        model.lm.save_pretrained(
            str(folder / ADAPTER), save_embedding_layers=False, state_dict=part["lm"]
        )
        card.unlink()
    for name in model.graph_parts:
        save_file(part[name], folder / GRAPH_FILES[name])


def save_checkpoint(
    model: EvidenceModel,
    config: Config,
    metrics: dict[str, Any],
    folder: Path,
    weights: dict[str, Tensor] | None = None,
    write_more: Callable[[Path], None] | None = None,
    make_room: Callable[[], None] | None = None,
) -> None:
    """Write a checkpoint; it appears under its name only when it is complete.

    Args:
        model: the trained model.
        config: the resolved config of the run.
        metrics: metrics of the model, for ``metrics.json``.
        folder: folder of the checkpoint; replaced if it exists.
        weights: weights of ``trained_weights``, needed if the model is sharded; None: gather them
            here.
        write_more: called with the partial folder, to write further files into it.
        make_room: called before the complete folder gets its name.

    Raises:
        UserError: the checkpoint cannot be written; an earlier one of that name is kept.
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
        raise UserError(f"{folder}: checkpoint cannot be written: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _new_folder(folder: Path) -> Path:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(PARTIAL, f".{folder.name}-", folder.parent))
    except OSError as error:
        raise UserError(f"{folder}: checkpoint cannot be written: {error}") from None
    partial.chmod(0o755)
    return partial


def _write_manifest(model: EvidenceModel, config: Config, folder: Path) -> None:
    """Write the manifest, and flush every file to disk before the folder gets its name."""
    manifest = {
        "format": FORMAT,
        "base_model": config.model.base_model,
        "base_model_fingerprint": model.base_fingerprint,
        "files": hashes(folder),
        "versions": versions(),
        "commit": commit(),
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    for path in (*folder.rglob("*"), folder):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def is_replaceable(folder: Path) -> bool:
    """Tell whether a path may become a checkpoint: it is free, an empty folder, or a checkpoint.

    Raises:
        OSError: the folder cannot be read.
    """
    if not os.path.lexists(folder):
        return True
    if folder.is_symlink() or not folder.is_dir():
        return False
    return (folder / MANIFEST).is_file() or not any(folder.iterdir())


def replace_folder(new: Path, folder: Path) -> None:
    """Rename a folder; an existing checkpoint of that name is removed only after that.

    Raises:
        OSError: something other than a checkpoint has the name, or it cannot be renamed.
    """
    if not is_replaceable(folder):
        raise FileExistsError(errno.EEXIST, "not a checkpoint, so it is not replaced", str(folder))
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
    """Return file name -> SHA-256 of all files in a folder but its manifest and its model card."""
    files = (path for path in folder.rglob("*") if path.is_file())
    names = sorted(str(path.relative_to(folder)) for path in files)
    return {name: file_hash(folder / name) for name in names if name not in (MANIFEST, CARD)}


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder that has been read and checked: its manifest and its parsed config.

    Args:
        folder: the folder.
        manifest: its manifest; the SHA-256 of every file matches.
        config: the config that it was trained with.
    """

    folder: Path
    manifest: dict[str, Any]
    config: Config

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the checkpoint's contents, independent of its path."""
        known = [self.manifest["files"], self.manifest.get("base_model_fingerprint")]
        return hashlib.sha256(json.dumps(known).encode("utf-8")).hexdigest()

    @property
    def metrics(self) -> dict[str, Any]:
        """Metrics of the model on tune: ``metrics.json``."""
        return read_json_object(self.folder / METRICS)

    def check_writes(self) -> None:
        """Check that the checkpoint generates its answers as text.

        Raises:
            UserError: ``model.answers`` is ``nodes``.
        """
        if self.config.model.answers == "nodes":
            raise UserError(
                f"{self.folder}: model.answers is nodes, so that no text is generated; "
                "`turngraph answer`, chat and serve can use it"
            )


def read_checkpoint(folder: str | Path) -> Checkpoint:
    """Read a checkpoint folder: manifest, hashes of all files, config.

    Raises:
        UserError: the folder holds no complete checkpoint; the message names file and field.
    """
    folder = Path(folder)
    return Checkpoint(folder, check_manifest(folder), checkpoint_config(folder))


@cache
def versions() -> dict[str, str]:
    """Return the versions of the packages that a checkpoint depends on."""
    return {name: importlib.metadata.version(name) for name in PACKAGES}


@cache
def commit() -> str | None:
    """Return the commit of Turngraph's own source tree, followed by ``+`` if files have changed.

    None if the running code is not a checkout of Turngraph: an installed package may be inside
    another repository, whose commits say nothing about this code.
    """
    source = Path(__file__).resolve().parents[1]
    git = ["git", "-C", str(source)]
    try:
        top = subprocess.run([*git, "rev-parse", "--show-toplevel"], **_CAPTURED)
        if top.returncode or Path(top.stdout.strip()).resolve() != source:
            return None
        tracked = subprocess.run([*git, "ls-files", "--error-unmatch", __file__], **_CAPTURED)
        if tracked.returncode:
            return None
        described = subprocess.run(
            [*git, "describe", "--always", "--dirty=+", "--abbrev=40"], **_CAPTURED
        )
    except OSError:  # git is not installed: the manifest has null
        return None
    return described.stdout.strip() or None


def check_manifest(folder: Path) -> dict[str, Any]:
    """Read a checkpoint's manifest, and check that every file is present and unchanged.

    Raises:
        UserError: the folder is no checkpoint, a file is missing or has changed, or the format is
            unknown.
    """
    path = folder / MANIFEST
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    if not path.is_file():
        inside = [entry.parent.name for entry in sorted(folder.glob(f"*/{MANIFEST}"))]
        hint = f"; did you mean {folder / inside[0]}?" if inside else ""
        raise UserError(f"{folder}: not a checkpoint, it has no {MANIFEST}{hint}")
    manifest = read_json_object(path)
    files, version = manifest.get("files"), manifest.get("format")
    if version is None or not isinstance(files, dict):
        raise UserError(f"{path}: damaged, not a manifest of a checkpoint")
    if version != FORMAT:
        raise UserError(
            f"{path}, field format: {version!r}, this version reads {FORMAT}; train the checkpoint"
            " again"
        )
    if not isinstance(manifest.get("base_model_fingerprint"), str):
        raise UserError(f"{path}, field base_model_fingerprint: must be a string")
    _check_listed(folder, files, CONFIG, METRICS)
    for name, expected in files.items():
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise UserError(f"{path}, field files: {name!r} is not inside the checkpoint")
        if not (folder / name).is_file():
            raise UserError(f"{folder / name}: missing from the checkpoint")
        if file_hash(folder / name) != expected:
            raise UserError(f"{folder / name}: changed or truncated since it was saved (SHA-256)")
    return manifest


def _check_listed(folder: Path, files: Collection[str], *names: str) -> None:
    """Check that the manifest has hashes of the named files."""
    for name in names:
        if name not in files:
            raise UserError(f"{folder / MANIFEST}, field files: {name} is missing")


def checkpoint_config(folder: str | Path) -> Config:
    """Read the config that a checkpoint was trained with."""
    return read_config(Path(folder) / CONFIG)


def load_checkpoint(
    checkpoint: str | Path | Checkpoint,
    base_model: str | None = None,
    quantization: Literal["none", "4bit"] | None = None,
    trust_remote_code: tuple[str, ...] = (),
) -> EvidenceModel:
    """Load a model from a checkpoint and the base model, nothing else.

    Args:
        checkpoint: a folder, or one that ``read_checkpoint`` has read.
        base_model: name or path of the base model; None: as in the config.
        quantization: quantization of the base model; None: as in training. Adapters work with
            either, but answers then differ a little from those that were evaluated.
        trust_remote_code: names of models whose own Python code may run; the checkpoint's own
            setting is ignored.

    Raises:
        UserError: a file is missing or changed (by hash), or the base model's weights differ from
            those in training (by fingerprint).
    """
    if not isinstance(checkpoint, Checkpoint):
        checkpoint = read_checkpoint(checkpoint)
    config = checkpoint.config.model
    config = replace(
        config,
        base_model=base_model or config.base_model,
        quantization=quantization or config.quantization,
        trust_remote_code=trust_remote_code,
    )
    _check_shapes(config, checkpoint)
    if config.attn_implementation != "eager":  # sdpa computes the same everywhere
        config = replace(config, attn_implementation="sdpa")
    try:
        model = make_model(config)
    except NoAttentionError:  # some models have no sdpa
        model = make_model(replace(config, attn_implementation="eager"))
    check_base(model, checkpoint.folder)
    load_weights(model, checkpoint.folder)
    return model.eval()


def _check_shapes(config: ModelConfig, checkpoint: Checkpoint) -> None:
    """Check names, shapes and types of a checkpoint's tensors before any is allocated.

    Raises:
        UserError: the files hold other tensors than the config implies, or its sizes are too
            large for any tensor.
    """
    folder = checkpoint.folder
    base = empty_base_model(config.base_model, config.dtype, config.trust_remote_code)
    try:
        with LOADING, torch.device("meta"):
            model = make_model(replace(config, compile=False), base)
    except (OverflowError, RuntimeError, TypeError) as error:  # sizes that no tensor can have
        raise UserError(f"{folder / CONFIG}: {str(error).splitlines()[0]}") from error
    for path, tensors in _expected(model, folder).items():
        _check_listed(folder, checkpoint.manifest["files"], path.relative_to(folder).as_posix())
        check_tensors(path, tensors)


def _expected(model: EvidenceModel, folder: Path) -> dict[Path, dict[str, Tensor]]:
    """Return the weight files that a model reads, and for each the model's tensors by name."""
    parts = model.graph_parts.items()
    expected = {folder / GRAPH_FILES[name]: _saved(part) for name, part in parts}
    if model.lm is not None and model.config.lora is not None:
        expected[folder / ADAPTER / ADAPTER_WEIGHTS] = {
            name.replace(".default.", "."): parameter
            for name, parameter in model.causal_lm.named_parameters()
            if LORA in name
        }
    return expected


def check_base(model: EvidenceModel, folder: Path) -> None:
    """Check that a checkpoint was trained on the model's base model.

    Raises:
        UserError: it was trained on another one.
    """
    manifest = read_json_object(folder / MANIFEST)
    fingerprint, trained_on = model.base_fingerprint, manifest["base_model_fingerprint"]
    if not same_base(fingerprint, trained_on):
        raise UserError(
            f"{folder}: trained on another base model than {model.config.base_model!r} "
            f"(fingerprint {trained_on[:12]}, this one has {fingerprint[:12]})"
        )


@torch.no_grad()
def load_weights(model: EvidenceModel, folder: Path) -> None:
    """Fill a model's trained weights, sharded or not, from a checkpoint folder.

    Raises:
        UserError: a file has other tensors than the model, or values that are not finite.
    """
    for path, tensors in _expected(model, folder).items():
        state = read_tensors(path, tensors)
        for name, tensor in tensors.items():
            tensor.copy_(placed_like(state[name], tensor))
