"""[Lin25] Figure 1: how focal loss weighs the gradient of cross-entropy, g(p, gamma), and where that weight turns, p0.

Focal loss multiplies cross-entropy by (1 - p) ** gamma, which falls with p. But the weight is differentiated too,
and what multiplies the *gradient* is g(p, gamma) = (1 - p) ** gamma - gamma p (1 - p) ** (gamma - 1) log p. That
rises up to p0 and falls only after it: the samples about which the network is most wrong do not get the largest
weight. Detached (-GRA), they do.

The curves come from the losses' own backward pass, not from the formula above, so the figure also tests the code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from calgrad.losses import make_loss
from calgrad.paper.figures import COLUMN, column, distinct
from calgrad.paper.runs import Row
from calgrad.report.style import COLOURS, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAMMAS = (1, 2, 3, 4, 5)


def gradient_weight(loss: str, p_true: Tensor, gamma: float) -> Tensor:
    """What the gradient of `loss` is, as a multiple of cross-entropy's, at probability `p_true` of the label."""
    logits = torch.stack([p_true.logit(), torch.zeros_like(p_true)], dim=1).double().requires_grad_()
    labels = torch.zeros(len(p_true), dtype=torch.int64)

    def gradient(module: torch.nn.Module) -> Tensor:
        (found,) = torch.autograd.grad(module(logits, labels), logits)
        return found[:, 0]

    return gradient(make_loss(loss, gamma=gamma, reduction="sum")) / gradient(make_loss("ce", reduction="sum"))


def turning_point(gamma: float) -> tuple[float, float]:
    """p0 and g(p0, gamma) of focal loss, by three ever finer grids.

    >>> p0, peak = turning_point(1)
    >>> round(p0, 4), round(peak, 4)  # g(p, 1) = 1 - p - p log p has its maximum where log p = -2
    (0.1353, 1.1353)
    """
    low, high = 1e-6, 1 - 1e-6
    for _ in range(5):
        grid = torch.linspace(low, high, 401, dtype=torch.float64)
        best = int(gradient_weight("focal", grid, gamma).argmax())
        low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, 400)])
    point = torch.tensor([(low + high) / 2], dtype=torch.float64)
    return float(point), float(gradient_weight("focal", point, gamma))


def focal_gradient_rows(*, gammas: Sequence[float] = GAMMAS, points: int = 199) -> list[Row]:
    """gamma, p, the weight on the gradient for focal and focal-gra, and p0 with its height."""
    p_true = torch.linspace(0.005, 0.995, points, dtype=torch.float64)
    rows: list[Row] = []
    for gamma in gammas:
        p0, peak = turning_point(gamma)
        on_loss, on_gradient = (gradient_weight(loss, p_true, gamma) for loss in ("focal", "focal-gra"))
        for p, a, b in zip(p_true.tolist(), on_loss.tolist(), on_gradient.tolist(), strict=True):
            rows.append({"gamma": gamma, "p_true": p, "focal": a, "focal_gra": b, "p0": p0, "peak": peak})
    return rows


def draw_focal_gradient(rows: Sequence[Row]) -> Figure:
    """One line a gamma, a dot at its p0, and the detached weight of the largest gamma for contrast."""
    with style():
        figure = new_figure(COLUMN, 2.9)
        axis = figure.subplots()
        for i, gamma in enumerate(distinct(rows, "gamma")):
            p_true, weight = column(rows, "p_true", gamma=gamma), column(rows, "focal", gamma=gamma)
            p0, peak = column(rows, "p0", gamma=gamma)[0], column(rows, "peak", gamma=gamma)[0]
            axis.plot(p_true, weight, color=COLOURS[i], label=f"$\\gamma$ = {gamma:g}, $p_0$ = {p0:.3f}")
            axis.plot([p0], [peak], "o", color=COLOURS[i], markersize=4)
        last = distinct(rows, "gamma")[-1]
        detached = column(rows, "focal_gra", gamma=last)
        axis.plot(
            column(rows, "p_true", gamma=last), detached, ":", color=COLOURS[i], label=f"-GRA, $\\gamma$ = {last:g}"
        )
        axis.set(
            xlabel="probability of the label, $p$", ylabel="weight on the gradient of CE", xlim=(0, 1), ylim=(0, None)
        )
        axis.legend(fontsize=8, loc="upper right", labelspacing=0.25)
    return figure
