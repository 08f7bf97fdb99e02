"""Platt scaling and beta calibration: logistic regression with two or three numbers a class.

Both fit log(q / (1 - q)) as a linear function of a few features of the log-odds. Platt's targets are used in place of
0 and 1: (N1 + 1) / (N1 + 2) for the N1 positive samples, 1 / (N0 + 2) for the N0 others. They are the posterior means
of the true rates under a flat prior, and they keep the optimum finite where a class is absent or perfectly separated.
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from calgrad.posthoc.base import Fitted, Parameters
from calgrad.posthoc.one_vs_rest import Odds, OneVersusRest

SEPARATED = 1e-10
"""A mean loss below this is on its way to zero, and the coefficients to infinity."""

BLOCK = 2**22
"""Elements of (samples, classes) fitted at a time."""


class Logistic(OneVersusRest):
    """Common part of Platt scaling and beta calibration.

    Args:
        smooth_targets: use Platt's targets; False fits 0 and 1, plain maximum likelihood.
        smoothing: as in every one-versus-rest method; these answers are never 0, so none by default.
    """

    def __init__(self, *, smooth_targets: bool = True, smoothing: float = 0.0) -> None:
        super().__init__(smoothing=smoothing)
        self.options = {"smooth_targets": smooth_targets, "smoothing": smoothing}

    def _targets(self, truth: Tensor) -> Tensor:
        if not self.options["smooth_targets"]:
            return truth.double()
        positive = truth.sum(dim=0).double()
        negative = len(truth) - positive
        return torch.where(truth, (positive + 1) / (positive + 2), 1 / (negative + 2))


class Platt(Logistic):
    """q = sigmoid(slope * s + bias), s the log-odds of the class against the rest."""

    method = "platt"
    shapes: ClassVar = {"slope": "C", "bias": "C", "pseudo": ""}

    def _fit_binary(self, odds: Odds, truth: Tensor) -> Fitted:
        score = odds.log_odds
        coefficients, _, converged = logistic_newton([score, torch.ones_like(score)], self._targets(truth))
        note = "" if converged else "Newton's method did not converge for every class: are some perfectly separated?"
        return Fitted({"slope": coefficients[:, 0], "bias": coefficients[:, 1]}, converged, note)

    def _answer(self, odds: Odds, parameters: Parameters) -> Tensor:
        return F.logsigmoid(odds.log_odds * parameters["slope"] + parameters["bias"])


class Beta(Logistic):
    """log(q / (1 - q)) = a log p - b log(1 - p) + c, with a, b >= 0 [Kull17].

    The family holds the identity (a = b = 1, c = 0), and maps that Platt scaling can't make: it bends the two ends of
    [0, 1] separately.
    """

    method = "beta"
    shapes: ClassVar = {"a": "C", "b": "C", "c": "C", "pseudo": ""}

    def _fit_binary(self, odds: Odds, truth: Tensor) -> Fitted:
        targets = self._targets(truth)
        features = [odds.log_p, -odds.log_1mp, torch.ones_like(odds.log_p)]
        chosen, _, converged = logistic_newton(features, targets)
        bent = ((chosen[:, :2] < 0).any(dim=1)).nonzero()[:, 0]
        if len(bent):  # the optimum under the constraint lies on a face of it: take the best face
            chosen[bent] = self._on_faces([feature[:, bent] for feature in features], targets[:, bent])
        note = "" if converged else "Newton's method did not converge for every class: are some perfectly separated?"
        return Fitted({"a": chosen[:, 0], "b": chosen[:, 1], "c": chosen[:, 2]}, converged, note)

    @staticmethod
    def _on_faces(features: list[Tensor], targets: Tensor) -> Tensor:
        answers, losses = [], []
        for kept in ([0, 2], [1, 2], [2]):
            coefficients, loss, _ = logistic_newton([features[i] for i in kept], targets)
            full = coefficients.new_zeros(len(coefficients), 3)
            full[:, kept] = coefficients
            answers.append(full)
            losses.append(loss.masked_fill((full[:, :2] < 0).any(dim=1), torch.inf))
        best = torch.stack(losses).argmin(dim=0)
        return torch.stack(answers)[best, torch.arange(len(best), device=best.device)]

    def _answer(self, odds: Odds, parameters: Parameters) -> Tensor:
        return F.logsigmoid(odds.log_p * parameters["a"] - odds.log_1mp * parameters["b"] + parameters["c"])


def logistic_newton(features: list[Tensor], targets: Tensor) -> tuple[Tensor, Tensor, bool]:
    """C logistic regressions of few features at once, by damped Newton.

    Args:
        features: each (N, C).
        targets: (N, C) in [0, 1].

    Returns:
        Coefficients (C, number of features), the mean losses (C,), and whether all converged.
    """
    columns = max(1, BLOCK // len(targets))
    blocks = [
        _newton([feature[:, i : i + columns] for feature in features], targets[:, i : i + columns])
        for i in range(0, targets.shape[1], columns)
    ]
    coefficients, losses, converged = zip(*blocks)
    return torch.cat(coefficients), torch.cat(losses), all(converged)


def _newton(features: list[Tensor], targets: Tensor, *, iterations: int = 100) -> tuple[Tensor, Tensor, bool]:
    # Features of unit size make the system well conditioned whatever the scale of the logits.
    scales = torch.stack([feature.square().mean(dim=0).sqrt().clamp(min=1e-300) for feature in features], dim=1)
    features = [feature / scale for feature, scale in zip(features, scales.T)]
    problems, size = targets.shape[1], len(features)
    coefficients = targets.new_zeros(problems, size)
    jitter = 1e-12 * torch.eye(size, dtype=targets.dtype, device=targets.device)

    def margins(at: Tensor) -> Tensor:
        return torch.stack([feature * c for feature, c in zip(features, at.T)]).sum(dim=0)

    def losses(margin: Tensor) -> Tensor:
        return (-F.logsigmoid(-margin) - targets * margin).mean(dim=0)  # F.softplus rounds above 20

    margin = margins(coefficients)
    loss = losses(margin)
    for _ in range(iterations):
        q = margin.sigmoid()
        gradient = torch.stack([((q - targets) * feature).mean(dim=0) for feature in features], dim=1)
        curve = q * (1 - q)
        hessian = torch.stack(
            [torch.stack([(curve * f * g).mean(dim=0) for g in features], dim=1) for f in features], dim=1
        )
        step = torch.linalg.solve(hessian + jitter, gradient)
        decrement = (step * gradient).sum(dim=1)
        if bool((decrement < 1e-14).all()):
            break
        length = torch.ones_like(decrement)
        for _ in range(40):
            tried = coefficients - length[:, None] * step
            margin = margins(tried)
            reached = losses(margin)
            short = reached > loss - 1e-4 * length * decrement + 1e-14 * (1 + loss)
            if not bool(short.any()):
                break
            length = torch.where(short, length / 2, length)
        coefficients, loss = tried, reached
    return coefficients / scales, loss, bool(((decrement < 1e-9) & (loss > SEPARATED)).all())
