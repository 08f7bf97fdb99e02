"""Does the loss pull hardest where the model is most wrong? The last layer's gradient norm against the Brier score.

A loss whose weight is a good measure of uncertainty has gradients that grow with the sample's Brier score [Lin25, Fig. 2].
Thousands of dots hide that; the picture shows them faintly, and over them the median with the quartiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calgrad.checks import FileError, InputError
from calgrad.report.canvas import canvas
from calgrad.report.style import COLOURS, MARKERS, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = 4000
FEWEST = 5
"""A step of the Brier score with fewer samples has no median worth drawing."""


@dataclass(frozen=True)
class GradientTrend:
    """Quartiles of the gradient norm in groups of rising Brier score, and Spearman's correlation of the two."""

    brier: np.ndarray
    low: np.ndarray
    median: np.ndarray
    high: np.ndarray
    correlation: float
    samples: int


def read_gradients(path: str | Path) -> dict[str, np.ndarray]:
    """The columns that a run saved in `gradients-epoch-*.npz`."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in ("brier", "gradient_norm")}
    except (OSError, ValueError, KeyError) as error:
        raise FileError(f"{path} is not a run's file of gradients: {error}") from error


def gradient_trend(columns: Mapping[str, Any], *, groups: int = 20) -> GradientTrend:
    """Group the samples by Brier score, in steps of equal width; `columns` holds `brier` and `gradient_norm`."""
    brier, norm = (np.asarray(columns[name], dtype=np.float64) for name in ("brier", "gradient_norm"))
    if brier.ndim != 1 or brier.shape != norm.shape or not len(brier):
        raise InputError(f"`brier` and `gradient_norm` must be vectors of one length, got {brier.shape}, {norm.shape}")
    groups = min(groups, max(1, len(brier) // (4 * FEWEST)))
    step = np.minimum((brier / max(brier.max(), 1e-12) * groups).astype(int), groups - 1)
    parts = [
        part for part in (np.flatnonzero(step == i) for i in range(groups)) if len(part) >= min(FEWEST, len(brier))
    ]
    low, median, high = np.array([np.quantile(norm[part], [0.25, 0.5, 0.75]) for part in parts]).T
    return GradientTrend(
        np.array([brier[p].mean() for p in parts]), low, median, high, _spearman(brier, norm), len(brier)
    )


def draw_gradients(columns: Mapping[str, Any] | Mapping[str, Mapping[str, Any]], *, ax: Axes | None = None) -> Figure:
    """Draw the columns of one file (`brier`, `gradient_norm`), or of several by name.

    Example:
        >>> import numpy as np, calgrad.plot
        >>> brier = np.linspace(0, 2, 500)
        >>> figure = calgrad.plot.draw_gradients({"brier": brier, "gradient_norm": brier**0.5})
    """
    named: dict[str, Any] = {"": columns} if "brier" in columns else dict(columns)
    with style():
        figure, ax = canvas(ax, 5.2, 3.8)
        for i, (name, own) in enumerate(named.items()):
            colour, trend = COLOURS[i % len(COLOURS)], gradient_trend(own)
            brier, norm = np.asarray(own["brier"]), np.asarray(own["gradient_norm"])
            keep = slice(None, None, max(1, len(brier) * len(named) // SHOWN))
            ax.scatter(brier[keep], norm[keep], s=4, color=colour, alpha=0.18, lw=0, rasterized=True, zorder=1)
            ax.fill_between(trend.brier, trend.low, trend.high, color=colour, alpha=0.25, lw=0)
            label = f"{name}: Spearman {trend.correlation:.2f}".removeprefix(": ")
            ax.plot(trend.brier, trend.median, color=colour, marker=MARKERS[i % len(MARKERS)], ms=4, label=label)
        ax.set(xlabel="Brier score of the sample", ylabel="gradient norm of the last layer")
        ax.set_xlim(left=0)
        ax.set_ylim(bottom=0)
        ax.legend(title="median and quartiles", loc="upper left")
    return figure


def _spearman(a: np.ndarray, b: np.ndarray) -> float:
    from scipy.stats import spearmanr

    return float(spearmanr(a, b).statistic) if np.ptp(a) > 0 and np.ptp(b) > 0 else float("nan")
