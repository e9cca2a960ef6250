"""Makes the similarity graph of chunks from the vectors of their texts and utility questions.

The paper's similarity of chunks t and v, the sum over questions j of cos(v_tj, v_v) with v_tj the
mean of text and question, is not symmetric. Here w_tv = (1 + (u_t v_v + u_v v_t) / 2) / 2, where
u_t is the mean of the unit vectors v_tj: symmetric, and from 0 to 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse

from turngraph.configs.user_error import UserError

DECIMALS = 6
"""Decimals of similarities: further digits depend on the rows that are computed together."""
BLOCK_ENTRIES = 1 << 20
"""Entries of a block of similarities: 4 MB."""
MIN_NORM = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """Symmetric graph over chunks, as compressed rows (CSR); no chunk is its own neighbour.

    Args:
        starts: [n + 1] where each chunk's row begins.
        chunks: [e] the neighbours, by number within each row.
        weights: [e] float32 similarities w in [0, 1].
    """

    starts: np.ndarray
    chunks: np.ndarray
    weights: np.ndarray

    def of(self, chunk: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the neighbours of a chunk and their weights."""
        row = slice(int(self.starts[chunk]), int(self.starts[chunk + 1]))
        return self.chunks[row], self.weights[row]


def unit_vectors(vectors: np.ndarray, what: str) -> np.ndarray:
    """Return vectors as float32 of norm 1; those that have it are not copied.

    Args:
        vectors: [n, d].
        what: names a row in errors.

    Raises:
        UserError: a vector is zero or not finite; the error names its number.
    """
    if vectors.ndim != 2:
        raise ValueError(f"vectors of {what}s: {vectors.ndim} axes given, must be 2")
    vectors = np.asarray(vectors, np.float32)
    norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    for wrong, is_wrong in (("not finite", ~np.isfinite(norms)), ("zero", norms < MIN_NORM)):
        if is_wrong.any():
            raise UserError(f"{what} {int(is_wrong.argmax())}: its vector is {wrong}")
    if np.abs(norms - 1).max(initial=0) < 1e-5:
        return vectors
    unit: np.ndarray = vectors / norms[:, None]
    return unit


def mixed_vectors(own: np.ndarray, questions: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """Return v_tj, [q, d]: the unit mean of each question's vector and its chunk's.

    Args:
        own: [n, d] unit vectors of chunks.
        questions: [q, d] unit vectors of questions.
        owners: [q] chunk of each question; its own vector replaces a mean that is zero.
    """
    both = questions + own[owners]
    norms = np.linalg.norm(both, axis=1)
    opposite = norms < MIN_NORM
    both[opposite], norms[opposite] = own[owners[opposite]], 1
    mixed: np.ndarray = both / norms[:, None]
    return mixed


def own_and_asked(
    own: np.ndarray, questions: np.ndarray | None, owners: np.ndarray | None
) -> np.ndarray:
    """Return u, [n, d]: the mean of each chunk's v_tj, or its text's vector if it has no question.

    Args:
        own: [n, d] unit vectors of texts.
        questions: [q, d] unit vectors of questions; None: none.
        owners: [q] chunk of each question.

    Raises:
        UserError: a question's vector is zero or not finite.
        ValueError: shapes do not fit.
    """
    if questions is None or len(questions) == 0:
        return own
    if owners is None or len(owners) != len(questions) or questions.shape[1] != own.shape[1]:
        raise ValueError("questions: each needs an owner, and vectors as wide as the chunks'")
    if owners.min() < 0 or owners.max() >= len(own):
        raise ValueError(f"questions: an owner is not from 0 to {len(own) - 1}")
    both = mixed_vectors(own, unit_vectors(questions, "question"), owners)
    pick = (np.ones(len(owners), np.float32), (owners, np.arange(len(owners))))
    sums = scipy.sparse.csr_matrix(pick, shape=(len(own), len(owners))) @ both
    counts = np.bincount(owners, minlength=len(own)).astype(np.float32)
    asked: np.ndarray = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], own)
    return asked.astype(np.float32, copy=False)


def similarities(own: np.ndarray, asked: np.ndarray, rows: slice | np.ndarray) -> np.ndarray:
    """Return w of some chunks to all, [rows, n] float32."""
    if asked is own:
        cosines = own[rows] @ own.T
    else:
        cosines = asked[rows] @ own.T
        cosines += own[rows] @ asked.T
        cosines *= 0.5
    cosines += 1
    cosines *= 0.5
    np.clip(cosines, 0, 1, out=cosines)
    weights: np.ndarray = np.round(cosines, DECIMALS, out=cosines)
    return weights


def nearest_neighbours(own: np.ndarray, asked: np.ndarray, num_neighbours: int) -> Neighbours:
    """Return the exact graph of nearest neighbours: an edge if either end is near the other.

    Similarities are computed in blocks of rows; equal ones are ordered by number.

    Args:
        own, asked: [n, d], of ``own_and_asked``.
        num_neighbours: of each chunk, at most n - 1.
    """
    count = len(own)
    k = min(num_neighbours, count - 1)
    step = max(1, BLOCK_ENTRIES // max(count, 1))
    rows, columns, weights = [], [], []
    for begin in range(0, count, step):
        stop = min(begin + step, count)
        block = similarities(own, asked, slice(begin, stop))
        block[np.arange(stop - begin), np.arange(begin, stop)] = -1
        nearest = _largest(block, k)
        rows.append(np.repeat(np.arange(begin, stop), k))
        columns.append(nearest.ravel())
        weights.append(np.take_along_axis(block, nearest, 1).ravel())
    parts = (np.concatenate(rows), np.concatenate(columns))
    one_way = scipy.sparse.csr_matrix((np.concatenate(weights), parts), shape=(count, count))
    both = one_way.maximum(one_way.T).tocsr()
    both.sort_indices()
    return Neighbours(both.indptr.astype(np.int64), both.indices.astype(np.int64), both.data)


def _largest(block: np.ndarray, k: int) -> np.ndarray:
    """Return the columns of each row's ``k`` largest, [rows, k]; of equal ones, the first."""
    count, width = block.shape
    size = max(1, width // (4 * k))
    groups = block[:, : width // size * size].reshape(count, -1, size)
    # As many columns as groups are at least as large as the k-th largest of the groups' maxima.
    bounds = np.partition(groups.max(axis=2), -k, axis=1)[:, -k]
    rows, columns = np.nonzero(block >= bounds[:, None])
    order = np.lexsort((-block[rows, columns], rows))
    starts = np.searchsorted(rows, np.arange(count))
    largest: np.ndarray = columns[order][starts[:, None] + np.arange(k)]
    return largest
