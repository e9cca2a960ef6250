"""Decomposes similarity graphs: leading eigenpairs of L = D^-1/2 W D^-1/2, with their residuals.

The first pair of a connected graph is known, x = D^1/2 1 with eigenvalue 1. It is deflated, so that
the solver looks for the others only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from turngraph.data.eigen.similarity_graph import Neighbours

MAX_DENSE = 600
"""Largest connected graph that is decomposed as a dense matrix."""
TOLERANCE = 1e-6

Multiply = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Eigenpairs of a connected graph.

    Args:
        chunks: [n] numbers of its chunks, ascending.
        values: [K] eigenvalues, descending; the first is 1.
        vectors: [n, K] float64, orthonormal; the first is D^1/2 1, the others have a fixed sign.
        residual: largest norm of L x - lambda x.
    """

    chunks: np.ndarray
    values: np.ndarray
    vectors: np.ndarray
    residual: float


def connected_parts(graph: Neighbours, number: int) -> list[Part]:
    """Return up to ``number`` eigenpairs of every connected component, in order of first chunks.

    Raises:
        ValueError: the solver does not converge.
    """
    count = len(graph.starts) - 1
    weights = scipy.sparse.csr_matrix(
        (graph.weights.astype(np.float64), graph.chunks, graph.starts), shape=(count, count)
    )
    num_parts, of = connected_components(weights, directed=False)
    parts = []
    for index in range(num_parts):
        chunks = np.flatnonzero(of == index)
        inside = weights if num_parts == 1 else weights[chunks][:, chunks]
        parts.append(_part(chunks, inside, number))
    return parts


def _part(chunks: np.ndarray, weights: scipy.sparse.csr_matrix, number: int) -> Part:
    degrees = np.asarray(weights.sum(axis=1)).ravel()
    scale = scipy.sparse.diags(1 / np.sqrt(degrees))
    normal = (scale @ weights @ scale).tocsr()
    return _eigenpairs(chunks, lambda z: normal @ z, np.sqrt(degrees), number, normal)


def complete_part(own: np.ndarray, asked: np.ndarray, number: int) -> Part:
    """Return eigenpairs of the complete graph, whose n^2 similarities are never stored.

    W z = (1'z) / 2 + (U V'z + V U'z) / 4 - diag(W) z, in O(n d).

    Args:
        own, asked: [n, d] V and U, of ``similarity_graph.own_and_asked``.
        number: number of eigenpairs, the trivial one included.

    Raises:
        ValueError: the solver does not converge.
    """
    count = len(own)
    diagonal = 0.5 + 0.5 * np.einsum("ij,ij->i", own, asked).astype(np.float64)

    def weighted(z: np.ndarray) -> np.ndarray:
        single = z.astype(np.float32)
        if asked is own:
            near = 2.0 * (own @ (own.T @ single)).astype(np.float64)
        else:
            near = (asked @ (own.T @ single)).astype(np.float64)
            near += own @ (asked.T @ single)
        product: np.ndarray = 0.5 * z.sum() + 0.25 * near - diagonal * z
        return product

    root = np.sqrt(np.maximum(weighted(np.ones(count)), 1e-9))
    return _eigenpairs(np.arange(count), lambda z: weighted(z / root) / root, root, number)


def _eigenpairs(
    chunks: np.ndarray,
    multiply: Multiply,
    trivial: np.ndarray,
    number: int,
    matrix: scipy.sparse.csr_matrix | None = None,
) -> Part:
    """Return the trivial pair and the next ones; dense where a small matrix is given."""
    count, trivial = len(chunks), trivial / np.linalg.norm(trivial)

    # Down by 3, not by 1: other eigenvalues may be negative, and the trivial one has to come last.
    def deflated(z: np.ndarray) -> np.ndarray:
        z = z.ravel()
        product: np.ndarray = multiply(z) - 3 * trivial * (trivial @ z)
        return product

    num_wanted = min(number, count) - 1
    if num_wanted < 1:
        values, vectors = np.zeros(0), np.zeros((count, 0))
    elif matrix is not None and (count <= MAX_DENSE or num_wanted >= count - 1):
        values, vectors = np.linalg.eigh(matrix.toarray() - 3 * np.outer(trivial, trivial))
        values, vectors = values[::-1][:num_wanted], vectors[:, ::-1][:, :num_wanted]
    else:
        values, vectors = _solved(deflated, count, num_wanted)
    vectors = vectors * _signs(vectors)
    pairs = zip(values, vectors.T, strict=True)
    products = [multiply(vector) - value * vector for value, vector in pairs]
    residual = max((float(np.linalg.norm(product)) for product in products), default=0.0)
    values = np.concatenate([[1.0], np.minimum(values, 1)])
    return Part(chunks, values, np.column_stack([trivial, vectors]), residual)


def _solved(multiply: Multiply, count: int, wanted: int) -> tuple[np.ndarray, np.ndarray]:
    operator = LinearOperator((count, count), matvec=multiply, dtype=np.float64)
    start = np.random.default_rng(count).standard_normal(count)
    try:
        values, vectors = eigsh(
            operator, k=min(wanted, count - 2), which="LA", v0=start, tol=TOLERANCE
        )
    except ArpackNoConvergence as error:
        raise ValueError(f"themes of {count} chunks: the eigenpairs did not converge") from error
    order = np.argsort(-values, kind="stable")
    return values[order], vectors[:, order]


def _signs(vectors: np.ndarray) -> np.ndarray:
    """Return the signs that make the largest entry of each vector positive."""
    if not vectors.size:
        return np.ones(vectors.shape[1])
    largest = np.abs(np.round(vectors, 9)).argmax(axis=0)
    return np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)
