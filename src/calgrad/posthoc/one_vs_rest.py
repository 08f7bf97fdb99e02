"""Binary calibrators on K classes: one a class against the rest, then normalised.

A binary calibrator turns the log-odds of a class, s_k = log(p_k / (1 - p_k)), into a probability q_k; log-odds rather
than probabilities, for they are exact where p rounds to 0 or 1. With two classes there is one such problem, class 1
against class 0, and q is the answer. With more there are K, fitted independently, and their answers need not sum to
one:

    p_k = (q_k + e / K) / (sum_j q_j + e),   e = smoothing / N.

The second term is what `smoothing` samples spread evenly over the classes would add. It keeps the log of a
probability finite (isotonic regression and histograms like to answer 0), and where all q_k are 0 the answer is
uniform.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from calgrad.checks import at_least
from calgrad.posthoc.base import Calibrator, Fitted, Parameters


class OneVersusRest(Calibrator):
    """Base of the binary methods: `_fit_binary` for C binary problems at once, `_answer` to apply them.

    Args:
        smoothing: see above; 0 gives the textbook method, zero probabilities included.
    """

    def __init__(self, *, smoothing: float = 1.0) -> None:
        super().__init__()
        at_least("smoothing", smoothing, 0)
        self.options = {"smoothing": smoothing}

    @abstractmethod
    def _fit_binary(self, odds: Odds, truth: Tensor) -> Fitted:
        """Fit C binary problems: `odds` and the boolean `truth` are (N, C)."""

    @abstractmethod
    def _answer(self, odds: Odds, parameters: Parameters) -> Tensor:
        """Log q (N, C) for C binary problems."""

    def _fit(self, logits: Tensor, labels: Tensor) -> Fitted:
        n, classes = logits.shape
        problems = torch.arange(classes, device=labels.device) if classes > 2 else torch.ones_like(labels[:1])
        fitted = self._fit_binary(Odds.of(logits.double()), labels[:, None] == problems)
        pseudo = torch.tensor(self.options["smoothing"] / n, dtype=torch.float64)
        return Fitted({**fitted.parameters, "pseudo": pseudo}, fitted.converged, fitted.note)

    def _calibrate(self, logits: Tensor, parameters: Parameters) -> Tensor:
        classes = logits.shape[1]
        log_q = self._answer(Odds.of(logits), parameters)
        if classes == 2:
            log_q = torch.cat([log_complement(log_q), log_q], dim=1)
        added = torch.log(parameters["pseudo"] / classes)
        mixed = torch.logaddexp(log_q, added.expand_as(log_q))
        # Without smoothing a row may be all zeros: uniform then too.
        return torch.where(mixed.amax(dim=1, keepdim=True) == -torch.inf, torch.zeros_like(mixed), mixed)


class Odds:
    """The binary problems of a batch, (N, K), or (N, 1) for two classes: log p and log(1 - p)."""

    def __init__(self, log_p: Tensor, log_1mp: Tensor) -> None:
        self.log_p, self.log_1mp = log_p, log_1mp

    @property
    def log_odds(self) -> Tensor:
        """log(p / (1 - p))."""
        return self.log_p - self.log_1mp

    @classmethod
    def of(cls, logits: Tensor) -> Odds:
        """Exact in both tails: the odds of the top class come from a sum over the others, never from 1 - p."""
        log_probs = logits.log_softmax(dim=1)
        if logits.shape[1] == 2:
            return cls(log_probs[:, 1:], log_probs[:, :1])
        top = logits.argmax(dim=1, keepdim=True)
        others = log_probs.scatter(1, top, -torch.inf).logsumexp(dim=1, keepdim=True)
        # clamp: log1p(-1) would be -inf before the top entry is replaced
        rest = torch.log1p(-log_probs.exp().clamp(max=0.75))
        return cls(log_probs, rest.scatter(1, top, others))


def log_complement(log_q: Tensor) -> Tensor:
    """log(1 - q) from log q <= 0."""
    near_one = log_q > -0.6931471805599453
    below = torch.log1p(-torch.where(near_one, torch.full_like(log_q, -1.0), log_q).exp())
    above = torch.log(-torch.expm1(torch.where(near_one, log_q, torch.full_like(log_q, -1.0))))
    return torch.where(near_one, above, below)
