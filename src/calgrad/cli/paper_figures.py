"""`calgrad paper fig-...`: each figure's data as CSV first, then PNG and SVG drawn from it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from calgrad.checks import InputError
from calgrad.cli.paper_options import (
    RESULTS,
    CellName,
    Losses,
    Out,
    Pictures,
    RecipeName,
    Runs,
    loss_parts,
    parts,
    places,
    run_rows,
)


def register_figures(app: typer.Typer) -> None:
    """Add a command for each figure."""
    app.command("fig-focal-gradient")(fig_focal_gradient)
    app.command("fig-weights")(fig_weights)
    app.command("fig-ece-bars")(fig_ece_bars)
    app.command("fig-gamma-beta")(fig_gamma_beta)
    for name, entry in TRACED.items():
        app.command(name, help=entry[-1])(_traced_command(name))


def fig_focal_gradient(out: Out = RESULTS / "paper", pictures: Pictures = None) -> None:
    """Figure 1: how focal loss weighs the gradient, g(p, gamma), and its turning point p0."""
    from calgrad.paper.focal_gradient import draw_focal_gradient, focal_gradient_rows

    _draw("fig-focal-gradient", focal_gradient_rows(), draw_focal_gradient, out, pictures)


def fig_weights(out: Out = RESULTS / "paper", pictures: Pictures = None) -> None:
    """Figure 2: the weights of FL, DFL and BS over the simplex of four classes."""
    from calgrad.paper.simplex_weights import draw_simplex, simplex_rows

    _draw("fig-weights", simplex_rows(), draw_simplex, out, pictures)


def fig_ece_bars(
    runs: Runs = None,
    cells: Annotated[str, typer.Option(help="which networks [cifar10/resnet50,cifar10/resnet110]")] = "",
    out: Out = RESULTS / "paper",
    pictures: Pictures = None,
) -> None:
    """Figure 3: ECE, AdaECE and classwise ECE of every loss; published as bars, ours as dots with intervals."""
    from calgrad.paper.ece_bars import CELLS, draw_ece_bars, ece_bar_rows

    rows = ece_bar_rows(run_rows(runs), cells=parts(cells) or CELLS)
    _draw("fig-ece-bars", rows, draw_ece_bars, out, pictures)


def fig_gamma_beta(
    runs: Runs = None,
    cell: CellName = None,
    recipe: RecipeName = None,
    out: Out = RESULTS / "paper",
    pictures: Pictures = None,
) -> None:
    """Appendix, Figure 8: ECE and error over gamma and beta of BSCE and BSCE-GRA."""
    from calgrad.paper.gamma_beta import draw_gamma_beta, gamma_beta_rows

    _draw("fig-gamma-beta", gamma_beta_rows(run_rows(runs), cell=cell, recipe=recipe), draw_gamma_beta, out, pictures)


TRACED = {
    "fig-ece-over-epochs": (
        "ece_over_epochs", "epochs", "ece_epoch_rows", "draw_ece_over_epochs", "Figure 5, left: ECE over training, smoothed.",
    ),
    "fig-gradient-vs-brier": (
        "gradient_vs_brier", "gradients", "gradient_brier_rows", "draw_gradient_vs_brier",
        "Figure 4: the last layer's gradient norm against the Brier score, over training.",
    ),
    "fig-gradient-density": (
        "gradient_density", "gradients", "gradient_density_rows", "draw_gradient_density",
        "Figure 5, right: how the gradient norms are distributed over the training samples.",
    ),
    "fig-confidence": (
        "confidence", "confidence", "confidence_figure_rows", "draw_confidence",
        "Appendix, Figures 6 and 7: right and wrong predictions by confidence, over training.",
    ),
}  # fmt: skip
"""Figures from what runs leave behind: module, kind of rows, function for the data, function that draws, help."""


def _traced_command(name: str) -> Callable[..., None]:
    module_name, kind, make_rows, draw, _ = TRACED[name]

    def command(
        runs: Runs = None,
        losses: Losses = "",
        cell: CellName = None,
        recipe: RecipeName = None,
        out: Out = RESULTS / "paper",
        pictures: Pictures = None,
    ) -> None:

        from calgrad.paper.traces import trace_rows

        module = importlib.import_module(f"calgrad.paper.{module_name}")
        traces = trace_rows(places(runs), kind)
        if not traces:
            raise InputError(
                f"no run with {kind} to draw {name} from. Make some: `calgrad compare digits --set gradient_epochs=[5,10,20] "
                f"--set eval_every=1 -o runs/digits`, then `calgrad paper {name} --runs runs/digits`; the paper's: `calgrad "
                "paper table-ece --run --cells cifar10/resnet50`"
            )
        rows = getattr(module, make_rows)(traces, losses=loss_parts(losses), cell=cell, recipe=recipe)
        _draw(name, rows, getattr(module, draw), out, pictures)

    return command


def _draw(name: str, rows: Sequence[Any], draw: Callable[..., Any], out: Path, pictures: Path | None) -> None:
    from calgrad.paper.figures import write_figure

    for path in write_figure(name, rows, draw, data=out, pictures=pictures or out):
        print(path)
