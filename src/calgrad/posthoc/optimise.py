"""The optimiser of the affine maps, and the choice of how strongly to hold them back.

Cross-entropy of softmax(W x + b) is convex in (W, b), and a quadratic penalty makes it strictly so; L-BFGS with a
strong-Wolfe line search from the identity is deterministic and needs nothing tuned. Gradients are written out (p -
e_y against x), a block of rows at a time, so that memory does not grow with N.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 2**21
"""Elements of features handled at a time; large enough for matrix products to run at full speed."""

GRADIENT_TOLERANCE = 1e-7
"""A fit has converged where no entry of the gradient (nats a sample) is larger."""

FOLDS = 3


@dataclass(frozen=True)
class Affine:
    """The map x -> W x + b, with W (K, K), or its diagonal alone as (K,)."""

    weight: Tensor
    bias: Tensor
    converged: bool = True

    def __call__(self, features: Tensor) -> Tensor:
        """Logits of the calibrated distribution."""
        if self.weight.ndim == 1:
            return features * self.weight + self.bias
        return torch.addmm(self.bias, features, self.weight.T)


def fit_affine(
    features: Tensor,
    labels: Tensor,
    *,
    weight_penalty: Tensor,
    bias_penalty: float,
    start: Affine | None = None,
    tolerance: float = GRADIENT_TOLERANCE,
    iterations: int = 1000,
) -> Affine:
    """Minimise mean NLL + sum(weight_penalty * (W - I)**2) + bias_penalty * sum(b**2).

    Args:
        features: (N, K) float64, scaled so that W is near the identity.
        labels: (N,) int64.
        weight_penalty: (K, K), or (K,) for a diagonal W; one strength for each weight.
        bias_penalty: the strength for each bias.
        start: where to begin; the identity by default.
        tolerance: the largest entry of the gradient at which to stop.
        iterations: at most this many.
    """
    classes = features.shape[1]
    diagonal = weight_penalty.ndim == 1
    identity = torch.ones_like(weight_penalty) if diagonal else torch.eye(classes).to(weight_penalty)
    weight = (start.weight if start else identity).clone()
    bias = start.bias.clone() if start else features.new_zeros(classes)
    optimiser = torch.optim.LBFGS(
        [weight, bias],
        max_iter=iterations,
        max_eval=2 * iterations,
        history_size=20,
        tolerance_grad=tolerance,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def evaluate() -> Tensor:
        value, weight.grad, bias.grad = nll_and_gradient(features, labels, Affine(weight, bias))
        off = weight - identity
        weight.grad += 2 * weight_penalty * off
        bias.grad += 2 * bias_penalty * bias
        return value + (weight_penalty * off * off).sum() + bias_penalty * bias.square().sum()

    optimiser.step(evaluate)
    evaluate()
    assert weight.grad is not None
    assert bias.grad is not None
    gradient = max(float(weight.grad.abs().max()), float(bias.grad.abs().max()))
    weight.grad = bias.grad = None
    # A gradient of rounding size that the line search cannot lower any more is as good as the tolerance.
    return Affine(weight, bias, converged=gradient <= max(100 * tolerance, 1e-5))


def nll_and_gradient(features: Tensor, labels: Tensor, affine: Affine) -> tuple[Tensor, Tensor, Tensor]:
    """Mean NLL of softmax(affine(features)), with its gradients in weight and bias."""
    n, classes = features.shape
    value = features.new_zeros(())
    weight, bias = torch.zeros_like(affine.weight), torch.zeros_like(affine.bias)
    rows = max(1, BLOCK // classes)
    for x, truth in zip(features.split(rows), labels.split(rows)):
        log_probs = affine(x).log_softmax(dim=1)
        value -= log_probs.gather(1, truth[:, None]).sum()
        residual = log_probs.exp_()
        residual[torch.arange(len(truth), device=truth.device), truth] -= 1
        bias += residual.sum(dim=0)
        weight += (residual * x).sum(dim=0) if weight.ndim == 1 else residual.T @ x
    return value / n, weight / n, bias / n


def choose_strength(
    features: Tensor, labels: Tensor, fit: Callable[..., Affine], strengths: Sequence[float], *, seed: int = 0
) -> float:
    """The strength of least cross-validated NLL: from the strongest down, until it gets no better.

    Args:
        features: (N, K) float64.
        labels: (N,) int64.
        fit: fit(features, labels, strength, start, tolerance, iterations) -> Affine.
        strengths: in descending order; each fit starts from the one before it.
        seed: of the folds; the choice is the same every time.
    """
    n = len(labels)
    fold = (torch.randperm(n, generator=torch.Generator().manual_seed(seed)) % FOLDS).to(labels.device)
    fitted: list[Affine | None] = [None] * FOLDS
    best, chosen = float("inf"), strengths[0]
    for strength in strengths:
        total = 0.0
        for k in range(FOLDS):
            learn, judge = fold != k, fold == k
            affine = fit(features[learn], labels[learn], strength, start=fitted[k], tolerance=1e-4, iterations=100)
            fitted[k] = affine
            total += float(nll_and_gradient(features[judge], labels[judge], affine)[0]) * int(judge.sum())
        if total >= best:
            break
        best, chosen = total, strength
    return chosen
