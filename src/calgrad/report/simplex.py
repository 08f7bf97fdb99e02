"""Three classes seen whole: the weight u of a loss, and its link, over the triangle of all probability vectors.

Each point of the triangle is one p = (p_1, p_2, p_3); a corner is certainty. The first picture shows the weight that a
sample of class 1 gets when the model says p. The second shows where the link moves p: from what the loss's minimiser
says (the dot) to the posterior it encodes (the arrow's head).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from calgrad.checks import InputError, positive_int
from calgrad.losses import make_loss, posterior
from calgrad.report.canvas import canvas
from calgrad.report.style import COLOURS, INK, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CORNERS = np.array([[0.5, 3**0.5 / 2], [0.0, 0.0], [1.0, 0.0]])
"""Where p = e_1, e_2, e_3 are drawn: the first class on top."""


@dataclass(frozen=True)
class SimplexField:
    """Points of the triangle and what is drawn there: a value each, or for the link another point each."""

    name: str
    probs: Tensor
    values: Tensor


def simplex_grid(steps: int, *, inside: float = 0.0) -> Tensor:
    """All (i, j, k) / steps with i + j + k = steps, drawn towards the centre by `inside` to keep off the edges."""
    positive_int("steps", steps)
    rows = [(i, j, steps - i - j) for i in range(steps + 1) for j in range(steps + 1 - i)]
    return (1 - inside) * torch.tensor(rows, dtype=torch.float64) / steps + inside / 3


def uncertainty_field(loss: str | nn.Module, *, label: int = 0, steps: int = 60) -> SimplexField:
    """The weight u(p, label) of a weighted cross-entropy over the triangle."""
    module = make_loss(loss) if isinstance(loss, str) else loss
    name = loss if isinstance(loss, str) else type(loss).__name__
    weigh = getattr(module, "uncertainty", None)
    if not callable(weigh):
        raise InputError(f"{name!r} is not a weighted cross-entropy: it has no uncertainty u(p, y) to draw")
    probs = simplex_grid(steps, inside=1e-6)
    with torch.no_grad():
        values = weigh(probs, torch.full((len(probs),), label))
    return SimplexField(name, probs, values.double())


def link_field(loss: str | nn.Module, *, steps: int = 10) -> SimplexField:
    """Where the link of a loss takes each point of a coarse grid."""
    module = make_loss(loss) if isinstance(loss, str) else loss
    probs = simplex_grid(steps, inside=0.1)
    with torch.no_grad():
        eta = posterior(module, probs)
    return SimplexField(loss if isinstance(loss, str) else type(loss).__name__, probs, eta.double())


def draw_uncertainty(
    field: SimplexField | str | nn.Module,
    *,
    label: int = 0,
    classes: Sequence[str] = ("class 1", "class 2", "class 3"),
    ax: Axes | None = None,
) -> Figure:
    """The weight u as a filled contour.

    Example:
        >>> import calgrad.plot
        >>> figure = calgrad.plot.draw_uncertainty("bsce-gra")
    """
    if not isinstance(field, SimplexField):
        field = uncertainty_field(field, label=label)
    with style():
        figure, ax = canvas(ax, 4.4, 3.9)
        x, y = (field.probs.numpy() @ CORNERS).T
        top = float(field.values.max()) or 1.0
        filled = ax.tricontourf(x, y, field.values.numpy(), levels=np.linspace(0, top, 15), cmap="cividis")
        lines = ax.tricontour(
            x, y, field.values.numpy(), levels=np.linspace(0, top, 15)[2:-1:3], colors="white", linewidths=0.7
        )
        ax.clabel(lines, fmt="%.2g", fontsize=7)
        bar = figure.colorbar(filled, ax=ax, shrink=0.75, format="%.2g")
        bar.outline.set_visible(False)  # type: ignore[operator]
        _triangle(ax, classes)
        ax.set_title(f"{field.name}: u(p, y = {classes[label]})")
    return figure


def draw_link(
    field: SimplexField | str | nn.Module,
    *,
    classes: Sequence[str] = ("class 1", "class 2", "class 3"),
    ax: Axes | None = None,
) -> Figure:
    """The link as arrows from p to the posterior it encodes: dots where it raises the confidence, squares where it lowers it.

    Example:
        >>> import calgrad.plot
        >>> figure = calgrad.plot.draw_link("focal")
    """
    if not isinstance(field, SimplexField):
        field = link_field(field)
    with style():
        figure, ax = canvas(ax, 4.2, 3.9)
        start, end = field.probs.numpy() @ CORNERS, field.values.numpy() @ CORNERS
        rise = (field.values.amax(1) - field.probs.amax(1)).numpy()
        for chosen, colour, words in (
            (rise > 1e-9, COLOURS[0], "more confident"),
            (rise < -1e-9, COLOURS[1], "less confident"),
        ):
            if not chosen.any():
                continue
            move = end[chosen] - start[chosen]
            arrows: Any = {
                "angles": "xy",
                "scale_units": "xy",
                "scale": 1,
                "width": 0.006,
                "headwidth": 3.6,
                "headlength": 4,
            }
            ax.quiver(start[chosen, 0], start[chosen, 1], move[:, 0], move[:, 1], color=colour, zorder=3, **arrows)
            marker = "o" if words[0] == "m" else "s"
            ax.scatter(start[chosen, 0], start[chosen, 1], s=8, color=colour, zorder=3, marker=marker, label=words)
        _triangle(ax, classes)
        ax.set_title(f"{field.name}: from p to the posterior")
        ax.legend(loc="upper left", fontsize=8)
    return figure


def _triangle(ax: Axes, classes: Sequence[str]) -> None:
    closed = np.vstack([CORNERS, CORNERS[:1]])
    ax.plot(*closed.T, color=INK, lw=1.2, zorder=2, clip_on=False)
    for corner, name, offset, aligned in zip(
        CORNERS, classes, [(0, 5), (-3, -5), (3, -5)], ["bottom", "top", "top"], strict=True
    ):
        ax.annotate(name, corner, offset, textcoords="offset points", ha="center", va=aligned)
    ax.set(aspect="equal", xlim=(-0.06, 1.06), ylim=(-0.08, 0.95))
    ax.axis("off")
