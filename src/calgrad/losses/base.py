"""What every loss shares: the options, shapes and reductions of `nn.CrossEntropyLoss`.

A loss of this package says one thing, L(z, k): what logits z cost when the label is k. The rest follows, once, here.
With class weights w a sample with label y costs w_y L(z, y); a label that is a distribution (mixup, annotators,
smoothing) is an average, sum_k y_k w_k L(z, k); a mean over the batch divides by the sum of w_y, as PyTorch does.
Half precision is widened to float32. Only shapes and dtypes are looked at: no step waits for the device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from calgrad.checks import InputError, between, loss_inputs, one_of

REDUCTIONS = ("mean", "sum", "none")


class Batch(NamedTuple):
    """A batch laid out as rows: one sample (or pixel) a row, whatever shape it came in."""

    logits: Tensor
    """(N, K), float32 or float64."""
    labels: Tensor
    """(N,) class indices with 0 where ignored, or (N, K) label distributions."""
    valid: Tensor
    """(N,) bool: False where the label was `ignore_index`."""
    evidence: Tensor | None = None
    """(N, K): the probabilities a weight is taken from, where they are not the model's own (detached)."""

    @property
    def is_soft(self) -> bool:
        """Whether the labels are distributions."""
        return self.labels.ndim == 2

    def is_correct(self, prediction: Tensor) -> Tensor:
        """(N,): 1 or 0 for a prediction that is right or wrong; its probability under a label distribution."""
        right = at(self.labels, prediction) if self.is_soft else prediction == self.labels
        return right.to(self.logits.dtype)


class Loss(nn.Module, ABC):
    """Base of all losses; `forward(logits, labels)` is a drop-in for `nn.CrossEntropyLoss`.

    Args:
        weight: (K,) non-negative class weights.
        ignore_index: samples with this label cost nothing and do not count in the mean.
        reduction: "mean", "sum" or "none".
        label_smoothing: the label's distribution is mixed with this much of the uniform one.
    """

    proper: ClassVar[bool] = False
    """Whether the minimiser of the expected loss is the class posterior itself."""
    no_posterior: ClassVar[str] = ""
    """Why there is no map from the minimiser to the posterior; empty where there is one."""

    weight: Tensor | None

    def __init__(
        self,
        *,
        weight: Tensor | Sequence[float] | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        one_of("reduction", reduction, REDUCTIONS)
        between("label_smoothing", label_smoothing, 0, 1)
        self.register_buffer("weight", _class_weights(weight))
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = label_smoothing

    @abstractmethod
    def for_label(self, batch: Batch) -> Tensor:
        """(N,): L(z, y) for the rows' own labels, which are indices."""

    @abstractmethod
    def for_each_label(self, logits: Tensor, evidence: Tensor | None = None) -> Tensor:
        """(N, K): L(z, k) for every label k."""

    def log_factor(self, probs: Tensor) -> Tensor | None:
        """(N, K): log v_k(p) where dL(z, k)/dz = v_k(p) (p - e_k); None where the gradient has another form."""
        return None

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of logits (N, K), (N, K, d1, ...) or (K,) under labels given as indices or as distributions."""
        return self._reduced(as_rows(logits, labels, self.ignore_index), sample_shape(logits))

    def _reduced(self, batch: Batch, shape: torch.Size) -> Tensor:
        scale = self._scale(batch)
        values = torch.where(batch.valid, self._values(batch, scale), 0)
        if self.reduction == "none":
            return values.reshape(shape)
        total = values.sum()
        return total if self.reduction == "sum" else total / scale.sum()

    def _scale(self, batch: Batch) -> Tensor:
        """(N,): how much each sample counts in the mean: w_y, 0 where ignored, 1 under label distributions."""
        if self.weight is not None and len(self.weight) != batch.logits.shape[1]:
            raise InputError(
                f"`weight` must have one entry a class, got {len(self.weight)} for {batch.logits.shape[1]} classes"
            )
        if self.weight is None or batch.is_soft:
            return batch.valid.to(batch.logits.dtype)
        return torch.where(batch.valid, self.weight.to(batch.logits.dtype)[batch.labels], 0)

    def _values(self, batch: Batch, scale: Tensor) -> Tensor:
        """(N,): each sample's cost, class weights included."""
        if not batch.is_soft and not self.label_smoothing:
            return self.for_label(batch) if self.weight is None else scale * self.for_label(batch)
        each = self.for_each_label(batch.logits, batch.evidence)
        if self.weight is not None:
            each = self.weight.to(each.dtype) * each
        at_label = (batch.labels * each).sum(dim=1) if batch.is_soft else at(each, batch.labels)
        return torch.lerp(at_label, each.mean(dim=1), self.label_smoothing) if self.label_smoothing else at_label

    def _arguments(self) -> list[str]:
        """The loss's own arguments, as they would be written."""
        return []

    def __repr__(self) -> str:
        """The configuration, as code that rebuilds the loss."""
        arguments = self._arguments()
        if self.weight is not None:
            dtype = "" if self.weight.dtype == torch.float32 else f", dtype={self.weight.dtype}"
            arguments.append(f"weight=torch.tensor({self.weight.tolist()}{dtype})")
        if self.ignore_index != -100:
            arguments.append(f"ignore_index={self.ignore_index}")
        if self.reduction != "mean":
            arguments.append(f"reduction={self.reduction!r}")
        if self.label_smoothing:
            arguments.append(f"label_smoothing={self.label_smoothing!r}")
        return f"{type(self).__name__}({', '.join(arguments)})"


def as_rows(logits: Tensor, labels: Tensor, ignore_index: int) -> Batch:
    """Check shapes and dtypes, move the class dimension last, flatten the others, widen half precision."""
    is_soft = loss_inputs(logits, labels)
    rows = class_rows(logits)
    if rows.dtype in (torch.float16, torch.bfloat16):
        rows = rows.float()
    if is_soft:
        if ignore_index >= 0:
            raise InputError("`ignore_index` is for class indices; label distributions have none to ignore")
        return Batch(rows, class_rows(labels).to(rows.dtype), torch.ones_like(rows[:, 0], dtype=torch.bool))
    indices = labels.reshape(-1).to(torch.int64)
    valid = indices != ignore_index
    return Batch(rows, torch.where(valid, indices, 0), valid)


def class_rows(tensor: Tensor) -> Tensor:
    """(N, K) from (K,), (N, K) or (N, K, d1, ...)."""
    if tensor.ndim == 2:
        return tensor
    return tensor.unsqueeze(0) if tensor.ndim == 1 else tensor.movedim(1, -1).reshape(-1, tensor.shape[1])


def at(values: Tensor, labels: Tensor) -> Tensor:
    """(N,): the entry of each row of (N, K) at its label."""
    return values.gather(-1, labels.unsqueeze(-1)).squeeze(-1)


def without(values: Tensor, labels: Tensor) -> Tensor:
    """(N, K): the rows with 0 at their label."""
    return values.scatter(-1, labels.unsqueeze(-1), 0)


def sample_shape(logits: Tensor) -> torch.Size:
    """The shape of a batch of samples: that of the logits without their class dimension."""
    return logits.shape[:0] if logits.ndim == 1 else logits.shape[:1] + logits.shape[2:]


def _class_weights(weight: Tensor | Sequence[float] | None) -> Tensor | None:
    if weight is None:
        return None
    weights = torch.as_tensor(weight).detach().clone()
    weights = weights if weights.is_floating_point() else weights.float()
    if weights.ndim != 1 or not bool((weights >= 0).all()) or not bool(weights.isfinite().all()):
        raise InputError(f"`weight` must be one non-negative number a class, got {weights.tolist()}")
    return weights
