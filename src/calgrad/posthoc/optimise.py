"""The optimiser of the affine maps, and the choice of how strongly to hold them back.

Cross-entropy of softmax(W x + b) is convex in (W, b), and a quadratic penalty makes it strictly so: L-BFGS finds the
one minimum, every time the same, with nothing to tune. Two things make it fast. Gradients are written out (p - e_y
against x), a block of rows at a time. And the search runs in coordinates in which the Hessian at the start is about
the identity: classes that are hardly ever confused make it very unequal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

BLOCK = 2**21
"""Elements of features handled at a time; large enough for matrix products to run at full speed."""

TOLERANCE = 1e-6
"""Where the preconditioned gradient ends: half its square is about what is left to gain, in nats a sample."""

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

    def moved(self, weight: Tensor, bias: Tensor) -> Affine:
        """The map with these added."""
        return Affine(self.weight + weight, self.bias + bias)


@dataclass(frozen=True)
class Preconditioner:
    """A symmetric change of coordinates that makes the Hessian at the start about the identity.

    For one row the Hessian in (W, b) is (diag p - p p') x (x, 1)(x, 1)'. Its mean is replaced by the product of the
    means (K-FAC), whose inverse square root is that of both factors. For a diagonal W: the diagonal of the Hessian.
    """

    left: Tensor
    right: Tensor

    @classmethod
    def at(cls, affine: Affine, features: Tensor, weight_penalty: Tensor, bias_penalty: float) -> Preconditioner:
        """The one for a search that begins at `affine`."""
        n = len(features)
        probs = affine(features).softmax(dim=1)
        if affine.weight.ndim == 1:
            spread = probs * (1 - probs)
            return cls(
                (spread.mul(features.square()).mean(dim=0) + 2 * weight_penalty + 1e-9).rsqrt(),
                (spread.mean(dim=0) + 2 * bias_penalty + 1e-9).rsqrt(),
            )
        doubt = 1 - probs.square().sum(dim=1, keepdim=True) + 1e-9
        inputs = torch.cat([features, torch.ones_like(features[:, :1])], dim=1)
        right = (inputs * doubt).T @ inputs / doubt.sum()
        left = torch.diag(probs.mean(dim=0)) - probs.T @ probs / n
        ridge = 2 * float(weight_penalty.mean()) + 1e-9
        balance = float(left.trace() / len(left) / (right.trace() / len(right)))
        return cls(_inverse_root(left, (ridge * balance) ** 0.5), _inverse_root(right, (ridge / balance) ** 0.5))

    def __call__(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """A step into the coordinates of W and b; being symmetric, a gradient out of them too."""
        if weight.ndim == 1:
            return self.left * weight, self.right * bias
        both = self.left @ torch.cat([weight, bias[:, None]], dim=1) @ self.right
        return both[:, :-1], both[:, -1]


def _inverse_root(matrix: Tensor, ridge: float) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * (values.clamp(min=0) + ridge).rsqrt()) @ vectors.T


def fit_affine(
    features: Tensor,
    labels: Tensor,
    *,
    weight_penalty: Tensor,
    bias_penalty: float,
    start: Affine | None = None,
    tolerance: float = TOLERANCE,
    iterations: int = 3000,
) -> Affine:
    """Minimise mean NLL + sum(weight_penalty * (W - I)**2) + bias_penalty * sum(b**2).

    Args:
        features: (N, K) float64, scaled so that W is near the identity.
        labels: (N,) int64.
        weight_penalty: (K, K), or (K,) for a diagonal W; one strength for each weight.
        bias_penalty: the strength for each bias.
        start: where to begin; the identity by default.
        tolerance: the largest entry of the preconditioned gradient at which to stop.
        iterations: at most this many.
    """
    diagonal = weight_penalty.ndim == 1
    identity = torch.ones_like(weight_penalty) if diagonal else torch.eye(len(weight_penalty)).to(features)
    begin = start or Affine(identity, features.new_zeros(features.shape[1]))
    scale = Preconditioner.at(begin, features, weight_penalty, bias_penalty)
    sizes = [begin.weight.numel(), begin.bias.numel()]

    def rescaled(flat: Tensor) -> tuple[Tensor, Tensor]:
        weight, bias = flat.split(sizes)
        return scale(weight.view_as(begin.weight), bias)

    def evaluate(flat: Tensor) -> tuple[float, Tensor]:
        at = begin.moved(*rescaled(flat))
        value, by_weight, by_bias = nll_and_gradient(features, labels, at)
        off = at.weight - identity
        value = value + (weight_penalty * off * off).sum() + bias_penalty * at.bias.square().sum()
        by_weight, by_bias = scale(by_weight + 2 * weight_penalty * off, by_bias + 2 * bias_penalty * at.bias)
        return float(value), torch.cat([by_weight.flatten(), by_bias])

    found, converged = lbfgs(evaluate, features.new_zeros(sum(sizes)), tolerance=tolerance, iterations=iterations)
    return replace(begin.moved(*rescaled(found)), converged=converged)


def lbfgs(
    function: Callable[[Tensor], tuple[float, Tensor]],
    x: Tensor,
    *,
    tolerance: float,
    iterations: int,
    memory: int = 20,
) -> tuple[Tensor, bool]:
    """Minimise a smooth convex function that returns (value, gradient), and say whether the gradient vanished.

    Not torch.optim.LBFGS: that one loads the compiler's front end first, which takes longer than most of these fits.
    """
    value, gradient = function(x)
    pairs: list[tuple[Tensor, Tensor, Tensor]] = []
    for _ in range(iterations):
        if float(gradient.abs().max()) <= tolerance:
            return x, True
        direction = -_inverse_hessian(gradient, pairs)
        slope = float(gradient @ direction)
        step = 1.0 if pairs else min(1.0, 1 / float(gradient.norm()))
        while True:
            moved = x + step * direction
            reached, its_gradient = function(moved)
            if reached <= value + 1e-4 * step * slope + 1e-15 * abs(value):
                break
            if step < 1e-12:  # nothing but rounding is left to gain
                return x, float(gradient.abs().max()) <= 10 * tolerance
            # The minimum of the parabola through both values and the slope, kept within sight of the last step.
            parabola = -slope * step / 2 / max((reached - value) / step - slope, 1e-300)
            step = min(max(parabola, 0.1 * step), 0.5 * step) if reached < float("inf") else 0.1 * step
        change, bend = moved - x, its_gradient - gradient
        curvature = change @ bend
        if float(curvature) > 1e-14 * float(bend @ bend):
            pairs = [*pairs[1 - memory :], (change, bend, curvature)]
        x, value, gradient = moved, reached, its_gradient
    return x, float(gradient.abs().max()) <= 10 * tolerance


def _inverse_hessian(gradient: Tensor, pairs: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """The inverse Hessian that (change, change of gradient, their product) pairs suggest, times the gradient."""
    product = gradient.clone()
    shares = []
    for change, bend, curvature in reversed(pairs):
        shares.append((change @ product) / curvature)
        product -= shares[-1] * bend
    if pairs:
        _, bend, curvature = pairs[-1]
        product *= curvature / (bend @ bend)
    for (change, bend, curvature), share in zip(pairs, reversed(shares)):
        product += (share - (bend @ product) / curvature) * change
    return product


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
