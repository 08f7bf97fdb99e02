"""One pass over the data: everything that merges by addition, in O(K x bins) numbers.

A `Tally` of one part of a data set plus the `Tally` of the rest is the `Tally` of the whole, so files larger than
memory, several processes and several machines all work the same way. The pass reads the (N, K) matrix once, in blocks
of rows that stay in the cache, takes one exponential and keeps two numbers a row (its doubt and whether it was right)
for those metrics that need an order. All sums are float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from calgrad.checks import ArrayLike, InputError, label_vector, logit_matrix, positive_int, prob_matrix
from calgrad.metrics.binning import BinSums, class_sums, rows_at_once
from calgrad.metrics.calibration import error_of_class_sums
from calgrad.metrics.inference import Cells, cells_of
from calgrad.metrics.proper import brier_rows
from calgrad.metrics.rows import rows_of_logits, rows_of_probs


@dataclass(frozen=True)
class Moments:
    """Sum and sum of squares of a per-sample value."""

    total: float
    squares: float
    count: int

    @classmethod
    def of(cls, rows: Tensor) -> Moments:
        """The moments of a vector."""
        values = rows.double()
        return cls(float(values.sum()), float(values.square().sum()), values.numel())

    def __add__(self, other: Moments) -> Moments:
        """The moments of both sets of samples."""
        return Moments(self.total + other.total, self.squares + other.squares, self.count + other.count)

    @property
    def mean(self) -> float:
        """The mean."""
        return self.total / self.count

    @property
    def variance(self) -> float:
        """The variance (divided by count)."""
        return max(0.0, self.squares / self.count - self.mean**2) if math.isfinite(self.squares) else math.inf


@dataclass(frozen=True)
class Tally:
    """The sums of a set of predictions; `+` merges two sets.

    Attributes:
        nll: moments of -log p_true.
        brier: moments of the squared distance to the one-hot label.
        cells: the confidence bins, each in narrow cells, with counts, summed confidence and summed correctness.
        given: (K, bins) probability given to each class, summed over the samples of each bin of it.
        hit: (K, bins) how often the class was the label there.
    """

    nll: Moments
    brier: Moments
    cells: Cells
    given: Tensor
    hit: Tensor

    def __add__(self, other: Tally) -> Tally:
        """The tally of both sets of samples, which must have the same classes and bins."""
        if self.given.shape != other.given.shape:
            raise InputError(
                f"only tallies of the same classes and bins add up, got {tuple(self.given.shape)} and "
                f"{tuple(other.given.shape)} (classes, bins)"
            )
        return Tally(
            self.nll + other.nll,
            self.brier + other.brier,
            self.cells + other.cells,
            self.given + other.given,
            self.hit + other.hit,
        )

    @property
    def n(self) -> int:
        """How many samples."""
        return self.nll.count

    @property
    def classes(self) -> int:
        """How many classes."""
        return self.given.shape[0]

    @property
    def bins(self) -> BinSums:
        """The sums of the confidence bins."""
        return self.cells.bins

    @property
    def correct(self) -> int:
        """How many predictions are right."""
        return int(self.cells.correct.sum())

    @property
    def confidence(self) -> float:
        """The mean confidence."""
        return float(self.cells.confidence.sum() / self.n)

    def classwise_ece(self, *, average: str = "classes") -> float:
        """See `calgrad.metrics.classwise_ece`."""
        return error_of_class_sums(self.given, self.hit, total=self.n, average=average)


def tally(
    probs: ArrayLike | None = None, labels: ArrayLike | None = None, *, logits: ArrayLike | None = None, bins: int = 15
) -> tuple[Tally, Tensor, Tensor]:
    """Check the input and go over it once: (its Tally, 1 - confidence of each sample, whether its prediction is right).

    Example:
        >>> import torch
        >>> from calgrad.metrics import tally
        >>> logits, labels = torch.zeros(4, 2), torch.tensor([0, 1, 0, 0])
        >>> first, _, _ = tally(logits=logits[:1], labels=labels[:1])
        >>> rest, _, _ = tally(logits=logits[1:], labels=labels[1:])
        >>> (first + rest).n, (first + rest).correct
        (4, 3)
    """
    positive_int("bins", bins)
    if (probs is None) == (logits is None):
        raise InputError("pass exactly one of `probs` and `logits=`: nothing here guesses which one a tensor is")
    matrix = prob_matrix(probs) if logits is None else logit_matrix(logits)
    indices = label_vector(labels, *matrix.shape).to(matrix.device)
    n, classes = matrix.shape
    confidence, doubt, nll, brier = (matrix.new_empty(n) for _ in range(4))
    is_correct = torch.empty(n, dtype=torch.bool, device=matrix.device)
    given, hit = torch.zeros(2, classes, bins, dtype=torch.float64, device=matrix.device)
    read = rows_of_probs if logits is None else rows_of_logits
    step = rows_at_once(matrix)
    for start in range(0, n, step):
        part = slice(start, start + step)
        rows = read(matrix[part], indices[part])
        confidence[part], doubt[part], is_correct[part], nll[part] = rows[1:]
        brier[part] = brier_rows(rows.probs, indices[part])
        part_given, part_hit = class_sums(rows.probs, indices[part], bins=bins)
        given += part_given
        hit += part_hit
    cells = cells_of(confidence, is_correct, bins=bins)
    return Tally(Moments.of(nll), Moments.of(brier), cells, given.cpu(), hit.cpu()), doubt, is_correct
