"""Imbalanced data: learn the rare classes with class weights, and still say how rare they are.

Class weights make a network see rare classes, and make it say them too often: its probabilities are those of a world in
which all classes are as frequent as their weights pretend. The link undoes that exactly, with no data: training as if
balanced, answering as if not.

    python examples/imbalanced.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import calgrad
from calgrad.metrics import classwise_ece

SHARES = torch.tensor([0.90, 0.07, 0.02, 0.01])


def sample(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Four overlapping Gaussians on a circle, the first with nine samples of ten."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.multinomial(SHARES, n, replacement=True, generator=generator)
    angle = y * torch.pi / 2
    centre = 1.5 * torch.stack([angle.cos(), angle.sin()], dim=1)
    return centre + torch.randn(n, 2, generator=generator), y


def fit(loss: nn.Module, x: Tensor, y: Tensor) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 4))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(300):
        optimiser.zero_grad()
        loss(model(x), y).backward()
        optimiser.step()
    return model


def main() -> dict[str, dict[str, float]]:
    (x, y), (test_x, test_y) = sample(5000, 0), sample(20000, 1)
    weight = 1 / SHARES
    cases = {
        "plain cross-entropy": calgrad.make_loss("ce"),
        "class weights": calgrad.make_loss("ce", weight=weight),
        "weights, bsce-gra": calgrad.make_loss("bsce-gra", gamma=1, weight=weight),
    }
    rows = {}
    for name, loss in cases.items():
        model = fit(loss, x, y)
        with torch.no_grad():
            probs = model(test_x).softmax(dim=1)
        rows[name] = judge(probs, test_y)
        if name != "plain cross-entropy":
            rows[f"{name}, link"] = judge(calgrad.posterior(loss, probs), test_y)
    print(f"{'':26s}{'NLL':>8s}{'ECE':>8s}{'classwise':>11s}{'by share':>10s}{'recall':>8s}{'says rare':>11s}")
    for name, row in rows.items():
        values = "{nll:8.3f}{ece:8.1%}{classwise:11.2%}{prevalence:10.2%}{recall:8.1%}{rare:11.1%}".format(**row)
        print(f"{name:26s}{values}")
    print(f"\nrare (the last class) in truth: {(test_y == 3).float().mean():.1%}")
    return rows


def judge(probs: Tensor, labels: Tensor) -> dict[str, float]:
    hit = probs.argmax(dim=1) == labels
    return {
        "nll": calgrad.nll(probs, labels),
        "ece": calgrad.ece(probs, labels),
        "classwise": classwise_ece(probs, labels),
        "prevalence": classwise_ece(probs, labels, average="prevalence"),
        "recall": float(torch.stack([hit[labels == k].double().mean() for k in range(4)]).mean()),
        "rare": float(probs[:, 3].mean()),
    }


if __name__ == "__main__":
    main()
