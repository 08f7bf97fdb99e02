"""Make the shipped example: an over-confident network's logits on scikit-learn's digits.

A wide MLP learns 300 of the 1,797 digits by heart with plain cross-entropy. 500 others are validation and the remaining
997 are test; nothing is tuned. Takes a few seconds on one core:

    python tools/make_example.py
"""

from __future__ import annotations

from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn

from calgrad import evaluate
from calgrad.predictions import Predictions

FOLDER = Path(__file__).parents[1] / "src" / "calgrad" / "examples"
SEED, TRAIN, VAL, WIDTH, STEPS, RATE = 1, 300, 500, 512, 600, 0.3


def main() -> None:
    """Train, predict, save and report."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    images, labels = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
    images = images.float() / 16
    order = torch.randperm(len(images))
    parts = dict(zip(("train", "val", "test"), order.tensor_split([TRAIN, TRAIN + VAL])))
    model = nn.Sequential(nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    rows = parts["train"]
    for _ in range(STEPS):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
        optimiser.step()
    meta = {
        "data": "scikit-learn digits (UCI optical recognition of handwritten digits, test part)",
        "model": f"MLP 64-{WIDTH}-{WIDTH}-10, cross-entropy, {STEPS} full-batch steps on {TRAIN} samples, seed {SEED}",
        "made_by": "tools/make_example.py",
        "class_names": [str(digit) for digit in range(10)],
    }
    for split in ("val", "test"):
        rows = parts[split]
        with torch.no_grad():
            found = Predictions(model(images[rows]), labels[rows], ids=rows, split=split, meta=meta)
        path = found.save(FOLDER / f"example-{split}.npz")
        print(f"{path.name}: {path.stat().st_size:,} bytes\n{evaluate(found)}\n")


if __name__ == "__main__":
    main()
