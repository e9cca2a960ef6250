"""Flat retrieval: the facts closest to the question, wherever they are in the graph."""

from __future__ import annotations

import numpy as np

from turngraph.data.memory_graph.recall.traverse_settings import Flat
from turngraph.data.memory_graph.recall.view import View


def flat(view: View, settings: Flat | None = None) -> np.ndarray:
    """Keys of the facts closest to the question by their vectors, best first, int64.

    The papers' naive retriever: no traversal, so it finds something without a linked object too.

    Args:
        view: the graph as the question sees it.
        settings: how many; None: 50.
    """
    return view.nearest((settings or Flat()).top_k)
