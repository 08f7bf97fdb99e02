"""The README's picture: reliability diagrams of two losses, the same net, as trained and repaired.

    python docs/figures/readme.py                                       # draw from the committed confidences
    python docs/figures/readme.py runs/compare-cifar10-short/runs       # make them anew from the runs first

The confidences are `results/cifar10-short/confidence-seed1.npz`: for each model and view, the confidence of every test
sample and whether it was right (CIFAR-10, ResNet-50, 15 epochs, seed 1; repairs fitted on validation).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

from calgrad import Predictions, make_calibrator, make_loss
from calgrad.metrics.binning import top_label
from calgrad.report.reliability import diagram_of, draw_reliability
from calgrad.report.style import new_figure, save, style

ROOT = Path(__file__).parents[2]
CONFIDENCES = ROOT / "results" / "cifar10-short" / "confidence-seed1.npz"
REPAIRS = {"ce": "temperature", "bsce-gra": "link-temperature"}


def collect(runs: Path) -> None:
    """Repair the models on their validation sets and keep what they say about the test set."""
    found = {}
    for loss, method in REPAIRS.items():
        val, test = (Predictions.load(runs / f"{loss}-seed1" / f"predictions-{part}.npz") for part in ("val", "test"))
        options = {"loss": make_loss(loss)} if method.startswith("link") else {}
        repair = make_calibrator(method, **options).fit(val.logits, val.labels)
        for view, probs in {"as trained": test.probs, method: repair(test.logits)}.items():
            confidence, is_correct = top_label(probs, test.labels)
            found[f"{loss}, {view}"] = np.stack([confidence.float().numpy(), is_correct.float().numpy()])
    np.savez_compressed(CONFIDENCES, **found)


def main() -> None:
    """Draw it."""
    if len(sys.argv) > 1:
        collect(Path(sys.argv[1]))
    with np.load(CONFIDENCES) as archive:
        samples = {name: torch.from_numpy(archive[name]) for name in archive.files}
    with style():
        figure = new_figure(13, 3.7)
        axes = figure.subplots(1, len(samples))
        for axis, (name, (confidence, hit)) in zip(axes, samples.items(), strict=True):
            draw_reliability(diagram_of(confidence, hit.bool()), title=name, ax=axis)
    save(figure, ROOT / "docs" / "img" / "readme_reliability")


if __name__ == "__main__":
    main()
