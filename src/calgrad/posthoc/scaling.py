"""Affine maps of the logits: vector, matrix and Dirichlet scaling.

All three are softmax(W x + b), fitted by NLL: x the logits for vector (W diagonal) and matrix scaling, x = log
softmax(logits) for Dirichlet calibration. Vector scaling has 2 K numbers to learn and matrix scaling K (K + 1), which
with few samples fits the noise. So each starts from temperature scaling, x being divided by the NLL-optimal T first,
and is pulled back to it by a penalty: the more samples, the weaker. The fitted tensors are those of the whole map, T
included.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from calgrad.checks import at_least
from calgrad.posthoc.base import Calibrator, Fitted, Parameters
from calgrad.posthoc.optimise import Affine, choose_strength, fit_affine
from calgrad.posthoc.temperature import solve_temperature

STRENGTHS = (10.0, 1.0, 0.1, 0.01, 0.001)
"""What cross-validation chooses from, strongest first."""

CROSS_VALIDATED = 2 * 10**7
"""Largest N K**2 (multiplications a pass) for which the strength is cross-validated."""

FEWEST = 30
"""Fewest samples for which cross-validation means anything."""


class VectorScaling(Calibrator):
    """softmax(w * logits + b), a scale and an offset for each class.

    The penalty is that of independent normal priors, w T ~ N(1, sd) and b ~ N(0, sd): (sum (w T - 1)**2 + sum b**2)
    / (2 sd**2 N), so its pull fades as samples come in.

    Args:
        prior_sd: the sd; infinity switches the penalty off.
    """

    method = "vector"
    shapes: ClassVar = {"weight": "K", "bias": "K"}

    def __init__(self, *, prior_sd: float = 1.0) -> None:
        super().__init__()
        at_least("prior_sd", prior_sd, 1e-6)
        self.options = {} if prior_sd == 1.0 else {"prior_sd": prior_sd}
        self.prior_sd = prior_sd

    def _fit(self, logits: Tensor, labels: Tensor) -> Fitted:
        temperature, features = tempered(logits, labels)
        strength = 0.5 / (self.prior_sd**2 * len(labels))
        penalty = torch.full_like(features[0], strength)
        affine = fit_affine(features, labels, weight_penalty=penalty, bias_penalty=strength)
        return fitted_affine(affine, temperature)

    def _calibrate(self, logits: Tensor, parameters: Parameters) -> Tensor:
        return logits * parameters["weight"] + parameters["bias"]


class MatrixScaling(Calibrator):
    """softmax(W logits + b), with off-diagonal and intercept regularisation (ODIR).

    [Kull19] hold back the off-diagonal of W and b, and leave its diagonal to the data. So here: each
    off-diagonal entry of T W is held at 0 by strength * K (K - 1) / N, each bias by strength * K / N, the units of
    "sms", in which 1 is a fair strength whatever N and K; each diagonal entry of T W by the weak prior of vector
    scaling.

    Args:
        strength: of the penalty; "auto" chooses among 10, 1, ..., 0.001 by 3-fold cross-validation, or takes 1 where
            that would be slow (N K**2 above 2e7) or mean nothing (N below 30).
    """

    method = "matrix"
    shapes: ClassVar = {"weight": "KK", "bias": "K"}

    def __init__(self, *, strength: float | str = "auto") -> None:
        super().__init__()
        if strength != "auto":
            at_least("strength", float(strength), 0)
        self.options: dict[str, Any] = {"strength": strength}

    def _features(self, logits: Tensor) -> Tensor:
        return logits

    def _fit(self, logits: Tensor, labels: Tensor) -> Fitted:
        temperature, features = tempered(self._features(logits), labels)
        n, classes = features.shape
        eye = torch.eye(classes, dtype=features.dtype, device=features.device)

        def fit(x: Tensor, truth: Tensor, strength: float, **how: Any) -> Affine:
            unit = classes / len(truth)
            weights = strength * unit * (classes - 1) * (1 - eye) + 0.5 / len(truth) * eye
            return fit_affine(x, truth, weight_penalty=weights, bias_penalty=strength * unit, **how)

        strength, note = self.options["strength"], ""
        if strength == "auto":
            affordable = n * classes**2 <= CROSS_VALIDATED and n >= FEWEST
            strength = choose_strength(features, labels, fit, STRENGTHS) if affordable else 1.0
            note = f"regularisation strength {strength:g}"
        return fitted_affine(fit(features, labels, float(strength)), temperature, note)

    def _calibrate(self, logits: Tensor, parameters: Parameters) -> Tensor:
        return torch.addmm(parameters["bias"], self._features(logits), parameters["weight"].T)


class Dirichlet(MatrixScaling):
    """softmax(W log softmax(logits) + b): Dirichlet calibration [Kull19], with ODIR.

    If the model's probs given the label are Dirichlet distributed, one for each class, this is the exact posterior.
    It is matrix scaling on log-probabilities: unlike logits, they don't change when a constant is added to a row.

    Args:
        strength: as in matrix scaling.
    """

    method = "dirichlet"

    def _features(self, logits: Tensor) -> Tensor:
        return logits.log_softmax(dim=1)


def tempered(logits: Tensor, labels: Tensor) -> tuple[float, Tensor]:
    """The NLL-optimal temperature, and float64 logits divided by it: the scale at which W is near the identity."""
    temperature = solve_temperature(logits, labels).temperature
    return temperature, logits.double() / temperature


def fitted_affine(affine: Affine, temperature: float, note: str = "") -> Fitted:
    """The parameters on the scale of the untempered logits."""
    trouble = "" if affine.converged else "the optimiser stopped before the gradient vanished"
    parameters = {"weight": affine.weight / temperature, "bias": affine.bias}
    return Fitted(parameters, affine.converged, "; ".join(filter(None, [note, trouble])))
