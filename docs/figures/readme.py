"""The README's picture: reliability diagrams of two losses, the same net, as trained and repaired.

    python docs/figures/readme.py

Reads `results/cifar10-short/confidence-seed1.npz`: for each model and view, the confidence of every test sample and
whether it was right (CIFAR-10, ResNet-50, 15 epochs, seed 1; repairs fitted on validation).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from calgrad.report.reliability import diagram_of, draw_reliability
from calgrad.report.style import new_figure, save, style

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Draw it."""
    with np.load(ROOT / "results" / "cifar10-short" / "confidence-seed1.npz") as archive:
        samples = {name: torch.from_numpy(archive[name]) for name in archive.files}
    with style():
        figure = new_figure(13, 3.7)
        axes = figure.subplots(1, len(samples))
        for axis, (name, (confidence, hit)) in zip(axes, samples.items(), strict=True):
            draw_reliability(diagram_of(confidence, hit.bool()), title=name, ax=axis)
    save(figure, ROOT / "docs" / "img" / "readme_reliability")


if __name__ == "__main__":
    main()
