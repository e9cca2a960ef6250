"""Retrieves the facts closest to the question, without traversal."""

from __future__ import annotations

import numpy as np

from turngraph.data.memory_graph.recall.traverse_settings import Flat
from turngraph.data.memory_graph.recall.view import View


def flat(view: View, settings: Flat | None = None) -> np.ndarray:
    """Return the keys of the facts closest to the question by their vectors, best first, int64.

    This is the papers' naive retriever. It needs no linked object.

    Args:
        view: the graph as the question sees it.
        settings: number of facts; None: 50.
    """
    return view.nearest((settings or Flat()).top_k)
