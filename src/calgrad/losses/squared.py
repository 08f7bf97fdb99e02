"""Squared error of the probabilities: proper losses whose minimiser is the posterior itself.

Under a label distribution they are averages over the label it stands for, E_{k ~ y} ||p - e_k||^2, as everything here
is: that is ||p - y||^2 plus a constant, so the gradient is the one expected.
"""

from __future__ import annotations

from torch import Tensor

from calgrad.losses.base import Batch, Loss, at


class Brier(Loss):
    """sum_k (p_k - [k = y])^2, summed over the classes as [Brier50] did."""

    proper = True

    def for_label(self, batch: Batch) -> Tensor:
        """(N,): ||p - e_y||^2."""
        probs = batch.logits.softmax(dim=1)
        return probs.square().sum(dim=1) + 1 - 2 * at(probs, batch.labels)

    def for_each_label(self, logits: Tensor, evidence: Tensor | None = None) -> Tensor:
        """(N, K): ||p - e_k||^2."""
        probs = logits.softmax(dim=1)
        return probs.square().sum(dim=1, keepdim=True) + 1 - 2 * probs


class MSE(Brier):
    """The mean over the classes instead of the sum: `Brier` / K. On probabilities, where [Hui21] regress logits."""

    def for_label(self, batch: Batch) -> Tensor:
        """(N,): ||p - e_y||^2 / K."""
        return super().for_label(batch) / batch.logits.shape[1]

    def for_each_label(self, logits: Tensor, evidence: Tensor | None = None) -> Tensor:
        """(N, K): ||p - e_k||^2 / K."""
        return super().for_each_label(logits) / logits.shape[1]
