"""Imports ``bm25s`` without JAX.

Where JAX is installed, ``bm25s`` starts it when it is imported, for a top-k that is not used here,
and JAX then reserves three quarters of a GPU's memory.
"""

from __future__ import annotations

import sys
from typing import Any

_modules: dict[str, Any] = sys.modules
_is_hidden = "jax" not in _modules
if _is_hidden:
    _modules["jax"] = None  # its import then fails
try:
    import bm25s
    from bm25s.stopwords import STOPWORDS_EN
finally:
    if _is_hidden:
        del _modules["jax"]

__all__ = ["STOPWORDS_EN", "bm25s"]
