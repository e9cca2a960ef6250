"""Conversational question answering with a graph of evidence inside a language model's prompt.

    import turngraph

    qa = turngraph.load("runs/demo/best")
    chat = qa.chat(evidence=["docs/", "pool.jsonl"], memory="my.db")
    print(chat.ask("Who wrote Dune?").text)

Names are imported when they are first used, so that ``import turngraph`` loads no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turngraph.data.memory_graph.graph import MemoryGraph
    from turngraph.data.types import Answer, Conversation, Entity, Evidence, Turn
    from turngraph.inference.api import QA, load
    from turngraph.inference.options import MemoryOptions

__all__ = [
    "QA",
    "Answer",
    "Conversation",
    "Entity",
    "Evidence",
    "MemoryGraph",
    "MemoryOptions",
    "Turn",
    "__version__",
    "load",
]
_MODULES = {
    "QA": "inference.api",
    "load": "inference.api",
    "MemoryGraph": "data.memory_graph.graph",
    "MemoryOptions": "inference.options",
    **dict.fromkeys(("Answer", "Conversation", "Entity", "Evidence", "Turn"), "data.types"),
}


def __getattr__(name: str) -> Any:
    """Import a name of the Python API when it is first used."""
    if name == "__version__":
        from importlib.metadata import version

        return version("turngraph")
    if name not in _MODULES:
        raise AttributeError(f"module 'turngraph' has no attribute {name!r}")
    return getattr(import_module(f"turngraph.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    """List the names of the Python API."""
    return sorted(__all__)
