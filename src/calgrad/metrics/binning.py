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
| published-adaptive | the same edges, but the least confident sample is lost | the focal-calibration code, its heirs |
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
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
    # DEVIATES: the published code has float32 linspace, an ulp away at some edges -> docs/deviations.md#bin-edges
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
        return equal_mass_edges(ordered(confidence), bins)
    return equal_width_edges(bins, dtype=confidence.dtype, device=confidence.device)


def bin_index(confidence: Tensor, edges: Tensor, *, binning: str = "right") -> Tensor:
    """The bin of each confidence, int64.

    Two values lie outside 0 ... bins - 1: `bins` under "left" (confidence 1.0), and -1 under "published-adaptive" (a
    confidence that is not above the lowest edge: it falls into no bin).
    """
    confidence, edges = confidence.contiguous(), edges.to(confidence.device)
    if binning == "left":
        return torch.bucketize(confidence, edges[1:].contiguous(), right=True)
    if binning == "published-adaptive":
        return torch.bucketize(confidence, edges) - 1
    # Only the inner edges decide, so that 0 and a confidence an ulp above 1 stay in the first and the last bin.
    return torch.bucketize(confidence, edges[1:-1].contiguous())


def right_index(values: Tensor, bins: int) -> Tensor:
    """`bin_index` for the equal-width "right" bins, int32, and much faster where one product can replace a search.

    Rounding is monotone, so ceil(value * bins) - 1 is right for *every* value once it is at each edge and just above.
    """
    if _product_finds_bins(bins, values.dtype):
        return (values * bins).ceil_().to(torch.int32).sub_(1).clamp_(min=0, max=bins - 1)
    edges = equal_width_edges(bins, dtype=values.dtype, device=values.device)
    return torch.bucketize(values.contiguous(), edges[1:-1].contiguous(), out_int32=True)


@cache
def _product_finds_bins(bins: int, dtype: torch.dtype) -> bool:
    inner = equal_width_edges(bins, dtype=dtype)[1:-1]
    above = torch.nextafter(inner, torch.ones((), dtype=dtype))
    number = torch.arange(1, bins, dtype=dtype)
    return bool(((inner * bins).ceil() == number).all() and ((above * bins).ceil() == number + 1).all())


def ordered(confidence: Tensor) -> Tensor:
    """The confidences in ascending order, on the CPU."""
    return torch.from_numpy(np.sort(confidence.cpu().numpy()))


def ordered_pairs(values: Tensor, is_correct: Tensor) -> tuple[Tensor, Tensor]:
    """Both vectors, on the CPU, in ascending order of values in [0, 2); among equals the wrong ones come first.

    The bits of a float in [0, 2) grow with its value and leave the top one free, so `is_correct` rides along as the
    lowest bit of an integer key: one vectorised sort of integers instead of an argsort and two gathers.
    """
    wide = values.dtype == torch.float64
    bits = values.cpu().contiguous().view(torch.int64 if wide else torch.int32)
    key = torch.from_numpy(np.sort(((bits << 1) | is_correct.cpu()).numpy()))
    return (key >> 1).view(values.dtype), (key & 1).bool()


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


def sums_of_ordered(confidence: Tensor, is_correct: Tensor, *, bins: int = 15, published: bool = False) -> BinSums:
    """The equal-mass sums of vectors that `ordered_pairs` has sorted; `published` loses the least confident sample."""
    edges = equal_mass_edges(confidence, bins)
    cuts = torch.searchsorted(confidence, edges, right=True).tolist()
    cuts[0], cuts[-1] = (cuts[0] if published else 0), confidence.numel()
    pieces = list(pairwise(cuts))
    return BinSums(
        torch.tensor([end - start for start, end in pieces], dtype=torch.float64),
        torch.stack([confidence[start:end].sum(dtype=torch.float64) for start, end in pieces]),
        torch.stack([is_correct[start:end].sum() for start, end in pieces]).double(),
        confidence.numel(),
    )


def bin_sums(confidence: Tensor, is_correct: Tensor, *, bins: int = 15, binning: str = "right") -> BinSums:
    """The sums of (confidence, is_correct) samples in the bins of a convention.

    Args:
        confidence: (N,) floating point in [0, 1].
        is_correct: (N,) bool.
        bins: how many bins.
        binning: one of `BINNINGS`.
    """
    if binning.endswith("adaptive"):
        one_of("binning", binning, BINNINGS)
        published = binning == "published-adaptive"
        return sums_of_ordered(*ordered_pairs(confidence, is_correct), bins=bins, published=published)
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


def rows_at_once(tensor: Tensor) -> int:
    """How many rows of an (N, K) matrix to work on at a time, so that temporaries stay in the cache (or fill a GPU)."""
    budget = 2**19 if tensor.device.type == "cpu" else 2**26
    return max(64, budget // tensor.shape[1])


def class_sums(probs: Tensor, labels: Tensor, *, bins: int = 15) -> tuple[Tensor, Tensor]:
    """The probability given to a class, summed, and how often it was the label, by class and bin: (K, bins) float64.

    Every entry of `probs` is put into one of K x bins cells and one weighted count adds them up; the labels touch only
    one entry a row. A loop over classes would read the matrix K times.
    """
    # DEVIATES: a label of probability 0 is in the first bin, not in none -> docs/deviations.md#classwise-zero
    classes = probs.shape[1]
    first_cell = torch.arange(classes, dtype=torch.int32, device=probs.device) * bins
    given = torch.zeros(classes * bins, dtype=torch.float64, device=probs.device)
    step = rows_at_once(probs)
    for start in range(0, len(probs), step):
        part = probs[start : start + step].contiguous()
        cell = right_index(part, bins).add_(first_cell)
        given += torch.bincount(cell.view(-1), weights=part.double().view(-1), minlength=classes * bins)
    p_true = probs.gather(1, labels[:, None])[:, 0]
    hit = torch.bincount(labels * bins + right_index(p_true, bins), minlength=classes * bins).double()
    return given.view(classes, bins), hit.view(classes, bins)
