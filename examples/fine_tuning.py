"""Fine-tuning: a pretrained network gets a new head for few samples, and its probabilities are made right.

A small network is pretrained on the digits 0 to 4 and fine-tuned, body and head, on 40 samples each of 5 to 9: the usual
way to an over-confident model. The loss is exchanged in one line; the repair needs the validation logits alone.

    python examples/fine_tuning.py
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import calgrad


def train(model: nn.Module, loss: nn.Module, x: Tensor, y: Tensor, *, epochs: int, lr: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=1e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=generator).split(64):
            optimiser.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            optimiser.step()


def tasks() -> tuple[tuple[Tensor, Tensor], list[tuple[Tensor, Tensor]]]:
    """The old task, and the new one in three parts: 200 samples to train on, 200 to validate, the rest to test."""
    bunch = load_digits()
    x, y = torch.tensor(bunch.data / 16, dtype=torch.float32), torch.tensor(bunch.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = x[order] + 0.25 * torch.randn(len(x), 64, generator=torch.Generator().manual_seed(1)), y[order]
    is_new = y > 4
    new_x, new_y = x[is_new], y[is_new] - 5
    parts = [(new_x[a:b], new_y[a:b]) for a, b in ((0, 200), (200, 400), (400, len(new_x)))]
    return (x[~is_new], y[~is_new]), parts


def main(epochs: int = 150) -> dict[str, calgrad.Evaluation]:
    torch.manual_seed(0)
    (old_x, old_y), [(x, y), (val_x, val_y), (test_x, test_y)] = tasks()
    body = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
    train(nn.Sequential(body, nn.Linear(64, 5)), nn.CrossEntropyLoss(), old_x, old_y, epochs=20, lr=1e-3, seed=0)
    pretrained = {name: value.clone() for name, value in body.state_dict().items()}

    results = {}
    for name, options in [("ce", {}), ("bsce-gra", {"gamma": 2})]:
        torch.manual_seed(1)
        body.load_state_dict(pretrained)
        model = nn.Sequential(body, nn.Linear(64, 5))
        train(model, calgrad.make_loss(name, **options), x, y, epochs=epochs, lr=1e-3, seed=1)
        with torch.no_grad():
            val_logits, test_logits = model(val_x), model(test_x)
        repair = calgrad.make_calibrator("temperature").fit(val_logits, val_y)
        results[name] = calgrad.evaluate(logits=test_logits, labels=test_y)
        results[f"{name}, repaired"] = calgrad.evaluate(probs=repair(test_logits), labels=test_y)
    print(f"{len(test_y)} test samples        accuracy    ECE  floor     NLL")
    for name, found in results.items():
        print(f"{name:22s} {found.accuracy:9.1%} {found.ece:7.1%} {found.floor.mean:6.1%} {found.nll:7.3f}")
    return results


if __name__ == "__main__":
    main()
