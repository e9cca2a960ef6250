"""Describes types of config fields in words, for help and errors; defines ``FieldError``."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

from turngraph.configs.user_error import UserError

KINDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "a string",
    bool: "true or false",
    types.NoneType: "null",
    tuple[str, ...]: "a list of strings",
}


class FieldError(UserError):
    """A config field has a value that is out of range, or does not fit those of other fields.

    Args:
        name: dotted name of the field, or names with " and " between.
        problem: its value, and what it must be.
    """

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"config field {name}: {problem}")
        self.name, self.problem = name, problem


def check(holds: bool, name: str, value: object, must: str) -> None:
    """Check a condition of a config field.

    Raises:
        FieldError: it does not hold; the message has the field's name and value.
    """
    if not holds:
        raise FieldError(name, f"{value!r} given, {must}")


def options_of(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union type, or the type itself."""
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def kind_of(hint: Any) -> str:
    """Return a type in words: "a whole number or null"."""
    return " or ".join(map(_kind, options_of(hint)))


def _kind(option: Any) -> str:
    origin = typing.get_origin(option)
    if option in KINDS:
        return KINDS[option]
    if dataclasses.is_dataclass(option) or origin is dict:
        return "a mapping of fields"
    if origin is tuple:
        return "a list"
    return "one of " + ", ".join(typing.get_args(option))
