"""One small reliability diagram a class: is the probability of *this* class the frequency of this class?

All samples enter each panel, by the probability they give to the class, whether it was predicted or not; the panels are
those of the classwise ECE, the worst first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from calgrad.checks import ArrayLike, InputError, positive_int, probs_and_labels
from calgrad.report.canvas import PERCENT, blank
from calgrad.report.reliability import Diagram, diagram_of, draw_bins
from calgrad.report.style import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def class_diagrams(
    probs: ArrayLike | None = None, labels: ArrayLike | None = None, *, logits: ArrayLike | None = None, bins: int = 10
) -> list[Diagram]:
    """The diagram of each class: p_k against whether the label is k.

    Example:
        >>> import torch, calgrad.plot
        >>> len(calgrad.plot.class_diagrams(logits=torch.randn(100, 4), labels=torch.randint(4, (100,))))
        4
    """
    checked, checked_labels = probs_and_labels(probs, labels, logits)
    return [diagram_of(checked[:, k].contiguous(), checked_labels == k, bins=bins) for k in range(checked.shape[1])]


def draw_classwise(
    diagrams: Sequence[Diagram] | None = None,
    labels: ArrayLike | None = None,
    *,
    probs: ArrayLike | None = None,
    logits: ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    bins: int = 10,
    limit: int = 12,
    title: str = "",
) -> Figure:
    """A grid of classwise diagrams, those with the largest error first.

    Args:
        diagrams: what `class_diagrams` returned; or pass `logits=` (or `probs=`) and `labels`.
        labels: (N,) class indices.
        probs: (N, K) probabilities.
        logits: (N, K) logits.
        class_names: K names.
        bins: equal-width bins.
        limit: panels at most.
        title: above the grid.

    Example:
        >>> import torch, calgrad.plot
        >>> figure = calgrad.plot.draw_classwise(logits=torch.randn(500, 4), labels=torch.randint(4, (500,)))
    """
    if diagrams is None:
        diagrams = class_diagrams(probs, labels, logits=logits, bins=bins)
    positive_int("limit", limit)
    names = [f"class {k}" for k in range(len(diagrams))] if class_names is None else list(class_names)
    if len(names) != len(diagrams):
        raise InputError(f"{len(names)} class names were given for {len(diagrams)} classes")
    shown = sorted(range(len(diagrams)), key=lambda k: -diagrams[k].error)[:limit]
    columns = min(len(shown), 5 if len(shown) in (5, 9, 10) else 4)
    rows = math.ceil(len(shown) / columns)
    with style():
        figure = blank(2.25 * columns, 2.25 * rows + 0.3)
        axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for ax, k in zip(axes.flat, shown, strict=False):
            draw_bins(ax, diagrams[k])
            ax.set_title(names[k], fontsize=10)
            ax.text(
                0.05, 0.95, f"ECE {PERCENT * diagrams[k].error:.2f} %", transform=ax.transAxes, va="top", fontsize=8
            )
        for ax in list(axes.flat)[len(shown) :]:
            ax.set_visible(False)
        figure.supxlabel("probability of the class (%)", fontsize=10)
        figure.supylabel("frequency of the class (%)", fontsize=10)
        if title:
            figure.suptitle(title)
    return figure
