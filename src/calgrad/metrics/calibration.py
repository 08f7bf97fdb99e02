"""Binned calibration errors: how far the confidence in a group of samples is from the accuracy in it.

Every function takes `probs` or `logits=`, never guesses which, and returns a fraction. All of them are *biased
upwards*: a perfectly calibrated model shows an error above zero on finitely many samples. `noise_floor` says how much
above.
"""

from __future__ import annotations

import torch
from torch import Tensor

from calgrad.checks import ArrayLike, one_of, positive_int
from calgrad.metrics.binning import NORMS, BinSums, bin_sums, class_sums, error_of_sums, ordered_pairs
from calgrad.metrics.rows import checked_top_label, probs_in_blocks

MOST_SWEEP_BINS = 1000
"""Where the monotonic sweep stops in any case: on a perfect ranking it would never end."""


def ece(
    probs: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    logits: ArrayLike | None = None,
    bins: int = 15,
    norm: str = "l1",
    binning: str = "right",
) -> float:
    """The expected calibration error of the predicted class: sum over bins of (count / n) |confidence - accuracy|.

    Args:
        probs: (N, K) probabilities, or pass `logits`.
        labels: (N,) class indices.
        logits: (N, K) logits instead of `probs`.
        bins: how many bins; 15 is the field's habit.
        norm: "l1" (ECE), "l2" (root mean square), "max" (the worst bin, also called MCE).
        binning: "right" (equal width, (lo, hi]), "left" (torchmetrics), "adaptive" or "published-adaptive" (equal
            mass).

    Example:
        >>> import torch
        >>> from calgrad.metrics import ece
        >>> round(ece(torch.tensor([[0.9, 0.1], [0.8, 0.2]]), torch.tensor([0, 1])), 4)
        0.45
    """
    confidence, is_correct = checked_top_label(probs, labels, logits)
    return error_of_sums(bin_sums(confidence, is_correct, bins=bins, binning=binning), norm=norm)


def adaptive_ece(
    probs: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    logits: ArrayLike | None = None,
    bins: int = 15,
    norm: str = "l1",
    published: bool = False,
) -> float:
    """ECE in bins of equal mass, so that no bin is nearly empty.

    The edges are interpolated order statistics; equal confidences always share a bin.

    Args:
        probs: (N, K) probabilities, or pass `logits`.
        labels: (N,) class indices.
        logits: (N, K) logits instead of `probs`.
        bins: how many bins.
        norm: "l1", "l2" or "max".
        published: do as the published code does, which loses the least confident sample (and all that tie with it).
    """
    # DEVIATES: the published adaptive ECE leaves its least confident sample out -> docs/deviations.md#adaptive-ece
    binning = "published-adaptive" if published else "adaptive"
    return ece(probs, labels, logits=logits, bins=bins, norm=norm, binning=binning)


def classwise_ece(
    probs: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    logits: ArrayLike | None = None,
    bins: int = 15,
    average: str = "classes",
) -> float:
    """The l1 error of the probability of *each* class over all samples, averaged over the classes.

    Beware of many classes: most probabilities are near zero and so is their error, hence the value shrinks like 1 / K.

    Args:
        probs: (N, K) probabilities, or pass `logits`.
        labels: (N,) class indices.
        logits: (N, K) logits instead of `probs`.
        bins: equal-width bins of the class probability, (lo, hi], 0 in the first.
        average: "classes" (each counts the same, as published) or "prevalence" (each by the frequency of its label).
    """
    positive_int("bins", bins)
    given, hit, total = torch.zeros(()), torch.zeros(()), 0
    for block, truth in probs_in_blocks(probs, labels, logits):
        block_given, block_hit = class_sums(block, truth, bins=bins)
        given, hit, total = given.to(block_given) + block_given, hit.to(block_hit) + block_hit, total + len(truth)
    return error_of_class_sums(given, hit, total=total, average=average)


def error_of_class_sums(given: Tensor, hit: Tensor, *, total: int, average: str = "classes") -> float:
    """The classwise ECE of what `class_sums` returned over `total` samples."""
    one_of("average", average, ("classes", "prevalence"))
    by_class = (given - hit).abs().sum(dim=1) / total
    return float(by_class.mean() if average == "classes" else (by_class * hit.sum(dim=1)).sum() / total)


def debiased_ece(
    probs: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    logits: ArrayLike | None = None,
    bins: int = 15,
    binning: str = "right",
) -> float:
    """The l2 calibration error with the squared gaps' sampling noise taken off [Kumar19], after [Brocker12, Ferro12].

    The mean squared gap it is the root of has no bias for the error between the bins' means. It may come out negative
    for a calibrated model; then the result is 0. Compare it with `ece(norm="l2")`, not with the l1 ECE.
    """
    sums = bin_sums(*checked_top_label(probs, labels, logits), bins=bins, binning=binning)
    return max(0.0, debiased_square(sums)) ** 0.5


def debiased_square(sums: BinSums) -> float:
    """The unbiased estimate of the mean squared gap; below zero where noise alone would show more.

    A bin of one sample says nothing about its own noise and is left out.
    """
    known = sums.count >= 2
    count, rate, gap = sums.count[known], (sums.correct / sums.count)[known], sums.gap[known]
    return float((count * (gap.square() - rate * (1 - rate) / (count - 1))).sum() / sums.total)


def sweep_ece(
    probs: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    logits: ArrayLike | None = None,
    norm: str = "l1",
) -> float:
    """ECE in as many equal-mass bins as keep the accuracy rising from bin to bin [Roelofs22].

    A real calibration curve rises; once the bins are so thin that their accuracies do not, they show noise. This
    chooses the number of bins from the data and is much less biased than a fixed number.
    """
    one_of("norm", norm, NORMS)
    confidence, is_correct = ordered_pairs(*checked_top_label(probs, labels, logits))
    # Sums up to each rank, so that a bin is a difference and a set of b bins costs O(b log n).
    correct_to = torch.cat([torch.zeros(1, dtype=torch.float64), is_correct.double().cumsum(0)])
    confidence_to = torch.cat([torch.zeros(1, dtype=torch.float64), confidence.double().cumsum(0)])
    n = len(confidence)
    best = _between(torch.tensor([0, n]), confidence_to, correct_to)
    for bins in range(2, min(n, MOST_SWEEP_BINS) + 1):
        last = (torch.arange(1, bins + 1) * n + bins - 1) // bins - 1  # the rank that closes each bin
        ends = torch.searchsorted(confidence, confidence[last], right=True).unique()  # ties stay in one bin
        sums = _between(torch.cat([ends.new_zeros(1), ends]), confidence_to, correct_to)
        if bool((sums.correct / sums.count).diff().lt(0).any()):
            break
        best = sums
    return error_of_sums(best, norm=norm)


def _between(cuts: Tensor, confidence_to: Tensor, correct_to: Tensor) -> BinSums:
    return BinSums(cuts.diff().double(), confidence_to[cuts].diff(), correct_to[cuts].diff(), int(cuts[-1]))
