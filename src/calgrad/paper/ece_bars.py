"""[Lin25] Figure 3: ECE, AdaECE and classwise ECE of every loss on CIFAR-10, for ResNet-50 and ResNet-110.

The paper draws bars before and after temperature scaling. Here the published values are the bars, and what was run
here lies over them as a dot with its interval: where the interval covers the bar's end, the run says nothing
against the paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from calgrad.paper.figures import PAGE
from calgrad.paper.published import LOSS_TITLES, read_published
from calgrad.paper.records import RunRow, grouped, pool_rows
from calgrad.paper.runs import Row
from calgrad.report.style import BAND, COLOURS, FAINT, new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MODELS = ("resnet50", "resnet110")
METRICS = {"ece": "ECE (%)", "ada_ece": "AdaECE (%)", "classwise_ece": "classwise ECE (%)"}
VIEWS = ("before", "after")


def ece_bar_rows(runs: Sequence[RunRow], *, data: str = "cifar10", models: Sequence[str] = MODELS) -> list[Row]:
    """A row for each network, metric, loss and view: the published value, and one for every group of runs."""
    rows: list[Row] = []
    for metric in METRICS:
        for cell in read_published(metric):
            if cell.data == data and cell.model in models:
                where = {"model": cell.model, "metric": metric, "loss": cell.loss, "view": cell.view}
                rows.append(
                    {**where, "source": "published", "value": cell.value, "low": math.nan, "high": math.nan, "n": 3}
                )
        for run, members in grouped(r for r in runs if r.run.data == data and r.run.model in models).items():
            for view in VIEWS:
                pooled = pool_rows(members, metric if view == "before" else f"{metric}_after_T")
                where = {"model": run.model, "metric": metric, "loss": run.loss, "view": view}
                numbers = {"value": pooled.value, "low": pooled.low, "high": pooled.high, "n": len(members)}
                rows.append({**where, "source": f"{run.recipe}, {run.length}", **numbers})
    return rows


def draw_ece_bars(rows: Sequence[Row]) -> Figure:
    """A row of panels a network, a panel a metric."""
    models = [m for m in MODELS if any(r["model"] == m for r in rows)]
    with style():
        figure = new_figure(PAGE, 0.6 + 2.2 * len(models))
        panels = figure.subplots(len(models), len(METRICS), sharey=True, squeeze=False)
        for line, model in zip(panels, models, strict=True):
            for axis, (metric, title) in zip(line, METRICS.items(), strict=True):
                _draw_panel(axis, [r for r in rows if (r["model"], r["metric"]) == (model, metric)])
                axis.set_xlabel(title)
            line[0].set_ylabel(model)
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=2, fontsize=8.5)
    return figure


def _draw_panel(axis: Axes, rows: list[Row]) -> None:
    losses = [loss for loss in LOSS_TITLES if any(r["loss"] == loss for r in rows)]
    sources = [s for s in dict.fromkeys(r["source"] for r in rows) if s != "published"]
    for v, view in enumerate(VIEWS):
        bars = {r["loss"]: 100 * r["value"] for r in rows if (r["source"], r["view"]) == ("published", view)}
        spots = [losses.index(loss) + 0.2 * (2 * v - 1) for loss in bars]
        colour = (FAINT, BAND)[v]
        axis.barh(spots, list(bars.values()), height=0.36, color=colour, label=f"published, {view} T", zorder=1)
        for i, source in enumerate(sources):
            here = [r for r in rows if (r["source"], r["view"]) == (source, view)]
            values = [100 * r["value"] for r in here]
            error = [[100 * (r["value"] - r["low"]) for r in here], [100 * (r["high"] - r["value"]) for r in here]]
            spots = [losses.index(r["loss"]) + 0.2 * (2 * v - 1) for r in here]
            axis.errorbar(
                values,
                spots,
                xerr=error,
                fmt="os"[v],
                color=COLOURS[i % 6],
                markersize=3.5,
                label=f"{source}, {view} T",
            )
    axis.set_yticks(range(len(losses)), [LOSS_TITLES[loss] for loss in losses])
    axis.set_ylim(len(losses) - 0.4, -0.6)
    axis.grid(axis="y", visible=False)
