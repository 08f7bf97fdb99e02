"""The object that `evaluate` returns."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields
from typing import Any

from calgrad.metrics import show
from calgrad.metrics.curve import ReliabilityCurve
from calgrad.metrics.decomposition import BrierParts
from calgrad.metrics.inference import NoiseFloor
from calgrad.metrics.intervals import Interval


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` found, in fractions. Printing it gives a table in percent; `to_json` gives all of it.

    Attributes:
        n: samples.
        classes: classes.
        bins: bins of the binned errors.
        accuracy: share of right predictions.
        confidence: mean confidence.
        overconfidence: mean confidence minus accuracy; below zero is under-confident.
        nll: mean negative log-likelihood, nats.
        brier: Brier score, summed over classes.
        ece: expected calibration error, l1, equal-width bins (lo, hi].
        ece_l2: its root-mean-square form.
        ece_max: the largest gap of a bin.
        ece_debiased: the l2 form with the sampling noise taken off; compare it with `ece_l2`.
        adaptive_ece: l1 in equal-mass bins.
        classwise_ece: mean over the classes.
        smooth_ece: without bins.
        aurc: area under the risk-coverage curve.
        parts: reliability, resolution and uncertainty of the predicted class.
        floor: the ECE of a perfectly calibrated model with these confidences: mean, sd, 95 % point.
        p_value: of "calibrated", for the ECE.
        intervals: 95 % intervals by metric; "ece" is there if a bootstrap was asked for.
        curve: the reliability curve.
        approximate: for streamed data: how far a metric can lie from its exact value, at most.
    """

    n: int
    classes: int
    bins: int
    accuracy: float
    confidence: float
    overconfidence: float
    nll: float
    brier: float
    ece: float
    ece_l2: float
    ece_max: float
    ece_debiased: float
    adaptive_ece: float
    classwise_ece: float
    smooth_ece: float
    aurc: float
    parts: BrierParts
    floor: NoiseFloor
    p_value: float
    intervals: dict[str, Interval]
    curve: ReliabilityCurve
    approximate: dict[str, float] = field(default_factory=dict)

    @property
    def ece_interval(self) -> Interval | None:
        """The interval of the ECE, or None without bootstrap."""
        return self.intervals.get("ece")

    @property
    def verdict(self) -> str:
        """One sentence: is it calibrated, and in which direction is it wrong?"""
        return show.verdict(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and dictionaries."""
        plain: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            plain[item.name] = value if isinstance(value, int | float | dict) else _plain(value)
        plain["intervals"] = {name: [interval.low, interval.high] for name, interval in self.intervals.items()}
        return plain | {"verdict": self.verdict}

    def to_json(self, *, indent: int | None = 2) -> str:
        """JSON text; an infinite NLL is written as null, which JSON can hold."""
        return json.dumps(_finite(self.to_dict()), indent=indent)

    def __str__(self) -> str:
        return show.as_text(self)

    def _repr_html_(self) -> str:
        return show.as_html(self)


def _plain(value: Any) -> Any:
    return value.to_dict() if hasattr(value, "to_dict") else dict(vars(value))


def _finite(value: Any) -> Any:
    """The same with None in place of what JSON cannot hold (NaN and infinities)."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
