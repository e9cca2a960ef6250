"""A study: rows that differ from one run's config in what they say, and the sizes it is run in."""

from __future__ import annotations

import json
import re
from argparse import ArgumentError
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import jsonargparse
import yaml

from turngraph.configs.parse import differences, read_config
from turngraph.configs.schema import Config, DataConfig

Trainer = Literal["train", "trl", "gretriever"]
HERE = Path(__file__).resolve().parent
CONFIGS = HERE.parents[1] / "configs"


@dataclass(frozen=True)
class Row:
    """One row of the study's table."""

    name: str
    """Of its folders and for --rows: small letters, digits and _."""
    label: str
    """In tables and figures."""
    overrides: dict[str, Any] = field(default_factory=dict)
    """Config fields that differ from the study's base config, by their dotted names."""
    core: bool = False
    """Trained with every seed and before all others; the others with the first seed alone."""
    trainer: Trainer = "train"
    """train.py, benchmarks/study/trl_text.py or benchmarks/study/gretriever.py."""
    checkpoint_of: str | None = None
    """Answers with the checkpoint of another row, and trains nothing."""
    proposals_of: str | None = None
    """Chooses among what a row above it has proposed, one that answers from nodes."""
    answer: dict[str, str] = field(default_factory=dict)
    """Options of infer.py answer, such as ``cut_edges: entity``."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9_]+", self.name):
            raise ValueError(f"rows.name: {self.name!r} given, must be of a-z, 0-9 and _")
        if self.checkpoint_of is not None and (self.overrides or self.trainer != "train"):
            raise ValueError(f"row {self.name}: with checkpoint_of, overrides change nothing")


@dataclass(frozen=True)
class Claim:
    """What the paper says of two rows."""

    text: str
    """In words."""
    row: str
    """The row that it is said of."""
    than: str
    """The row that it is compared with."""


@dataclass(frozen=True)
class Size:
    """How much is trained and asked."""

    overrides: dict[str, Any] = field(default_factory=dict)
    """Config fields of all rows, by their dotted names."""
    num_questions: int | None = None
    """Questions answered, a fixed draw; null: all."""
    train_minutes: float = 10.0
    """What one row's training takes, until one has been measured."""
    answer_minutes: float = 5.0
    """What one row's answers take, until some have been measured."""
    launcher: tuple[str, ...] = ()
    """Put before train.py and infer.py, such as [accelerate, launch, --num_processes, "8"]; empty:
    this Python."""

    def __post_init__(self) -> None:
        if self.num_questions is not None and self.num_questions < 1:
            raise ValueError(f"num_questions: {self.num_questions} given, must be positive or null")


@dataclass(frozen=True)
class Study:
    """Rows x seeds on one benchmark."""

    title: str
    """Of the page."""
    config: str
    """The run that all rows start from: a YAML file, or the name of a shipped one."""
    data: str
    """Folder with train.jsonl and the file that is reported on."""
    make_data: str
    """The command that makes a missing file of it; {part} and {output} are filled in."""
    rows: tuple[Row, ...]
    """In the order in which they are run."""
    sizes: dict[str, Size]
    """By the name that --size takes."""
    dev: str = "dev.jsonl"
    """What is reported on; settings are found on other tables."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Of the core rows; the others have the first."""
    baselines: tuple[str, ...] = ("text_memory", "graph_memory")
    """Rows that the others are compared with, question by question."""
    claims: tuple[Claim, ...] = ()
    """What is tested first."""
    by: tuple[str, ...] = ("source", "turn", "answer_type")
    """Breakdowns, each a figure: groupings of infer.py score."""
    single_answers_only: bool = False
    """Leave out questions whose gold answer is a list."""
    discordance: float = 0.12
    """Share of questions that two rows are taken to answer differently, until it is measured."""

    def __post_init__(self) -> None:
        names = [row.name for row in self.rows]
        twice = sorted({name for name in names if names.count(name) > 1})
        _check(not twice, "rows", f"{twice} given twice")
        _check(len(self.seeds) > 0, "seeds", "at least one is needed")
        for row in self.rows:
            trained = [r.name for r in self.rows if r.checkpoint_of is None]
            known = row.checkpoint_of is None or row.checkpoint_of in trained
            _check(known, "rows", f"{row.name}: checkpoint_of {row.checkpoint_of!r} is no such row")
            above = self.rows[: names.index(row.name)]
            fits = [r.name for r in above if r.core or not row.core]  # of every seed that it has
            wrong = (
                f"{row.name}: proposals_of {row.proposals_of!r} is no row above of as many seeds"
            )
            _check(row.proposals_of in [None, *fits], "rows", wrong)
        compared = [name for claim in self.claims for name in (claim.row, claim.than)]
        for name in (*self.baselines, *compared):
            _check(name in names, "baselines and claims", f"{name!r} is no row")


def _check(holds: bool, name: str, wrong: str) -> None:
    if not holds:
        raise ValueError(f"field {name}: {wrong}")


def find_yaml(name: str | Path, folder: Path) -> Path:
    """Return a YAML file that is given by its path, or by its name in a folder of this package.

    Args:
        name: such as ``my/study.yaml``, or ``sqa`` for ``folder/sqa.yaml``.
        folder: of the shipped files.
    """
    path = Path(name)
    shipped = folder / path.with_suffix(".yaml")
    return shipped if not path.is_file() and shipped.is_file() else path


def read_study(name: str | Path) -> Study:
    """Read a study from a YAML file, or one of those beside this module by its name.

    Raises:
        ValueError: the file is missing, is not YAML, or holds an unknown or wrong field.
    """
    path = find_yaml(name, HERE)
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("study", type=Study)
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        return _study(parser.parse_object({"study": values}).as_dict()["study"])
    except OSError as error:
        raise ValueError(f"study {path}: {error.strerror}") from None
    except (ArgumentError, ValueError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"study {path}: {' '.join(str(error).split())}") from None


def _study(values: dict[str, Any]) -> Study:
    """A study out of checked plain values."""
    nested = {
        "rows": tuple(Row(**row) for row in values["rows"]),
        "claims": tuple(Claim(**claim) for claim in values["claims"]),
        "sizes": {
            name: Size(**size | {"launcher": tuple(size["launcher"])})
            for name, size in values["sizes"].items()
        },
    }
    plain = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    return Study(**plain | nested)


def row_config(study: Study, size: Size, row: Row, seed: int, more: Sequence[str] = ()) -> Config:
    """The resolved config of a row's training.

    Args:
        study: base config and data.
        size: its overrides come before the row's.
        row: one that is trained.
        seed: of everything that is drawn.
        more: ``--field=value`` overrides of all rows, as on train.py's command line; what makes a
            row what it is stays.

    Raises:
        ValueError: a config that cannot be, named with its row; ``more`` has a field that the study
            sets.
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
        raise ValueError(f"--{taken[0]}: the study itself sets it")
    first = [f"--{name}={_text(value)}" for name, value in (values | size.overrides).items()]
    last = [f"--{name}={_text(value)}" for name, value in row.overrides.items()]
    try:
        return read_config(find_yaml(study.config, CONFIGS), *first, *more, *last)
    except ValueError as error:
        raise ValueError(f"row {row.name}: {error}") from None


def _text(value: Any) -> str:
    """A value as a command line says it."""
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def said(config: Config, but: Sequence[str] = ()) -> dict[str, Any]:
    """What a config says that is not the default: the same after a field has been added.

    Args:
        config: a whole config.
        but: dotted names of fields to leave out.
    """
    default = Config(data=DataConfig(train=""))
    found = differences(default, config)
    return {name: value for name, (_, value) in found.items() if name not in but}
