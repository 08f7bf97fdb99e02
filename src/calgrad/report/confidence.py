"""How sure is it when it is right, and how sure when it is wrong?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calgrad.checks import ArrayLike, probs_and_labels
from calgrad.metrics.binning import bin_sums, equal_width_edges, top_label
from calgrad.report.canvas import PERCENT, Shown, canvas
from calgrad.report.style import COLOURS, INK, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class ConfidenceCounts(Shown):
    """Right and wrong predictions in equal-width bins of confidence, and the two numbers that should agree."""

    edges: np.ndarray
    right: np.ndarray
    wrong: np.ndarray
    mean_confidence: float
    accuracy: float

    def draw(self) -> Figure:
        """The picture of it."""
        return draw_confidence(self)


def confidence_counts(
    probs: ArrayLike | None = None, labels: ArrayLike | None = None, *, logits: ArrayLike | None = None, bins: int = 20
) -> ConfidenceCounts:
    """Count right and wrong predictions by confidence.

    Example:
        >>> from calgrad.plot import confidence_counts
        >>> confidence_counts([[0.9, 0.1], [0.8, 0.2]], [0, 1], bins=2).wrong.tolist()
        [0, 1]
    """
    confidence, is_correct = top_label(*probs_and_labels(probs, labels, logits))
    sums = bin_sums(confidence, is_correct, bins=bins)
    count, right = sums.count.cpu().numpy().astype(int), sums.correct.cpu().numpy().astype(int)
    means = float(confidence.double().mean()), float(is_correct.double().mean())
    return ConfidenceCounts(equal_width_edges(bins).numpy(), right, count - right, *means)


def draw_confidence(
    counts: ConfidenceCounts | None = None,
    labels: ArrayLike | None = None,
    *,
    probs: ArrayLike | None = None,
    logits: ArrayLike | None = None,
    bins: int = 20,
    title: str = "",
    ax: Axes | None = None,
) -> Figure:
    """Right predictions upwards, wrong ones downwards, both on a logarithmic scale so that rare mistakes are seen.

    Example:
        >>> import torch, calgrad.plot
        >>> figure = calgrad.plot.draw_confidence(logits=torch.randn(500, 4), labels=torch.randint(4, (500,)))
    """
    if counts is None:
        counts = confidence_counts(probs, labels, logits=logits, bins=bins)
    with style():
        figure, ax = canvas(ax, 5.2, 3.4)
        left, width = PERCENT * counts.edges[:-1], PERCENT * np.diff(counts.edges)
        common = {"align": "edge", "edgecolor": "white", "lw": 0.5}
        ax.bar(left, _height(counts.right), width, color=COLOURS[2], label="right", **common)  # type: ignore[arg-type]
        ax.bar(left, -_height(counts.wrong), width, color=COLOURS[1], hatch="//", label="wrong", **common)  # type: ignore[arg-type]
        ax.axhline(0, color=INK, lw=0.8)
        top = 1 + int(np.log10(max(counts.right.max(), counts.wrong.max(), 10)))
        ticks = [sign * (power + 1) for power in range(top + 1) for sign in (-1, 1)]
        ax.set_yticks(ticks, [f"{10 ** (abs(t) - 1):,}" for t in ticks])
        ax.set_ylim(
            -_height(np.array([counts.wrong.max()])).max() - 0.8, _height(np.array([counts.right.max()])).max() + 0.8
        )
        for x, name, line in ((counts.accuracy, "accuracy", "-"), (counts.mean_confidence, "mean confidence", ":")):
            ax.axvline(PERCENT * x, color=INK, ls=line, lw=1.3, label=f"{name} {PERCENT * x:.1f} %")
        ax.set(xlim=(0, PERCENT), xlabel="the model says (%)", ylabel="samples", title=title)
        ax.legend(loc="upper left", fontsize=8.5)
    return figure


def _height(count: np.ndarray) -> np.ndarray:
    """1 + log10, and nothing for nothing: a single sample is visible."""
    return np.where(count > 0, 1 + np.log10(np.maximum(count, 1)), 0)
