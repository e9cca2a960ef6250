"""Writes the help of ``train.py`` from the docstrings of the config, without loading torch."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import typing
from collections.abc import Iterator
from typing import Any

from turngraph.configs import memory_schema, schema
from turngraph.configs.kinds import kind_of, options_of

START_OPTIONS = {
    "config": ("FILE", "YAML file or name of a shipped config; later options override it"),
    "fresh": ("", "remove earlier runs in training.output"),
    "resume_anyway": ("", "resume even if the config differs in fields that may change in a run"),
    "dry_run": ("", "time a few steps, print the estimated time and memory, and exit"),
    "for_gpu": ("GPUS", "with --dry_run, for GPUs that are not here: h200, h100x8, a100-80gx16"),
    "max_minutes": ("MINUTES", "save and stop after this time; the same command resumes"),
}
"""Options of ``train.py`` that are not fields of the config."""
USAGE = """\
usage: {prog} --config FILE [--any.field VALUE ...] [--fresh] [--dry_run] [...]

Trains a checkpoint as a config says; the same command resumes a run. `turngraph configs` lists the
shipped configs. Each field below is a key in YAML and an option here, with its default in
parentheses. `extends: sqa/graph` in YAML takes all fields of that config which the file does not
give.
"""


def train_help(prog: str) -> str:
    """Return the help of the training command: its options, and every field by section."""
    lines = [USAGE.format(prog=prog), "start:"]
    for name, (value, meaning) in START_OPTIONS.items():
        lines += _entry(f"--{name} {value}".rstrip(), meaning)
    for section, class_, fields in _sections(schema.Config):
        lines += ["", f"{section}: {docstrings()[class_.__name__, '']}"]
        for name, kind, default, meaning in fields:
            lines += _entry(f"--{section}.{name}: {kind} ({default})", meaning)
    return "\n".join(lines) + "\n"


def _entry(option: str, meaning: str) -> list[str]:
    text = textwrap.wrap(meaning, 92, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return [f"  {option}", *text]


def _sections(
    class_: type[Any], prefix: str = ""
) -> Iterator[tuple[str, type[Any], list[tuple[str, str, str, str]]]]:
    """Yield each section's dotted name and class, and its fields.

    A field is its name, its type in words, its default and its docstring.
    """
    hints = typing.get_type_hints(class_)
    fields, inner = [], []
    for field in dataclasses.fields(class_):
        name, hint = field.name, hints[field.name]
        classes = [option for option in options_of(hint) if dataclasses.is_dataclass(option)]
        if classes:
            inner.append((f"{prefix}{name}", classes[0]))
        else:
            meaning = docstrings()[class_.__name__, name]
            fields.append((name, kind_of(hint), _as_yaml(field.default), meaning))
    if fields:
        yield prefix.removesuffix("."), class_, fields
    for name, section in inner:
        yield from _sections(typing.cast(type[Any], section), f"{name}.")


def _as_yaml(default: object) -> str:
    """Return a default as YAML writes it."""
    if default is None or isinstance(default, bool):
        return {None: "null", True: "true", False: "false"}[default]
    if isinstance(default, tuple):
        return f"[{', '.join(map(str, default))}]"
    return f"{default:g}" if isinstance(default, float) else str(default)


def docstrings() -> dict[tuple[str, str], str]:
    """Return the docstrings of the config's classes and fields, by (class, field or "")."""
    modules = (schema, memory_schema)
    trees = [ast.parse(inspect.getsource(module)) for module in modules]
    descriptions: dict[tuple[str, str], str] = {}
    statements = [statement for tree in trees for statement in tree.body]
    for class_ in (statement for statement in statements if isinstance(statement, ast.ClassDef)):
        descriptions[class_.name, ""] = " ".join((ast.get_docstring(class_) or "").split())
        for field, text in zip(class_.body, class_.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                value = text.value if isinstance(text, ast.Expr) else None
                doc = value.value if isinstance(value, ast.Constant) else ""
                descriptions[class_.name, field.target.id] = " ".join(str(doc).split())
    return descriptions
