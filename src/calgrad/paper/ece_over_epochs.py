"""[Lin25] Figure 5 (left): ECE over the epochs of training, smoothed by an exponential moving average.

The paper shows the test set's ECE. Here the test set is not looked at before the end, so the curves are the
validation set's; its noise floor is higher (5,000 samples instead of 10,000).
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from calgrad.paper.figures import COLUMN, column, distinct, line_look, looks
from calgrad.paper.runs import Row
from calgrad.paper.traces import loss_labels, one_setting, setting_title, with_losses
from calgrad.report.style import FAINT, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def smoothing(points: int) -> float:
    """How much of the average is kept from one validation to the next: its memory is a tenth of the curve.

    >>> smoothing(20), smoothing(70)
    (0.5, 0.8571428571428572)
    """
    return min(0.9, max(0.0, 1 - 10 / points))


def smoothed(values: Sequence[float], keep: float) -> list[float]:
    """The exponential moving average, started at the first value.

    >>> smoothed([1.0, 0.0, 0.0], keep=0.5)
    [1.0, 0.5, 0.25]
    """
    average: list[float] = []
    for value in values:
        average.append(keep * average[-1] + (1 - keep) * value if average else value)
    return average


def ece_epoch_rows(
    epochs: Sequence[Row], *, losses: Sequence[str] = (), cell: str | None = None, recipe: str | None = None
) -> list[Row]:
    """Per loss and epoch: the mean validation ECE over seeds, smoothed and not, and the learning rate."""
    chosen = loss_labels(with_losses(one_setting(epochs, cell=cell, recipe=recipe), losses))
    rows: list[Row] = []
    for label in distinct(chosen, "label"):
        runs = [row for row in chosen if row["label"] == label]
        steps = sorted({row["epoch"] for row in runs})
        means = [statistics.fmean(r["val_ece"] for r in runs if r["epoch"] == epoch) for epoch in steps]
        for epoch, value, average in zip(steps, means, smoothed(means, smoothing(len(means))), strict=True):
            about = {"setting": setting_title(runs), "label": label, "loss": runs[0]["loss"]}
            about |= {"seeds": len(set(column(runs, "seed")))}
            rate = column(runs, "lr", epoch=epoch)[0]
            rows.append({**about, "epoch": epoch, "lr": rate, "val_ece": value, "smoothed": average})
    return rows


def draw_ece_over_epochs(rows: Sequence[Row]) -> Figure:
    """One line a loss; where the learning rate drops by a step, a thin vertical line."""
    with style():
        figure = new_figure(COLUMN, 2.7)
        axis = figure.subplots()
        for label, look in looks(rows).items():
            epochs = column(rows, "epoch", label=label)
            axis.plot(
                epochs,
                [100 * v for v in column(rows, "val_ece", label=label)],
                color=look["color"],
                lw=0.6,
                alpha=0.35,
            )
            averages = [100 * v for v in column(rows, "smoothed", label=label)]
            axis.plot(epochs, averages, label=label, **line_look(look))
        first = [row for row in rows if row["label"] == rows[0]["label"]]
        for before, after in itertools.pairwise(first):
            if after["lr"] < 0.2 * before["lr"]:
                axis.axvline(before["epoch"], color=FAINT, lw=0.8, linestyle=":")
        axis.set(xlabel="epoch", ylabel="validation ECE (%)", ylim=(0, None))
        axis.set_title(rows[0]["setting"], fontsize=9)
        axis.legend(fontsize=8)
    return figure
