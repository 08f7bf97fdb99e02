"""Every calibrator by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from calgrad.checks import InputError, unknown_name
from calgrad.posthoc.base import Calibrator
from calgrad.posthoc.binning import BBQ, Histogram, Isotonic
from calgrad.posthoc.ensemble import EnsembleTemperature
from calgrad.posthoc.grid import TemperatureECE
from calgrad.posthoc.identity import Identity
from calgrad.posthoc.link import Link, LinkTemperature
from calgrad.posthoc.logistic import Beta, Platt
from calgrad.posthoc.scaling import Dirichlet, MatrixScaling, VectorScaling
from calgrad.posthoc.structured import StructuredMatrixScaling, StructuredVectorScaling
from calgrad.posthoc.temperature import Temperature


@dataclass(frozen=True)
class CalibratorEntry:
    """A row of the table.

    Attributes:
        name: what `make_calibrator` and saved files call it.
        formula: from logits z (and log-odds s_k) to probs.
        summary: what it is for, in a line.
        reference: its key in docs/references.md.
        build: makes an unfitted one from its options.
    """

    name: str
    formula: str
    summary: str
    reference: str
    build: Callable[..., Calibrator]

    @property
    def options(self) -> dict[str, Any]:
        """The options with their defaults."""
        found = inspect.signature(self.build).parameters.values()
        return {option.name: option.default for option in found if option.kind is option.KEYWORD_ONLY}


def _entry(build: type[Calibrator], formula: str, summary: str, reference: str = "") -> CalibratorEntry:
    return CalibratorEntry(build.method, formula, summary, reference, build)


_ONE_VERSUS_REST = "one class against the rest, normalised"

CALIBRATORS: dict[str, CalibratorEntry] = {
    entry.name: entry
    for entry in [
        _entry(Identity, "softmax(z)", "Does nothing: what the others are compared with."),
        _entry(Temperature, "softmax(z / T)", "T of least NLL, exactly. The one to begin with.", "Guo17"),
        _entry(
            TemperatureECE,
            "softmax(z / T), T in 0.1 ... 10.0",
            "T of least 15-bin ECE on the paper's grid, to repeat published numbers.",
            "Mukhoti20",
        ),
        _entry(
            EnsembleTemperature,
            "w1 softmax(z / T) + w2 softmax(z) + w3 / K",
            "A mixture around temperature scaling; keeps predictions.",
            "Zhang20",
        ),
        _entry(VectorScaling, "softmax(w * z + b)", "A scale and an offset for each class.", "Guo17"),
        _entry(
            MatrixScaling,
            "softmax(W z + b)",
            "A full matrix, its off-diagonal and bias held back; strength by cross-validation.",
            "Guo17; Kull19",
        ),
        _entry(Dirichlet, "softmax(W log softmax(z) + b)", "Matrix scaling of log-probabilities.", "Kull19"),
        _entry(
            StructuredVectorScaling,
            "softmax(w * x + b), x = log of tempered probs mixed with 1/K",
            "Vector scaling that falls back to temperature scaling where samples are few.",
            "Berta25b",
        ),
        _entry(
            StructuredMatrixScaling,
            "softmax(W x + b), same x",
            "Matrix scaling that falls back to vector, then temperature scaling. Strong with many samples.",
            "Berta25b",
        ),
        _entry(Platt, "sigmoid(a s_k + b)", f"A line in the log-odds; {_ONE_VERSUS_REST}.", "Platt99"),
        _entry(
            Beta,
            "logit q = a log p - b log(1 - p) + c",
            f"Bends both ends of [0, 1] on their own; {_ONE_VERSUS_REST}.",
            "Kull17",
        ),
        _entry(
            Isotonic,
            "a rising function of s_k",
            f"Any monotone map; wants thousands of samples; {_ONE_VERSUS_REST}.",
            "Zadrozny02",
        ),
        _entry(
            Histogram,
            "share of class k in the bin of s_k",
            f"Steps; {_ONE_VERSUS_REST}.",
            "Zadrozny01",
        ),
        _entry(
            BBQ,
            "average of histograms, weighted by marginal likelihood",
            f"Steps, their number averaged over; {_ONE_VERSUS_REST}.",
            "Naeini15",
        ),
        _entry(
            Link,
            "p / u(p), normalised, for a -gra loss",
            "The posterior that the training loss's minimiser encodes; no parameter. Needs `loss`.",
            "docs/link.md",
        ),
        _entry(
            LinkTemperature,
            "link of softmax(z / T)",
            "Temperature first, then the link; T of least NLL. Needs `loss`.",
            "docs/link.md",
        ),
    ]
}
"""The calibrators by name."""


def make_calibrator(name: str, **options: Any) -> Calibrator:
    """An unfitted calibrator by its name in `CALIBRATORS`.

    Args:
        name: such as "temperature"; an unknown one's error lists them all.
        options: of that calibrator; an unknown one's error lists them all.

    Example:
        >>> import torch, calgrad
        >>> logits, labels = 8 * torch.eye(2).repeat(50, 1), torch.tensor([0, 1] * 45 + [1, 0] * 5)
        >>> round(calgrad.make_calibrator("temperature").fit(logits, labels).temperature, 3)  # 90 % right at 8 nats
        3.641
    """
    if name not in CALIBRATORS:
        raise unknown_name("calibrator", name, CALIBRATORS)
    entry = CALIBRATORS[name]
    unknown = options.keys() - entry.options.keys()
    if unknown:
        known = ", ".join(f"{option}={default!r}" for option, default in entry.options.items()) or "none"
        raise InputError(f"{name!r} has no option {sorted(unknown)[0]!r}; its options: {known}")
    return entry.build(**options)
