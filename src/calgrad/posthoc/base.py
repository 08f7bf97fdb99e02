"""What every calibrator is: a map from logits to better logits, fitted on samples the model did not learn from.

A method writes two things. `_fit` turns (logits, labels) into named float64 tensors, and `_calibrate` turns logits and
those tensors into calibrated logits, whose softmax is the answer. Everything else happens here, once: input checks, the
stable normalisation, dtypes and devices, refusing to work unfitted, and the rule that no calibrator returns a worse
validation NLL than doing nothing without saying so.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from calgrad.checks import ArrayLike, CalgradError, InputError, logit_matrix, logits_and_labels

CHUNK = 2**18
"""Elements of logits handled at a time where many passes are made: float64 temporaries of this size stay in cache."""

Parameters = Mapping[str, Tensor]


class CalibrationWarning(UserWarning):
    """A calibrator was fitted, but its answer needs a second look: the report's note says why."""


class NotFittedError(CalgradError, RuntimeError):
    """A calibrator was used before `fit`."""


@dataclass(frozen=True)
class FitReport:
    """What a fit did to the samples it was fitted on.

    Attributes:
        nll_before: mean negative log-likelihood of softmax(logits), in nats.
        nll_after: the same after calibration.
        converged: whether the optimum asked for was reached (False too where it lies at infinity).
        note: what a user should know; empty when there is nothing to say.
    """

    nll_before: float
    nll_after: float
    converged: bool = True
    note: str = ""

    @property
    def is_worse(self) -> bool:
        """Whether doing nothing has the lower NLL, beyond rounding."""
        return not self.nll_after <= self.nll_before + 1e-9 * (1 + abs(self.nll_before))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Fitted:
    """What a method's `_fit` hands back; `nll` is (before, after) where the method knows them already."""

    parameters: dict[str, Tensor]
    converged: bool = True
    note: str = ""
    nll: tuple[float, float] | None = None


class Calibrator(ABC):
    """Base class: `fit(logits, labels)`, then call it on logits to get probs.

    Example:
        >>> import torch, calgrad
        >>> logits, labels = 5 * torch.randn(1000, 3), torch.randint(3, (1000,))
        >>> calibrator = calgrad.make_calibrator("matrix").fit(logits, labels)
        >>> calibrator(logits).shape
        torch.Size([1000, 3])
        >>> calibrator.report.nll_after < calibrator.report.nll_before
        True
    """

    method: ClassVar[str]
    """The name in `CALIBRATORS`, and in saved files."""

    shapes: ClassVar[dict[str, str]]
    """The names of the fitted tensors and their shapes, as in {"weight": "KK", "bias": "K", "temperature": ""}."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}
        self.classes: int | None = None
        self.parameters: dict[str, Tensor] = {}
        self._report: FitReport | None = None

    # ------------------------------------------------------------------------------------------------ what a method is

    @abstractmethod
    def _fit(self, logits: Tensor, labels: Tensor) -> Fitted:
        """Fit on checked tensors of one device: logits (N, K) float32 or float64, labels (N,) int64."""

    @abstractmethod
    def _calibrate(self, logits: Tensor, parameters: Parameters) -> Tensor:
        """Calibrated logits: any (N, K) whose softmax is the calibrated distribution. Pure, without checks."""

    # ---------------------------------------------------------------------------------------------------- what users do

    def fit(self, logits: ArrayLike, labels: ArrayLike) -> Self:
        """Fit on held-out samples; parameters are found in float64 whatever the dtype of the logits.

        Args:
            logits: (N, K) before softmax, torch or NumPy, on any device.
            labels: (N,) class indices.

        Returns:
            The calibrator itself, with `.report` filled.

        Warns:
            CalibrationWarning: the NLL got worse, or the optimum was not reached or lies at infinity.
        """
        checked, labels = logits_and_labels(logits, labels)
        if checked.device.type == "mps":  # has no float64
            checked, labels = checked.cpu(), labels.cpu()
        with torch.no_grad():
            fitted = self._fit(checked, labels)
            self.classes = checked.shape[1]
            self.parameters = {name: value.detach().double().cpu() for name, value in fitted.parameters.items()}
            before, after = fitted.nll or (
                mean_nll(torch.Tensor.double, checked, labels),
                mean_nll(lambda rows: self._calibrate(rows.double(), self._on(rows.double())), checked, labels),
            )
        report = FitReport(before, after, fitted.converged, fitted.note)
        if report.is_worse:
            worse = f"validation NLL rose from {before:.6g} to {after:.6g}: by NLL, doing nothing is better"
            report = FitReport(before, after, fitted.converged, "; ".join(filter(None, [fitted.note, worse])))
        self._report = report
        if report.is_worse or not report.converged:
            warnings.warn(f"{self.method}: {report.note}", CalibrationWarning, stacklevel=2)
        return self

    def log_probs(self, logits: ArrayLike) -> Tensor:
        """(N, K) calibrated log-probabilities, without a detour through probabilities that round to 0 or 1."""
        checked = logit_matrix(logits)
        self.check_classes(checked.shape[1])
        work = checked.cpu() if checked.device.type == "mps" else checked
        with torch.no_grad():
            calibrated = self._calibrate(work, self._on(work)).log_softmax(dim=1)
        return calibrated.to(checked.device, checked.dtype)

    def __call__(self, logits: ArrayLike) -> Tensor:
        """(N, K) calibrated probs, on the device and in the dtype of `logits` (half precision becomes float32)."""
        return self.log_probs(logits).exp()

    @property
    def report(self) -> FitReport:
        """What the fit did."""
        if self._report is None:
            raise self._unfitted()
        return self._report

    @property
    def is_fitted(self) -> bool:
        """Whether `fit` has run (or a fitted calibrator was loaded)."""
        return self.classes is not None

    def to_dict(self) -> dict[str, Any]:
        """Everything that rebuilds the fitted calibrator, as plain JSON values."""
        from calgrad.posthoc.storage import to_dict

        return to_dict(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write a small JSON file that `load_calibrator`, or any other language, can read."""
        from calgrad.posthoc.storage import save

        save(self, path)

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        state = f"fitted on {self.classes} classes" if self.is_fitted else "not fitted"
        return f"{type(self).__name__}({options})  # {state}"

    # ---------------------------------------------------------------------------------------------------------- inside

    def check_classes(self, classes: int) -> None:
        """Refuse to work unfitted, or on another number of classes than at `fit`."""
        if self.classes is None:
            raise self._unfitted()
        if classes != self.classes:
            raise InputError(
                f"this {self.method!r} calibrator was fitted on {self.classes} classes, got logits of {classes}; "
                "fit another one for them"
            )

    def _unfitted(self) -> NotFittedError:
        return NotFittedError(f"this {self.method!r} calibrator is not fitted yet: call fit(logits, labels) first")

    def _on(self, logits: Tensor) -> dict[str, Tensor]:
        return {name: value.to(logits.device, logits.dtype) for name, value in self.parameters.items()}


def mean_nll(calibrate: Callable[[Tensor], Tensor], logits: Tensor, labels: Tensor) -> float:
    """Mean NLL of softmax(calibrate(logits)) in float64, a block of rows at a time."""
    total = torch.zeros((), dtype=torch.float64, device=logits.device)
    rows = max(1, CHUNK // logits.shape[1])
    for block, truth in zip(logits.split(rows), labels.split(rows)):
        total += torch.nn.functional.cross_entropy(calibrate(block).double(), truth, reduction="sum")
    return float(total) / len(labels)
