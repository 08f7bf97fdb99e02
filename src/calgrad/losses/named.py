"""The table of losses: every one by name, with its formula, its defaults and where it comes from.

A new member of the family is one entry below; the tests, `calgrad losses` and the recipes find it by being listed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from calgrad.checks import unknown_name
from calgrad.losses.adaptive import AdaFocal, GapCE
from calgrad.losses.base import Loss
from calgrad.losses.penalised import MMCE, AvUC, SoftECE
from calgrad.losses.scheduled import FLSD53
from calgrad.losses.squared import MSE, Brier
from calgrad.losses.uncertainty import BrierNorm, Dual, Ease, TrueClass
from calgrad.losses.weighted import ConsistencyCE, CrossEntropy, WeightedCE

COMMON_OPTIONS = ("weight", "ignore_index", "reduction", "label_smoothing")
"""What every loss takes, as `nn.CrossEntropyLoss` does."""


@dataclass(frozen=True)
class LossEntry:
    """A row of the table.

    Attributes:
        name: what `make_loss` and recipes call it.
        formula: the loss of one sample; CE is -log p_y, [x] means that x is not differentiated.
        summary: what it is for, in a line.
        reference: its key in docs/references.md.
        build: makes it from its options.
        defaults: its own options and their values (those of `COMMON_OPTIONS` come on top).
    """

    name: str
    formula: str
    summary: str
    reference: str
    build: Callable[..., Loss]
    defaults: dict[str, Any] = field(default_factory=dict)


def _weighted(score: Callable[..., Any], on: str) -> Callable[..., Loss]:
    """A builder whose options besides gamma are the score's own."""

    def build(*, gamma: float, options: dict[str, Any], **own: Any) -> Loss:
        return WeightedCE(score(**own) ** gamma, on=on, **options)

    return build


def _plain(loss: Callable[..., Loss], **fixed: Any) -> Callable[..., Loss]:
    """A builder whose options are the constructor's own."""

    def build(*, options: dict[str, Any], **own: Any) -> Loss:
        return loss(**fixed, **own, **options)

    return build


def _flsd53(on: str) -> Callable[..., Loss]:
    def build(*, options: dict[str, Any]) -> Loss:
        return WeightedCE(FLSD53(), on=on, **options)

    return build


_ENTRIES = [
    LossEntry("ce", "-log p_y", "cross-entropy", "Good52", _plain(CrossEntropy)),
    LossEntry("focal", "(1 - p_y)^gamma CE", "focal loss", "Lin17", _weighted(TrueClass, "loss"), {"gamma": 3}),
    LossEntry(
        "focal-gra", "[(1 - p_y)^gamma] CE", "focal weight on the gradient", "Lin25", _weighted(TrueClass, "gradient"),
        {"gamma": 3},
    ),
    LossEntry("flsd53", "(1 - p_y)^g CE, g = 5 if p_y < 0.2 else 3", "FLSD-53", "Mukhoti20", _flsd53("loss")),
    LossEntry(
        "flsd53-gra", "[(1 - p_y)^g] CE, g = 5 if p_y < 0.2 else 3", "FLSD-53 weight on the gradient", "Lin25",
        _flsd53("gradient"),
    ),
    LossEntry(
        "dual", "(1 - p_y + p_rival)^gamma CE, p_rival = max{p_i : p_i < p_y}", "dual focal loss", "Tao23",
        _weighted(Dual, "loss"), {"gamma": 5},
    ),
    LossEntry(
        "dual-gra", "[(1 - p_y + p_rival)^gamma] CE", "dual focal weight on the gradient", "Lin25",
        _weighted(Dual, "gradient"), {"gamma": 5},
    ),
    # gamma and beta of BSCE are published for no experiment; 4 and 2 are the traces in the authors' scripts and logs.
    LossEntry(
        "bsce", "||p - e_y||_beta^gamma CE", "Brier weight on the loss", "Lin25",
        _weighted(BrierNorm, "loss"), {"gamma": 4, "beta": 2},
    ),
    LossEntry(
        "bsce-gra", "[||p - e_y||_beta^gamma] CE", "Brier weight on the gradient: the paper's method", "Lin25",
        _weighted(BrierNorm, "gradient"), {"gamma": 4, "beta": 2},
    ),
    LossEntry(
        "consistency-gra", "[(1 - c_y)^gamma] CE, c = mean p under feature noise",
        "feature-noise consistency on the gradient; forward takes it as a third argument", "Tao24",
        _plain(ConsistencyCE), {"gamma": 1},
    ),
    LossEntry(
        "ece-ce", "[(gap_b + floor) / (mean gap + floor)] CE, b = confidence bin of the sample",
        "the batch's binned calibration gap as a sample weight", "Lin25", _plain(GapCE), {"bins": 15, "floor": 0.05},
    ),
    LossEntry("brier", "sum_k (p_k - [k = y])^2", "Brier score", "Brier50", _plain(Brier)),
    LossEntry("mse", "mean_k (p_k - [k = y])^2", "mean squared error of the probabilities", "Hui21", _plain(MSE)),
    LossEntry(
        "mmce", "CE + strength sqrt(mean_ij (c_i - r_i)(c_j - r_j) exp(-|r_i - r_j| / width))",
        "CE with the maximum mean calibration error", "Kumar18", _plain(MMCE, weighted=False),
        {"strength": 2.0, "width": 0.4},
    ),
    LossEntry(
        "mmce-weighted", "CE + strength x MMCE with right and wrong predictions normalised apart",
        "CE with the weighted MMCE, the usual baseline", "Kumar18", _plain(MMCE, weighted=True),
        {"strength": 2.0, "width": 0.4},
    ),
    LossEntry(
        "label-smoothing", "sum_k ((1 - eps) [k = y] + eps / K) (-log p_k)", "cross-entropy on smoothed labels",
        "Szegedy16", _plain(CrossEntropy), {"label_smoothing": 0.05},
    ),
    LossEntry(
        "inverse-focal", "(1 + p_y)^gamma CE", "more weight on what is right already; calibrate afterwards", "Wang21",
        _weighted(Ease, "loss"), {"gamma": 1},
    ),
    LossEntry(
        "soft-ece", "CE + strength sqrt(sum_j S_j / N (A_j - C_j)^2), soft bins j", "CE with soft-binned ECE",
        "Karandikar21", _plain(SoftECE), {"strength": 1.0, "bins": 15, "temperature": 0.01},
    ),
    LossEntry(
        "avuc", "CE + strength log(1 + (n_AU + n_IC) / (n_AC + n_IU))", "CE with accuracy versus uncertainty",
        "Krishnan20", _plain(AvUC), {"strength": 3.0, "threshold": None},
    ),
    LossEntry(
        "adafocal", "(1 - p_y)^g CE, or (1 + p_y)^-g CE where g < 0; g of the bin of p_y, learned on validation",
        "focal loss with a gamma per confidence bin; call update() after each validation", "Ghosh22", _plain(AdaFocal),
        {"bins": 15, "gamma": 1.0, "rate": 1.0, "switch": 0.2, "gamma_min": -2.0, "gamma_max": 20.0, "on": "loss"},
    ),
]  # fmt: skip

LOSSES: dict[str, LossEntry] = {entry.name: entry for entry in _ENTRIES}
"""Every loss by name."""


def make_loss(name: str, **options: Any) -> Loss:
    """The loss of this name, a drop-in for `nn.CrossEntropyLoss`.

    Args:
        name: a key of `LOSSES`.
        **options: the loss's own options (`LOSSES[name].defaults`) and `weight`, `ignore_index`, `reduction`,
            `label_smoothing`.

    Example:
        >>> import calgrad
        >>> calgrad.make_loss("bsce-gra", gamma=4, beta=2)
        WeightedCE(BrierNorm(beta=2) ** 4, on='gradient')
    """
    if name not in LOSSES:
        raise unknown_name("loss", name, LOSSES)
    entry = LOSSES[name]
    for option in options:
        if option not in entry.defaults and option not in COMMON_OPTIONS:
            raise unknown_name(f"option of the loss {name!r}:", option, [*entry.defaults, *COMMON_OPTIONS])
    merged = entry.defaults | options
    common = {key: merged.pop(key) for key in COMMON_OPTIONS if key in merged}
    return entry.build(options=common, **merged)
