"""Ensemble temperature scaling [Zhang20]: w1 softmax(logits / T) + w2 softmax(logits) + w3 / K.

T is that of temperature scaling; the weights w >= 0 sum to one and minimise the NLL. That is a convex problem in
three numbers, and temperature scaling (1, 0, 0), doing nothing (0, 1, 0) and the uniform answer are corners of it:
none of them has a lower NLL.
"""

from __future__ import annotations

from itertools import combinations
from typing import ClassVar

import torch
from torch import Tensor

from calgrad.posthoc.base import CHUNK, Calibrator, Fitted, Parameters
from calgrad.posthoc.temperature import solve_temperature

GAP = 1e-9
"""How far the NLL may still lie above its minimum, in nats: the duality gap at which the weights are final."""


class EnsembleTemperature(Calibrator):
    """A mixture of the tempered, the original and the uniform prediction. Keeps every prediction."""

    method = "ensemble-temperature"
    shapes: ClassVar = {"temperature": "", "weights": "3"}

    def _fit(self, logits: Tensor, labels: Tensor) -> Fitted:
        temperature = torch.tensor(solve_temperature(logits, labels).temperature, dtype=torch.float64)
        rows = max(1, CHUNK // logits.shape[1])
        of_truth = torch.cat(
            [
                components(block.double(), temperature.to(logits.device)).gather(2, truth.expand(3, -1)[..., None])
                for block, truth in zip(logits.split(rows), labels.split(rows))
            ],
            dim=1,
        )
        weights, converged = mixture_weights(of_truth.squeeze(2).T)
        note = "" if converged else "the mixture weights did not converge"
        return Fitted({"temperature": temperature, "weights": weights}, converged, note)

    def _calibrate(self, logits: Tensor, parameters: Parameters) -> Tensor:
        weights = parameters["weights"].log()[:, None, None]
        return torch.logsumexp(weights + components(logits, parameters["temperature"]), dim=0)


def components(logits: Tensor, temperature: Tensor) -> Tensor:
    """(3, N, K) log-probabilities: tempered, as they came, uniform."""
    uniform = torch.zeros_like(logits)
    return torch.stack([logits / temperature, logits, uniform]).log_softmax(dim=2)


def mixture_weights(log_likelihoods: Tensor) -> tuple[Tensor, bool]:
    """The weights w on the simplex that maximise mean log(sum_j w_j exp(L_ij)), for L (N, J), J small; and success.

    Newton's method, each step a quadratic programme over the simplex that is solved on all of its faces, with
    backtracking. The largest partial derivative minus one bounds the distance to the optimum, so it knows when it's
    there.
    """
    likelihoods = (log_likelihoods - log_likelihoods.amax(dim=1, keepdim=True)).exp()
    weights = likelihoods.new_full((likelihoods.shape[1],), 1 / likelihoods.shape[1])
    value = (likelihoods @ weights).log().mean()
    for _ in range(100):
        ratio = likelihoods / (likelihoods @ weights)[:, None]
        gradient = ratio.mean(dim=0)
        if float(gradient.max()) - 1 < GAP:
            return weights, True
        hessian = ratio.T @ ratio / len(ratio)
        direction = _simplex_minimum(hessian, 2 * gradient) - weights
        step = 1.0
        while step > 1e-10:
            moved = (weights + step * direction).clamp(min=0)
            moved = moved / moved.sum()
            reached = (likelihoods @ moved).log().mean()
            if reached > value:
                break
            step /= 2
        else:
            return weights, float(gradient.max()) - 1 < 1e-6
        weights, value = moved, reached
    return weights, False


def _simplex_minimum(hessian: Tensor, linear: Tensor) -> Tensor:
    """The minimiser of w' H w / 2 - c' w over the simplex: the best of the minima of its faces that are feasible."""
    size = len(linear)
    best, answer = float("inf"), linear
    for count in range(1, size + 1):
        for face in combinations(range(size), count):
            keep = list(face)
            system = hessian.new_ones(count + 1, count + 1)
            system[:count, :count] = hessian[keep][:, keep]
            system[count, count] = 0
            right = torch.cat([linear[keep], linear.new_ones(1)])
            solved = (
                torch.linalg.lstsq(system.cpu(), right[:, None].cpu(), driver="gelsd").solution[:count, 0].to(linear)
            )
            if float(solved.min()) < -1e-12:
                continue
            point = torch.zeros_like(linear)
            point[keep] = solved.clamp(min=0)
            value = float(point @ hessian @ point / 2 - linear @ point)
            if value < best:
                best, answer = value, point
    return answer
