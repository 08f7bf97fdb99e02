"""Cross-entropy plus a differentiable measure of the batch's miscalibration.

Each penalty compares confidence r_i with correctness c_i over a batch: MMCE through a kernel [Kumar18], soft-binned
ECE through soft bins [Karandikar21], AvUC through four soft counts [Krishnan20]. The penalty joins every sample of
the batch (so a sum is N times a mean, as for all losses here). Ignored samples take no part. Under a label
distribution correctness is the probability that the prediction is right; smoothing touches cross-entropy alone.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from calgrad.checks import InputError, between, positive_int
from calgrad.losses.base import Batch, at
from calgrad.losses.weighted import CrossEntropy

SMALLEST = 1e-12
"""Below this a squared penalty counts as zero, so that its root has a gradient (zero) there too."""


class PenalisedCE(CrossEntropy):
    """Base: -log p_y + strength x penalty(batch)."""

    proper = False
    no_posterior = (
        "its penalty couples the samples of a batch, so its minimiser is a property of the batch and not of one "
        "sample's probabilities"
    )

    def __init__(self, *, strength: float, **options: Any) -> None:
        super().__init__(**options)
        between("strength", strength, 0, 1e6)
        self.strength = strength

    @abstractmethod
    def penalty(self, log_probs: Tensor, confidence: Tensor, is_correct: Tensor, counts: Tensor) -> Tensor:
        """A scalar >= 0 from (N, K) log probabilities and (N,) confidence, correctness and 1 or 0 for ignored."""

    def _values(self, batch: Batch, scale: Tensor) -> Tensor:
        log_probs = batch.logits.log_softmax(dim=1)
        prediction = batch.logits.argmax(dim=1)
        confidence = at(log_probs, prediction).exp()
        is_correct = batch.is_correct(prediction)
        penalty = self.penalty(log_probs, confidence, is_correct, batch.valid.to(confidence.dtype))
        return super()._values(batch, scale) + scale * (self.strength * penalty)


class MMCE(PenalisedCE):
    """Maximum mean calibration error: the RKHS norm of the mean residual (c - r) under a Laplacian kernel [Kumar18].

    Memory is quadratic in the number of samples of a batch.

    Args:
        strength: the penalty's factor.
        width: the kernel is exp(-|r_i - r_j| / width).
        weighted: give the right and the wrong predictions equal say, by dividing each residual by the size of its
            group.
        **options: as in `nn.CrossEntropyLoss`.
    """

    def __init__(self, *, strength: float = 2.0, width: float = 0.4, weighted: bool = False, **options: Any) -> None:
        super().__init__(strength=strength, **options)
        between("width", width, 1e-3, 1e3)
        self.width = width
        self.weighted = weighted

    def penalty(self, log_probs: Tensor, confidence: Tensor, is_correct: Tensor, counts: Tensor) -> Tensor:
        """sqrt(sum_ij a_i a_j k(r_i, r_j)), with a_i the sample's share of the mean residual."""
        # DEVIATES: the published code divides its kernel means by the counts twice -> docs/deviations.md#mmce
        if self.weighted:
            right, wrong = counts * is_correct, counts * (1 - is_correct)
            share = right * (1 - confidence) / right.sum().clamp_min(SMALLEST)
            share = share - wrong * confidence / wrong.sum().clamp_min(SMALLEST)
        else:
            share = counts * (is_correct - confidence) / counts.sum()
        kernel = torch.exp(-(confidence.unsqueeze(0) - confidence.unsqueeze(1)).abs() / self.width)
        return (share.unsqueeze(0) * kernel * share.unsqueeze(1)).sum().clamp_min(SMALLEST).sqrt()

    def _arguments(self) -> list[str]:
        return [f"strength={self.strength!r}", f"width={self.width!r}", f"weighted={self.weighted!r}"]


class SoftECE(PenalisedCE):
    """Soft-binned ECE: samples belong to all bins, by a softmax of -(r - centre)^2 / temperature [Karandikar21].

    Args:
        strength: the penalty's factor.
        bins: how many equal-width bins.
        temperature: the softness; towards 0 the bins become hard and the penalty the binned l2 ECE.
        **options: as in `nn.CrossEntropyLoss`.
    """

    def __init__(self, *, strength: float = 1.0, bins: int = 15, temperature: float = 0.01, **options: Any) -> None:
        super().__init__(strength=strength, **options)
        positive_int("bins", bins)
        between("temperature", temperature, 1e-8, 1e8)
        self.bins = bins
        self.temperature = temperature

    def penalty(self, log_probs: Tensor, confidence: Tensor, is_correct: Tensor, counts: Tensor) -> Tensor:
        """sqrt(sum_j S_j / N (A_j - C_j)^2) with S_j the soft size, A_j accuracy and C_j confidence of bin j."""
        centres = (torch.arange(self.bins, device=confidence.device, dtype=confidence.dtype) + 0.5) / self.bins
        membership = torch.softmax(-(confidence.unsqueeze(1) - centres).square() / self.temperature, dim=1)
        membership = counts.unsqueeze(1) * membership
        gap = (membership * (is_correct - confidence).unsqueeze(1)).sum(dim=0)  # S_j (A_j - C_j)
        size = membership.sum(dim=0).clamp_min(SMALLEST)
        return ((gap.square() / size).sum() / counts.sum()).clamp_min(SMALLEST).sqrt()

    def _arguments(self) -> list[str]:
        return [f"strength={self.strength!r}", f"bins={self.bins!r}", f"temperature={self.temperature!r}"]


class AvUC(PenalisedCE):
    """Accuracy versus uncertainty: right predictions should be certain, wrong ones uncertain [Krishnan20].

    With entropy h, every sample falls into one of four groups, right or wrong and certain (h <= threshold) or not, and
    counts there softly: log(1 + (n_right_uncertain + n_wrong_certain) / (n_right_certain + n_wrong_uncertain)).

    Args:
        strength: the penalty's factor.
        threshold: the entropy, in nats, above which a prediction is uncertain; None: half-way between the mean
            entropies of the batch's right and wrong predictions (or the mean of the one kind there is).
        **options: as in `nn.CrossEntropyLoss`.
    """

    def __init__(self, *, strength: float = 3.0, threshold: float | None = None, **options: Any) -> None:
        super().__init__(strength=strength, **options)
        if threshold is not None and not threshold >= 0:
            raise InputError(f"`threshold` must be an entropy >= 0 in nats, or None, got {threshold!r}")
        self.threshold = threshold

    def penalty(self, log_probs: Tensor, confidence: Tensor, is_correct: Tensor, counts: Tensor) -> Tensor:
        """The logarithm of one plus the ratio of undesired to desired soft counts."""
        entropy = -(log_probs.exp() * log_probs).sum(dim=1)
        right, wrong = counts * is_correct, counts * (1 - is_correct)
        threshold = self._midpoint(entropy, right, wrong) if self.threshold is None else self.threshold
        certain, uncertain = 1 - entropy.tanh(), entropy.tanh()
        is_certain = (entropy <= threshold).to(entropy.dtype)
        desired = right * confidence * certain * is_certain + wrong * (1 - confidence) * uncertain * (1 - is_certain)
        undesired = right * confidence * uncertain * (1 - is_certain) + wrong * (1 - confidence) * certain * is_certain
        return torch.log1p(undesired.sum() / desired.sum().clamp_min(SMALLEST))

    @staticmethod
    def _midpoint(entropy: Tensor, right: Tensor, wrong: Tensor) -> Tensor:
        # DEVIATES: published as an average over warm-up epochs; per batch it needs no state -> docs/deviations.md#avuc
        entropy = entropy.detach()
        of_right = (right * entropy).sum() / right.sum().clamp_min(SMALLEST)
        of_wrong = (wrong * entropy).sum() / wrong.sum().clamp_min(SMALLEST)
        kinds = (right.sum() > 0).to(entropy.dtype) + (wrong.sum() > 0).to(entropy.dtype)
        return (of_right + of_wrong) / kinds.clamp_min(1)

    def _arguments(self) -> list[str]:
        return [f"strength={self.strength!r}", f"threshold={self.threshold!r}"]
