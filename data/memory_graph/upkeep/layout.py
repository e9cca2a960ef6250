"""Where the nodes of a drawn graph stand: edges pull, all nodes push each other away."""

from __future__ import annotations

import numpy as np

GRID = 128
ROUNDS = 150
PUSH = 0.05


def layout(num_nodes: int, ends: np.ndarray, rounds: int = ROUNDS, seed: int = 0) -> np.ndarray:
    """Positions of nodes, float32 [num_nodes, 2], for drawing; the same for the same graph.

    Forces as of ForceAtlas2 (Jacomy et al. 2014): repulsion by degree + 1 over distance, summed
    on a grid by Fourier transform; attraction linear, shared out by degree so that hubs do not
    draw everything into one point.

    Args:
        num_nodes: nodes are numbered from 0.
        ends: int64 [edges, 2], the nodes that each edge joins.
        rounds: steps, each smaller than the one before.
        seed: of where the nodes start.
    """
    places = np.random.default_rng(seed).standard_normal((num_nodes, 2))
    if num_nodes < 2:
        return np.zeros((num_nodes, 2), np.float32)
    ends = ends[ends[:, 0] != ends[:, 1]]
    degrees = np.bincount(ends.ravel(), minlength=num_nodes).astype(float)
    kernel = _kernel()
    width = float(np.sqrt(num_nodes))
    for turn in range(rounds):
        force = _repulsion(places, degrees + 1, kernel) + _attraction(places, ends, degrees)
        force -= _gravity(places, degrees + 1)
        length = np.linalg.norm(force, axis=1, keepdims=True) + 1e-9
        step = width * 0.1 * (1 - turn / rounds) ** 2
        places = places + force / length * np.minimum(length, step)
    return places.astype(np.float32)


def _kernel() -> tuple[np.ndarray, np.ndarray]:
    """Fourier transforms of the push of one cell on all around it, along x and along y."""
    steps = np.fft.fftfreq(2 * GRID, 1 / (2 * GRID))
    x, y = np.meshgrid(steps, steps, indexing="ij")
    square = x * x + y * y
    square[0, 0] = 1
    return np.fft.rfft2(x / square), np.fft.rfft2(y / square)


def _repulsion(
    places: np.ndarray, mass: np.ndarray, kernel: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    low, high = places.min(0), places.max(0)
    scale = (GRID - 1) / max(float((high - low).max()), 1e-9)
    cells = ((places - low) * scale).astype(int)
    cell = cells[:, 0] * 2 * GRID + cells[:, 1]
    density = np.bincount(cell, mass, 4 * GRID * GRID)
    waves = np.fft.rfft2(density.reshape(2 * GRID, 2 * GRID))
    push = np.stack([np.fft.irfft2(waves * part).ravel()[cell] for part in kernel], axis=1)
    for axis in (0, 1):  # within a cell: away from its centre of mass
        centre = np.bincount(cell, mass * places[:, axis], len(density))[cell] / density[cell]
        push[:, axis] += density[cell] * (places[:, axis] - centre) * scale
    return push * scale * np.sqrt(mass)[:, None] * PUSH


def _gravity(places: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """As strong as the push of all the others at some distance from them: nothing drifts away."""
    square = (mass * (places**2).sum(1)).sum() / mass.sum()
    return PUSH * mass.sum() / (4 * square + 1e-9) * np.sqrt(mass)[:, None] * places


def _attraction(places: np.ndarray, ends: np.ndarray, degrees: np.ndarray) -> np.ndarray:
    pull = places[ends[:, 1]] - places[ends[:, 0]]
    force = np.zeros_like(places)
    np.add.at(force, ends[:, 0], pull / np.sqrt(degrees[ends[:, 0]])[:, None])
    np.add.at(force, ends[:, 1], -pull / np.sqrt(degrees[ends[:, 1]])[:, None])
    return force
