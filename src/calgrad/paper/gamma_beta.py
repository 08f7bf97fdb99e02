"""[Lin25] appendix, Figure 8: ECE and error of BSCE and BSCE-GRA over gamma and beta.

The paper prints neither the grid nor the numbers of this figure. beta = 1 is focal loss times a constant (|p -
e_y|_1 = 2 (1 - p_y)), so its curve is focal's. gamma belongs to the things that are selected on validation; what
this figure shows of the test set is no way to choose it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from calgrad.checks import InputError
from calgrad.paper.figures import PAGE, distinct
from calgrad.paper.records import RunRow, grouped, pool_rows
from calgrad.paper.runs import Row, identity_row
from calgrad.paper.traces import one_setting, setting_title
from calgrad.report.style import COLOURS, MARKERS, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOSSES = ("bsce", "bsce-gra")
PANELS = {"ece": "ECE (%)", "ece_after_T": "ECE after T (%)", "error": "error (%)"}


def gamma_beta_rows(runs: Sequence[RunRow], *, cell: str | None = None, recipe: str | None = None) -> list[Row]:
    """Per loss, gamma and beta: ECE before and after T and error, with intervals."""
    candidates = [r for r in runs if r.run.loss in LOSSES]
    if not candidates:
        raise InputError("no run of bsce or bsce-gra: the figure needs a few gammas of them")
    chosen = one_setting([identity_row(r.run) for r in candidates], cell=cell, recipe=recipe)
    kept = {(r["settings"], r["recipe"], r["epochs"], r["data"], r["model"]) for r in chosen}
    rows: list[Row] = []
    for run, members in grouped(candidates).items():
        if (run.settings, run.recipe, run.epochs, run.data, run.model) not in kept:
            continue
        options = dict(part.split("=") for part in run.options.split(";"))
        row: Row = {"setting": setting_title([identity_row(run)]), "loss": run.loss, "n": len(members)}
        row |= {"gamma": float(options["gamma"]), "beta": float(options["beta"])}
        for metric in ("ece", "ece_after_T", "accuracy"):
            pooled = pool_rows(members, metric)
            name, numbers = metric, (pooled.value, pooled.low, pooled.high)
            if metric == "accuracy":
                name, numbers = "error", (1 - pooled.value, 1 - pooled.high, 1 - pooled.low)
            row |= {name: numbers[0], f"{name}_low": numbers[1], f"{name}_high": numbers[2]}
        rows.append(row)
    return sorted(rows, key=lambda r: (r["loss"], r["beta"], r["gamma"]))


def draw_gamma_beta(rows: Sequence[Row]) -> Figure:
    """A panel a metric, a line a loss and beta."""
    with style():
        figure = new_figure(PAGE, 2.6)
        for axis, (metric, title) in zip(figure.subplots(1, len(PANELS)), PANELS.items(), strict=True):
            for i, (loss, beta) in enumerate(dict.fromkeys((r["loss"], r["beta"]) for r in rows)):
                here = [r for r in rows if (r["loss"], r["beta"]) == (loss, beta)]
                values = [100 * r[metric] for r in here]
                error = [
                    [100 * (r[metric] - r[f"{metric}_low"]) for r in here],
                    [100 * (r[f"{metric}_high"] - r[metric]) for r in here],
                ]
                # Shifted a little, so that intervals of different lines don't hide each other.
                gammas = [r["gamma"] + 0.06 * i for r in here]
                axis.errorbar(
                    gammas, values, yerr=error, marker=MARKERS[i], color=COLOURS[i % 6], markersize=3.5, lw=1.2,
                    elinewidth=0.8, label=f"{loss}, $\\beta$ = {beta:g}",
                )  # fmt: skip
            axis.set(xlabel="$\\gamma$", ylabel=title, ylim=(0, None))
            axis.set_xticks(sorted(distinct(rows, "gamma")))
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside upper center", ncols=len(labels), fontsize=8, title=rows[0]["setting"]
        )
    return figure
