"""Losses that weigh a sample by how miscalibrated its neighbours in confidence are.

`GapCE` ("ece-ce") looks at the batch itself: a sample counts more when the batch's calibration gap in its confidence
bin is large. `AdaFocal` [Ghosh22] looks at validation data: every confidence bin has a gamma of its own, which grows
while the bin is over-confident and shrinks, through zero into the inverse focal loss, while it is under-confident.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from calgrad.checks import InputError, between, logits_and_labels, positive_int
from calgrad.losses.base import Batch, as_rows
from calgrad.losses.scheduled import ScheduledFocal
from calgrad.losses.weighted import CrossEntropy, WeightedCE


class GapCE(CrossEntropy):
    """Cross-entropy weighted, on the gradient, by the calibration gap of the sample's confidence bin in the batch.

    With equal-width, right-closed bins of the confidence, gap_b = |sum_{i in b} (c_i - r_i)| / n_b is what ECE
    averages, and the weight is (gap_b + floor) / (mean gap + floor), a constant to autograd. So the weights average 1
    over the batch whatever the size of the gaps: the learning rate of cross-entropy fits, and a batch without any gap
    is plain cross-entropy instead of a zero gradient. `floor` is also what keeps the noise of bins with few samples
    in check: a bin's gap has a standard deviation near 0.5 / sqrt(n_b), so in a batch of 128 gaps under a few percent
    mean nothing. An empty bin weighs nobody.

    The weight does not depend on the sample's own label but through its 1 / n_b share of the gap, and to that order the
    minimiser is cross-entropy's: the posterior itself.

    Args:
        bins: how many equal-width confidence bins.
        floor: the gap that is added to every gap.
        **options: as in `nn.CrossEntropyLoss`.
    """

    def __init__(self, *, bins: int = 15, floor: float = 0.05, **options: Any) -> None:
        super().__init__(**options)
        positive_int("bins", bins)
        between("floor", floor, 1e-6, 1e6)
        self.bins = bins
        self.floor = floor

    def _values(self, batch: Batch, scale: Tensor) -> Tensor:
        return self.gap_weight(batch) * super()._values(batch, scale)

    @torch.no_grad()
    def gap_weight(self, batch: Batch) -> Tensor:
        """(N,): the weights, which average 1 over the samples that are not ignored."""
        confidence, prediction = batch.logits.softmax(dim=1).max(dim=1)
        is_correct = batch.is_correct(prediction)
        counts = batch.valid.to(confidence.dtype)
        index = (confidence * self.bins).ceil().clamp(1, self.bins) - 1  # (lo, hi], as the metrics bin by default
        member = (index.unsqueeze(1) == torch.arange(self.bins, device=index.device)) * counts.unsqueeze(1)
        gap = (member * (is_correct - confidence).unsqueeze(1)).sum(dim=0).abs() / member.sum(dim=0).clamp_min(1)
        own = (member * gap).sum(dim=1)
        mean = own.sum() / counts.sum().clamp_min(1)
        return (own + self.floor) / (mean + self.floor)

    def _arguments(self) -> list[str]:
        return [f"bins={self.bins!r}", f"floor={self.floor!r}"]


class GammaPerBin(ScheduledFocal, nn.Module):
    """A gamma a confidence bin; both the inner edges and the gammas are buffers, so a checkpoint holds them."""

    edges: Tensor
    gammas: Tensor

    def __init__(self, bins: int, gamma: float) -> None:
        nn.Module.__init__(self)
        self.register_buffer("edges", torch.arange(1, bins, dtype=torch.float32) / bins)
        self.register_buffer("gammas", torch.full((bins,), float(gamma)))

    def gamma_at(self, p: Tensor) -> Tensor:
        """The gamma of the bin (lo, hi] that p falls into."""
        return self.gammas[self.bin_of(p)]

    def bin_of(self, p: Tensor) -> Tensor:
        """The index of the bin, of p's shape."""
        return (p.unsqueeze(-1) > self.edges.to(p.dtype)).sum(dim=-1)


class AdaFocal(WeightedCE):
    """Focal loss with a gamma per confidence bin that follows the calibration of validation data [Ghosh22].

    A training sample takes the gamma of the bin its p_y falls into: (1 - p_y) ** gamma, or (1 + p_y) ** -gamma where
    gamma is negative. Call `update(logits, labels)` after each validation. The state is in buffers, so `state_dict`
    holds it.

    Args:
        bins: how many bins, of equal mass in the validation confidences once updated.
        gamma: what every bin starts from.
        rate: gamma is multiplied by exp(rate x (confidence - accuracy)) of its bin.
        switch: where |gamma| falls below this, focal and inverse focal change places.
        gamma_min: the lowest gamma, negative: inverse focal.
        gamma_max: the highest gamma.
        on: "loss" as published, or "gradient".
        **options: as in `nn.CrossEntropyLoss`.
    """

    uncertainty: GammaPerBin

    def __init__(
        self,
        *,
        bins: int = 15,
        gamma: float = 1.0,
        rate: float = 1.0,
        switch: float = 0.2,
        gamma_min: float = -2.0,
        gamma_max: float = 20.0,
        on: str = "loss",
        **options: Any,
    ) -> None:
        positive_int("bins", bins)
        between("rate", rate, 0, 1e3)
        between("switch", switch, 1e-6, 1e3)
        between("gamma_max", gamma_max, switch, 1e3)
        between("gamma_min", gamma_min, -1e3, -switch)
        between("gamma", gamma, gamma_min, gamma_max)
        if abs(gamma) < switch:
            raise InputError(f"`gamma` must be at least `switch` ({switch!r}) away from 0, got {gamma!r}")
        super().__init__(GammaPerBin(bins, gamma), on=on, **options)
        self.settings = {"bins": bins, "gamma": gamma, "rate": rate, "switch": switch}
        self.settings |= {"gamma_min": gamma_min, "gamma_max": gamma_max}

    @torch.no_grad()
    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Move the bins' edges to equal mass in these validation samples, and their gammas by the bins' calibration."""
        rows = as_rows(logits, labels, self.ignore_index)
        if rows.is_soft:
            raise InputError("`labels` of the validation samples must be class indices, got label distributions")
        checked, indices = logits_and_labels(rows.logits[rows.valid], rows.labels[rows.valid])
        confidence, prediction = checked.double().softmax(dim=1).max(dim=1)
        state, bins = self.uncertainty, len(self.uncertainty.gammas)
        # Inner edges at the order statistics that end each of `bins` runs of equal length.
        ends = torch.arange(1, bins, device=confidence.device) * len(confidence) // bins
        state.edges.copy_(confidence.sort().values[(ends - 1).clamp_min(0)])
        member = (state.bin_of(confidence).unsqueeze(1) == torch.arange(bins, device=confidence.device)).double()
        gap = (member * (confidence - (prediction == indices).double()).unsqueeze(1)).sum(dim=0)
        state.gammas.copy_(self._moved(state.gammas.double(), gap / member.sum(dim=0).clamp_min(1)))

    def _moved(self, gamma: Tensor, gap: Tensor) -> Tensor:
        """The next gammas: over-confidence (gap > 0) raises them, on both sides of zero."""
        rate, switch = self.settings["rate"], self.settings["switch"]
        moved = gamma * torch.exp(gamma.sign() * rate * gap)
        crossed = moved.abs() < switch
        return torch.where(crossed, -gamma.sign() * switch, moved).clamp(
            self.settings["gamma_min"], self.settings["gamma_max"]
        )

    def _arguments(self) -> list[str]:
        return [*(f"{name}={value!r}" for name, value in self.settings.items()), f"on={self.on!r}"]
