"""Reads JSON files that Turngraph wrote itself, and hashes files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from turngraph.configs.user_error import UserError


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a file that holds one JSON object.

    Raises:
        UserError: the file holds anything else; the message names it.
        OSError: the file cannot be read.
    """
    try:
        value = json.loads(path.read_bytes())
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise UserError(f"{path}: damaged, not JSON ({place})") from None
    except RecursionError:  # deep nesting ends the parser
        raise UserError(f"{path}: damaged, not JSON: too deep") from None
    except ValueError:  # not UTF-8, or a number of more digits than Python reads
        raise UserError(f"{path}: damaged, not JSON") from None
    if not isinstance(value, dict):
        raise UserError(f"{path}: damaged, not a JSON object")
    return value


def file_hash(path: str | Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
