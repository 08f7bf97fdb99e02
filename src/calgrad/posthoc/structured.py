"""Structured vector and matrix scaling ([Berta25b]: SVS, SMS, with the defaults of probmetrics).

Temperature scaling comes first, and its answer is mixed with the uniform distribution by the weight of one sample in
N + 1, so that log-probabilities are bounded whatever the logits were:

    x = log(N / (N + 1) softmax(logits / T) + 1 / ((N + 1) K)).

Then softmax(W x + b) is fitted by NLL with a ridge pull towards W = I, b = 0. What makes it structured: every group
of parameters has its own strength, which grows with the group's size and falls with the number of samples: K / N for
each entry of the diagonal and the bias, K (K - 1) / N for each off-diagonal one. So with few samples it is
temperature scaling, then vector scaling, and a full matrix only where there is evidence for one. Nothing needs to be
tuned.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from calgrad.checks import at_least
from calgrad.posthoc.base import Calibrator, Fitted, Parameters
from calgrad.posthoc.optimise import Affine, fit_affine
from calgrad.posthoc.temperature import solve_temperature


class StructuredVectorScaling(Calibrator):
    """softmax(w * x + b) on tempered, bounded log-probabilities x; strength * K / N holds w at 1 and b at 0.

    Args:
        strength: multiplies the penalty.
    """

    method = "svs"
    shapes: ClassVar = {"temperature": "", "uniform": "", "weight": "K", "bias": "K"}

    def __init__(self, *, strength: float = 1.0) -> None:
        super().__init__()
        at_least("strength", strength, 0)
        self.options = {"strength": strength}

    def _penalty(self, ridge: float, identity: Tensor) -> Tensor:
        return ridge * identity.diagonal()

    def _fit(self, logits: Tensor, labels: Tensor) -> Fitted:
        n, classes = logits.shape
        temperature = solve_temperature(logits, labels).temperature
        fixed = {"temperature": temperature, "uniform": 1 / (n + 1)}
        start = {name: torch.tensor(value, dtype=torch.float64, device=logits.device) for name, value in fixed.items()}
        ridge = self.options["strength"] * classes / n
        weights = self._penalty(ridge, torch.eye(classes, dtype=torch.float64, device=logits.device))
        affine = fit_affine(bounded(logits.double(), start), labels, weight_penalty=weights, bias_penalty=ridge)
        trouble = "" if affine.converged else "the optimiser stopped before the gradient vanished"
        return Fitted({**start, "weight": affine.weight, "bias": affine.bias}, affine.converged, trouble)

    def _calibrate(self, logits: Tensor, parameters: Parameters) -> Tensor:
        return Affine(parameters["weight"], parameters["bias"])(bounded(logits, parameters))


class StructuredMatrixScaling(StructuredVectorScaling):
    """softmax(W x + b) on the same x; off-diagonal weights are held at 0 by strength * K (K - 1) / N.

    Args:
        strength: multiplies the penalty.
    """

    method = "sms"
    shapes: ClassVar = {"temperature": "", "uniform": "", "weight": "KK", "bias": "K"}

    def _penalty(self, ridge: float, identity: Tensor) -> Tensor:
        return ridge * (identity + (len(identity) - 1) * (1 - identity))


def bounded(logits: Tensor, parameters: Parameters) -> Tensor:
    """Log of softmax(logits / T) mixed with the uniform distribution: at least log(uniform / K)."""
    uniform = parameters["uniform"]
    tempered = (logits / parameters["temperature"]).log_softmax(dim=1)
    return torch.logaddexp(tempered + torch.log1p(-uniform), torch.log(uniform / logits.shape[1]))
