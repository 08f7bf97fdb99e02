"""The picture of a comparison: a dot and an interval for each loss and view, not bars.

Bars invite the eye to rank what noise has shuffled. An interval shows whether two losses differ at all, and the grey bar
behind it how large an ECE a perfectly calibrated model with the same confidences would show on this test set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from calgrad.report.comparison import VIEWS, Comparison
from calgrad.report.style import BAND, COLOURS, MARKERS, new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = [("ece", "ECE (%)", 100.0), ("nll", "NLL", 1.0), ("brier", "Brier score", 1.0)]
STEP = 0.19
"""Between two views of a loss, where two losses are 1 apart."""


def draw_comparison(comparison: Comparison, *, title: str = "") -> Figure:
    """One panel a metric, one line a loss, one marker a view."""
    losses = list(dict.fromkeys(row.loss for row in comparison.rows))
    with style():
        figure = new_figure(10, 1.3 + 0.42 * len(losses))
        axes = figure.subplots(1, len(PANELS), sharey=True)
        for axis, (metric, label, scale) in zip(axes, PANELS, strict=True):
            _draw_panel(axis, comparison, losses, metric, scale)
            axis.set_xlabel(label)
        axes[0].set_yticks(range(len(losses)), losses)
        axes[0].set_ylim(len(losses) - 0.5, -0.5)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        if title:
            figure.suptitle(title)
    return figure


def _draw_panel(axis: Axes, comparison: Comparison, losses: list[str], metric: str, scale: float) -> None:
    views = [view for view in VIEWS if any(row.view == view for row in comparison.rows)]
    for i, view in enumerate(views):
        rows = [row for row in comparison.rows if row.view == view]
        values = [scale * row.pooled[metric].value for row in rows]
        below = [scale * (row.pooled[metric].value - row.pooled[metric].low) for row in rows]
        above = [scale * (row.pooled[metric].high - row.pooled[metric].value) for row in rows]
        heights = [losses.index(row.loss) + STEP * (i - (len(views) - 1) / 2) for row in rows]
        if metric == "ece":
            floors = [scale * row.means["floor"] for row in rows]
            axis.barh(heights, floors, STEP, color=BAND, label="" if i else "noise floor of a calibrated model")
        axis.errorbar(
            values,
            heights,
            xerr=[below, above],
            fmt=MARKERS[i],
            color=COLOURS[i],
            markersize=4.5,
            elinewidth=1.2,
            capsize=0,
            label=view,
        )
    axis.grid(axis="y", visible=False)
    axis.locator_params(axis="x", nbins=5)
    axis.set_xlim(left=0)
