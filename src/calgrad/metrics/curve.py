"""The data of a reliability diagram, computed before anything is drawn, with an interval on every bin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from calgrad.checks import ArrayLike, one_of
from calgrad.metrics.binning import BinSums, bin_edges, bin_sums
from calgrad.metrics.intervals import check_level, wilson_interval
from calgrad.metrics.rows import checked_top_label


@dataclass(frozen=True)
class ReliabilityCurve:
    """Accuracy against confidence, bin by bin; NaN where a bin is empty.

    Attributes:
        edges: (bins + 1,) of the bins.
        count: (bins,) samples.
        confidence: (bins,) mean confidence.
        accuracy: (bins,) share of right predictions.
        low: (bins,) lower end of Wilson's interval of the accuracy.
        high: (bins,) upper end.
        level: the coverage of each bin's interval.
        binning: the convention.
    """

    edges: np.ndarray
    count: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray
    low: np.ndarray
    high: np.ndarray
    level: float = 0.95
    binning: str = "right"

    @property
    def gap(self) -> np.ndarray:
        """Confidence minus accuracy: above zero where the model is over-confident."""
        return self.confidence - self.accuracy

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, for JSON; an empty bin's values are None."""
        columns = ("edges", "count", "confidence", "accuracy", "low", "high")
        return {name: [None if np.isnan(x) else float(x) for x in getattr(self, name)] for name in columns} | {
            "count": [int(x) for x in self.count],
            "level": self.level,
            "binning": self.binning,
        }


def reliability(
    probs: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    logits: ArrayLike | None = None,
    bins: int = 15,
    binning: str = "right",
    level: float = 0.95,
) -> ReliabilityCurve:
    """The reliability curve of the predicted class.

    Args:
        probs: (N, K) probabilities, or pass `logits`.
        labels: (N,) class indices.
        logits: (N, K) logits instead of `probs`.
        bins: how many bins.
        binning: "right" (equal width) or "adaptive" (equal mass).
        level: the coverage of each bin's interval.

    Example:
        >>> import torch
        >>> from calgrad.metrics import reliability
        >>> curve = reliability(torch.tensor([[0.9, 0.1], [0.95, 0.05]]), torch.tensor([0, 1]), bins=2)
        >>> curve.count.tolist(), round(float(curve.accuracy[1]), 2)
        ([0, 2], 0.5)
    """
    one_of("binning", binning, ("right", "adaptive"))
    confidence, is_correct = checked_top_label(probs, labels, logits)
    edges = bin_edges(confidence, bins=bins, binning=binning)
    sums = bin_sums(confidence, is_correct, bins=bins, binning=binning)
    return curve_of_sums(sums, edges.double().cpu().numpy(), level=level, binning=binning)


def curve_of_sums(sums: BinSums, edges: np.ndarray, *, level: float = 0.95, binning: str = "right") -> ReliabilityCurve:
    """The curve of samples already in bins."""
    check_level(level)
    count, confidence, correct = (column.cpu().numpy() for column in (sums.count, sums.confidence, sums.correct))
    with np.errstate(invalid="ignore"):
        mean, accuracy = confidence / count, correct / count
    ends = np.full((2, len(count)), np.nan)
    for i in np.flatnonzero(count):
        interval = wilson_interval(int(correct[i]), int(count[i]), level=level)
        ends[:, i] = interval.low, interval.high
    return ReliabilityCurve(edges, count.astype(np.int64), mean, accuracy, ends[0], ends[1], level, binning)
