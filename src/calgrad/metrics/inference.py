"""What chance alone would show: the noise floor of a calibration error, and the test of "this model is calibrated".

If the model is calibrated, a sample with confidence f is right with probability f, so labels can be drawn again from
the confidences themselves. The number of right answers in a bin is then a sum of Bernoulli variables with different f
(Poisson binomial). Closed form: the bin's sum is nearly normal with variance V = sum f (1 - f), so that the mean of its
absolute value is sqrt(2 V / pi), and the floor is the sum over bins of that, over n. It needs no draw, and is a few
percent off where a bin expects fewer than a handful of errors. Monte Carlo: each bin is split into 16 narrow cells, and
the right answers of a cell are drawn as one binomial at its mean confidence. Within a cell of width 1/240 the f differ
by so little that the binomial's variance is too large by far less than one percent (0.02 % on real logits); and it
costs the same for 10 million samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from calgrad.checks import (
    ArrayLike,
    InputError,
    confidence_vector,
    logit_matrix,
    one_of,
    positive_int,
    prob_matrix,
)
from calgrad.metrics.binning import NORMS, BinSums, bin_edges, bin_index, error_of_sums, right_index
from calgrad.metrics.rows import checked_top_label

CELLS_PER_BIN = 16


@dataclass(frozen=True)
class Cells:
    """The bins, each split into CELLS_PER_BIN narrow cells: (bins, cells) float64 arrays that merge by addition."""

    count: np.ndarray
    confidence: np.ndarray
    correct: np.ndarray

    def __add__(self, other: Cells) -> Cells:
        """The cells of both sets of samples."""
        return Cells(self.count + other.count, self.confidence + other.confidence, self.correct + other.correct)

    @property
    def total(self) -> int:
        """How many samples the cells hold."""
        return int(self.count.sum())

    @property
    def mean(self) -> np.ndarray:
        """The mean confidence of each cell, 0 where it is empty."""
        return np.clip(self.confidence / np.maximum(self.count, 1), 0, 1)

    @property
    def bins(self) -> BinSums:
        """The sums of the bins that the cells make up."""
        count, confidence, correct = (
            torch.from_numpy(cells.sum(axis=1)) for cells in (self.count, self.confidence, self.correct)
        )
        return BinSums(count, confidence, correct, self.total)


def cells_of(confidence: Tensor, is_correct: Tensor, *, bins: int = 15, binning: str = "right") -> Cells:
    """The cells of (confidence, is_correct) samples, in equal-width ("right") or equal-mass ("adaptive") bins."""
    one_of("binning", binning, ("right", "adaptive"))
    positive_int("bins", bins)
    if binning == "right":
        index = right_index(confidence, bins * CELLS_PER_BIN)  # j / bins is also an edge of the finer bins, exactly
    else:
        edges = bin_edges(confidence, bins=bins, binning=binning).double()
        part = torch.arange(CELLS_PER_BIN, dtype=torch.float64) / CELLS_PER_BIN
        finer = torch.cat([(edges[:-1, None] + part * edges.diff()[:, None]).view(-1), edges[-1:]])
        index = bin_index(confidence, finer.to(confidence.dtype))
    cells = bins * CELLS_PER_BIN
    pairs = torch.bincount(index * 2 + is_correct, minlength=2 * cells).view(cells, 2)
    summed = torch.bincount(index, weights=confidence.double(), minlength=cells)
    count, correct = pairs.sum(dim=1).double(), pairs[:, 1].double()
    return Cells(*(column.cpu().view(bins, CELLS_PER_BIN).numpy() for column in (count, summed, correct)))


@dataclass(frozen=True)
class NoiseFloor:
    """The calibration error that a perfectly calibrated model with the same confidences would show.

    Attributes:
        mean: its expectation.
        sd: its standard deviation from one test set to the next.
        high: its 95 % point; an error below it is no evidence of miscalibration.
        method: "monte-carlo" or "closed-form".
        draws: how many label sets were drawn (0 for the closed form).
    """

    mean: float
    sd: float
    high: float
    method: str
    draws: int


@dataclass(frozen=True)
class CalibrationTest:
    """The test of "the confidences are calibrated": the error seen, the floor, and the chance of so large an error."""

    value: float
    p_value: float
    floor: NoiseFloor


def noise_floor(
    probs: ArrayLike | None = None,
    *,
    logits: ArrayLike | None = None,
    confidence: ArrayLike | None = None,
    bins: int = 15,
    norm: str = "l1",
    binning: str = "right",
    method: str = "monte-carlo",
    draws: int = 1000,
    seed: int = 0,
) -> NoiseFloor:
    """The ECE that a perfectly calibrated model with these confidences would show. Labels are not needed.

    Args:
        probs: (N, K) probabilities; or pass one of the next two.
        logits: (N, K) logits.
        confidence: (N,) confidences.
        bins: how many bins.
        norm: "l1", "l2" or "max" (the closed form knows "l1" only).
        binning: "right" or "adaptive".
        method: "monte-carlo" or "closed-form"; see the top of this module.
        draws: how many label sets to draw.
        seed: of the draws.

    Example:
        >>> import torch
        >>> from calgrad.metrics import noise_floor
        >>> floor = noise_floor(confidence=torch.full((10_000,), 0.75), method="closed-form")
        >>> round(floor.mean, 6), round(floor.sd, 6)  # sqrt(2 / pi) * sqrt(0.75 * 0.25 / 10_000)
        (0.003455, 0.00261)
    """
    one_of("method", method, ("monte-carlo", "closed-form"))
    values = _confidence(probs, logits, confidence)
    cells = cells_of(values, torch.zeros_like(values, dtype=torch.bool), bins=bins, binning=binning)
    if method == "closed-form":
        return closed_form_floor(cells, norm=norm)
    return floor_of_errors(null_errors(cells, norm=norm, draws=draws, seed=seed))


def calibration_test(
    probs: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    logits: ArrayLike | None = None,
    bins: int = 15,
    norm: str = "l1",
    binning: str = "right",
    draws: int = 1000,
    seed: int = 0,
) -> CalibrationTest:
    """Test "the model is calibrated": how often would a calibrated model show an error at least as large?

    The p-value is (1 + draws that reach the error seen) / (1 + draws), so it is never below 1 / (1 + draws). A large
    one says that these samples and bins show no miscalibration, not that there is none.
    """
    confidence, is_correct = checked_top_label(probs, labels, logits)
    return judge_cells(cells_of(confidence, is_correct, bins=bins, binning=binning), norm=norm, draws=draws, seed=seed)


def judge_cells(cells: Cells, *, norm: str = "l1", draws: int = 1000, seed: int = 0) -> CalibrationTest:
    """`calibration_test` of samples already in cells."""
    value = error_of_sums(cells.bins, norm=norm)
    null = null_errors(cells, norm=norm, draws=draws, seed=seed)
    # The same cells give the same sums but for rounding; a tie must count as reached.
    reached = int((null >= value - 1e-12).sum())
    return CalibrationTest(value, (1 + reached) / (1 + draws), floor_of_errors(null))


def null_errors(cells: Cells, *, norm: str = "l1", draws: int = 1000, seed: int = 0) -> np.ndarray:
    """`draws` calibration errors of a calibrated model with these confidences."""
    one_of("norm", norm, NORMS)
    positive_int("draws", draws)
    generator = np.random.default_rng(seed)
    bins, parts = np.nonzero(cells.count)
    right = generator.binomial(cells.count[bins, parts].astype(np.int64), cells.mean[bins, parts], (draws, len(bins)))
    difference = add_up(cells.confidence[bins, parts] - right, bins, len(cells.count))
    return errors_of_differences(difference, cells.count.sum(axis=1), norm=norm)


def add_up(values: np.ndarray, bins: np.ndarray, size: int) -> np.ndarray:
    """The sums over the columns of `values` (draws, cells) that belong to the same bin: (draws, size)."""
    member = np.zeros((values.shape[1], size))
    member[np.arange(values.shape[1]), bins] = 1
    return values @ member


def errors_of_differences(difference: np.ndarray, count: np.ndarray, *, norm: str = "l1") -> np.ndarray:
    """The calibration error of each row of (draws, bins) differences, summed confidence minus summed correctness."""
    size, total = np.abs(difference), count.sum(axis=-1)
    if norm == "l1":
        return size.sum(axis=-1) / total
    if norm == "l2":
        return np.sqrt((size**2 / np.maximum(count, 1)).sum(axis=-1) / total)
    return (size / np.maximum(count, 1)).max(axis=-1)


def floor_of_errors(errors: np.ndarray) -> NoiseFloor:
    """The noise floor that drawn errors show."""
    high = float(np.quantile(errors, 0.95))
    return NoiseFloor(float(errors.mean()), float(errors.std()), high, "monte-carlo", len(errors))


def closed_form_floor(cells: Cells, *, norm: str = "l1") -> NoiseFloor:
    """The floor of the l1 error from the half-normal moments of the bins; its 95 % point by Cornish and Fisher."""
    if norm != "l1":
        raise InputError(f'the closed form of the noise floor is for norm="l1", got {norm!r}; use method="monte-carlo"')
    variance = (cells.count * cells.mean * (1 - cells.mean)).sum(axis=1)
    mean = np.sqrt(2 / np.pi * variance).sum()
    sd = np.sqrt(((1 - 2 / np.pi) * variance).sum())
    third = (np.sqrt(2 / np.pi) * (4 / np.pi - 1) * variance**1.5).sum()  # third cumulant of |normal|
    skew = third / sd**3 if sd > 0 else 0.0
    high = mean + sd * (1.6449 + (1.6449**2 - 1) / 6 * skew)
    return NoiseFloor(float(mean / cells.total), float(sd / cells.total), float(high / cells.total), "closed-form", 0)


def _confidence(probs: ArrayLike | None, logits: ArrayLike | None, confidence: ArrayLike | None) -> Tensor:
    if sum(given is not None for given in (probs, logits, confidence)) != 1:
        raise InputError("pass exactly one of `probs`, `logits=` and `confidence=`")
    if confidence is not None:
        return confidence_vector(confidence)
    return (prob_matrix(probs) if logits is None else logit_matrix(logits).softmax(dim=1)).amax(dim=1)
