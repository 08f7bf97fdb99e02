"""[Lin25] Figure 5 (middle, right): how the gradients of the last layer are distributed over the training samples.

The paper draws the density of the norm. Most samples of a trained network have a gradient near zero, so here the
density is that of the norm's logarithm: a loss that takes smaller steps has its mass further to the left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from calgrad.paper.figures import COLUMN, PAGE, column, distinct, line_look, looks
from calgrad.paper.runs import Row
from calgrad.paper.traces import loss_labels, one_setting, setting_title, with_losses
from calgrad.report.style import new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def gradient_density_rows(
    gradients: Sequence[Row], *, losses: Sequence[str] = (), cell: str | None = None, recipe: str | None = None
) -> list[Row]:
    """Per epoch, loss and bin of log10(norm): the density over all seeds there are, empty bins within the range too."""
    kept = one_setting([row for row in gradients if row["part"] == "density"], cell=cell, recipe=recipe)
    chosen = loss_labels(with_losses(kept, losses))
    width = round(chosen[0]["high"] - chosen[0]["low"], 6)
    bins = sorted({round(r["low"], 6) for r in chosen})
    steps = round((bins[-1] - bins[0]) / width) + 1
    rows: list[Row] = []
    for epoch in sorted(distinct(chosen, "epoch")):
        for label in distinct(chosen, "label"):
            here = [r for r in chosen if (r["epoch"], r["label"]) == (epoch, label)]
            if not here:
                continue
            total = sum(r["count"] for r in here)
            counts = {low: sum(r["count"] for r in here if round(r["low"], 6) == low) for low in bins}
            about = {"setting": setting_title(here), "label": label, "loss": here[0]["loss"], "epoch": epoch}
            for i in range(steps):
                low = round(bins[0] + i * width, 6)
                density = counts.get(low, 0) / total / width
                rows.append({**about, "log10_norm": low + width / 2, "density": density, "samples": total})
    return rows


def draw_gradient_density(rows: Sequence[Row]) -> Figure:
    """One panel an epoch, one curve a loss."""
    epochs = distinct(rows, "epoch")
    with style():
        figure = new_figure(COLUMN if len(epochs) == 1 else PAGE, 2.6)
        panels = figure.subplots(1, len(epochs), sharex=True, squeeze=False)[0]
        for axis, epoch in zip(panels, epochs, strict=True):
            for label, look in looks(rows).items():
                where = {"label": label, "epoch": epoch}
                points = column(rows, "log10_norm", **where), column(rows, "density", **where)
                axis.plot(*points, label=label, **line_look(look))
            axis.set_title(f"epoch {epoch}", fontsize=9)
            axis.set_ylim(0, None)
        panels[0].set_ylabel("density")
        figure.supxlabel(f"log10 of the gradient norm ({rows[0]['setting']})", fontsize=9)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 4), fontsize=8)
    return figure
