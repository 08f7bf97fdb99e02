"""[Lin25] Figure 2: the weights of focal, dual focal and Brier over the simplex of four classes.

The upper row is the paper's view: three probabilities as axes, the fourth implied, the weight as colour. It hides
most of what it shows, so the lower row cuts the simplex where the label has probability 0.4: the rest is shared by
three rivals, a triangle. There the focal weight is one colour, the dual one sees the strongest rival below the
label, and the Brier weight sees how the rest is shared: it is smallest in the middle, where no rival stands out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from calgrad.losses import BrierNorm, Dual, TrueClass
from calgrad.paper.figures import PAGE, column
from calgrad.paper.runs import Row
from calgrad.report.style import new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# [Lin25] Eq. (7), (8), (11) with gamma = 1, 1 and, for the Brier score itself, beta = gamma = 2.
WEIGHTS = {"focal": TrueClass(), "dual": Dual(), "brier": BrierNorm(beta=2) ** 2}
TITLES = {"focal": "FL", "dual": "DFL", "brier": "BS"}
SLICE = 0.4
"""The label's probability in the lower row."""


def simplex_points(parts: int, corners: int) -> Tensor:
    """Every way to share 1 among `corners` in steps of 1 / parts, as rows."""

    def shares(left: int, corners: int) -> list[list[int]]:
        if corners == 1:
            return [[left]]
        return [[first, *rest] for first in range(left + 1) for rest in shares(left - first, corners - 1)]

    return torch.tensor(shares(parts, corners), dtype=torch.float64) / parts


def simplex_rows(*, parts: int = 12, slice_parts: int = 40) -> list[Row]:
    """Panel ("simplex" or "slice"), the four probabilities (the first is the label's) and the three weights."""
    rest = (1 - SLICE) * simplex_points(slice_parts, 3)
    cut = torch.cat([torch.full((len(rest), 1), SLICE, dtype=torch.float64), rest], dim=1)
    rows: list[Row] = []
    for panel, probs in (("simplex", simplex_points(parts, 4)), ("slice", cut)):
        labels = torch.zeros(len(probs), dtype=torch.int64)
        weights = {name: weight(probs, labels).tolist() for name, weight in WEIGHTS.items()}
        for i, p in enumerate(probs.tolist()):
            point = {f"p{k}": p[k] for k in range(4)}
            rows.append({"panel": panel, **point, **{name: weights[name][i] for name in WEIGHTS}})
    return rows


def draw_simplex(rows: Sequence[Row]) -> Figure:
    """The paper's three panels above, the same weights on a slice below."""
    with style():
        figure = new_figure(PAGE, 4.3)
        figure.set_layout_engine("none")  # axes in three dimensions leave half of what a layout engine gives them empty
        for i, name in enumerate(WEIGHTS):
            left = 0.01 + 0.335 * i
            _draw_solid(figure.add_axes((left, 0.46, 0.29, 0.5), projection="3d"), rows, name)
            mesh = _draw_slice(figure.add_axes((left, 0.04, 0.22, 0.32)), rows, name)
            figure.colorbar(mesh, cax=figure.add_axes((left + 0.235, 0.06, 0.013, 0.28))).ax.tick_params(labelsize=8)
    return figure


def _draw_solid(axis: Any, rows: Sequence[Row], name: str) -> None:
    points = [column(rows, f"p{k}", panel="simplex") for k in range(3)]
    axis.scatter(*points, c=column(rows, name, panel="simplex"), cmap="viridis", s=9, depthshade=False)
    axis.set_title(f"$u_{{{TITLES[name]}}}$", pad=-4)
    axis.set_xlabel("$p_y$", labelpad=-9)
    axis.set_ylabel("$p_j$", labelpad=-9)
    axis.set_zlabel("$p_k$", labelpad=-10)
    axis.tick_params(labelsize=7, pad=-3)
    for name_ in ("x", "y", "z"):
        axis.locator_params(axis=name_, nbins=3)
    axis.view_init(elev=24, azim=42)


def _draw_slice(axis: Axes, rows: Sequence[Row], name: str) -> Any:
    p2, p3 = (column(rows, f"p{k}", panel="slice") for k in (2, 3))
    left = 1 - SLICE
    x = [(b + 0.5 * c) / left for b, c in zip(p2, p3, strict=True)]
    y = [math.sqrt(0.75) * c / left for c in p3]
    values = column(rows, name, panel="slice")
    # A constant panel needs a range of its own, or rounding would paint it.
    low, high = min(values), max(values)
    if high - low < 1e-9:
        low, high = low - 0.1, high + 0.1
    mesh = axis.tripcolor(x, y, values, cmap="viridis", vmin=low, vmax=high, shading="gouraud", rasterized=True)
    for at_x, at_y, text in ((0, -0.08, "all to $j$"), (1, -0.08, "to $k$"), (0.5, 0.94, "to $l$")):
        axis.text(at_x, at_y, text, ha="center", va="center", fontsize=8)
    axis.set_aspect("equal")
    axis.axis("off")
    axis.set_title(f"$p_y$ = {SLICE:g}", fontsize=9, pad=13)
    return mesh
