"""ECE, NLL and accuracy on validation over the epochs of a training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calgrad.checks import InputError
from calgrad.report.canvas import blank
from calgrad.report.coverage import LINES
from calgrad.report.style import COLOURS, style
from calgrad.train import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = {"ece": ("ECE (%)", 100.0), "nll": ("NLL", 1.0), "accuracy": ("accuracy (%)", 100.0)}

History = Record | str | Path | Sequence[Mapping[str, Any]]
"""A run's record, its folder, or the list of its epochs' entries."""


def history_of(run: History) -> dict[str, list[float]]:
    """`epoch`, `ece`, `nll` and `accuracy` of the epochs that were validated, as far as the record holds them."""
    if isinstance(run, (str, Path)):
        run = Record.load(run)
    entries = [e for e in (run.epochs if isinstance(run, Record) else run) if any(k.startswith("val_") for k in e)]
    found: dict[str, list[float]] = {"epoch": [e["epoch"] for e in entries]}
    for name in PANELS:
        values = [e.get(f"val_{name}") for e in entries]
        if entries and all(isinstance(v, (int, float)) and math.isfinite(v) for v in values):
            found[name] = values  # type: ignore[assignment]
    return found


def draw_history(runs: History | Mapping[str, History], *, axes: Sequence[Axes] | None = None) -> Figure:
    """One panel a metric, one line a run.

    Args:
        runs: A run (record, folder or epochs' entries), or several by name.
        axes: Three axes to draw on; by default a new figure.

    Example:
        >>> import calgrad.plot
        >>> epochs = [{"epoch": e, "val_ece": 0.1 / e, "val_nll": 1 / e, "val_accuracy": 1 - 0.5 / e} for e in range(1, 9)]
        >>> figure = calgrad.plot.draw_history({"ce": epochs})
    """
    named = {str(k): history_of(v) for k, v in runs.items()} if isinstance(runs, Mapping) else {"": history_of(runs)}
    if not any(len(h) > 1 for h in named.values()):
        raise InputError("no epoch of these runs was validated: there is nothing to draw yet")
    with style():
        figure = blank(10, 2.9) if axes is None else axes[0].get_figure(root=True)
        axes = figure.subplots(1, len(PANELS)) if axes is None else axes  # type: ignore[union-attr]
        for ax, (metric, (label, scale)) in zip(axes, PANELS.items(), strict=True):
            for i, (name, history) in enumerate(named.items()):
                if metric in history:
                    values = [scale * v for v in history[metric]]
                    ax.plot(
                        history["epoch"], values, color=COLOURS[i % len(COLOURS)], ls=LINES[i % len(LINES)], label=name
                    )
            ax.set(xlabel="epoch", title=label)
            if metric == "ece":
                ax.set_ylim(bottom=0)
        if len(named) > 1:
            axes[0].legend()
    return figure  # type: ignore[return-value]
