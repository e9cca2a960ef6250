"""Draws a study's figures: all rows with their intervals, and core rows by group of questions.

Colours are Okabe and Ito's, which colour-blind readers can tell apart; markers and hatches
distinguish the rows without colour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from turngraph.data.scoring.score import Estimate

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#999999", "#CC79A7", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
HATCHES = ("", "///", "...", "xxx", "---", "+++", "ooo", "\\\\\\")
DPI = 150
LETTERS_PER_INCH = 11


class Series(NamedTuple):
    """A row's estimates, one per group; NaN where it has none."""

    label: str
    estimates: Sequence[Estimate]


def draw_rows(
    labels: Sequence[str], first: Sequence[Estimate], fifth: Sequence[Estimate]
) -> Figure:
    """Draw H@1 and H@5 of all rows with their intervals, from top to bottom."""
    figure, axes = plt.subplots(figsize=(7, 1.2 + 0.32 * len(labels)), layout="constrained")
    for name, found, shift, marker, colour, filled in (
        ("H@1", first, -0.12, "o", COLOURS[0], True),
        ("H@5", fifth, 0.12, "s", COLOURS[3], False),
    ):
        heights = [index + shift for index in range(len(labels))]
        means, bars = _error_bars(found)
        axes.errorbar(
            means, heights, xerr=bars, label=name, fmt=marker, color=colour, capsize=2,
            markerfacecolor=colour if filled else "white",
        )  # fmt: skip
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xlabel("share of questions, 95 % intervals")
    axes.set_xlim(left=0)
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False)
    drawn: Figure = figure
    return drawn


def draw_bars(groups: Sequence[str], rows: Sequence[Series]) -> Figure:
    """Draw H@1 of some rows as bars, grouped."""
    figure, axes = plt.subplots(figsize=(max(6.0, 1.7 * len(groups)), 3.6), layout="constrained")
    width = 0.8 / len(rows)
    for index, row in enumerate(rows):
        means, bars = _error_bars(row.estimates)
        left = [group + (index - (len(rows) - 1) / 2) * width for group in range(len(groups))]
        colour, _, hatch = style_of(index)
        axes.bar(left, means, width, label=row.label, color=colour, hatch=hatch, edgecolor="white")
        axes.errorbar(left, means, yerr=bars, fmt="none", ecolor="#333333", elinewidth=1)
    axes.set_xticks(range(len(groups)), groups)
    return _finished(figure, axes, [row.label for row in rows])


def draw_lines(groups: Sequence[str], rows: Sequence[Series]) -> Figure:
    """Draw H@1 of some rows as lines over groups that have an order, such as turns."""
    figure, axes = plt.subplots(figsize=(max(6.0, 1.3 * len(groups)), 3.6), layout="constrained")
    for index, row in enumerate(rows):
        means, bars = _error_bars(row.estimates)
        left = [group + (index - (len(rows) - 1) / 2) * 0.05 for group in range(len(groups))]
        colour, marker, _ = style_of(index)
        axes.errorbar(
            left, means, yerr=bars, label=row.label, elinewidth=0.8, color=colour,
            marker=marker, capsize=2,
        )  # fmt: skip
    axes.set_xticks(range(len(groups)), groups)
    return _finished(figure, axes, [row.label for row in rows])


def style_of(index: int) -> tuple[str, str, str]:
    """Return a row's colour, marker and hatch; every eight rows, colours meet other markers."""
    cycle, colour = divmod(index, len(COLOURS))
    other = (cycle + colour) % len(MARKERS)
    return COLOURS[colour], MARKERS[other], HATCHES[other]


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG without a time stamp, and close it."""
    figure.savefig(path, dpi=DPI, metadata={"Software": None})
    plt.close(figure)


def _error_bars(estimates: Sequence[Estimate]) -> tuple[list[float], list[list[float]]]:
    """Return means, and the lengths of their intervals below and above."""
    means = [one.mean for one in estimates]
    down = [one.mean - one.low for one in estimates]
    return means, [down, [one.high - one.mean for one in estimates]]


def _finished(figure: Figure, axes: Axes, labels: Sequence[str]) -> Figure:
    """Label the axes, and put a legend above them in as many columns as fit."""
    axes.set_ylabel("H@1, 95 % intervals")
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    room = int(figure.get_figwidth() * LETTERS_PER_INCH) // (max(map(len, labels)) + 8)
    columns = max(1, min(len(labels), 5, room))
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=columns, frameon=False)
    figure.set_figheight(3.3 + 0.22 * math.ceil(len(labels) / columns))
    return figure
