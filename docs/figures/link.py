"""Draw docs/img/link_two_classes.* and link_three_classes.*: what a network's probabilities mean, loss by loss.

Run it from the repository root: python docs/figures/link.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes

from calgrad.losses import make_loss, posterior
from calgrad.report.style import COLOURS, FAINT, INK, new_figure, save, style

FOLDER = Path(__file__).parents[1] / "img"
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])
TWO = [
    ("bsce-gra, γ = 4", make_loss("bsce-gra"), "-"),
    ("focal, γ = 3", make_loss("focal"), "--"),
    ("dual-gra, γ = 5", make_loss("dual-gra"), "-."),
    ("label smoothing, 0.2", make_loss("label-smoothing", label_smoothing=0.2), (0, (5, 1))),
    ("inverse-focal, γ = 1", make_loss("inverse-focal", gamma=1), ":"),
]
THREE = {
    "bsce-gra": "bsce-gra, γ = 4",
    "focal-gra": "focal-gra, γ = 3",
    "focal": "focal, γ = 3",
    "dual-gra": "dual-gra, γ = 5",
}


def two_classes() -> None:
    """The posterior of class 1 against the network's probability of it."""
    p = torch.linspace(0, 1, 401, dtype=torch.float64)
    figure = new_figure(6.6, 4.4)
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1.2, label="CE, Brier")
    for (name, loss, dashes), colour in zip(TWO, COLOURS):
        eta = posterior(loss, torch.stack([p, 1 - p], dim=1))[:, 0]
        eta[:-1][eta.diff().abs() > 0.2] = torch.nan  # a jump is no line
        axes.plot(p, eta, color=colour, linestyle=dashes, label=name)
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xticks=np.linspace(0, 1, 6), yticks=np.linspace(0, 1, 6))
    axes.set(xlabel="what the network says, p₁", ylabel="the posterior it encodes, η₁")
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0), fontsize=9, handlelength=3)
    save(figure, FOLDER / "link_two_classes")


def three_classes() -> None:
    """Arrows from the network's probabilities to the posterior, over the simplex."""
    steps = 12
    grid = np.array([[i, j, steps - i - j] for i in range(1, steps) for j in range(1, steps - i)]) / steps
    # A little off the symmetry lines, where dual's rival would be a tie.
    probs = torch.softmax(torch.tensor(grid).log() + torch.tensor([[0.02, 0.0, -0.02]]), dim=1).double()
    figure = new_figure(7.6, 6.2)
    longest = 0.35
    for position, (name, title) in enumerate(THREE.items(), start=1):
        axes = figure.add_subplot(2, 2, position)
        start, move = probs.numpy() @ CORNERS, (posterior(make_loss(name), probs) - probs).numpy() @ CORNERS
        length = np.linalg.norm(move, axis=1)
        arrows = axes.quiver(
            *start.T, *move.T, length, angles="xy", scale_units="xy", scale=1, cmap="viridis_r", clim=(0, longest),
            width=0.006, headwidth=4, headlength=4.5, headaxislength=4,
        )  # fmt: skip
        outline(axes, title)
    bar = figure.colorbar(arrows, ax=figure.axes, shrink=0.5, pad=0.01)
    bar.set_label("distance moved")
    bar.outline.set_visible(False)
    save(figure, FOLDER / "link_three_classes")


def outline(axes: Axes, title: str) -> None:
    """The triangle, its corners named, and the lines between the classes' regions."""
    axes.plot(*CORNERS[[0, 1, 2, 0]].T, color=INK, linewidth=1)
    for side in range(3):
        middle = CORNERS[[i for i in range(3) if i != side]].mean(axis=0)
        axes.plot(*np.array([CORNERS.mean(axis=0), middle]).T, color=FAINT, linewidth=0.8)
    for corner, name, offset in zip(CORNERS, "123", [(-0.05, -0.06), (0.05, -0.06), (0, 0.05)]):
        axes.text(*(corner + offset), name, ha="center", va="center")
    axes.set(aspect="equal", xlim=(-0.1, 1.1), ylim=(-0.13, 0.98))
    axes.set_title(title, fontsize=10)
    axes.axis("off")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    with style():
        two_classes()
        three_classes()
