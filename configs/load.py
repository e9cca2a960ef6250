"""YAML and command line to one checked ``Config``, and back."""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from argparse import ArgumentError
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jsonargparse
import yaml

from configs.schema import Config


def load_config(argv: Sequence[str]) -> Config:
    """The config of a command line: ``--config FILE.yaml`` and ``--any.field VALUE``.

    Raises:
        ValueError: a file that is missing or no YAML, an unknown field (the nearest is named), or
            a value of the wrong type or range.
    """
    parser = jsonargparse.ArgumentParser(
        prog="train.py", description="Train a checkpoint.", exit_on_error=False
    )
    parser.add_argument("--config", action="config", help="YAML file; later options override it")
    parser.add_class_arguments(Config)
    _check_names(argv)
    try:
        namespace = parser.parse_args(list(argv))
        groups = (
            parser.instantiate(namespace)
            if hasattr(parser, "instantiate")
            else (parser.instantiate_classes(namespace))
        )
    except ArgumentError as error:
        raise ValueError(f"config: {error}") from None
    return Config(**{field.name: groups[field.name] for field in dataclasses.fields(Config)})


def read_config(path: str | Path, *overrides: str) -> Config:
    """The config of a YAML file, with ``--field=value`` overrides.

    Raises:
        ValueError: as ``load_config``.
    """
    return load_config(["--config", str(path), *overrides])


def write_config(config: Config) -> str:
    """All fields of a config as YAML that ``read_config`` reads back to an equal config."""
    return yaml.safe_dump(_plain(config), sort_keys=False, allow_unicode=True)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return list(value) if isinstance(value, tuple) else value


def _check_names(argv: Sequence[str]) -> None:
    """Unknown fields, in a YAML file or as options, with the nearest known name."""
    known = set(_field_names(Config))
    for index, option in enumerate(argv):
        name, _, value = option.removeprefix("--").partition("=")
        if not option.startswith("--") or name in ("help", "print_config"):
            continue
        if name == "config":
            path = value or (argv[index + 1] if index + 1 < len(argv) else "")
            _check_file(Path(path), known)
        elif name not in known:
            raise ValueError(f"unknown option --{name}{_nearest(name, known)}")


def _check_file(path: Path, known: set[str]) -> None:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"config {path}: {error.strerror}") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"config {path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise ValueError(f"config {path}: a mapping of fields is needed")
    for name in _mapping_names(content):
        if name not in known:
            raise ValueError(f"{path}, field {name}: unknown{_nearest(name, known)}")


def _mapping_names(content: dict[Any, Any], prefix: str = "") -> Iterator[str]:
    for key, value in content.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _mapping_names(value, f"{prefix}{key}.")


def _field_names(class_: type, prefix: str = "") -> Iterator[str]:
    for name, hint in typing.get_type_hints(class_).items():
        yield prefix + name
        options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        for option in options:
            if dataclasses.is_dataclass(option):
                yield from _field_names(option, f"{prefix}{name}.")


def _nearest(name: str, known: set[str]) -> str:
    """The known field most like a wrong one: by its whole name, else by its last part."""
    if close := difflib.get_close_matches(name, sorted(known), 1, 0.6):
        return f"; did you mean {close[0]}?"
    last = {field.rpartition(".")[2]: field for field in sorted(known)}
    close = difflib.get_close_matches(name.rpartition(".")[2], sorted(last), 1, 0.6)
    return f"; did you mean {last[close[0]]}?" if close else ""
