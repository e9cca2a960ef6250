"""Finds the shipped configs, and the shipped reader, by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
RUNS = (
    "demo.yaml",
    *(f"{name}/*.yaml" for name in ("worldfacts", "mixture", "sqa", "hybridqa", "convmix")),
)
"""Files under ``configs/`` that configure a whole training run."""
READER = "reader"
"""Name of the checkpoint that comes with the package."""
READER_FOLDER = FOLDER.parent / "model" / "packaged_reader"


def find_checkpoint_folder(name: str | Path) -> Path:
    """Return a checkpoint's folder; ``reader`` is the packaged one where no folder has the name."""
    folder = Path(name).expanduser()
    return READER_FOLDER if str(name) == READER and not folder.exists() else folder


def find_config(name: str | Path, folder: Path = FOLDER) -> Path:
    """Return the file of a config: an existing file, else the shipped config of that name.

    Args:
        name: a path; or a name such as ``sqa/graph_memory``, with or without ``.yaml``.
        folder: folder of the shipped configs.

    Returns:
        The path; if nothing is found, ``name`` itself, which the reader then reports.
    """
    path = Path(name)
    if path.is_file() or path.is_absolute():
        return path
    shipped = folder / path if path.suffix == ".yaml" else folder / f"{path}.yaml"
    inside = shipped.resolve().is_relative_to(folder)
    return shipped if inside and shipped.is_file() else path


def shipped_configs() -> Iterator[tuple[str, str]]:
    """Yield the name and the first comment of every shipped run."""
    for pattern in RUNS:
        for path in sorted(FOLDER.glob(pattern)):
            first = path.read_text(encoding="utf-8").partition("\n")[0]
            name = path.relative_to(FOLDER).with_suffix("").as_posix()
            yield name, first.lstrip("# ") if first.startswith("#") else ""


def with_shipped_configs(argv: Sequence[str]) -> list[str]:
    """Replace the names of shipped configs in a command line by their paths."""
    arguments = list(argv)
    for index, argument in enumerate(arguments):
        if argument == "--config" and index + 1 < len(arguments):
            arguments[index + 1] = str(find_config(arguments[index + 1]))
        elif argument.startswith("--config="):
            arguments[index] = f"--config={find_config(argument.removeprefix('--config='))}"
    return arguments
