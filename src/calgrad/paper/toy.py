"""[Lin25] section 4.3: which weight follows the true calibration error, where that is known?

Five Gaussians in the plane give the exact posterior eta(x). A two-layer net is trained for five epochs, and each
weight u is correlated (Pearson) with the net's true error c(x) over the test points; exponents are grid-searched.

The paper leaves open three things that decide the answer, so each is a column here:

- *the error*. Eq. (1) writes |eta - p_c| with p_c the confidence, and Eq. (13) gives eta of the point's own class:
  read to the letter, c = |eta_y - max p| ("literal"). What calibration of the whole vector asks is c = |eta - p|_2
  ("vector").
- *the p in the weights*. Eq. (7) and (8) write the confidence p_c too ("confidence"); all code of the field, the
  authors' too, uses the probability of the label ("label"). The Brier weight needs the label either way.
- *the net and its optimiser*: a hidden layer of 128 units and SGD at three learning rates here.

The grid is searched on the training points and the number is taken on the test points, so no exponent is chosen by
the points that judge it.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from calgrad.data.gaussians import load_gaussians_parts
from calgrad.losses import BrierNorm, Dual, TrueClass
from calgrad.models import make_model
from calgrad.paper.published import read_csv
from calgrad.paper.runs import Row
from calgrad.report.tables import Cell, Table

GAMMAS = (0.25, 0.5, 1, 2, 3, 4, 5)
BETAS = (1, 1.5, 2, 3, 4, 8)
WEIGHTS = (
    ("brier-norm", "label"),
    ("dual", "label"),
    ("true-class", "label"),
    ("dual", "confidence"),
    ("true-class", "confidence"),
)
"""Which score, and whose probability stands in it."""
TITLES = {"true-class": "FL", "dual": "DFL", "brier-norm": "gBS"}
ERRORS = ("vector", "literal")
RATES = (0.1, 0.01, 0.001)


@dataclass(frozen=True)
class Outcome:
    """What a trained net says about points whose posterior is known."""

    probs: Tensor
    labels: Tensor
    eta: Tensor

    def error(self, kind: str) -> Tensor:
        """(N,): the true calibration error, read as "vector" or "literal"."""
        if kind == "vector":
            return (self.eta - self.probs).norm(dim=1)  # [Lin25] Eq. (1), p the whole vector
        own = self.eta.gather(1, self.labels[:, None]).squeeze(1)
        return (own - self.probs.amax(dim=1)).abs()  # [Lin25] Eq. (1) and (13), to the letter

    def weight(self, score: str, p_from: str, beta: float, gamma: float) -> Tensor:
        """(N,): u, with the label or the prediction in the role of the labelled class."""
        labels = self.labels if p_from == "label" else self.probs.argmax(dim=1)
        made = {"true-class": TrueClass(), "dual": Dual(), "brier-norm": BrierNorm(beta=beta)}[score]
        return (made**gamma)(self.probs, labels)


def pearson(a: Tensor, b: Tensor) -> float:
    """The correlation coefficient; 0 where one side is constant."""
    a, b = a - a.mean(), b - b.mean()
    size = float(a.norm() * b.norm())
    return float(a @ b) / size if size > 0 else 0.0


def trained_net(seed: int, *, rate: float, points: int | None = None, epochs: int = 5) -> tuple[Outcome, Outcome]:
    """Draw five Gaussians, train the net by cross-entropy, and return what it says about training and test points.

    Args:
        seed: Of the means, the points, the net and the order.
        rate: SGD's learning rate (momentum 0.9, batch 128).
        points: Use only so many training points.
        epochs: Passes over them.
    """
    train, test = load_gaussians_parts(seed)
    chosen = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))[: points or len(train)]
    inputs, labels = train.images[chosen], train.labels[chosen]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = make_model("mlp", classes=5, image_size=1, channels=2)
        optimiser = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
        for _ in range(epochs):
            for rows in torch.randperm(len(labels)).split(128):
                optimiser.zero_grad()
                F.cross_entropy(net(inputs[rows]), labels[rows]).backward()
                optimiser.step()
    with torch.no_grad():
        parts = [(inputs, labels, train.soft_labels[chosen]), (test.images, test.labels, test.soft_labels)]  # type: ignore[index]
        seen, unseen = (Outcome(net(x).double().softmax(dim=1), y, eta.double()) for x, y, eta in parts)  # type: ignore[union-attr]
    return seen, unseen


def toy_rows(
    *, runs: int = 5, rates: Sequence[float] = RATES, points: int | None = None, gammas: Sequence[float] = GAMMAS
) -> list[Row]:
    """A row for each learning rate, reading of the error, weight, p and run: the chosen exponents and Pearson's r."""
    rows: list[Row] = []
    for rate in rates:
        outcomes = [trained_net(seed, rate=rate, points=points) for seed in range(1, runs + 1)]
        for kind, (score, p_from) in itertools.product(ERRORS, WEIGHTS):
            grid = list(itertools.product(BETAS if score == "brier-norm" else (1,), gammas))
            errors = [seen.error(kind) for seen, _ in outcomes]
            beta, gamma = max(grid, key=lambda s: _mean_fit(outcomes, errors, score, p_from, s))
            for seed, (_, unseen) in enumerate(outcomes, start=1):
                found = pearson(unseen.weight(score, p_from, beta, gamma), unseen.error(kind))
                setting = {"beta": beta if score == "brier-norm" else "", "gamma": gamma}
                about = {"rate": rate, "error": kind, "score": score, "p": p_from, **setting}
                rows.append({**about, "seed": seed, "pearson": found})
    return rows


def _mean_fit(
    outcomes: Sequence[tuple[Outcome, Outcome]],
    errors: Sequence[Tensor],
    score: str,
    p_from: str,
    setting: tuple[float, float],
) -> float:
    fits = (pearson(o[0].weight(score, p_from, *setting), e) for o, e in zip(outcomes, errors, strict=True))
    return statistics.fmean(fits)


def toy_table(rows: Sequence[Row]) -> Table:
    """Ours beside the published correlations, one section for each reading of the error and learning rate."""
    printed = {row["score"]: row["pearson"] for row in read_csv("toy")}
    table = Table(
        "[Lin25] section 4.3: Pearson correlation of each weight with the true error",
        ["weight", "published", "ours", "sd over runs", "minus FL of the label [95 %]", "beta", "gamma"],
    )
    runs = len({r["seed"] for r in rows})
    for kind, rate in dict.fromkeys((r["error"], r["rate"]) for r in rows):
        here = [r for r in rows if (r["error"], r["rate"]) == (kind, rate)]
        found = {w: [r for r in here if (r["score"], r["p"]) == w] for w in WEIGHTS}
        lines = []
        for weight, members in found.items():
            values = [r["pearson"] for r in members]
            title = TITLES[weight[0]] + (f", p of the {weight[1]}" if weight[0] != "brier-norm" else "")
            texts = [
                title,
                printed[weight[0]],
                f"{statistics.fmean(values):.3f}",
                f"{statistics.stdev(values):.3f}" if runs > 1 else "–",
                _difference(values, [r["pearson"] for r in found["true-class", "label"]]),
                str(members[0]["beta"]) or "–",
                f"{members[0]['gamma']:g}",
            ]
            lines.append([Cell(text) for text in texts])
        table.sections.append((f"error: {kind}; learning rate {rate:g}", lines))
    table.caption = (
        f"{runs} runs, each with its own means and net; differences are paired by run. beta = 1 makes the Brier weight "
        "a multiple of FL's, so with it in the grid gBS can't fall below FL of the label on the points of the search."
    )
    return table


def _difference(values: Sequence[float], baseline: Sequence[float]) -> str:
    """The mean paired difference with its t interval."""
    from scipy.stats import t as student

    differences = [a - b for a, b in zip(values, baseline, strict=True)]
    if len(differences) < 2 or not any(differences):
        return "–"
    mean = statistics.fmean(differences)
    half = float(student.ppf(0.975, len(differences) - 1)) * statistics.stdev(differences) / len(differences) ** 0.5
    return f"{mean:+.3f} [{mean - half:+.3f}, {mean + half:+.3f}]"
