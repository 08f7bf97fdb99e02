"""Focal weights whose gamma is chosen by the probability of the labelled class.

u(p) = (1 - p) ** gamma(p) where gamma(p) >= 0 and (1 + p) ** -gamma(p), the inverse focal weight, where it is
negative. The choice of gamma is a step function and is not differentiated. FLSD-53 fixes the steps; AdaFocal learns
them.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from calgrad.losses.uncertainty import Uncertainty, above_zero, sum_of_others


class ScheduledFocal(Uncertainty):
    """The focal weight (or the inverse focal one) under a gamma that depends on p_y."""

    @abstractmethod
    def gamma_at(self, p: Tensor) -> Tensor:
        """The exponent at each probability of the labelled class, of the same shape."""

    def for_label(self, p_true: Tensor, others: Tensor, labels: Tensor) -> Tensor:
        """(N,): u for each row's label."""
        return self._u(p_true, 1 - p_true)

    def per_label(self, probs: Tensor) -> Tensor:
        """(N, K): u if the label were k."""
        return self._u(probs, sum_of_others(probs))

    def log_per_label(self, probs: Tensor) -> Tensor:
        """(N, K): log u if the label were k."""
        gamma = self.gamma_at(probs)
        return torch.where(gamma < 0, -gamma * probs.log1p(), gamma * above_zero(sum_of_others(probs)).log())

    def log_slope(self, probs: Tensor) -> Tensor:
        """(N, K): d log u_k / d p_k, which takes the same exponent on the other side of every step."""
        gamma = self.gamma_at(probs)
        return -gamma / torch.where(gamma < 0, 1 + probs, above_zero(sum_of_others(probs)))

    def _u(self, p: Tensor, missing: Tensor) -> Tensor:
        gamma = self.gamma_at(p.detach()).to(p.dtype)
        return torch.where(gamma < 0, 1 + p, above_zero(missing)) ** gamma.abs()


@dataclass(frozen=True)
class FLSD53(ScheduledFocal):
    """(1 - p_y) ** gamma with gamma = 5 where p_y < 0.2 and 3 elsewhere [Mukhoti20]."""

    def gamma_at(self, p: Tensor) -> Tensor:
        """5 where p < 0.2, else 3."""
        return torch.where(p < 0.2, 5.0, 3.0)
