"""Reads a checked ``Config`` from YAML and command line, and writes it back."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import functools
import math
import typing
from argparse import ArgumentError
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import jsonargparse
import yaml

from turngraph.configs.kinds import FieldError, kind_of, options_of
from turngraph.configs.schema import Config
from turngraph.configs.shipped import with_shipped_configs

Settings = TypeVar("Settings")
MOST_SHOWN = 80
"""Characters of a value in an error."""
DEEP = 50
"""Nesting of YAML that no config needs, and every parser reads."""


def load_config(argv: Sequence[str]) -> Config:
    """Read the config of a command line: ``--config FILE.yaml`` and ``--any.field VALUE``.

    Raises:
        ValueError: a file is missing or not YAML, a field is unknown (the message names the most
            similar one), or a value has the wrong type or is out of range. The message names file
            and line, or the option.
    """
    argv = with_shipped_configs(argv)
    places = _check_names(argv)
    try:
        values = _parser().parse_args(argv).as_dict()
    except ArgumentError as error:
        raise ValueError(f"config: {' '.join(str(error).split())}") from None
    values.pop("config")
    try:
        config: Config = _build(Config, values)
    except FieldError as error:
        raise ValueError(_placed(error, places)) from None
    return config


@functools.cache
def _parser() -> jsonargparse.ArgumentParser:
    """Return the parser of all fields, which takes longer to make than to use."""
    parser = jsonargparse.ArgumentParser(
        prog="train.py", description="Train a checkpoint.", exit_on_error=False
    )
    parser.add_argument("--config", action="config", help="YAML file; later options override it")
    parser.add_class_arguments(Config)
    return parser


def _placed(error: FieldError, places: dict[str, str]) -> str:
    """Return an error with the place of its field, else of the section, else with the file."""
    names = error.name.split(" and ")
    name = next((name for name in names if name in places), names[0])
    while name not in places:
        if not name:
            return str(error)
        name = name.rpartition(".")[0]
    place = places[name]
    is_all = place == f"option --{error.name}"
    return f"{place}{'' if is_all else f', field {error.name}'}: {error.problem}"


def parse_train_options(argv: Sequence[str]) -> tuple[argparse.Namespace, Config]:
    """Parse the command line of train.py: its own options, and the config.

    Raises:
        ValueError: as ``load_config``, or no config is given.
    """
    parser = argparse.ArgumentParser(prog="train.py", add_help=False, allow_abbrev=False)
    for name in ("fresh", "resume_anyway", "dry_run"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--max_minutes")
    options, rest = parser.parse_known_args(argv)
    if not rest:
        raise ValueError("no --config FILE.yaml; `turngraph configs` lists those that are shipped")
    if options.max_minutes is not None:
        rest.append(f"--training.max_minutes={options.max_minutes}")
    return options, load_config(rest)


def _build(class_: type[Settings], values: dict[str, Any], prefix: str = "") -> Settings:
    """Build a dataclass from nested plain values."""
    built: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(class_).items():
        value = values[name]
        if wanted := mismatch(value, hint):
            raise ValueError(f"config field {prefix}{name}: {shown(value)} given, must be {wanted}")
        types_ = (option for option in options_of(hint) if isinstance(option, type))
        inner = next(filter(dataclasses.is_dataclass, types_), None)
        if inner is not None and value is not None:
            value = _build(inner, value, f"{prefix}{name}.")
        built[name] = tuple(value) if isinstance(value, list) else value
    return class_(**built)


def read_config(path: str | Path, *overrides: str) -> Config:
    """Read the config of a YAML file, with ``--field=value`` overrides.

    Raises:
        ValueError: as ``load_config``.
    """
    return load_config(["--config", str(path), *overrides])


def write_config(config: Config) -> str:
    """Return a config as YAML with all fields; ``read_config`` reads back an equal config."""
    return yaml.safe_dump(_plain(config), sort_keys=False, allow_unicode=True)


def differences(one: Config, other: Config) -> dict[str, tuple[Any, Any]]:
    """Return the fields in which two configs differ: dotted name -> both values."""
    first, second = (dict(_flat(_plain(config))) for config in (one, other))
    names = [*first, *(name for name in second if name not in first)]
    return {
        name: (first.get(name), second.get(name))
        for name in names
        if first.get(name) != second.get(name)
    }


def _flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return list(value) if isinstance(value, tuple) else value


def _check_names(argv: Sequence[str]) -> dict[str, str]:
    """Refuse unknown fields, in a YAML file or as options, and name the nearest known one.

    Returns:
        Where each field is given last: "config FILE, line 3" or "option --training.seed"; under
        "" the last file.
    """
    known = dict(_field_types(Config))
    places: dict[str, str] = {}
    for index, option in enumerate(argv):
        name, equals, value = option.removeprefix("--").partition("=")
        if not option.startswith("--") or name in ("help", "print_config"):
            continue
        if name == "config":
            if not equals and index + 1 == len(argv):
                raise ValueError("option --config: a file is needed")
            places |= _check_file(Path(value if equals else argv[index + 1]), known)
        elif name not in known:
            raise ValueError(f"unknown option --{name}{nearest(name, known)}")
        elif equals or index + 1 < len(argv):
            _check_value(name, value if equals else argv[index + 1], known[name])
            places[name] = f"option --{name}"
    return places


def _check_value(name: str, text: str, hint: Any) -> None:
    """Refuse an option's value of the wrong type in words; jsonargparse names Python's classes."""
    if str in options_of(hint):
        return
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        wanted = mismatch(None if node is None else node_value(node), hint)
    except (RecursionError, ValueError, yaml.YAMLError):  # ValueError: thousands of digits
        wanted = kind_of(hint)
    if wanted:
        raise ValueError(f"option --{name}: {shown(text)} given, must be {wanted}")


def shown(value: Any) -> str:
    """Return a value for an error, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python's limit on digits; a hexadecimal number may have more
        return "a number of thousands of digits"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def deep_place(text: str) -> str:
    """Describe where a YAML text, whose nesting ends its parser, is nested too deep."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):  # not recursive
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEP and event.start_mark is not None:
            return f"line {event.start_mark.line + 1}: not YAML: too deep"
    return "not YAML: too deep"


def _check_file(path: Path, known: dict[str, Any]) -> dict[str, str]:
    """Check the fields of a YAML file; return where each is given."""
    text = ""
    try:
        text = path.read_text(encoding="utf-8")
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        if not isinstance(tree, yaml.MappingNode):
            raise ValueError(f"config {path}: a mapping of fields is needed")
        return _check_entries(path, tree, known)
    except OSError as error:
        raise ValueError(f"config {path}: {error.strerror}") from None
    except RecursionError:
        raise ValueError(f"config {path}, {deep_place(text)}") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"config {path}{not_yaml(error)}") from None


def not_yaml(error: Exception) -> str:
    """Describe where a text stops to be YAML, and why, in one line."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return f": not YAML: {' '.join(str(error).split())}"
    parts = (getattr(error, "problem", None), getattr(error, "context", None))
    return f", line {mark.line + 1}: not YAML: {' '.join(filter(None, parts))}"


def _check_entries(path: Path, tree: yaml.MappingNode, known: dict[str, Any]) -> dict[str, str]:
    seen = {"": f"config {path}"}
    for name, line, node in _entries(tree):
        place = f"config {path}, line {line}"
        position = f"{place}, field {name}"
        if name not in known:
            raise ValueError(f"{position}: unknown{nearest(name, known)}")
        if name in seen:
            raise ValueError(f"{position}: given twice")
        seen[name] = place
        try:
            value = {} if isinstance(node, yaml.MappingNode) else node_value(node)
        except (ValueError, yaml.YAMLError):  # a number of thousands of digits, a Python object
            raise ValueError(f"{position}: not a value that a config can hold") from None
        if wanted := mismatch(value, known[name]):
            raise ValueError(f"{position}: {shown(value)} given, must be {wanted}")
    return seen


def node_value(node: yaml.Node) -> Any:
    """Return the value of a YAML node; 5e-5 is a number.

    Raises:
        ValueError, yaml.YAMLError: it is no plain value.
    """
    value = yaml.SafeLoader("").construct_object(node, deep=True)
    plain = isinstance(node, yaml.ScalarNode) and node.style is None
    if isinstance(value, str) and plain and value.lstrip("+-.")[:1].isdigit():
        with suppress(ValueError):
            return float(
                value
            )  # YAML 1.1, which PyYAML reads, takes 5e-5 without a point for a string
    return value


def _entries(tree: yaml.MappingNode, prefix: str = "") -> Iterator[tuple[str, int, yaml.Node]]:
    """Yield the fields of a YAML mapping: full name, line, value."""
    for key, node in tree.value:
        yield f"{prefix}{key.value}", key.start_mark.line + 1, node
        if isinstance(node, yaml.MappingNode):
            yield from _entries(node, f"{prefix}{key.value}.")


def mismatch(value: Any, hint: Any) -> str:
    """Return the expected type in words if a value is not of it, else ""."""
    if any(_is(value, option) for option in options_of(hint)):
        return ""
    return kind_of(hint)


def _is(value: Any, option: Any) -> bool:
    if dataclasses.is_dataclass(option):
        return isinstance(value, dict)
    if typing.get_origin(option) is typing.Literal:
        return value in typing.get_args(option)
    if option == tuple[str, ...]:
        return isinstance(value, list | tuple) and all(isinstance(v, str) for v in value)
    if isinstance(value, bool):
        return option is bool
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return False  # no tensor has such a size, and no float such a value
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return isinstance(value, int | float if option is float else option)


def _field_types(class_: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, hint in typing.get_type_hints(class_).items():
        yield prefix + name, hint
        for option in filter(dataclasses.is_dataclass, options_of(hint)):
            yield from _field_types(option, f"{prefix}{name}.")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint that names the most similar known field, or "" if none is similar.

    A field of the same section that ends with ``_`` and the name comes first, if it is the only
    one; then the most similar full name; then the most similar last part of a name.
    """
    section, _, end = name.rpartition(".")
    longer = [f for f in known if f.startswith(f"{section}.") and f.endswith(f"_{end}")]
    if len(longer) == 1:
        return f"; did you mean {longer[0]}?"
    if close := difflib.get_close_matches(name, sorted(known), 1, 0.6):
        return f"; did you mean {close[0]}?"
    last = {field.rpartition(".")[2]: field for field in sorted(known)}
    close = difflib.get_close_matches(name.rpartition(".")[2], sorted(last), 1, 0.6)
    return f"; did you mean {last[close[0]]}?" if close else ""
