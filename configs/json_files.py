"""Reads JSON files that Turngraph wrote itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a file that holds one JSON object.

    Raises:
        ValueError: it is something else; the message names the file.
        OSError: it cannot be read.
    """
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError):  # deep nesting ends the parser
        raise ValueError(f"{path}: damaged, not JSON") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path}: damaged, not a JSON object")
    return value
