"""Reciprocal-rank fusion of rankings (Cormack, Clarke and Buettcher 2009)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

RRF = 60


def fuse(rankings: Sequence[np.ndarray], num_nodes: int) -> np.ndarray:
    """Return the nodes by reciprocal-rank fusion (k 60) of rankings, best first, ties by number.

    Args:
        rankings: node numbers each, best first; a node may be missing.
        num_nodes: number of nodes; those in no ranking come last, by number.
    """
    scores = np.zeros(num_nodes)
    for ranking in rankings:
        scores[ranking] += 1 / (RRF + 1 + np.arange(len(ranking)))
    return np.argsort(-np.round(scores, 12), kind="stable")
