"""The only place that puts a sample into a bin.

A binned calibration error asks one thing of a bin: how far the confidence summed over its samples lies from the number
of them that are right. So a bin is three numbers (count, summed confidence, summed correctness), a set of bins is three
vectors, and two sets from two halves of the data merge by addition. All sums are float64: float32 sums stop growing at
2**24 samples and are percents off before that.

The conventions, by name:

| name | bins | whose |
|---|---|---|
| right | equal width, (lo, hi]; 0 belongs to the first | the field's published numbers; the default |
| left | equal width, [lo, hi); 1.0 gets a bin of its own, one past the last | torchmetrics |
| adaptive | equal mass, (lo, hi], the lowest confidence belongs to the first | ours: every sample counts |
| published-adaptive | the same edges, but the least confident sample is lost | the focal-calibration code and its heirs |
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from calgrad.checks import one_of, positive_int

BINNINGS = ("right", "left", "adaptive", "published-adaptive")
"""The binning conventions; see the table above."""

NORMS = ("l1", "l2", "max")
"""How the gaps of the bins become one number: mean, root mean square (both weighted by count), or largest."""


@dataclass(frozen=True)
class BinSums:
    """What a set of bins holds: float64 vectors, one entry a bin, and how many samples were offered in all.

    `total` exceeds `count.sum()` only under "published-adaptive", which loses samples and still divides by all of them.
    """

    count: Tensor
    confidence: Tensor
    correct: Tensor
    total: int

    def __add__(self, other: BinSums) -> BinSums:
        """The sums over both sets of samples (the bins must be the same)."""
        return BinSums(
            self.count + other.count,
            self.confidence + other.confidence,
            self.correct + other.correct,
            self.total + other.total,
        )

    @property
    def gap(self) -> Tensor:
        """Mean confidence minus accuracy of each bin (0 where it is empty); positive is over-confident."""
        return (self.confidence - self.correct) / self.count.clamp(min=1)


def top_label(probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """(confidence, is_correct) of each row; among equal probabilities the first class is the prediction."""
    confidence, prediction = probs.max(dim=1)
    return confidence, prediction == labels


def equal_width_edges(bins: int, *, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu") -> Tensor:
    """The bins + 1 edges 0, 1/bins, ..., 1, each the number of `dtype` nearest to i / bins.

    Rounded to the dtype of the confidences on purpose: 0.6 as float32 is larger than 9/15, and still is that edge.
    """
    positive_int("bins", bins)
    return (torch.arange(bins + 1, dtype=torch.float64, device=device) / bins).to(dtype)


def equal_mass_edges(ordered: Tensor, bins: int) -> Tensor:
    """The bins + 1 interpolated order statistics of an ascending vector, at ranks 0, n/bins, 2n/bins, ..., n - 1.

    These are `np.interp(np.linspace(0, n, bins + 1), np.arange(n), ordered)`, as in the published adaptive ECE. Equal
    confidences can't be told apart, so ties make bins unequal, and an edge that repeats makes an empty bin.
    """
    positive_int("bins", bins)
    n = ordered.numel()
    rank = (torch.arange(bins + 1, dtype=torch.float64, device=ordered.device) * (n / bins)).clamp(max=n - 1)
    below = rank.floor().long()
    low, high = ordered[below].double(), ordered[(below + 1).clamp(max=n - 1)].double()
    return (low + (rank - below) * (high - low)).to(ordered.dtype)


def bin_edges(confidence: Tensor, *, bins: int = 15, binning: str = "right") -> Tensor:
    """The bins + 1 edges of a convention, in the dtype of `confidence` (whose values only adaptive edges look at)."""
    one_of("binning", binning, BINNINGS)
    if binning.endswith("adaptive"):
        return equal_mass_edges(confidence.sort().values, bins)
    return equal_width_edges(bins, dtype=confidence.dtype, device=confidence.device)


def bin_index(confidence: Tensor, edges: Tensor, *, binning: str = "right") -> Tensor:
    """The bin of each confidence, int64.

    Two values lie outside 0 ... bins - 1: `bins` under "left" (confidence 1.0), and -1 under "published-adaptive" (a
    confidence that is not above the lowest edge: it falls into no bin).
    """
    if binning == "left":
        return torch.bucketize(confidence, edges[1:], right=True)
    if binning == "published-adaptive":
        return torch.bucketize(confidence, edges) - 1
    # Only the inner edges decide, so that 0 and a confidence an ulp above 1 stay in the first and the last bin.
    return torch.bucketize(confidence, edges[1:-1].contiguous())


def sums_of_index(index: Tensor, confidence: Tensor, is_correct: Tensor, *, cells: int) -> BinSums:
    """The sums of samples already assigned to one of `cells` bins; an index of -1 is dropped."""
    total = index.numel()
    if total and bool(index.min() < 0):
        kept = index >= 0
        index, confidence, is_correct = index[kept], confidence[kept], is_correct[kept]
    # One count over (bin, correct) pairs gives both counts exactly and needs no float64 copy of is_correct.
    pairs = torch.bincount(2 * index + is_correct, minlength=2 * cells).view(cells, 2).double()
    summed = torch.bincount(index, weights=confidence.double(), minlength=cells)
    return BinSums(pairs.sum(dim=1), summed, pairs[:, 1].clone(), total)


def bin_sums(confidence: Tensor, is_correct: Tensor, *, bins: int = 15, binning: str = "right") -> BinSums:
    """The sums of (confidence, is_correct) samples in the bins of a convention.

    Args:
        confidence: (N,) floating point in [0, 1].
        is_correct: (N,) bool.
        bins: how many bins.
        binning: one of `BINNINGS`.
    """
    edges = bin_edges(confidence, bins=bins, binning=binning)
    index = bin_index(confidence, edges, binning=binning)
    return sums_of_index(index, confidence, is_correct, cells=bins + (binning == "left"))


def error_of_sums(sums: BinSums, *, norm: str = "l1") -> float:
    """The calibration error of a set of bins.

    l1: the sum over bins of (count / n) |gap|. l2: the root of the sum of (count / n) gap ** 2. max: the largest |gap|.
    """
    one_of("norm", norm, NORMS)
    difference = (sums.confidence - sums.correct).abs()
    if norm == "l1":
        return float(difference.sum() / sums.total)
    if norm == "l2":
        return float((difference.square() / sums.count.clamp(min=1)).sum().div(sums.total).sqrt())
    return float(sums.gap.abs().max())
