"""Force-directed layout of a graph: edges attract, all nodes repel each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Waves = NDArray[np.complex128]
GRID = 128
ROUNDS = 150
REPULSION = 0.05


def layout(
    num_nodes: int, ends: NDArray[np.int64], rounds: int = ROUNDS, seed: int = 0
) -> NDArray[np.float32]:
    """Return positions of nodes, float32 [num_nodes, 2]; the same for the same graph.

    Forces follow ForceAtlas2 (Jacomy et al. 2014): repulsion by degree + 1 over distance, summed
    on a grid by Fourier transform; linear attraction, divided by degree so that hubs do not pull
    everything into one point.

    Args:
        num_nodes: nodes are counted from 0.
        ends: int64 [edges, 2], the nodes that each edge joins.
        rounds: steps, each smaller than the one before.
        seed: random seed of the first positions.
    """
    positions: Array = np.random.default_rng(seed).standard_normal((num_nodes, 2))
    if num_nodes < 2:
        return np.zeros((num_nodes, 2), np.float32)
    ends = ends[ends[:, 0] != ends[:, 1]]
    degrees = np.bincount(ends.ravel(), minlength=num_nodes).astype(float)
    kernel = _kernel()
    width = float(np.sqrt(num_nodes))
    for step in range(rounds):
        force = _repulsion(positions, degrees + 1, kernel) + _attraction(positions, ends, degrees)
        force -= _gravity(positions, degrees + 1)
        length = np.linalg.norm(force, axis=1, keepdims=True) + 1e-9
        longest = width * 0.1 * (1 - step / rounds) ** 2
        positions = positions + force / length * np.minimum(length, longest)
    return positions.astype(np.float32)


def _kernel() -> tuple[Waves, Waves]:
    """Return Fourier transforms of one cell's repulsion of all others, along x and along y."""
    steps = np.fft.fftfreq(2 * GRID, 1 / (2 * GRID))
    x, y = np.meshgrid(steps, steps, indexing="ij")
    square = x * x + y * y
    square[0, 0] = 1
    return np.fft.rfft2(x / square), np.fft.rfft2(y / square)


def _repulsion(positions: Array, mass: Array, kernel: tuple[Waves, Waves]) -> Array:
    low, high = positions.min(0), positions.max(0)
    scale = (GRID - 1) / max(float((high - low).max()), 1e-9)
    cells = ((positions - low) * scale).astype(int)
    cell = cells[:, 0] * 2 * GRID + cells[:, 1]
    density = np.bincount(cell, mass, 4 * GRID * GRID)
    waves = np.fft.rfft2(density.reshape(2 * GRID, 2 * GRID))
    repulsion = np.stack([np.fft.irfft2(waves * part).ravel()[cell] for part in kernel], axis=1)
    for axis in (0, 1):  # inside a cell: away from its centre of mass
        centre = np.bincount(cell, mass * positions[:, axis], len(density))[cell] / density[cell]
        repulsion[:, axis] += density[cell] * (positions[:, axis] - centre) * scale
    return repulsion * scale * np.sqrt(mass)[:, None] * REPULSION


def _gravity(positions: Array, mass: Array) -> Array:
    """Return the pull to the origin, which keeps disconnected parts together."""
    square = float((mass * (positions**2).sum(1)).sum() / mass.sum())
    strength = REPULSION * float(mass.sum()) / (4 * square + 1e-9)
    return strength * np.sqrt(mass)[:, None] * positions


def _attraction(positions: Array, ends: NDArray[np.int64], degrees: Array) -> Array:
    pull = positions[ends[:, 1]] - positions[ends[:, 0]]
    force = np.zeros_like(positions)
    np.add.at(force, ends[:, 0], pull / np.sqrt(degrees[ends[:, 0]])[:, None])
    np.add.at(force, ends[:, 1], -pull / np.sqrt(degrees[ends[:, 1]])[:, None])
    return force
