"""Choosing gamma on validation: the one number of the focal family, by a proper score, with the link and without.

gamma decides how much weight uncertain samples get, and the right one depends on data, network and length of training.
So it is selected: by validation NLL (a proper score; the validation ECE of a few hundred samples is mostly noise), after the
repair that will be used. The test set is looked at once.

    python examples/choose_gamma.py
"""

from __future__ import annotations

import warnings

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import calgrad

GAMMAS = (0, 1, 2, 4)
REPAIRS = ("identity", "temperature", "link-temperature")


def parts() -> list[tuple[Tensor, Tensor]]:
    """Noisy digits: 600 to train on, 400 to validate, the rest to test."""
    bunch = load_digits()
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(bunch.data), generator=generator)
    x = torch.tensor(bunch.data / 16, dtype=torch.float32)[order]
    x = x + 0.3 * torch.randn(x.shape, generator=generator)
    y = torch.tensor(bunch.target)[order]
    return [(x[a:b], y[a:b]) for a, b in ((0, 600), (600, 1000), (1000, len(x)))]


def logits_of(loss: nn.Module, x: Tensor, y: Tensor, *others: Tensor, epochs: int) -> list[Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(64):
            optimiser.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            optimiser.step()
    with torch.no_grad():
        return [model(other) for other in others]


def main(epochs: int = 30) -> tuple[float, str]:
    (x, y), (val_x, val_y), (test_x, test_y) = parts()
    warnings.simplefilter("ignore", calgrad.posthoc.CalibrationWarning)  # "worse than nothing": the table shows it
    print("validation NLL     " + "".join(f"{name:>18s}" for name in REPAIRS))
    tried = {}
    for gamma in GAMMAS:
        options = {"gamma": gamma, "beta": 2}
        loss = calgrad.make_loss("bsce-gra", **options)
        val_logits, test_logits = logits_of(loss, x, y, val_x, test_x, epochs=epochs)
        for name in REPAIRS:
            extra = {"loss": "bsce-gra", "loss_options": options} if name.startswith("link") else {}
            # Fitted on one half and judged on the other, so that a repair with more freedom has no advantage.
            halves = [slice(0, None, 2), slice(1, None, 2)]
            score = 0.0
            for fit, judge in (halves, halves[::-1]):
                repair = calgrad.make_calibrator(name, **extra).fit(val_logits[fit], val_y[fit])
                score += calgrad.nll(repair(val_logits[judge]), val_y[judge]) / 2
            final = calgrad.make_calibrator(name, **extra).fit(val_logits, val_y)
            tried[gamma, name] = (score, final(test_logits))
        print(f"bsce-gra, gamma {gamma}  " + "".join(f"{tried[gamma, name][0]:18.4f}" for name in REPAIRS))

    as_trained = min(GAMMAS, key=lambda gamma: tried[gamma, "identity"][0])
    gamma, name = min(tried, key=lambda key: round(tried[key][0], 4))  # among equals the simpler repair
    print(f"\nwithout repair gamma {as_trained} would be best")
    chosen = calgrad.evaluate(probs=tried[gamma, name][1], labels=test_y)
    print(f"chosen: gamma {gamma} with {name}\n{chosen}")
    plain = calgrad.evaluate(probs=tried[0, "identity"][1], labels=test_y)
    print(f"\ncross-entropy as trained (gamma 0): ECE {plain.ece:.1%}, NLL {plain.nll:.3f}")
    return gamma, name


if __name__ == "__main__":
    main()
