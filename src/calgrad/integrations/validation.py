"""What a trainer's callback does with validation logits: keep some, fit a map, and say honestly what it changes.

The map that is kept is fitted on all rows. What it will do to new samples is not read off those rows: each half is
calibrated by a map that was fitted on the other half, and the numbers "after" are taken from that.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from calgrad.checks import InputError, positive_int
from calgrad.metrics import Tally, error_of_sums, tally
from calgrad.metrics.inference import judge_cells
from calgrad.posthoc import CalibrationWarning, Calibrator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIT_ELEMENTS = 2**28
"""Numbers of logits kept for a fit, 1 GiB in float32: 26 million samples of ten classes, 5,000 tokens of 50,000."""


class RowSample:
    """All rows of a stream, or a uniform sample of them where they would not fit.

    Args:
        elements: how many numbers to keep at most; the rows are this over the number of classes.
        seed: of the drawing.
    """

    def __init__(self, *, elements: int = FIT_ELEMENTS, seed: int = 0) -> None:
        positive_int("elements", elements)
        self.elements, self.seed = elements, seed
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._generator = torch.Generator().manual_seed(self.seed)
        self._parts: list[tuple[Tensor, Tensor, Tensor]] = []
        self._held = 0

    def __len__(self) -> int:
        return self._held

    def add(self, logits: Tensor, labels: Tensor) -> None:
        """Add rows (N, K) and labels (N,); copied to the CPU."""
        if not len(labels):
            return
        # Each row draws a number, and those with the largest numbers stay: a uniform sample at any time.
        drawn = torch.rand(len(labels), generator=self._generator, dtype=torch.float64)
        wide = logits.detach() if logits.dtype == torch.float64 else logits.detach().float()
        self._parts.append((drawn, wide.cpu(), labels.detach().cpu()))
        self._held += len(labels)
        if self._held > 2 * self._limit():
            self._shrink()

    def rows(self) -> tuple[Tensor, Tensor]:
        """The rows and labels kept, in the order they came."""
        if not self._parts:
            raise InputError("there are no validation rows to fit on: none came, or all labels were ignored")
        self._shrink()
        _, logits, labels = self._parts[0]
        return logits, labels

    def _limit(self) -> int:
        return max(1, self.elements // self._parts[0][1].shape[1])

    def _shrink(self) -> None:
        drawn, logits, labels = (torch.cat(part) for part in zip(*self._parts))
        if len(drawn) > self._limit():
            chosen = drawn.topk(self._limit()).indices.sort().values
            drawn, logits, labels = drawn[chosen], logits[chosen], labels[chosen]
        self._parts, self._held = [(drawn, logits, labels)], len(drawn)


def numbers(found: Tally) -> dict[str, float]:
    """The measures that merge over batches, by the names under which a trainer logs them."""
    test = judge_cells(found.cells)
    accuracy = found.correct / found.n
    return {
        "accuracy": accuracy,
        "nll": found.nll.mean,
        "brier": found.brier.mean,
        "overconfidence": found.confidence - accuracy,
        "ece": error_of_sums(found.bins),
        "ece_floor": test.floor.mean,
        "ece_p_value": test.p_value,
        "classwise_ece": found.classwise_ece(),
    }


@dataclass(frozen=True)
class Repair:
    """A fitted map, and what it does to samples it was not fitted on.

    Attributes:
        calibrator: fitted on all rows.
        logits: the rows, as the model gave them.
        labels: theirs.
        log_probs: calibrated, each half by a map fitted on the other.
        bins: of the numbers and the picture.
    """

    calibrator: Calibrator
    logits: Tensor
    labels: Tensor
    log_probs: Tensor
    bins: int = 15

    def numbers(self) -> dict[str, float]:
        """The measures before, and after as `..._calibrated`."""
        before = numbers(tally(logits=self.logits, labels=self.labels, bins=self.bins)[0])
        after = numbers(tally(logits=self.log_probs, labels=self.labels, bins=self.bins)[0])
        return before | {f"{name}_calibrated": value for name, value in after.items()}

    def figure(self) -> Figure:
        """Reliability diagrams side by side."""
        from calgrad.report.reliability import diagram, draw_before_after

        views = {"as trained": self.logits, self.calibrator.method: self.log_probs}
        return draw_before_after(
            {name: diagram(logits=values, labels=self.labels, bins=self.bins) for name, values in views.items()}
        )


def repair(make: Callable[[], Calibrator], logits: Tensor, labels: Tensor, *, bins: int = 15, seed: int = 0) -> Repair:
    """Fit a map on all rows, and two on halves to judge it by.

    Args:
        make: makes an unfitted calibrator.
        logits: (N, K) validation logits.
        labels: (N,) class indices.
        bins: of the numbers and the picture.
        seed: decides the halves.
    """
    if len(labels) < 2:
        raise InputError(f"a map cannot be fitted and judged on {len(labels)} row; give it more validation samples")
    calibrator = make().fit(logits, labels)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    log_probs = torch.empty_like(logits)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)  # said once, by the fit on all rows
        for fitted_on, judged_on in _both_ways(*order.tensor_split(2)):
            other = make().fit(logits[fitted_on], labels[fitted_on])
            log_probs[judged_on] = other.log_probs(logits[judged_on])
    # A map with tables may call a class impossible: what stands for log 0 is as in `Predictions.from_probs`.
    least = torch.tensor(torch.finfo(logits.dtype).tiny).log().item()
    return Repair(calibrator, logits, labels, log_probs.nan_to_num(neginf=least), bins)


def _both_ways(a: Any, b: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    return (a, b), (b, a)
