"""Defines and reads the config of a study: rows as differences from a base run, and sizes."""

from __future__ import annotations

import dataclasses
import json
import re
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from turngraph.configs.kinds import kind_of
from turngraph.configs.parse import (
    compose,
    deep_place,
    differences,
    mismatch,
    nearest,
    node_value,
    not_yaml,
    read_config,
    shown,
)
from turngraph.configs.schema import Config, DataConfig
from turngraph.configs.shipped import find_config
from turngraph.configs.user_error import UserError

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Row:
    """One row of the study's table."""

    name: str
    """Name for folders and --rows: lower-case letters, digits and _."""
    label: str
    """Name in tables."""
    overrides: dict[str, Any] = field(default_factory=dict)
    """Config fields that differ from the study's base config, by dotted name."""
    core: bool = False
    """Run with every seed, before all other rows; other rows run with the first seed alone."""
    trainer: Literal["train", "gretriever"] = "train"
    """Program that trains it: ``turngraph train`` or gretriever.py."""
    checkpoint_of: str | None = None
    """Row whose checkpoint answers; this row trains nothing."""
    answer: dict[str, str] = field(default_factory=dict)
    """Options of ``turngraph answer``, such as ``cut_edges: entity``."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9_]+", self.name):
            raise UserError(f"rows.name: {self.name!r} given, must be of a-z, 0-9 and _")
        if self.checkpoint_of is not None and (self.overrides or self.trainer != "train"):
            raise UserError(f"row {self.name}: with checkpoint_of, overrides have no effect")


@dataclass(frozen=True)
class Claim:
    """A claim about two rows, the paper's or ours, that the report tests."""

    text: str
    """The claim in words."""
    row: str
    """The row that the claim says is better."""
    than: str
    """The row that it is compared with."""


@dataclass(frozen=True)
class Size:
    """A size of a study: numbers of questions, and estimated durations."""

    overrides: dict[str, Any] = field(default_factory=dict)
    """Config fields of all rows, by dotted name."""
    num_questions: int | None = None
    """Number of questions to answer, a fixed draw; null: all."""
    num_seeds: int | None = None
    """Use only the first of the study's seeds; null: all of them."""
    train_minutes: float = 10.0
    """Estimated minutes of one training, used until one has been measured."""
    answer_minutes: float = 5.0
    """Estimated minutes to answer with one row, used until some have been measured."""
    launcher: tuple[str, ...] = ()
    """Command that starts a module, such as [accelerate, launch, --num_processes, "8"]; empty: this
    Python. A word that names a file in configs/ becomes its path."""

    def __post_init__(self) -> None:
        if self.num_questions is not None and self.num_questions < 1:
            raise UserError(f"num_questions: {self.num_questions} given, must be positive or null")
        if self.num_seeds is not None and self.num_seeds < 1:
            raise UserError(f"num_seeds: {self.num_seeds} given, must be positive or null")


@dataclass(frozen=True)
class Study:
    """Rows and seeds on one benchmark."""

    title: str
    """Title of the report."""
    config: str
    """Config of the base run of all rows: a YAML file, or the name of a shipped one."""
    data: str
    """Folder with train.jsonl and ``dev``."""
    make_data: str
    """Command that makes a missing data file; {part} and {output} are filled in."""
    rows: tuple[Row, ...]
    """Rows in the order in which they run."""
    sizes: dict[str, Size]
    """Sizes by the name for --size."""
    dev: str = "dev.jsonl"
    """File that the report scores; settings are chosen on other questions."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Random seeds of the core rows; other rows use the first."""
    baselines: tuple[str, ...] = ("text_memory", "graph_memory")
    """Rows that all others are compared with, paired by question."""
    claims: tuple[Claim, ...] = ()
    """Claims to test."""
    by: tuple[str, ...] = ("source", "turn", "answer_type")
    """Breakdowns, one table each: groupings of ``turngraph score``."""
    single_answers_only: bool = False
    """Whether questions with a list as gold answer are left out."""
    discordance: float = 0.12
    """Assumed share of questions that exactly one of two rows hits, for the power."""

    def __post_init__(self) -> None:
        names = [row.name for row in self.rows]
        twice = sorted({name for name in names if names.count(name) > 1})
        _check(not twice, "rows", f"{twice} given twice")
        _check(len(self.seeds) > 0, "seeds", "at least one is needed")
        for row in self.rows:
            trained = [r.name for r in self.rows if r.checkpoint_of is None]
            known = row.checkpoint_of is None or row.checkpoint_of in trained
            _check(
                known,
                "rows",
                f"{row.name}: checkpoint_of {row.checkpoint_of!r} is not a trained row",
            )
        compared = [name for claim in self.claims for name in (claim.row, claim.than)]
        for name in (*self.baselines, *compared):
            _check(name in names, "baselines and claims", f"{name!r} is not a row")


def _check(holds: bool, name: str, wrong: str) -> None:
    if not holds:
        raise UserError(f"field {name}: {wrong}")


def read_study(name: str | Path) -> Study:
    """Read a study from a YAML file, or a shipped one by its name.

    Raises:
        UserError: the file is missing, is not YAML, or holds an unknown or wrong field; the
            message names file, line and field.
    """
    path = find_config(name, HERE)
    text = ""
    try:
        text = Path(path).read_text(encoding="utf-8")
        tree = compose(text)
        if tree is None:
            raise _WrongField("line 1: a mapping of fields is needed")
        study: Study = _read(Study, tree)
        return study
    except OSError as error:
        known = ", ".join(sorted(one.stem for one in HERE.glob("*.yaml")))
        raise UserError(f"study {path}: {error.strerror}; shipped are {known}") from None
    except RecursionError:
        raise UserError(f"study {path}, {deep_place(text)}") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"study {path}{not_yaml(error)}") from None
    except _WrongField as error:
        raise UserError(f"study {path}, {error}") from None


class _WrongField(Exception):
    """A field of a study is wrong; the message begins with its line."""


def _read(hint: Any, node: yaml.Node, name: str = "") -> Any:
    """Return the value of a YAML node, as a type of the study's fields.

    Raises:
        _WrongField: it has another type.
    """
    place = f"line {node.start_mark.line + 1}{f', field {name}' if name else ''}"
    inner = f"{name}." if name else ""
    if dataclasses.is_dataclass(hint):
        return _read_fields(hint, node, place, inner)
    if typing.get_origin(hint) is tuple and isinstance(node, yaml.SequenceNode):
        kind = typing.get_args(hint)[0]
        return tuple(_read(kind, item, f"{name}[{i}]") for i, item in enumerate(node.value))
    if typing.get_origin(hint) is dict and isinstance(node, yaml.MappingNode):
        kind = typing.get_args(hint)[1]
        yaml.SafeLoader("").flatten_mapping(node)  # what << names
        return {k.value: _read(kind, value, f"{inner}{k.value}") for k, value in node.value}
    try:
        value = node_value(node)
    except (ValueError, yaml.YAMLError):
        raise _WrongField(f"{place}: not a value that a study can hold") from None
    is_list_or_mapping = typing.get_origin(hint) in (tuple, dict)
    wanted = kind_of(hint) if is_list_or_mapping else hint is not Any and mismatch(value, hint)
    if wanted:
        raise _WrongField(f"{place}: {shown(value)} given, must be {wanted}")
    return value


def _read_fields(class_: Any, node: yaml.Node, place: str, inner: str) -> Any:
    """Return a dataclass with the values of a YAML mapping."""
    if not isinstance(node, yaml.MappingNode):
        raise _WrongField(f"{place}: a mapping of fields is needed")
    known, values = typing.get_type_hints(class_), {}
    for key, value in node.value:
        line = f"line {key.start_mark.line + 1}, field {inner}{key.value}"
        if key.value not in known:
            raise _WrongField(f"{line}: unknown{nearest(key.value, known)}")
        if key.value in values:
            raise _WrongField(f"{line}: given twice")
        values[key.value] = _read(known[key.value], value, f"{inner}{key.value}")
    for each in dataclasses.fields(class_):
        has_default = (each.default, each.default_factory) != (dataclasses.MISSING,) * 2
        if each.name not in values and not has_default:
            raise _WrongField(f"{place}: field {inner}{each.name} is missing")
    try:
        return class_(**values)
    except UserError as error:
        raise _WrongField(f"{place}: {error}") from None


def row_config(study: Study, size: Size, row: Row, seed: int, more: Sequence[str] = ()) -> Config:
    """Return the resolved config of a row's training.

    Args:
        study: base config and data.
        size: size with overrides of all rows; the row's own overrides come after them.
        row: a row that is trained.
        seed: random seed.
        more: ``--field=value`` overrides of all rows, as for ``turngraph train``; the row's own
            come after them.

    Raises:
        UserError: the config of a row is invalid (the row is named), or ``more`` sets a field that
            the study sets.
    """
    values = {
        "data.train": str(Path(study.data) / "train.jsonl"),
        "data.tune": None,
        "training.eval_every": None,
        "training.seed": seed,
        "data.single_answers_only": study.single_answers_only,
    }
    given = {word.partition("=")[0] for word in more}
    if taken := [name for name in values if f"--{name}" in given]:
        raise UserError(f"--{taken[0]}: the study sets it")
    first = [f"--{name}={_as_option(value)}" for name, value in (values | size.overrides).items()]
    last = [f"--{name}={_as_option(value)}" for name, value in row.overrides.items()]
    try:
        return read_config(find_config(study.config), *first, *more, *last)
    except UserError as error:
        raise UserError(f"row {row.name}: {error}") from None


def _as_option(value: Any) -> str:
    """Return a value as it is written on a command line."""
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def changed_fields(config: Config, leave_out: Sequence[str] = ()) -> dict[str, Any]:
    """Return the fields that differ from their defaults; new fields do not change the result.

    Args:
        config: a resolved config.
        leave_out: dotted names of fields to leave out.
    """
    default = Config(data=DataConfig(train=""))
    found = differences(default, config)
    return {name: value for name, (_, value) in found.items() if name not in leave_out}
