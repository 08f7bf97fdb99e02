"""How much of a score is calibration, and how much is left: two splits.

*Calibration and refinement.* A proper score is the sum of what a perfect recalibration would remove and what it would
leave. The perfect one is unknown, so this takes the best of a family that cannot overfit: one temperature, fitted on
the samples themselves. `refinement` is the score that is left and `calibration` what was removed, in the units of the
score: a lower bound on the true calibration part, and for neural nets most of it [Berta25]. No bins, all K classes, NLL
and Brier alike. One fitted parameter makes the NLL split optimistic by about 1 / (2 n) nats.

*Reliability, resolution, uncertainty.* Murphy's identity for the Brier score of the predicted class in confidence bins
(right or wrong, one probability): binned Brier = reliability - resolution + uncertainty. Reliability is the squared l2
ECE.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from calgrad.checks import ArrayLike, logits_and_labels, one_of, probs_and_labels
from calgrad.metrics.binning import BinSums, bin_sums
from calgrad.metrics.proper import brier, brier_rows, nll
from calgrad.metrics.rows import checked_top_label

LOG2_RANGE = 16
"""Temperatures from 2**-16 to 2**16 are searched."""


@dataclass(frozen=True)
class ScoreSplit:
    """A proper score (`total`) = what the best temperature removes (`calibration`) + what it leaves (`refinement`)."""

    score: str
    total: float
    calibration: float
    refinement: float
    temperature: float


@dataclass(frozen=True)
class BrierParts:
    """Murphy's parts of the binned Brier score of the predicted class: reliability - resolution + uncertainty."""

    reliability: float
    resolution: float
    uncertainty: float


def calibration_refinement(
    probs: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    logits: ArrayLike | None = None,
    score: str = "nll",
) -> ScoreSplit:
    """Split the NLL or the Brier score into a calibration and a refinement part, by the best temperature.

    Args:
        probs: (N, K) probabilities (their logarithms are then the logits), or pass `logits`.
        labels: (N,) class indices.
        logits: (N, K) logits instead of `probs`.
        score: "nll" or "brier".

    Example:
        >>> import torch
        >>> from calgrad.metrics import calibration_refinement
        >>> logits = torch.randn(2000, 3, generator=torch.Generator().manual_seed(0))
        >>> labels = torch.distributions.Categorical(logits=logits).sample()
        >>> split = calibration_refinement(logits=3 * logits, labels=labels)  # over-confident by a factor of 3
        >>> 2.5 < split.temperature < 3.5, split.calibration > 0.1
        (True, True)
    """
    one_of("score", score, ("nll", "brier"))
    total = (nll if score == "nll" else brier)(probs, labels, logits=logits)
    if logits is None:
        checked, indices = probs_and_labels(probs, labels, None)
        checked = checked.clamp(min=torch.finfo(checked.dtype).tiny).log()
    else:
        checked, indices = logits_and_labels(logits, labels)
    temperature, left = best_temperature(checked, indices, score=score)
    # Up to rounding, one of the temperatures tried is 1; a split must not be negative for that.
    return ScoreSplit(score, total, max(0.0, total - left), min(total, left), temperature)


def best_temperature(logits: Tensor, labels: Tensor, *, score: str) -> tuple[float, float]:
    """(temperature, score there): a coarse scan on at most 20,000 rows, then a golden-section search on all of them."""
    every = max(1, len(logits) // 20_000)
    few, few_labels = logits[::every], labels[::every]
    grid = range(-LOG2_RANGE, LOG2_RANGE + 1)
    start = min(grid, key=lambda exponent: _score_at(few, few_labels, 2.0**exponent, score))
    exponent, left = golden_section(lambda e: _score_at(logits, labels, 2.0**e, score), start - 1.0, start + 1.0)
    return 2.0**exponent, left


def golden_section(
    function: Callable[[float], float], low: float, high: float, *, steps: int = 24
) -> tuple[float, float]:
    """The minimum of a function with a single valley in [low, high]: (where, value). To 0.62 ** steps of the interval."""
    ratio = (math.sqrt(5) - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(steps):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = function(right)
    return (left, at_left) if at_left <= at_right else (right, at_right)


def brier_parts(
    probs: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    logits: ArrayLike | None = None,
    bins: int = 15,
    binning: str = "right",
) -> BrierParts:
    """Murphy's reliability, resolution and uncertainty of the predicted class."""
    confidence, is_correct = checked_top_label(probs, labels, logits)
    return parts_of_sums(bin_sums(confidence, is_correct, bins=bins, binning=binning))


def parts_of_sums(sums: BinSums) -> BrierParts:
    """`brier_parts` of samples already in bins."""
    share, rate = sums.count / sums.total, sums.correct / sums.count.clamp(min=1)
    overall = float(sums.correct.sum() / sums.total)
    reliability = float((share * sums.gap.square()).sum())
    return BrierParts(reliability, float((share * (rate - overall).square()).sum()), overall * (1 - overall))


def _score_at(logits: Tensor, labels: Tensor, temperature: float, score: str) -> float:
    scaled = logits / temperature
    if score == "brier":
        return float(brier_rows(scaled.softmax(dim=1), labels).mean(dtype=torch.float64))
    rows = torch.nn.functional.cross_entropy(scaled, labels, reduction="none")
    return float(rows.mean(dtype=torch.float64))
