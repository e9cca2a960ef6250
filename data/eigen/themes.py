"""Finds the themes of a source: groups of chunks by eigenvectors of their similarity.

After GEM-RAG (arXiv 2409.15566), with a symmetric graph, its trivial eigenvector in closed form,
and eigenvectors rotated by pivoted QR (Damle, Minden and Ying 2018) so that each marks one group.

Letters: n chunks, q questions, d width of the vectors, K eigenpairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

MIN_CHUNKS = 8
"""A source of fewer chunks has no themes."""


@dataclass(frozen=True, slots=True)
class ThemeSettings:
    """Settings of themes; the defaults are those of the product, the others for ablations.

    Args:
        num_neighbours: neighbours of each chunk in the graph of nearest neighbours.
        max_exact: most chunks for that graph; a larger source is decomposed as a complete graph.
        num_themes: K; None: by the spectral gap, else sqrt(n / 8) from 2 to 64.
        min_gap: smallest spectral gap, c in the paper.
        graph: ``neighbours``, or ``complete`` as in the paper; None: by ``max_exact``.
        rotation: ``qr``, or ``none``: chunks belong to their largest absolute component.
        max_residual: largest norm of L x - lambda x.
    """

    num_neighbours: int = 16
    max_exact: int = 20_000
    num_themes: int | None = None
    min_gap: float = 0.05
    graph: Literal["neighbours", "complete"] | None = None
    rotation: Literal["qr", "none"] = "qr"
    max_residual: float = 1e-4


DEFAULT = ThemeSettings()


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


@dataclass(frozen=True, slots=True, eq=False)
class Theme:
    """A group of chunks (level 1) or of themes (level 2).

    Args:
        eigenvalue: the Rayleigh quotient of its rotated vector, at most 1.
        members: [m] int64 numbers of its members, by falling weight, equal ones by number. Every
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
        themes: by falling eigenvalue, equal ones by their first member; empty for fewer than
            ``MIN_CHUNKS`` chunks.
        neighbours: the graph of nearest neighbours; None above ``max_exact``.
        spectrum: the leading eigenvalues, falling.
        largest_residual: of the eigenpairs, checked against ``max_residual``.
        has_gap: whether K follows from a spectral gap.
    """

    themes: tuple[Theme, ...]
    neighbours: Neighbours | None
    spectrum: np.ndarray
    largest_residual: float
    has_gap: bool


def source_themes(
    vectors: np.ndarray,
    questions: np.ndarray | None = None,
    owners: np.ndarray | None = None,
    settings: ThemeSettings = DEFAULT,
) -> SourceThemes:
    """Return the themes of one source.

    They depend on these arrays alone, so remaking only the sources that changed is the same as
    remaking all.

    Args:
        vectors: [n, d] unit vectors of the source's chunks, without blank ones.
        questions: [q, d] unit vectors of their utility questions; None: none.
        owners: [q] number of each question's chunk.
        settings: of the graph and its decomposition.

    Raises:
        ValueError: a vector is zero or not finite (named by its chunk's number), shapes do not fit,
            or the eigenpairs did not converge.
    """
    raise NotImplementedError


def themes_of_themes(
    themes: Sequence[Theme], settings: ThemeSettings = DEFAULT
) -> tuple[Theme, ...]:
    """Return the themes of level 2, whose members are numbers of the given themes.

    Args:
        themes: of level 1, of all sources in a fixed order (by source, then as ``source_themes``
            gives them).
        settings: of the graph and its decomposition.

    Returns:
        Themes, by falling eigenvalue; none for fewer than ``MIN_CHUNKS`` themes.
    """
    raise NotImplementedError
