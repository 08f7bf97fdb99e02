"""[Lin25] Figure 4: the norm of the last layer's gradient by sample against the sample's Brier score, over training.

The paper scatters 45,000 training samples a panel. A scatter of that many dots shows its outliers best and its
middle worst, so here each loss is its median and the band that holds 80 % of the samples, in bins of the Brier
score: the narrower the band, the better the Brier score determines the gradient, which is what the paper claims for
BSCE-GRA.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from calgrad.paper.figures import PAGE, column, distinct, line_look, looks
from calgrad.paper.runs import Row
from calgrad.paper.traces import loss_labels, one_setting, setting_title, with_losses
from calgrad.report.style import new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEWEST = 20
"""Samples a bin needs to be shown; quantiles of fewer are noise."""


def gradient_brier_rows(
    gradients: Sequence[Row], *, losses: Sequence[str] = (), cell: str | None = None, recipe: str | None = None
) -> list[Row]:
    """Per epoch, loss and bin of the Brier score: quantiles of the gradient norm, of the first seed there is."""
    kept = one_setting([row for row in gradients if row["part"] == "by-brier"], cell=cell, recipe=recipe)
    chosen = loss_labels(with_losses(kept, losses))
    rows: list[Row] = []
    for row in chosen:
        first = min(r["seed"] for r in chosen if r["label"] == row["label"])
        if row["seed"] == first and row["count"] >= FEWEST:
            about = {"setting": setting_title([row]), "label": row["label"], "loss": row["loss"], "epoch": row["epoch"]}
            centre = (row["low"] + row["high"]) / 2
            rows.append({**about, "brier": centre, **{k: row[k] for k in ("count", "q10", "q50", "q90")}})
    return sorted(rows, key=lambda r: r["epoch"])


def band_widths(rows: Sequence[Row], epoch: int, labels: Sequence[str]) -> dict[str, float]:
    """The mean of log10(q90 / q10) of each label, over the bins that all of them fill (Brier score above 0.02)."""
    here = [r for r in rows if r["epoch"] == epoch and r["brier"] > 0.02 and r["q10"] > 0]
    shared = set.intersection(*({r["brier"] for r in here if r["label"] == label} for label in labels))
    if not shared:
        return dict.fromkeys(labels, math.nan)
    return {
        label: statistics.fmean(
            math.log10(r["q90"] / r["q10"]) for r in here if r["label"] == label and r["brier"] in shared
        )
        for label in labels
    }


def draw_gradient_vs_brier(rows: Sequence[Row]) -> Figure:
    """One panel an epoch: the median as a line, the middle 80 % as a band."""
    epochs = distinct(rows, "epoch")
    with style():
        figure = new_figure(PAGE, 2.6)
        panels = figure.subplots(1, len(epochs), sharex=True, sharey=True, squeeze=False)[0]
        for axis, epoch in zip(panels, epochs, strict=True):
            for label, look in looks(rows).items():
                where = {"label": label, "epoch": epoch}
                brier = column(rows, "brier", **where)
                band = column(rows, "q10", **where), column(rows, "q90", **where)
                axis.fill_between(brier, *band, color=look["color"], alpha=0.18, lw=0)
                axis.plot(brier, column(rows, "q50", **where), label=label, **line_look(look))
            axis.set_title(f"epoch {epoch}", fontsize=9)
            axis.set_yscale("log")
        # The lowest bin of the sharpest loss reaches down to nothing; what matters is where samples still pull.
        medians = [row["q50"] for row in rows if row["q50"] > 0]
        panels[0].set_ylim(max(min(medians), max(medians) * 1e-5), 3 * max(row["q90"] for row in rows))
        panels[0].set_xlim(0, max(row["brier"] for row in rows) + 0.05)
        panels[0].set_ylabel("gradient norm, last layer")
        figure.supxlabel(f"Brier score ({rows[0]['setting']}, training samples)", fontsize=9)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 4), fontsize=8)
    return figure
