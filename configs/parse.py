"""Reads a checked ``Config`` from YAML and command line, and writes it back."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from turngraph.configs.kinds import FieldError, kind_of, options_of
from turngraph.configs.schema import Config, DataConfig
from turngraph.configs.shipped import find_config, shipped_configs, with_shipped_configs
from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural, similar

MOST_SHOWN = 80
"""Characters of a value in an error."""
QUICK: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's loader if PyYAML was built with it, else PyYAML's own."""
EXTENDS = "extends"
"""Key of a YAML file that names another config, for the fields that the file does not set."""
DEEP = 50
"""Deepest nesting of YAML that is read: no config needs as much, and every parser can read it."""


def load_config(argv: Sequence[str]) -> Config:
    """Read the config of a command line: ``--config FILE.yaml`` and ``--any.field VALUE``.

    Raises:
        UserError: a file is missing or not YAML, a field is unknown (the message names the most
            similar one), or a value has the wrong type or is out of range. The message names file
            and line, or the option.
    """
    values = _defaults(Config)
    places: dict[str, str] = {}
    for field in _given(with_shipped_configs(argv)):
        _assign(values, field)
        places[field.name] = field.place
    try:
        config: Config = _build(Config, values)
        return config
    except FieldError as error:
        raise UserError(_placed(error, places)) from None


@dataclass(frozen=True)
class Given:
    """A field that a file or an option gives.

    Args:
        name: full name, such as training.seed; "" for a file itself.
        value: its value; an empty dictionary for a section, whose fields follow.
        place: "config FILE, line 3" or "option --training.seed".
    """

    name: str
    value: Any
    place: str


def _assign(values: dict[str, Any], field: Given) -> None:
    """Set a field in nested values; a section that was null gets its defaults first."""
    if not field.name:
        return
    class_: Any = Config
    *sections, last = field.name.split(".")
    for name in sections:
        class_ = _section(_hints(class_)[name])
        if values[name] is None:
            values[name] = _defaults(class_)
        values = values[name]
    inner = _section(_hints(class_)[last])
    if inner is None or field.value is None:
        values[last] = field.value
    elif values[last] is None:
        values[last] = _defaults(inner)


def _defaults(class_: Any) -> dict[str, Any]:
    """Return the defaults of a section's fields, nested."""
    return {
        field.name: _plain(field.default)
        if field.default is not dataclasses.MISSING
        else _defaults(field.default_factory)
        for field in dataclasses.fields(class_)
    }


def _section(hint: Any) -> Any:
    """Return the dataclass of a section of fields, None for another type."""
    return next(filter(dataclasses.is_dataclass, options_of(hint)), None)


@functools.cache
def _hints(class_: Any) -> dict[str, Any]:
    return typing.get_type_hints(class_)


def _placed(error: FieldError, places: dict[str, str]) -> str:
    """Return an error's text with the place of its field, else of its section, else of the file."""
    names = error.name.split(" and ")
    name = next((name for name in names if name in places), names[0])
    while name not in places:
        if not name:
            return str(error)
        name = name.rpartition(".")[0]
    place = places[name]
    is_all = place == f"option --{error.name}"
    return f"{place}{'' if is_all else f', field {error.name}'}: {error.problem}"


FLAGS = ("fresh", "resume_anyway", "dry_run")
VALUES = ("max_minutes", "for_gpu")
"""Options of train.py beside the config's fields."""


def parse_train_options(argv: Sequence[str]) -> tuple[argparse.Namespace, Config]:
    """Parse the command line of train.py: its own options, and the config.

    Raises:
        UserError: as ``load_config``, no config is given, or an own option is wrong.
    """
    parser = argparse.ArgumentParser(prog="train.py", add_help=False, allow_abbrev=False)
    for name in FLAGS:
        parser.add_argument(f"--{name}", action="store_true")
    for name in VALUES:
        parser.add_argument(f"--{name}")
    options, rest = parser.parse_known_args(argv)
    if options.for_gpu is not None and not options.dry_run:
        raise UserError("option --for_gpu: must come with --dry_run, as --for_gpu only estimates")
    if not rest:
        raise UserError("no --config FILE.yaml; `turngraph configs` lists those that are shipped")
    if (text := options.max_minutes) is not None:
        [given] = _of_option("max_minutes", text, {"max_minutes": float})
        if given.value <= 0:
            raise UserError(f"option --max_minutes: {text} given, must be positive")
        options.max_minutes = float(given.value)
    return options, load_config(rest)


def _build(class_: Any, values: dict[str, Any]) -> Any:
    """Build a dataclass from nested plain values of the right types."""
    built: dict[str, Any] = {}
    for name, hint in _hints(class_).items():
        value, inner = values[name], _section(hint)
        if inner is not None and value is not None:
            value = _build(inner, value)
        elif float in options_of(hint) and value is not None:
            value = float(value)
        built[name] = tuple(value) if isinstance(value, list) else value
    return class_(**built)


def read_config(path: str | Path, *overrides: str) -> Config:
    """Read the config of a YAML file, with ``--field=value`` overrides.

    Raises:
        UserError: as ``load_config``.
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


def changed_fields(config: Config) -> list[str]:
    """Return the fields that differ from the default, as "name: value", and a count of the rest."""
    default = Config(data=DataConfig(train=""))  # train has no default
    changed = {name: values[0] for name, values in differences(config, default).items()}
    lines = [f"{name}: {_written(value)}" for name, value in changed.items()]
    rest = sum(name not in changed for name, _ in _flat(_plain(config)))
    return [*lines, f"and {plural(rest, 'field')} with default values"]


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


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


def _given(argv: Sequence[str]) -> Iterator[Given]:
    """Yield the fields of files and options in their order; the later ones hold.

    Raises:
        UserError: a field is unknown (the nearest known one is named) or of the wrong type.
    """
    known = dict(_field_types(Config))
    words = iter(argv)
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            raise UserError(f"{shown(word)}: neither an option nor the value of one")
        if name != "config" and name not in known:
            plain = name.replace("-", "_")
            near = similar(plain, ("config", *FLAGS, *VALUES)) or nearest_field(plain, known)
            hint = f"; did you mean --{near}?" if near else ""
            raise UserError(f"unknown option --{name}{hint}")
        if not equals:
            value = next(words, "--")
            if value.startswith("--"):
                wanted = "file" if name == "config" else "value"
                raise UserError(f"option --{name}: a {wanted} is needed")
        if name == "config":
            yield from _of_file(Path(value), known)
        else:
            yield from _of_option(name, value, known)


def _of_option(name: str, text: str, known: dict[str, Any]) -> Iterator[Given]:
    """Yield the field that an option sets and, if its value is a mapping, the fields in it."""
    place, hint = f"option --{name}", known[name]
    if str in options_of(hint):
        is_null = text == "null" and types.NoneType in options_of(hint)
        yield Given(name, None if is_null else text, place)
        return
    try:
        node = compose(text)
        value = {} if isinstance(node, yaml.MappingNode) else node and node_value(node)
        wanted = mismatch(value, hint)
    except (RecursionError, ValueError, yaml.YAMLError):  # ValueError: thousands of digits
        wanted = kind_of(hint)
    if wanted:
        raise UserError(f"{place}: {shown(text)} given, must be {wanted}")
    yield Given(name, value, place)
    if isinstance(node, yaml.MappingNode):
        inner = _of_entries(place, node, known, f"{name}.")
        yield from (dataclasses.replace(field, place=place) for field in inner)


def compose(text: str) -> yaml.Node | None:
    """Read YAML by libyaml; on an error, by PyYAML's own parser, whose message is clearer.

    Raises:
        RecursionError: it is nested too deep; ``deep_place`` says where.
        yaml.YAMLError: it is not YAML.
    """
    try:
        if deep_place(text):
            raise RecursionError
        return yaml.compose(text, Loader=QUICK)
    except yaml.YAMLError:
        return yaml.compose(text, Loader=yaml.SafeLoader)


def shown(value: Any) -> str:
    """Return a value for an error, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python's limit on digits; a hexadecimal number may have more
        return "a number of thousands of digits"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def deep_place(text: str) -> str:
    """Describe where a YAML text is nested deeper than parsers read it; "" if nowhere.

    Raises:
        yaml.YAMLError: it is not YAML.
    """
    depth = 0
    for event in yaml.parse(text, Loader=QUICK):  # not recursive
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEP and event.start_mark is not None:
            return f"line {event.start_mark.line + 1}: not YAML: too deep"
    return ""


def _of_file(
    path: Path, known: dict[str, Any], extended_by: frozenset[Path] = frozenset()
) -> Iterator[Given]:
    """Yield a YAML file's fields, checked; before them those of the file that it ``extends``.

    Args:
        path: the file.
        known: types of all fields, by name.
        extended_by: files that extend this one.
    """
    text = ""
    try:
        text = path.read_text(encoding="utf-8")
        tree = compose(text)
        if not isinstance(tree, yaml.MappingNode):
            raise UserError(f"config {path}: a mapping of fields is needed")
        inner = extended_by | {path.resolve()}
        for base in _extended(path, tree):
            if base.resolve() in inner:
                raise UserError(f"config {path}, field {EXTENDS}: {base} extends this file")
            yield from _of_file(base, known, inner)
        yield Given("", None, f"config {path}")
        yield from _of_entries(f"config {path}", tree, known)
    except OSError as error:
        raise UserError(f"config {path}: {error.strerror}{_shipped_hint(path)}") from None
    except RecursionError:
        raise UserError(f"config {path}, {deep_place(text)}") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"config {path}{not_yaml(error)}") from None


def _extended(path: Path, tree: yaml.MappingNode) -> Iterator[Path]:
    """Take ``extends`` out of a file's fields; yield the file that it names.

    The name is a path relative to the file, or what ``--config`` takes, such as ``sqa/graph``.
    """
    for entry in [entry for entry in tree.value if entry[0].value == EXTENDS]:
        tree.value.remove(entry)
        place = f"config {path}, line {entry[0].start_mark.line + 1}, field {EXTENDS}"
        name = node_value(entry[1])
        if not isinstance(name, str):
            raise UserError(f"{place}: {shown(name)} given, must be the name of a config")
        beside = path.parent / name
        base = beside if beside.is_file() else find_config(name)
        if not base.is_file():
            raise UserError(f"{place}: {shown(name)} given: no such config{_shipped_hint(base)}")
        yield base


def _shipped_hint(path: Path) -> str:
    near = similar(str(path), [name for name, _ in shipped_configs()])
    meant = f"; did you mean {near}?" if near else ";"
    return f"{meant} `turngraph configs` lists those that are shipped"


def not_yaml(error: Exception) -> str:
    """Describe where a text stops being YAML, and why, in one line."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return f": not YAML: {' '.join(str(error).split())}"
    parts = (getattr(error, "problem", None), getattr(error, "context", None))
    return f", line {mark.line + 1}: not YAML: {' '.join(filter(None, parts))}"


def _of_entries(
    source: str, tree: yaml.MappingNode, known: dict[str, Any], prefix: str = ""
) -> Iterator[Given]:
    """Yield the fields of a mapping, checked."""
    seen = set()
    for name, line, node in _entries(tree, prefix):
        place = f"{source}, line {line}"
        position = f"{place}, field {name}"
        if name not in known:
            raise UserError(f"{position}: unknown{nearest(name, known)}")
        if name in seen:
            raise UserError(f"{position}: given twice")
        seen.add(name)
        try:
            value = {} if isinstance(node, yaml.MappingNode) else node_value(node)
        except (ValueError, yaml.YAMLError):  # a number of thousands of digits, a Python object
            raise UserError(f"{position}: not a value that a config can hold") from None
        if wanted := mismatch(value, known[name]):
            raise UserError(f"{position}: {shown(value)} given, must be {wanted}")
        yield Given(name, value, place)


def node_value(node: yaml.Node) -> Any:
    """Return the value of a YAML node; 5e-5 is a number.

    Raises:
        ValueError, yaml.YAMLError: it is no plain value.
    """
    value = yaml.SafeLoader("").construct_object(node, deep=True)
    plain = isinstance(node, yaml.ScalarNode) and not node.style  # libyaml's nodes have ""
    if isinstance(value, str) and plain and value.lstrip("+-.")[:1].isdigit():
        with suppress(ValueError):
            return float(value)  # PyYAML's YAML 1.1 takes 5e-5, without a point, for a string
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
    for name, hint in _hints(class_).items():
        yield prefix + name, hint
        for option in filter(dataclasses.is_dataclass, options_of(hint)):
            yield from _field_types(option, f"{prefix}{name}.")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint that names the most similar known field, or "" if none is similar."""
    near = nearest_field(name, known)
    return f"; did you mean {near}?" if near else ""


def nearest_field(name: str, known: Iterable[str]) -> str | None:
    """Return the most similar known field; None: none is similar.

    A field of the same section that ends with ``_`` and the name comes first, if it is the only
    one; then the most similar full name; then the most similar last part of a name.
    """
    section, _, end = name.rpartition(".")
    longer = [f for f in known if f.startswith(f"{section}.") and f.endswith(f"_{end}")]
    if len(longer) == 1:
        return longer[0]
    if close := similar(name, known):
        return close
    last = {field.rpartition(".")[2]: field for field in sorted(known)}
    close = similar(name.rpartition(".")[2], last)
    return last[close] if close else None
