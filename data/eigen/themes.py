"""Finds the themes of a source: groups of chunks by eigenvectors of their similarity.

After GEM-RAG (arXiv 2409.15566), with a symmetric graph, its trivial eigenvector in closed form,
and eigenvectors rotated by pivoted QR (Damle, Minden and Ying 2018) so that each marks one group.

Letters: n chunks, q questions, d width of the vectors, K eigenpairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from turngraph.data.eigen.similarity_graph import (
    Neighbours,
    nearest_neighbours,
    own_and_asked,
    unit_vectors,
)
from turngraph.data.eigen.spectrum import Part, complete_part, connected_parts

MIN_CHUNKS = 8
"""A source of fewer chunks has no themes."""
MIN_NEIGHBOURS = 4
MIN_THEMES, MAX_THEMES = 2, 64
"""Bounds of K without a spectral gap."""
NEAR_ONE = 0.5
"""Smallest eigenvalue that stands before a spectral gap."""


NUM_NEIGHBOURS = 16
"""Neighbours of each chunk in the graph of nearest neighbours; of a source of few chunks, an eighth
of them but at least ``MIN_NEIGHBOURS``."""
MAX_EXACT = 20_000
"""Most chunks for a graph of nearest neighbours; a larger source is a complete graph, as in the
paper."""
MIN_GAP = 0.05
"""Smallest spectral gap, c in the paper."""
MAX_RESIDUAL = 1e-4
"""Largest norm of L x - lambda x."""
SAME = 1e-6
"""Vectors that differ by less are equal."""


@dataclass(frozen=True, slots=True, eq=False)
class Theme:
    """A group of chunks (level 1) or of themes (level 2).

    Args:
        eigenvalue: the Rayleigh quotient of its rotated vector, at most 1.
        members: [m] int64 numbers of its members, by descending weight, equal ones by number. Every
            chunk that is in a theme is in exactly one.
        weights: [m] float64 in (0, 1], the heaviest 1.
        vector: [d] float32, unit: the members' weighted mean.
    """

    eigenvalue: float
    members: np.ndarray
    weights: np.ndarray
    vector: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class SourceThemes:
    """The themes of one source, and the graph that they come from.

    Args:
        themes: by descending eigenvalue, equal ones by their first member; empty for fewer than
            ``MIN_CHUNKS`` chunks.
        neighbours: the graph of nearest neighbours; None above ``MAX_EXACT``.
    """

    themes: tuple[Theme, ...]
    neighbours: Neighbours | None


def source_themes(
    vectors: np.ndarray,
    questions: np.ndarray | None = None,
    owners: np.ndarray | None = None,
) -> SourceThemes:
    """Return the themes of one source.

    They depend on these arrays alone, so remaking only the sources that changed is the same as
    remaking all.

    Args:
        vectors: [n, d] unit vectors of the source's chunks, without blank ones.
        questions: [q, d] unit vectors of their utility questions; None: none.
        owners: [q] number of each question's chunk.

    Raises:
        UserError: a vector is zero or not finite (named by its chunk's number).
        ValueError: shapes do not fit, or the eigenpairs did not converge.
    """
    count = len(vectors)
    own = unit_vectors(vectors, "chunk")
    asked = own_and_asked(own, questions, owners)
    if count < MIN_CHUNKS:
        return SourceThemes((), None)
    neighbours = None
    if count <= MAX_EXACT:
        num_near = min(NUM_NEIGHBOURS, max(count // 8, MIN_NEIGHBOURS))
        neighbours = nearest_neighbours(own, asked, num_near)
    if np.abs(own - own[0]).max() < SAME and np.abs(asked - asked[0]).max() < SAME:
        return SourceThemes((Theme(1.0, np.arange(count), np.ones(count), own[0]),), neighbours)
    if neighbours is None:
        parts = [complete_part(own, asked, default_number(count))]
    else:
        parts = connected_parts(neighbours, MAX_THEMES + 1)
    residual = max(part.residual for part in parts)
    if residual > MAX_RESIDUAL:
        raise ValueError(
            f"themes of {count} chunks: an eigenpair has the residual {residual:.1e}, "
            f"must be at most {MAX_RESIDUAL:.1e}"
        )
    themes = [
        theme
        for part, number in zip(parts, _numbers(parts, count), strict=True)
        for theme in _themes_of_part(part, number, own)
    ]
    themes.sort(key=lambda theme: (-theme.eigenvalue, int(theme.members.min())))
    return SourceThemes(tuple(themes), neighbours)


def themes_of_themes(themes: Sequence[Theme]) -> tuple[Theme, ...]:
    """Return the themes of level 2, whose members are numbers of the given themes.

    Args:
        themes: themes of level 1, of all sources, in a fixed order: by source, then in the order of
            ``source_themes``.

    Returns:
        Themes, by descending eigenvalue; none for fewer than ``MIN_CHUNKS`` themes.
    """
    if len(themes) < MIN_CHUNKS:
        return ()
    return source_themes(np.stack([theme.vector for theme in themes])).themes


def default_number(count: int) -> int:
    """Return K where the spectrum has no gap: sqrt(n / 8), from 2 to 64."""
    return min(max(round(math.sqrt(count / 8)), MIN_THEMES), MAX_THEMES)


def _numbers(parts: Sequence[Part], count: int) -> list[int]:
    """Return how many eigenvectors of each part to use, at least one."""
    order = sorted(
        (-eigenvalue, index > 0, number, index)
        for number, part in enumerate(parts)
        for index, eigenvalue in enumerate(part.values.tolist())
    )
    spectrum = np.array([-item[0] for item in order])
    gaps = spectrum[:-1] - spectrum[1:]
    last = max(MAX_THEMES, len(parts))
    able = np.arange(1, len(spectrum))  # able[i]: number of eigenvalues before gap i
    is_gap = (able >= MIN_THEMES) & (able <= last) & (spectrum[:-1] >= NEAR_ONE) & (gaps > MIN_GAP)
    total = default_number(count)
    if is_gap.any():
        total = int(able[np.where(is_gap, gaps, -1).argmax()])
    numbers = [0] * len(parts)
    for _, _, number, _ in order[:total]:
        numbers[number] += 1
    return [max(number, 1) for number in numbers]


def _themes_of_part(part: Part, number: int, own: np.ndarray) -> list[Theme]:
    """Assign the chunks of a part to its rotated eigenvectors; one without chunks is dropped."""
    used, values = part.vectors[:, :number], part.values[:number]
    turned = _rotation(used)
    marked = np.abs(used @ turned)
    of = marked.argmax(axis=1)
    quotients = values @ turned**2
    return [
        _theme(part.chunks[of == index], marked[of == index, index], quotients[index], own)
        for index in range(number)
        if (of == index).any()
    ]


def _rotation(vectors: np.ndarray) -> np.ndarray:
    """Return the orthogonal matrix that turns eigenvectors into indicators (Damle et al. 2018)."""
    number = vectors.shape[1]
    _, pivots = scipy.linalg.qr(vectors.T, mode="r", pivoting=True)
    left, _, right = np.linalg.svd(vectors[pivots[:number]].T)
    turned: np.ndarray = left @ right
    return turned


def _theme(chunks: np.ndarray, marked: np.ndarray, quotient: float, own: np.ndarray) -> Theme:
    # Rounded, so that equal chunks tie however the library summed them.
    weights = np.maximum(np.round(marked / marked.max(), 6), 1e-6)
    order = np.lexsort((chunks, -weights))
    chunks, weights = chunks[order].astype(np.int64), weights[order]
    mean = weights @ own[chunks].astype(np.float64)
    size = np.linalg.norm(mean)
    vector = mean / size if size > SAME else own[chunks[0]]
    return Theme(round(float(quotient), 6), chunks, weights, vector.astype(np.float32))
