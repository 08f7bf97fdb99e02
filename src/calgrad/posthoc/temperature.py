"""Temperature scaling [Guo17]: softmax(logits / T), with the T that minimises the validation NLL, exactly.

With a = 1/T and d = logits minus the row's largest, the mean NLL is f(a) = mean(logsumexp(a d) - a d_y). It is convex
in a:

    f'(a) = mean(E[d] - d_y),   f''(a) = mean(Var[d]),   both under softmax(a d).

So f' rises with a and the optimum is its only root. We find it by Newton's method on u = log a, which keeps T
positive and makes the search the same at every scale of the logits, inside a bracket that f' itself maintains by its
sign. The two ends are decided beforehand, without any search: f'(0) >= 0 means T = infinity, and no wrong prediction
at all means T = 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from calgrad.posthoc.base import CHUNK, Calibrator, Fitted, Parameters

STEP = 2.0
"""Longest Newton step in log T: beyond it the quadratic model means nothing."""

TOLERANCE = 1e-6
"""The last Newton step in log T is shorter than this, so what is left of the error is about its square."""

WARM_START = 2**19
"""Elements of logits in the subsample that gives the full passes a start close to the optimum."""


class Temperature(Calibrator):
    """softmax(logits / T) at the T of least validation NLL.

    One parameter, so it can't overfit; it keeps every prediction (and with it accuracy). See `solve_temperature`.
    """

    method = "temperature"
    shapes: ClassVar = {"temperature": ""}

    @property
    def temperature(self) -> float:
        """The fitted temperature."""
        self.check_classes(self.classes or 0)
        return float(self.parameters["temperature"])

    def _fit(self, logits: Tensor, labels: Tensor) -> Fitted:
        found = solve_temperature(logits, labels)
        parameters = {"temperature": torch.tensor(found.temperature, dtype=torch.float64)}
        return Fitted(parameters, not found.note, found.note, (found.nll_at_one, found.nll))

    def _calibrate(self, logits: Tensor, parameters: Parameters) -> Tensor:
        return logits / parameters["temperature"]


@dataclass(frozen=True)
class TemperatureOptimum:
    """The temperature of least NLL, the mean NLL there and at T = 1, and a note where the optimum is not finite."""

    temperature: float
    nll: float
    nll_at_one: float
    note: str = ""


def solve_temperature(logits: Tensor, labels: Tensor) -> TemperatureOptimum:
    """The exact minimiser of the NLL of softmax(logits / T) over T in (0, infinity).

    Where no finite T is optimal a sensible one is chosen, and the note says so:

    - no prediction is wrong (the NLL falls all the way to T = 0): the T at which the mean NLL is that of n right
      answers given with confidence (n + 1) / (n + 2), the rule of succession; never above 1.
    - the logits rank the labels no better than chance (the NLL falls all the way to T = infinity): a thousand times the
      largest difference of logits, where probs are uniform within 0.1 %; never below 1.

    Args:
        logits: (N, K), finite, float32 or float64; sums are float64.
        labels: (N,) int64.
    """
    one = Moments.of(logits, labels, 1.0)
    n = len(labels)
    if one.spread == 0:
        note = "all logits of each sample are equal: temperature has no effect, 1 was kept"
        return TemperatureOptimum(1.0, one.nll, one.nll, note)
    if one.slope_at_zero >= 0:
        temperature = max(1.0, 1e3 * one.spread)
        note = (
            "the optimum is at T = infinity: on these samples the logits rank the labels no better than chance; "
            f"T = {temperature:.4g} was taken, where probs are all but uniform"
        )
        return TemperatureOptimum(temperature, Moments.of(logits, labels, 1 / temperature).nll, one.nll, note)
    if one.slope_at_infinity == 0:
        return _separated(logits, labels, one)

    at = one

    def slope(u: float, rows: slice = slice(None)) -> tuple[float, float]:
        nonlocal at
        at = Moments.of(logits[rows], labels[rows], math.exp(u))
        return at.slope, at.curvature * at.inverse

    # exp(-u) spans from where probs are uniform to where they are one-hot, whatever the logits.
    low, high = -math.log(one.spread) - 25, -math.log(one.spread) + 50
    start = -math.log(one.typical)
    every = max(1, n * logits.shape[1] // WARM_START)
    if every > 1:  # bounded, for the optimum of a few samples may lie at infinity
        start = _root(lambda u: slope(u, slice(None, None, every)), start, start - 4, start + 4, tolerance=1e-2)
    inverse = math.exp(_root(slope, start, low, high, tolerance=TOLERANCE))
    moved = inverse - at.inverse  # a step so short that Taylor's second order is exact, and a pass is saved
    return TemperatureOptimum(1 / inverse, at.nll + moved * (at.slope + moved / 2 * at.curvature), one.nll)


def _separated(logits: Tensor, labels: Tensor, one: Moments) -> TemperatureOptimum:
    """The choice where every prediction is right, so that the NLL falls all the way to T = 0."""
    wanted = math.log1p(1 / (len(labels) + 1))

    def excess(u: float) -> tuple[float, float]:
        at = Moments.of(logits, labels, math.exp(u))
        return wanted - at.nll, -at.slope * math.exp(u)

    scale = -math.log(one.typical)
    temperature = 1.0 if one.nll <= wanted else min(1.0, math.exp(-_root(excess, scale, scale - 25, scale + 25)))
    note = (
        "the optimum is at T = 0: every prediction on these samples is right; "
        f"T = {temperature:.4g} was taken, the rule of succession for {len(labels)} right answers"
    )
    return TemperatureOptimum(temperature, Moments.of(logits, labels, 1 / temperature).nll, one.nll, note)


@dataclass(frozen=True)
class Moments:
    """The mean NLL at an inverse temperature a with its two derivatives, and what the logits alone decide."""

    inverse: float  # a
    nll: float  # f(a)
    slope: float  # f'(a)
    curvature: float  # f''(a)
    slope_at_zero: float  # f'(0): >= 0 where T = infinity is optimal
    slope_at_infinity: float  # lim f'(a): 0 where T = 0 is optimal
    typical: float  # mean distance of a logit from its row's largest
    spread: float  # the largest such distance

    @classmethod
    def of(cls, logits: Tensor, labels: Tensor, inverse: float) -> Moments:
        """One pass over the rows, a block at a time: every temporary is float64 and stays in cache."""
        n, classes = logits.shape
        sums = torch.zeros(5, dtype=torch.float64, device=logits.device)
        spread = torch.zeros((), dtype=torch.float64, device=logits.device)
        rows = max(1, CHUNK // classes)
        for block, truth in zip(logits.split(rows), labels.split(rows)):
            below = block.double()
            below = below - below.amax(dim=1, keepdim=True)  # d
            of_truth = below.gather(1, truth[:, None]).sum()
            spread = torch.maximum(spread, -below.amin())
            total = below.sum()
            mass = (below * inverse).exp_()
            partition = mass.sum(dim=1)
            mean = mass.mul_(below).sum(dim=1).div_(partition)
            square = mass.mul_(below).sum(dim=1).div_(partition)
            variance = (square - mean * mean).clamp_(min=0)
            sums += torch.stack([partition.log_().sum(), mean.sum(), variance.sum(), of_truth, total])
        log_partition, mean_below, variance_below, truth_below, all_below = (sums / n).tolist()
        return cls(
            inverse=inverse,
            nll=log_partition - inverse * truth_below,
            slope=mean_below - truth_below,
            curvature=variance_below,
            slope_at_zero=all_below / classes - truth_below,
            slope_at_infinity=-truth_below,
            typical=-all_below / classes,
            spread=float(spread),
        )


def _root(
    function: Callable[[float], tuple[float, float]], start: float, low: float, high: float, *, tolerance: float = 1e-6
) -> float:
    """The root in [low, high] of a rising function that returns (value, derivative): Newton, else bisection.

    A Newton step longer than STEP is cut; one that leaves the bracket is replaced by the bracket's middle. Where the
    function has one sign all over, the end of the interval is returned.
    """
    u = min(max(start, low), high)
    for _ in range(200):
        value, derivative = function(u)
        if value == 0:
            return u
        low, high = (u, high) if value < 0 else (low, u)
        newton = -value / derivative if derivative > 0 else math.copysign(math.inf, -value)
        step = math.copysign(min(abs(newton), STEP), newton)
        if not low < u + step < high:
            step = (low + high) / 2 - u
        u += step
        if abs(step) < tolerance:
            break
    return u
