"""Reciprocal-rank fusion of rankings (Cormack, Clarke and Buettcher 2009)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from turngraph.data.types import Retrieved

RRF = 60


def fuse(rankings: Sequence[np.ndarray], num_nodes: int) -> np.ndarray:
    """Return the nodes by reciprocal-rank fusion (k 60) of rankings, best first, ties by number.

    Args:
        rankings: node numbers each, best first; a node may be missing.
        num_nodes: number of nodes; those in no ranking come last, by number.
    """
    return np.argsort(-fused_scores(rankings, num_nodes), kind="stable")


def fused_scores(rankings: Sequence[np.ndarray], num_nodes: int) -> np.ndarray:
    """Return the scores of ``fuse``, [num_nodes], rounded so that equal sums tie."""
    scores = np.zeros(num_nodes)
    for ranking in rankings:
        scores[ranking] += 1 / (RRF + 1 + np.arange(len(ranking)))
    return np.round(scores, 12)


def fuse_retrieved(rankings: Sequence[Sequence[Retrieved]], top_k: int) -> list[Retrieved]:
    """Return the best passages of several rankings by reciprocal-rank fusion, best first.

    A passage in several is one passage; ties are in the order of the rankings.

    Args:
        rankings: passages, best first.
        top_k: maximum number of passages.
    """
    scores: dict[tuple[str, str], float] = {}
    first: dict[tuple[str, str], Retrieved] = {}
    for ranking in rankings:
        for rank, retrieved in enumerate(ranking):
            key = retrieved.evidence.source, retrieved.evidence.text
            scores[key] = scores.get(key, 0.0) + 1 / (RRF + 1 + rank)
            first.setdefault(key, retrieved)
    order = sorted(first, key=lambda key: -round(scores[key], 12))[:top_k]
    return [replace(first[key], score=round(scores[key], 12)) for key in order]
