"""What fixes it? Post-hoc methods, fitted on samples that do not judge them, with paired tests.

Where validation predictions exist, each method is fitted on them and judged on the test set. Where one file is all there
is, it is cross-fitted: each fifth is repaired by a method fitted on the other four, so that no sample judges a fit it
took part in. Every method is tested against doing nothing on the same samples. Recommended is the simplest method whose
NLL no test can tell from the lowest one: a more flexible method has to earn its place.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calgrad.checks import CalgradError
from calgrad.metrics import Evaluation, compare_models, evaluate
from calgrad.metrics.comparison import Comparison
from calgrad.metrics.proper import nll_rows
from calgrad.posthoc import make_calibrator
from calgrad.predictions import Predictions
from calgrad.report.pooled import holm
from calgrad.report.sources import Model

METHODS = (
    "identity", "link", "temperature", "link-temperature", "ensemble-temperature", "svs", "beta", "sms", "isotonic", "histogram",
)  # fmt: skip
"""What is compared, the simplest first."""

MANY_CLASSES = 200
TOO_MANY_PARAMETERS = ("sms", "beta", "isotonic", "histogram")
"""Left out beyond MANY_CLASSES: their parameters outgrow the samples, and the reader's patience."""

FOLDS = 5
LEVEL = 0.05
MOST_ROWS = 20_000
MOST_NUMBERS = 2_000_000


@dataclass(frozen=True)
class Repair:
    """One method: how it does on held-out samples, and against doing nothing."""

    method: str
    detail: str
    note: str
    log_probs: Tensor
    evaluation: Evaluation
    against: Comparison | None
    p_nll: float | None


@dataclass(frozen=True)
class Repairs:
    """All methods on one model, the simplest first; `best` is the recommended one."""

    rows: list[Repair]
    best: Repair
    labels: Tensor
    how: str
    skipped: list[str]

    @property
    def identity(self) -> Repair:
        """Doing nothing."""
        return next(row for row in self.rows if row.method == "identity")


def compare_repairs(model: Model, *, methods: Sequence[str] = METHODS, seed: int = 0) -> Repairs:
    """Fit, judge and test each method on one model."""
    test = _sample(model.test, seed)
    val = None if model.val is None else _sample(model.val, seed)
    known = [m for m in methods if model.loss is not None or not m.startswith("link")]
    if model.test.classes > MANY_CLASSES:
        known = [m for m in known if m not in TOO_MANY_PARAMETERS]
    known = ["identity", *(m for m in known if m != "identity")]
    fitted: dict[str, tuple[Tensor, str, str]] = {}
    skipped = []
    for method in known:
        try:
            fitted[method] = _apply(method, model, val, test, seed)
        except CalgradError as error:
            skipped.append(f"{method}: {error}")
    rows = _judged(fitted, test.labels)
    return Repairs(rows, _recommended(rows, test.labels), test.labels, _how(val, test, model), skipped)


def code_for(method: str, loss: tuple[str, dict[str, Any]] | None) -> str:
    """The line that applies a method."""
    options = ""
    if method.startswith("link") and loss is not None:
        options = f", loss={loss[0]!r}" + (f", loss_options={loss[1]!r}" if loss[1] else "")
    if method == "identity":
        return "probs = logits.softmax(dim=1)  # as it is"
    line = f'probs = calgrad.make_calibrator("{method}"{options}).fit(val_logits, val_labels)(logits)'
    return f"import calgrad\n\n{line}"


# -------------------------------------------------------------------------------------------------------------- fitting


def _apply(method: str, model: Model, val: Predictions | None, test: Predictions, seed: int) -> tuple[Tensor, str, str]:
    """Calibrated log-probabilities of the test samples, what was fitted in words, and the fit's note."""
    make = _maker(method, model.loss)
    if val is not None:
        calibrator = _fit(make(), val.logits, val.labels)
        return calibrator.log_probs(test.logits).double(), _detail([calibrator]), calibrator.report.note
    out = torch.empty(test.logits.shape, dtype=torch.float64)
    fold = _folds(test, seed)
    calibrators = []
    for i in range(FOLDS):
        inside = fold == i
        if inside.any() and (~inside).any():
            calibrators.append(_fit(make(), test.logits[~inside], test.labels[~inside]))
            out[inside] = calibrators[-1].log_probs(test.logits[inside]).double()
    notes = dict.fromkeys(c.report.note for c in calibrators if c.report.note)
    return out, _detail(calibrators), "; ".join(notes)


def _maker(method: str, loss: tuple[str, dict[str, Any]] | None) -> Callable[[], Any]:
    if method.startswith("link") and loss is not None:
        return lambda: make_calibrator(method, loss=loss[0], loss_options=loss[1])
    return lambda: make_calibrator(method)


def _fit(calibrator: Any, logits: Tensor, labels: Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the report's note says it, and the page shows the note
        return calibrator.fit(logits, labels)


def _folds(test: Predictions, seed: int) -> Tensor:
    """Which fifth each sample is in, spread evenly over the labels so that each fit sees every class."""
    generator = torch.Generator().manual_seed(seed)
    shuffled = torch.randperm(test.n, generator=generator)
    order = shuffled[test.labels[shuffled].argsort(stable=True)]
    fold = torch.empty(test.n, dtype=torch.int64)
    fold[order] = torch.arange(test.n) % FOLDS
    return fold


def _detail(calibrators: Sequence[Any]) -> str:
    values = [c.temperature for c in calibrators if isinstance(getattr(c, "temperature", None), float)]
    return f"T = {np.mean(values):.2f}" if values else ""


# -------------------------------------------------------------------------------------------------------------- judging


def _judged(fitted: dict[str, tuple[Tensor, str, str]], labels: Tensor) -> list[Repair]:
    identity = fitted["identity"][0]
    tests = {m: compare_models(logits=(x[0], identity), labels=labels) for m, x in fitted.items() if m != "identity"}
    adjusted = dict(zip(tests, holm([test.nll.p_value for test in tests.values()]), strict=True))
    return [
        Repair(m, detail, note, x, evaluate(logits=x, labels=labels), tests.get(m), adjusted.get(m))
        for m, (x, detail, note) in fitted.items()
    ]


def _recommended(rows: list[Repair], labels: Tensor) -> Repair:
    """The simplest method that is not worse in NLL than the lowest, by a paired test with Holm's adjustment."""
    lowest = min(rows, key=lambda row: row.evaluation.nll)
    own = nll_rows(None, labels, logits=lowest.log_probs).double()
    others = [row for row in rows if row is not lowest]
    p_values = [_paired_p(nll_rows(None, labels, logits=row.log_probs).double() - own) for row in others]
    equal = {row.method for row, p in zip(others, holm(p_values), strict=True) if p >= LEVEL}
    return next(row for row in rows if row is lowest or row.method in equal)


def _paired_p(difference: Tensor) -> float:
    """Two-sided p-value of "the mean difference is zero", by its normal limit."""
    error = float(difference.std(correction=0)) / math.sqrt(max(len(difference) - 1, 1))
    mean = abs(float(difference.mean()))
    return math.erfc(mean / error / math.sqrt(2)) if error > 0 else float(mean == 0)


def _sample(predictions: Predictions, seed: int) -> Predictions:
    most = max(MOST_ROWS, MOST_NUMBERS // predictions.classes)
    if predictions.n <= most:
        return predictions
    generator = torch.Generator().manual_seed(seed)
    return predictions.select(torch.randperm(predictions.n, generator=generator)[:most].sort().values)


def _how(val: Predictions | None, test: Predictions, model: Model) -> str:
    part = f" (drawn at random from {model.test.n:,})" if test.n < model.test.n else ""
    if val is not None:
        text = f"Each method was fitted on {val.n:,} validation samples and judged on {test.n:,} test samples{part}."
    else:
        text = (
            f"There are no validation samples, so the {test.n:,} samples{part} were cross-fitted: each fifth is judged "
            "with a method fitted on the other four."
        )
    return text + " p: paired tests against doing nothing, adjusted for the number of methods (Holm)."
