"""[Lin25] appendix, Figures 6 and 7: right and wrong predictions by confidence, over the epochs of training.

The paper's text calls its horizontal axis the probability of the true class, and then finds wrong predictions near
100 %, which that can't be; so the axis here is the confidence, the largest probability. Wrong predictions are few,
so the vertical axis is logarithmic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from calgrad.paper.figures import PAGE, column, distinct
from calgrad.paper.runs import Row
from calgrad.paper.traces import loss_labels, one_setting, setting_title, with_losses
from calgrad.report.style import COLOURS, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def confidence_figure_rows(
    confidences: Sequence[Row], *, losses: Sequence[str] = (), cell: str | None = None, recipe: str | None = None
) -> list[Row]:
    """Per loss, epoch and bin of confidence: predictions right and wrong, added over seeds."""
    chosen = loss_labels(with_losses(one_setting(confidences, cell=cell, recipe=recipe), losses))
    rows: list[Row] = []
    for label, epoch in dict.fromkeys((r["label"], r["epoch"]) for r in chosen):
        here = [r for r in chosen if (r["label"], r["epoch"]) == (label, epoch)]
        about = {"setting": setting_title(here), "label": label, "loss": here[0]["loss"], "epoch": epoch}
        about |= {"split": here[0]["split"], "seeds": len(set(column(here, "seed")))}
        for low in sorted(set(column(here, "low"))):
            counts = {k: sum(column(here, k, low=low)) for k in ("correct", "wrong")}
            rows.append({**about, "low": low, "high": column(here, "high", low=low)[0], **counts})
    return rows


def draw_confidence(rows: Sequence[Row]) -> Figure:
    """A line of panels a loss, a panel an epoch."""
    labels, epochs = distinct(rows, "label"), sorted(distinct(rows, "epoch"))
    with style():
        figure = new_figure(PAGE if len(epochs) > 1 else PAGE / 2, 0.7 + 1.35 * len(labels))
        panels = figure.subplots(len(labels), len(epochs), sharex=True, sharey=True, squeeze=False)
        for line, label in zip(panels, labels, strict=True):
            for axis, epoch in zip(line, epochs, strict=True):
                here = [r for r in rows if (r["label"], r["epoch"]) == (label, epoch)]
                for k, colour, offset in (("correct", COLOURS[0], 0.0), ("wrong", COLOURS[1], 0.5)):
                    width = (here[0]["high"] - here[0]["low"]) * 0.45 if here else 0
                    lows = [r["low"] + offset * (r["high"] - r["low"]) for r in here]
                    axis.bar(lows, [r[k] for r in here], width=width, align="edge", color=colour, label=k)
                axis.set_yscale("log")
                if line is panels[0]:
                    axis.set_title(f"epoch {epoch}", fontsize=9)
            line[0].set_ylabel(label.replace(" (", "\n("), fontsize=8)
        axis.set_xlim(0, 1)
        figure.supxlabel(f"confidence ({rows[0]['setting']}, {rows[0]['split']})", fontsize=9)
        handles, names = panels[0][0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=2, fontsize=8)
    return figure
