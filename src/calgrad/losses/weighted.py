"""The family: cross-entropy x u(p, y), and one switch.

    on="loss"      u is differentiated with the loss, as focal loss does:     L = u(p, y) CE
    on="gradient"  u is a number that scales the sample's gradient ("-GRA"):  dL/dz = u(p, y) dCE/dz     [Lin25] Eq. (9)

On the loss, u's own derivative bends the weight that reaches the gradient: focal loss pushes hardest not on the least
certain samples but on moderately uncertain ones. On the gradient, what is asked for is what is applied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calgrad.checks import InputError, between, one_of, positive_int
from calgrad.losses.base import Batch, Loss, as_rows, at, class_rows, sample_shape
from calgrad.losses.nll import nll_and_probs
from calgrad.losses.uncertainty import Custom, TrueClass, Uncertainty


class CrossEntropy(Loss):
    """-log p_y, as `nn.CrossEntropyLoss`; with `label_smoothing` it is the label smoothing baseline."""

    proper = True

    def for_label(self, batch: Batch) -> Tensor:
        """(N,): -log p_y."""
        return F.cross_entropy(batch.logits, batch.labels, reduction="none")

    def for_each_label(self, logits: Tensor, evidence: Tensor | None = None) -> Tensor:
        """(N, K): -log p_k."""
        return -logits.log_softmax(dim=1)


class WeightedCE(Loss):
    """Cross-entropy weighted by an uncertainty, on the loss or on the gradient.

    Args:
        uncertainty: a score (`BrierNorm(beta=2) ** 4`), `FLSD53()`, or any function u(probs, labels) -> (N,) of numbers
            >= 0. On the gradient it need not be differentiable.
        on: "gradient" or "loss".
        **options: `weight`, `ignore_index`, `reduction`, `label_smoothing`, as in `nn.CrossEntropyLoss`.

    Example:
        >>> import torch
        >>> from calgrad.losses import BrierNorm, WeightedCE
        >>> loss = WeightedCE(BrierNorm(beta=2) ** 4, on="gradient")
        >>> logits = torch.tensor([[2.0, 0.0, -1.0]], requires_grad=True)
        >>> loss(logits, torch.tensor([1])).backward()
        >>> WeightedCE(lambda probs, labels: probs.amax(dim=1))(logits, torch.tensor([0])).shape
        torch.Size([])
    """

    def __init__(
        self,
        uncertainty: Uncertainty | Callable[[Tensor, Tensor], Tensor],
        *,
        on: str = "gradient",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        one_of("on", on, ("gradient", "loss"))
        if not callable(uncertainty):
            raise InputError(f"`uncertainty` must be a score or a function u(probs, labels), got {uncertainty!r}")
        self.on = on
        self.uncertainty = uncertainty if isinstance(uncertainty, Uncertainty) else Custom(uncertainty)
        if isinstance(uncertainty, nn.Module) and not isinstance(uncertainty, Uncertainty):
            self.add_module("uncertainty_module", uncertainty)  # so that .to() and state_dict() reach it

    def for_label(self, batch: Batch) -> Tensor:
        """(N,): u(p, y) x -log p_y."""
        if self.on == "gradient":
            nll, p_true, others = nll_and_probs(batch.logits, batch.labels)
            # [Lin25] Eq. (10). DEVIATES: the published dual -GRA detaches p_rival alone -> docs/deviations.md#dual-gra
            if batch.evidence is None:
                u = self.uncertainty.for_label(p_true, others, batch.labels)
            else:
                u = self.uncertainty(batch.evidence, batch.labels)
            return u.detach() * nll
        log_probs = batch.logits.log_softmax(dim=1)
        return self.uncertainty(log_probs.exp(), batch.labels) * -at(log_probs, batch.labels)  # [Lin25] Eq. (6)

    def for_each_label(self, logits: Tensor, evidence: Tensor | None = None) -> Tensor:
        """(N, K): u(p, k) x -log p_k."""
        log_probs = logits.log_softmax(dim=1)
        if self.on == "gradient":
            seen = log_probs.detach().exp() if evidence is None else evidence
            return self.uncertainty.per_label(seen).detach() * -log_probs
        return self.uncertainty.per_label(log_probs.exp()) * -log_probs

    def log_factor(self, probs: Tensor) -> Tensor | None:
        """(N, K): log u_k on the gradient; log(u_k + p_k u_k' log p_k) on the loss where u_k depends on p_k alone."""
        log_u = self.uncertainty.log_per_label(probs)
        if self.on == "gradient":
            return log_u
        slope = self.uncertainty.log_slope(probs)
        return None if slope is None else log_u + torch.log1p(slope * torch.xlogy(probs, probs))

    def _arguments(self) -> list[str]:
        return [repr(self.uncertainty), f"on={self.on!r}"]


class ConsistencyCE(WeightedCE):
    """Cross-entropy whose gradient is weighted by (1 - consistency of the label) ** gamma.

    Consistency is the mean probability of a class when noise is added to the features; `feature_consistency` makes
    it, and the training loop passes it as the third argument.

    Args:
        gamma: the exponent.
        **options: as in `nn.CrossEntropyLoss`.
    """

    def __init__(self, *, gamma: float = 1, **options: Any) -> None:
        super().__init__(TrueClass() ** gamma, on="gradient", **options)
        self.gamma = gamma

    def forward(self, logits: Tensor, labels: Tensor, consistency: Tensor) -> Tensor:  # type: ignore[override]
        """The loss, given the consistency of every class (the logits' shape) or of the label alone (the labels')."""
        batch = as_rows(logits, labels, self.ignore_index)
        if consistency.shape == logits.shape:
            evidence = class_rows(consistency)
        elif consistency.shape == labels.shape and not batch.is_soft and not self.label_smoothing:
            evidence = consistency.reshape(-1, 1).expand_as(batch.logits)
        else:
            raise InputError(
                f"`consistency` must have the shape of logits {tuple(logits.shape)} or, under class indices without "
                f"label smoothing, of labels {tuple(labels.shape)}, got {tuple(consistency.shape)}"
            )
        evidence = evidence.detach().to(batch.logits.dtype)
        return self._reduced(batch._replace(evidence=evidence), sample_shape(logits))

    def _arguments(self) -> list[str]:
        return [f"gamma={self.gamma!r}"]


@torch.no_grad()
def feature_consistency(
    head: Callable[[Tensor], Tensor],
    features: Tensor,
    *,
    sigma: float = 0.1,
    samples: int = 8,
    generator: torch.Generator | None = None,
) -> Tensor:
    """(N, K): the mean probability of each class under Gaussian noise on the features [Tao24].

    Args:
        head: the layer that turns features into logits.
        features: (N, D), what the head sees.
        sigma: the noise's standard deviation, relative to the features' own in the batch.
        samples: how many draws are averaged.
        generator: where the noise comes from; on the device of the features.
    """
    between("sigma", sigma, 0, 1e6)
    positive_int("samples", samples)
    spread = sigma * features.float().std(correction=0)
    total: Tensor | float = 0.0
    for _ in range(samples):
        noise = torch.randn(features.shape, generator=generator, device=features.device, dtype=torch.float32)
        total = total + head(features + (spread * noise).to(features.dtype)).float().softmax(dim=-1)
    assert isinstance(total, Tensor)
    return total / samples
