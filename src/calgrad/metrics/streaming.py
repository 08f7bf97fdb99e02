"""The metrics as torchmetrics modules, for training loops, `MetricCollection`, Lightning and several processes.

A module holds sums and does no arithmetic of its own: `update` adds a batch to them, `compute` hands them to the
function of the same name. The sums are float64 and the counts int64, of a size that does not depend on the number of
samples, and two processes merge by addition. So the value is that of the function on all samples at once, however they
were split.

`update` looks at shapes and dtypes only and never waits for the device. What a sample's values tell is counted instead:
a NaN, or a label that is out of range, is kept out of the sums and makes `compute` raise. Nothing is lost in silence.

The states keep their dtype when the model around them is cast (`model.half()`, Lightning's "bf16-true"). Apple's MPS
has no float64: there the states stay on the CPU, and each batch is brought to them.

Example:
    >>> import torch
    >>> from calgrad.metrics.streaming import Accuracy, CalibrationError
    >>> error, accuracy = CalibrationError(inputs="logits"), Accuracy(inputs="logits")
    >>> for _ in range(3):
    ...     logits, labels = torch.randn(100, 10), torch.randint(10, (100,))
    ...     error.update(logits, labels); accuracy.update(logits, labels)
    >>> 0 < float(error.compute()) < 1
    True
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from calgrad.checks import InputError, one_of, positive_int
from calgrad.metrics import sketch
from calgrad.metrics.binning import NORMS, BinSums, bin_index, equal_width_edges, error_of_sums, right_index
from calgrad.metrics.calibration import error_of_class_sums
from calgrad.metrics.curve import ReliabilityCurve, curve_of_sums
from calgrad.metrics.proper import brier_rows
from calgrad.metrics.streaming_base import Streaming


class Accuracy(Streaming):
    """The fraction of samples whose most probable class is the label; `calgrad.metrics.accuracy`."""

    higher_is_better = True
    correct: Tensor

    def __init__(self, *, inputs: str, ignore_index: int | None = None, **options: Any) -> None:
        super().__init__(inputs=inputs, ignore_index=ignore_index, **options)
        self._sum("correct", dtype=torch.int64)

    def _add(self, values: Tensor, labels: Tensor, counts: Tensor) -> None:
        # From probabilities, as the function does: two logits can differ where their probabilities round to the same.
        self.correct = self.correct + ((self._probs(values).argmax(dim=1) == labels) * counts).sum()

    def _value(self) -> Tensor:
        return self._scalar(int(self.correct) / int(self.n))


class NegativeLogLikelihood(Streaming):
    """The mean of -log p_true in nats; `calgrad.metrics.nll`. Infinite if `probs` gave a label probability zero."""

    total: Tensor

    def __init__(self, *, inputs: str, ignore_index: int | None = None, **options: Any) -> None:
        super().__init__(inputs=inputs, ignore_index=ignore_index, **options)
        self._sum("total", dtype=torch.float64)

    def _add(self, values: Tensor, labels: Tensor, counts: Tensor) -> None:
        if self.inputs == "logits":
            rows = cross_entropy(values, labels, reduction="none")
        else:
            rows = -values.gather(1, labels[:, None])[:, 0].log()
        self.total = self.total + torch.where(counts > 0, rows, 0).sum(dtype=torch.float64)

    def _value(self) -> Tensor:
        return self._scalar(float(self.total) / int(self.n))


class BrierScore(Streaming):
    """The mean squared distance of the probabilities from the one-hot label, 0 to 2; `calgrad.metrics.brier`."""

    total: Tensor

    def __init__(self, *, inputs: str, ignore_index: int | None = None, **options: Any) -> None:
        super().__init__(inputs=inputs, ignore_index=ignore_index, **options)
        self._sum("total", dtype=torch.float64)

    def _add(self, values: Tensor, labels: Tensor, counts: Tensor) -> None:
        self.total = self.total + (brier_rows(self._probs(values), labels) * counts).sum(dtype=torch.float64)

    def _value(self) -> Tensor:
        return self._scalar(float(self.total) / int(self.n))


class _Binned(Streaming):
    """Sums of the predicted class's confidence and correctness in cells."""

    count: Tensor
    confidence: Tensor
    correct: Tensor

    def _cells(self, cells: int) -> None:
        self._sum("count", cells, dtype=torch.int64)
        self._sum("confidence", cells, dtype=torch.float64)
        self._sum("correct", cells, dtype=torch.int64)

    @abstractmethod
    def _index(self, confidence: Tensor) -> Tensor:
        """The cell of each confidence."""

    def _add(self, values: Tensor, labels: Tensor, counts: Tensor) -> None:
        confidence, prediction = self._probs(values).max(dim=1)
        index = self._index(confidence).long()
        self.count = self.count.scatter_add(0, index, counts)
        self.confidence = self.confidence.scatter_add(0, index, confidence.double() * counts)
        self.correct = self.correct.scatter_add(0, index, (prediction == labels) * counts)


class _EqualWidth(_Binned):
    def __init__(self, *, inputs: str, bins: int, binning: str, ignore_index: int | None, **options: Any) -> None:
        super().__init__(inputs=inputs, ignore_index=ignore_index, **options)
        positive_int("bins", bins)
        one_of("binning", binning, ("right", "left"))
        self.bins, self.binning = bins, binning
        self._cells(bins + (binning == "left"))

    def _index(self, confidence: Tensor) -> Tensor:
        if self.binning == "right":
            return right_index(confidence, self.bins)
        edges = equal_width_edges(self.bins, dtype=confidence.dtype, device=confidence.device)
        return bin_index(confidence, edges, binning="left")

    def sums(self) -> BinSums:
        """What the bins hold, as `calgrad.metrics.binning` takes it."""
        return BinSums(self.count.double(), self.confidence, self.correct.double(), int(self.n))


class CalibrationError(_EqualWidth):
    """The expected calibration error in equal-width bins; `calgrad.metrics.ece`.

    Args:
        inputs: "logits" or "probs".
        bins: How many bins.
        norm: "l1" (ECE), "l2" or "max".
        binning: "right" (the default of the functions) or "left" (torchmetrics').
        ignore_index: A label that marks samples to leave out.
        **options: For `torchmetrics.Metric`.
    """

    def __init__(
        self,
        *,
        inputs: str,
        bins: int = 15,
        norm: str = "l1",
        binning: str = "right",
        ignore_index: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(inputs=inputs, bins=bins, binning=binning, ignore_index=ignore_index, **options)
        one_of("norm", norm, NORMS)
        self.norm = norm

    def _value(self) -> Tensor:
        return self._scalar(error_of_sums(self.sums(), norm=self.norm))


class ReliabilityDiagram(_EqualWidth):
    """The data of a reliability diagram: `edges`, and `count`, `confidence` and `accuracy` of each bin.

    Confidence and accuracy are means, NaN in an empty bin.

    Args:
        inputs: "logits" or "probs".
        bins: How many bins.
        ignore_index: A label that marks samples to leave out.
        **options: For `torchmetrics.Metric`.
    """

    higher_is_better = None

    def __init__(self, *, inputs: str, bins: int = 15, ignore_index: int | None = None, **options: Any) -> None:
        super().__init__(inputs=inputs, bins=bins, binning="right", ignore_index=ignore_index, **options)

    def curve(self, *, level: float = 0.95) -> ReliabilityCurve:
        """The same with an interval on every bin, as `calgrad.metrics.reliability` returns and pictures take it.

        Of the samples that this process has seen.
        """
        return curve_of_sums(self.sums(), equal_width_edges(self.bins).numpy(), level=level)

    def _value(self) -> dict[str, Tensor]:
        return {
            "edges": equal_width_edges(self.bins, device=self.device),
            "count": self.count,
            "confidence": self.confidence / self.count,
            "accuracy": self.correct.double() / self.count,
        }


class AdaptiveCalibrationError(_Binned):
    """The calibration error in bins of equal mass; `calgrad.metrics.adaptive_ece` within `error_bound()`.

    The exact value needs every confidence. This keeps a fine histogram of them (1.3 MB at the default resolution) and
    knows how far off it can be: see `calgrad.metrics.sketch`.

    Args:
        inputs: "logits" or "probs".
        bins: How many bins.
        resolution: 2**resolution cells for each halving of the distance from 1.
        ignore_index: A label that marks samples to leave out.
        **options: For `torchmetrics.Metric`.
    """

    wide: Tensor

    def __init__(
        self,
        *,
        inputs: str,
        bins: int = 15,
        resolution: int = sketch.RESOLUTION,
        ignore_index: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(inputs=inputs, ignore_index=ignore_index, **options)
        positive_int("bins", bins)
        if not 1 <= resolution <= 16:
            raise InputError(f"`resolution` must lie in 1 ... 16, got {resolution!r}")
        self.bins, self.resolution = bins, resolution
        self._cells(sketch.cells(resolution))
        self._sum("wide", dtype=torch.int64)

    def _index(self, confidence: Tensor) -> Tensor:
        self.wide = self.wide + (confidence.numel() if confidence.dtype == torch.float64 else 0)
        return sketch.cell_index(confidence, self.resolution)

    def error_bound(self) -> float:
        """The largest possible |compute() - adaptive_ece| for the samples of this process so far."""
        return self._sums()[1]

    def _sums(self) -> tuple[BinSums, float]:
        dtype = torch.float64 if int(self.wide) else torch.float32
        return sketch.equal_mass_sums(self.count, self.confidence, self.correct, bins=self.bins, dtype=dtype)

    def _value(self) -> Tensor:
        return self._scalar(error_of_sums(self._sums()[0]))


class ClasswiseCalibrationError(Streaming):
    """The calibration error of each class's probability over all samples, averaged; `calgrad.metrics.classwise_ece`.

    Args:
        classes: K; the state is K x bins.
        inputs: "logits" or "probs".
        bins: How many bins.
        average: "classes" or "prevalence".
        ignore_index: A label that marks samples to leave out.
        **options: For `torchmetrics.Metric`.
    """

    given: Tensor
    hit: Tensor

    def __init__(
        self,
        classes: int,
        *,
        inputs: str,
        bins: int = 15,
        average: str = "classes",
        ignore_index: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(inputs=inputs, ignore_index=ignore_index, **options)
        positive_int("classes", classes)
        positive_int("bins", bins)
        one_of("average", average, ("classes", "prevalence"))
        self.classes, self.bins, self.average = classes, bins, average
        self._sum("given", classes * bins, dtype=torch.float64)
        self._sum("hit", classes * bins, dtype=torch.int64)

    def _add(self, values: Tensor, labels: Tensor, counts: Tensor) -> None:
        if values.shape[1] != self.classes:
            raise InputError(f"`{self.inputs}` must have {self.classes} classes, got shape {tuple(values.shape)}")
        probs = self._probs(values)
        first = torch.arange(self.classes, device=probs.device) * self.bins
        cell = right_index(probs, self.bins) + first
        p_true = probs.gather(1, labels[:, None])[:, 0]
        own = right_index(p_true, self.bins) + labels * self.bins
        self.given = self.given.scatter_add(0, cell.view(-1), (probs.double() * counts[:, None]).view(-1))
        self.hit = self.hit.scatter_add(0, own, counts)

    def _value(self) -> Tensor:
        given, hit = (sums.view(self.classes, self.bins) for sums in (self.given, self.hit.double()))
        return self._scalar(error_of_class_sums(given, hit, total=int(self.n), average=self.average))
