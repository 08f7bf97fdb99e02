"""Scores: how uncertain a prediction is, given what the label turned out to be.

Every loss of the family is cross-entropy x u(p, y), and u = score(p, y) ** gamma. A score is written as a `base` that
is the score to the power `degree` (the beta-norm keeps its sum of powers, so that squaring it never takes a root
first), for the label at hand and, for label distributions and for the link, for every label it might have been.

Three things hold for all of them. The base is kept above the smallest normal number, so that u and its gradient stay
finite for gamma < 1 too: as p_y -> 1 cross-entropy vanishes faster than any (1 - p_y) ** (gamma - 1) grows, and at
p_y = 1 the gradient is exactly 0. Nothing depends on a value in Python. And every score works on the last dimension
alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

from calgrad.checks import InputError, between
from calgrad.losses.base import at, without


class Uncertainty(ABC):
    """A weight u(probs, labels) >= 0 that also knows what it would be under the other labels."""

    def __call__(self, probs: Tensor, labels: Tensor) -> Tensor:
        """(N,): u for each row's label."""
        return self.for_label(at(probs, labels), without(probs, labels), labels)

    @abstractmethod
    def for_label(self, p_true: Tensor, others: Tensor, labels: Tensor) -> Tensor:
        """(N,): u from the label's probability (N,) and the others' (N, K), which are 0 at the label."""

    @abstractmethod
    def per_label(self, probs: Tensor) -> Tensor:
        """(N, K): u if the label were k."""

    def log_per_label(self, probs: Tensor) -> Tensor:
        """(N, K): log u if the label were k; finite where u itself underflows."""
        return above_zero(self.per_label(probs)).log()

    def log_slope(self, probs: Tensor) -> Tensor | None:
        """(N, K): d log u_k / d p_k where u_k depends on p_k alone; None for the others."""
        return None


@dataclass(frozen=True, repr=False)
class Score(Uncertainty):
    """A score and the exponent it is raised to; `score ** gamma` is the same score with the exponent multiplied."""

    _: KW_ONLY
    gamma: float = 1

    def __post_init__(self) -> None:
        between("gamma", self.gamma, 0, 1e6)

    @property
    def degree(self) -> float:
        """The base is the score to this power."""
        return 1

    @abstractmethod
    def base(self, p_true: Tensor, others: Tensor) -> Tensor:
        """(N,): score ** degree from the label's probability and the others', 0 at the label."""

    @abstractmethod
    def base_per_label(self, probs: Tensor) -> Tensor:
        """(N, K): score ** degree if the label were k."""

    def for_label(self, p_true: Tensor, others: Tensor, labels: Tensor) -> Tensor:
        """(N,): u for each row's label."""
        return self._raised(self.base(p_true, others))

    def per_label(self, probs: Tensor) -> Tensor:
        """(N, K): u if the label were k."""
        return self._raised(self.base_per_label(probs))

    def log_per_label(self, probs: Tensor) -> Tensor:
        """(N, K): log u if the label were k."""
        return above_zero(self.base_per_label(probs)).log() * (self.gamma / self.degree)

    def _raised(self, base: Tensor) -> Tensor:
        exponent = self.gamma / self.degree
        return base if exponent == 1 else above_zero(base) ** exponent

    def __pow__(self, gamma: float) -> Self:
        between("gamma", gamma, 0, 1e6)
        return replace(self, gamma=self.gamma * gamma)

    def __repr__(self) -> str:
        own = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.name != "gamma")
        return f"{type(self).__name__}({own})" + (f" ** {self.gamma!r}" if self.gamma != 1 else "")


@dataclass(frozen=True, repr=False)
class TrueClass(Score):
    """1 - p_y: what is missing at the labelled class. The focal weight."""

    def base(self, p_true: Tensor, others: Tensor) -> Tensor:
        """(N,): 1 - p_y."""
        return 1 - p_true  # [Lin25] Eq. (7); the label's probability, as in all code of the field

    def base_per_label(self, probs: Tensor) -> Tensor:
        """(N, K): 1 - p_k."""
        return sum_of_others(probs)

    def log_slope(self, probs: Tensor) -> Tensor:
        """(N, K): -gamma / (1 - p_k)."""
        return -self.gamma / above_zero(sum_of_others(probs))


@dataclass(frozen=True, repr=False)
class Ease(Score):
    """1 + p_y: the inverse focal score, which gives more weight to what is already right [Wang21]."""

    def base(self, p_true: Tensor, others: Tensor) -> Tensor:
        """(N,): 1 + p_y."""
        return 1 + p_true

    def base_per_label(self, probs: Tensor) -> Tensor:
        """(N, K): 1 + p_k."""
        return 1 + probs

    def log_slope(self, probs: Tensor) -> Tensor:
        """(N, K): gamma / (1 + p_k)."""
        return self.gamma / (1 + probs)


@dataclass(frozen=True, repr=False)
class Dual(Score):
    """1 - p_y + p_rival, the rival being the most probable class strictly below the label's; 0 where there is none."""

    def base(self, p_true: Tensor, others: Tensor) -> Tensor:
        """(N,): 1 - p_y + p_rival."""
        p_rival = torch.where(others < p_true.unsqueeze(-1), others, 0).amax(dim=-1)
        return 1 - p_true + p_rival  # [Lin25] Eq. (8)

    def base_per_label(self, probs: Tensor) -> Tensor:
        """(N, K): 1 - p_k + the largest probability strictly below p_k."""
        ordered, order = probs.sort(dim=-1)
        before = F.pad(ordered[..., :-1], (1, 0))
        # Among equals the neighbour is no rival; the last value that was one still is.
        rival = torch.where(before < ordered, before, 0).cummax(dim=-1).values
        return 1 - probs + rival.gather(-1, order.argsort(dim=-1))


@dataclass(frozen=True, repr=False)
class BrierNorm(Score):
    """The beta-norm of p - e_y: the distance to the label over all classes. BrierNorm(2) ** 2 is the Brier score.

    beta = 1 is 2 (1 - p_y), the focal score times a constant, and so, without the 2, is beta = inf: use `TrueClass`.
    """

    beta: float = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beta == math.inf:
            raise InputError("`beta` must be finite: the maximum norm of p - e_y is 1 - p_y, which is TrueClass()")
        between("beta", self.beta, 1, 1e3)

    @property
    def degree(self) -> float:
        """The base is the sum of powers, the norm to the power beta."""
        return self.beta

    def base(self, p_true: Tensor, others: Tensor) -> Tensor:
        """(N,): sum_i |p_i - [i = y]| ** beta."""
        # DEVIATES: Eq. (11) sums |p_i - y_i| ** gamma; its authors run the norm -> docs/deviations.md#brier-norm
        return (1 - p_true) ** self.beta + torch.linalg.vector_norm(others, self.beta, dim=-1) ** self.beta

    def base_per_label(self, probs: Tensor) -> Tensor:
        """(N, K): sum_i |p_i - [i = k]| ** beta."""
        return sum_of_others(probs) ** self.beta + sum_of_others(probs**self.beta)


@dataclass(frozen=True, repr=False)
class Custom(Uncertainty):
    """Any function u(probs (N, K), labels (N,)) -> (N,), differentiable or not, that returns numbers >= 0."""

    function: Callable[[Tensor, Tensor], Tensor]

    def __call__(self, probs: Tensor, labels: Tensor) -> Tensor:
        """(N,): what the function returns."""
        values = self.function(probs, labels)
        if not isinstance(values, Tensor) or values.shape != labels.shape:
            got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise InputError(f"`{self}` must return one weight a sample, shape {tuple(labels.shape)}, got {got}")
        return values

    def for_label(self, p_true: Tensor, others: Tensor, labels: Tensor) -> Tensor:
        """(N,): what the function returns, given the probabilities put together again."""
        return self(others.scatter(-1, labels.unsqueeze(-1), p_true.unsqueeze(-1)), labels)

    def per_label(self, probs: Tensor) -> Tensor:
        """(N, K): what the function returns when every label is k, one call a class."""
        labels = torch.zeros_like(probs[..., 0], dtype=torch.int64)
        return torch.stack([self(probs, labels + k) for k in range(probs.shape[-1])], dim=-1)

    def __repr__(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))


def above_zero(values: Tensor) -> Tensor:
    """Values kept at or above the smallest normal number of their dtype."""
    return values.clamp_min(torch.finfo(values.dtype).tiny)


def sum_of_others(values: Tensor) -> Tensor:
    """(N, K): the sum of each row without entry k, by additions alone, so that nothing cancels where one is near 1."""
    left = F.pad(values[..., :-1].cumsum(dim=-1), (1, 0))
    right = F.pad(values[..., 1:].flip(-1).cumsum(dim=-1).flip(-1), (0, 1))
    return left + right
