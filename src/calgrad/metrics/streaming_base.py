"""What all streaming metrics have in common: their inputs, what is left out and counted, sums that survive a cast."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from calgrad.checks import SUM_TOLERANCE, InputError, loss_inputs, one_of


class Streaming(Metric):
    """The base of the modules in `calgrad.metrics.streaming`.

    A subclass adds its states with `_sum` and implements `_add(values, labels, counts)` on (N, K) values; rows where
    `counts` is 0 must not touch the sums.
    """

    is_differentiable = False
    full_state_update = False
    higher_is_better: bool | None = False
    n: Tensor
    bad_values: Tensor
    bad_labels: Tensor

    def __init__(self, *, inputs: str, ignore_index: int | None = None, **options: Any) -> None:
        """What `update` receives must be said, for it is never guessed: `inputs` is "logits" or "probs".

        Args:
            inputs: What the first argument of `update` holds.
            ignore_index: A label that marks samples to leave out.
            **options: For `torchmetrics.Metric`, such as `dist_sync_on_step`.
        """
        super().__init__(**options)
        one_of("inputs", inputs, ("logits", "probs"))
        self.inputs, self.ignore_index = inputs, ignore_index
        for name in ("n", "bad_values", "bad_labels"):
            self._sum(name, dtype=torch.int64)

    def _sum(self, name: str, *shape: int, dtype: torch.dtype) -> None:
        self.add_state(name, torch.zeros(shape, dtype=dtype), dist_reduce_fx="sum")

    def update(self, values: Tensor, labels: Tensor) -> None:
        """Add a batch: values (N, K) or (N, K, d1, ...) as `inputs` says, labels (N,) or (N, d1, ...) class indices."""
        if loss_inputs(values, labels):
            raise InputError(f"`labels` must be integer class indices, got {labels.dtype}")
        if values.ndim == 1:
            values, labels = values[None], labels[None]
        values = values.detach().movedim(1, -1).reshape(-1, values.shape[1]).to(self.device)
        labels = labels.reshape(-1).to(self.device, torch.int64)
        if values.dtype in (torch.float16, torch.bfloat16):
            values = values.float()
        classes = values.shape[1]
        wanted = torch.ones_like(labels, dtype=torch.bool) if self.ignore_index is None else labels != self.ignore_index
        known = (labels >= 0) & (labels < classes)
        sound = values.isfinite().all(dim=1)
        if self.inputs == "probs":
            sound &= (values >= 0).all(dim=1) & ((values.sum(dim=1) - 1).abs() <= SUM_TOLERANCE)
        counts = wanted & known & sound
        self.n = self.n + counts.sum()
        self.bad_values = self.bad_values + (wanted & ~sound).sum()
        self.bad_labels = self.bad_labels + (wanted & ~known).sum()
        # Rows that do not count become harmless ones, so that no index is out of range and no NaN meets a sum.
        values = torch.where(counts[:, None], values, 1 / classes)
        self._add(values, torch.where(counts, labels, 0), counts.to(torch.int64))

    def compute(self) -> Any:
        """The value over all samples so far, of all processes."""
        if bad := int(self.bad_values):
            what = "NaN or infinite" if self.inputs == "logits" else "no probability distribution (or logits)"
            raise InputError(f"`{self.inputs}` were {what} in {bad} of {bad + int(self.n)} samples passed to update")
        if bad := int(self.bad_labels):
            raise InputError(
                f"`labels` were out of range in {bad} of {bad + int(self.n)} samples passed to update; labels that "
                f"mean 'leave out' are named by ignore_index (now {self.ignore_index})"
            )
        if not int(self.n):
            raise InputError("no samples yet: call update before compute")
        return self._value()

    def _probs(self, values: Tensor) -> Tensor:
        return values.softmax(dim=1) if self.inputs == "logits" else values

    def _scalar(self, value: float) -> Tensor:
        return torch.tensor(value, dtype=torch.float64, device=self.device)

    @abstractmethod
    def _add(self, values: Tensor, labels: Tensor, counts: Tensor) -> None:
        """Add a checked batch to the sums; `counts` is 0 for ignored samples."""

    @abstractmethod
    def _value(self) -> Any:
        """The metric of the sums."""

    def _apply(self, fn: Callable[[Tensor], Tensor], *unused: Any, **options: Any) -> Any:
        device = fn(torch.zeros(1, device=self.device)).device
        home = torch.device("cpu") if device.type == "mps" else device
        return super()._apply(lambda tensor: tensor.to(home), *unused, **options)
