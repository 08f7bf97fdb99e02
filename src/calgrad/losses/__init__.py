"""Losses for classifiers whose probabilities can be believed.

The family is cross-entropy x u(p, y): `WeightedCE(BrierNorm(beta=2) ** 4, on="gradient")`, or by name
`make_loss("bsce-gra", gamma=4, beta=2)`; `LOSSES` is the table. `posterior(loss, probs)` is the link: the class
posterior that a loss's minimiser encodes.
"""

from calgrad.losses.adaptive import AdaFocal, GapCE
from calgrad.losses.base import Loss
from calgrad.losses.link import posterior
from calgrad.losses.named import COMMON_OPTIONS, LOSSES, LossEntry, make_loss
from calgrad.losses.penalised import MMCE, AvUC, PenalisedCE, SoftECE
from calgrad.losses.scheduled import FLSD53, ScheduledFocal
from calgrad.losses.squared import MSE, Brier
from calgrad.losses.uncertainty import BrierNorm, Custom, Dual, Ease, Score, TrueClass, Uncertainty
from calgrad.losses.weighted import ConsistencyCE, CrossEntropy, WeightedCE, feature_consistency

__all__ = [
    "COMMON_OPTIONS",
    "FLSD53",
    "LOSSES",
    "MMCE",
    "MSE",
    "AdaFocal",
    "AvUC",
    "Brier",
    "BrierNorm",
    "ConsistencyCE",
    "CrossEntropy",
    "Custom",
    "Dual",
    "Ease",
    "GapCE",
    "Loss",
    "LossEntry",
    "PenalisedCE",
    "ScheduledFocal",
    "Score",
    "SoftECE",
    "TrueClass",
    "Uncertainty",
    "WeightedCE",
    "feature_consistency",
    "make_loss",
    "posterior",
]
