"""[Lin25] Figure 3: ECE, AdaECE and classwise ECE of every loss on CIFAR-10, for ResNet-50 and ResNet-110.

The paper draws bars before and after temperature scaling. Here the published values are the bars, and what was run
here lies over them as a dot with its interval: where the interval covers the bar's end, the run says nothing
against the paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from calgrad.paper.figures import PAGE, distinct
from calgrad.paper.published import LOSS_TITLES, read_published
from calgrad.paper.records import RunRow, grouped, pool_rows
from calgrad.paper.runs import Row
from calgrad.report.style import BAND, COLOURS, FAINT, new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CELLS = ("cifar10/resnet50", "cifar10/resnet110")
METRICS = {"ece": "ECE (%)", "ada_ece": "AdaECE (%)", "classwise_ece": "classwise ECE (%)"}
VIEWS = ("before", "after")
PUBLISHED = "published"


def ece_bar_rows(runs: Sequence[RunRow], *, cells: Sequence[str] = CELLS) -> list[Row]:
    """A row for each network, metric, loss and view: the published value, and one for every group of runs."""
    rows: list[Row] = []
    for metric in METRICS:
        for printed in read_published(metric):
            cell = f"{printed.data}/{printed.model}"
            if cell in cells:
                where = {"cell": cell, "metric": metric, "loss": LOSS_TITLES[printed.loss], "view": printed.view}
                numbers = {"value": printed.value, "low": math.nan, "high": math.nan, "n": 3}
                rows.append({**where, "source": PUBLISHED, **numbers})
        chosen = [row for row in runs if f"{row.run.data}/{row.run.model}" in cells]
        options: dict[str, set[str]] = {}
        for row in chosen:
            options.setdefault(row.run.loss, set()).add(row.run.options)
        for run, members in grouped(chosen).items():
            title = LOSS_TITLES.get(run.loss, run.loss)
            if len(options[run.loss]) > 1:
                title = f"{title} ({run.options})"
            for view in VIEWS:
                pooled = pool_rows(members, metric if view == "before" else f"{metric}_after_T")
                where = {"cell": f"{run.data}/{run.model}", "metric": metric, "loss": title, "view": view}
                numbers = {"value": pooled.value, "low": pooled.low, "high": pooled.high, "n": len(members)}
                rows.append({**where, "source": f"{run.recipe}, {run.length}", **numbers})
    return rows


def draw_ece_bars(rows: Sequence[Row]) -> Figure:
    """A row of panels a network, a panel a metric."""
    cells, losses = distinct(rows, "cell"), distinct(rows, "loss")
    with style():
        figure = new_figure(PAGE, 0.7 + (0.5 + 0.24 * len(losses)) * len(cells))
        panels = figure.subplots(len(cells), len(METRICS), sharey=True, squeeze=False)
        for line, cell in zip(panels, cells, strict=True):
            for axis, (metric, title) in zip(line, METRICS.items(), strict=True):
                _draw_panel(axis, [r for r in rows if (r["cell"], r["metric"]) == (cell, metric)], losses)
                axis.set_xlabel(title)
            line[0].set_ylabel(cell)
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=2, fontsize=8.5)
    return figure


def _draw_panel(axis: Axes, rows: list[Row], losses: list[str]) -> None:
    sources = [source for source in distinct(rows, "source") if source != PUBLISHED]
    for v, view in enumerate(VIEWS):
        offset = 0.2 * (2 * v - 1)
        bars = [r for r in rows if (r["source"], r["view"]) == (PUBLISHED, view)]
        spots = [losses.index(r["loss"]) + offset for r in bars]
        if bars:
            values = [100 * r["value"] for r in bars]
            axis.barh(spots, values, height=0.36, color=(FAINT, BAND)[v], label=f"published, {view} T", zorder=1)
        for i, source in enumerate(sources):
            here = [r for r in rows if (r["source"], r["view"]) == (source, view)]
            values = [100 * r["value"] for r in here]
            error = [[100 * (r["value"] - r["low"]) for r in here], [100 * (r["high"] - r["value"]) for r in here]]
            spots = [losses.index(r["loss"]) + offset for r in here]
            label = f"{source}, {view} T"
            axis.errorbar(values, spots, xerr=error, fmt="os"[v], color=COLOURS[i % 6], markersize=3.5, label=label)
    axis.set_yticks(range(len(losses)), losses, fontsize=8.5)
    axis.set_ylim(len(losses) - 0.4, -0.6)
    axis.set_xlim(0, None)
    axis.grid(axis="y", visible=False)
