"""Squared error of the probabilities: proper losses whose minimiser is the posterior itself.

Under a label distribution they are averages over the label it stands for, E_{k ~ y} ||p - e_k||^2, as everything here
is: that is ||p - y||^2 plus a constant, so the gradient is the one expected.
"""

from __future__ import annotations

from torch import Tensor

from calgrad.losses.base import Batch, Loss
from calgrad.losses.uncertainty import BrierNorm

SQUARED_DISTANCE = BrierNorm(beta=2) ** 2


class Brier(Loss):
    """sum_k (p_k - [k = y])^2, summed over the classes as [Brier50] did."""

    proper = True

    def for_label(self, batch: Batch) -> Tensor:
        """(N,): ||p - e_y||^2."""
        return SQUARED_DISTANCE(batch.logits.softmax(dim=1), batch.labels)

    def for_each_label(self, logits: Tensor, evidence: Tensor | None = None) -> Tensor:
        """(N, K): ||p - e_k||^2."""
        return SQUARED_DISTANCE.per_label(logits.softmax(dim=1))


class MSE(Brier):
    """The mean over the classes instead of the sum: `Brier` / K. On probabilities, where [Hui21] regress logits."""

    def for_label(self, batch: Batch) -> Tensor:
        """(N,): ||p - e_y||^2 / K."""
        return super().for_label(batch) / batch.logits.shape[1]

    def for_each_label(self, logits: Tensor, evidence: Tensor | None = None) -> Tensor:
        """(N, K): ||p - e_k||^2 / K."""
        return super().for_each_label(logits) / logits.shape[1]
