"""All that is random about one epoch, drawn at once: the order of the samples and how each is augmented.

A plan is a pure function of (seed, epoch), so a resumed run repeats it exactly, and every process of a distributed
run makes the same plan and takes its slice of the same global batch. Its tensors live on the device and are indexed
by *position* in the epoch (0 .. N-1), so a step captured in a CUDA graph needs only a tensor of positions.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from calgrad.checks import at_least, positive_int
from calgrad.data.augment import Augment
from calgrad.data.augmix import AUGMIX_DRAWS

__all__ = ["EpochPlan", "plan_epoch"]

_ORDER, _CROP, _MIXUP, _AUGMIX = range(
    4
)  # independent streams: switching one augmentation on leaves the others as they were


@dataclass(frozen=True)
class EpochPlan:
    """The draws of an epoch by position; None where the augmentation is off."""

    order: Tensor
    """(N,) the row of the part that stands at each position."""
    offsets: Tensor | None = None
    """(N, 2) top row and left column of the crop."""
    flips: Tensor | None = None
    """(N,) bool."""
    lam: Tensor | None = None
    """(N,) mixup's weight of the sample itself."""
    partner: Tensor | None = None
    """(N,) the position, in the same global batch, of the sample it is mixed with."""
    augmix: Tensor | None = None
    """(N, AUGMIX_DRAWS) uniform numbers."""

    def __len__(self) -> int:
        return len(self.order)

    def at(self, positions: Tensor, device: torch.device | str) -> EpochPlan:
        """The draws of these positions alone, on another device; `partner` has no meaning there and is left out."""

        def pick(draws: Tensor | None) -> Tensor | None:
            return None if draws is None else draws[positions].to(device, non_blocking=True)

        order = self.order[positions].to(device, non_blocking=True)
        return EpochPlan(order, pick(self.offsets), pick(self.flips), pick(self.lam), None, pick(self.augmix))

    def copy_(self, other: EpochPlan) -> None:
        """Take over another epoch's draws in place: a captured CUDA graph reads these very tensors."""
        for each in fields(self):
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            if mine is not None:
                mine.copy_(theirs)


def plan_epoch(
    samples: int,
    *,
    seed: int,
    epoch: int,
    batch_size: int,
    shuffle: bool = True,
    augment: Augment | None = None,
    device: torch.device | str = "cpu",
) -> EpochPlan:
    """Draw an epoch. The same arguments give the same plan (CPU and CUDA generators differ from one another)."""
    positive_int("samples", samples)
    positive_int("batch_size", batch_size)
    at_least("seed", seed, 0)
    at_least("epoch", epoch, 0)
    augment = augment or Augment()

    def generator(stream: int) -> torch.Generator:
        state = np.random.SeedSequence([seed, epoch, stream]).generate_state(1, np.uint64)[0]
        return torch.Generator(device=device).manual_seed(int(state >> np.uint64(1)))

    position = torch.arange(samples, device=device)
    order = torch.randperm(samples, generator=generator(_ORDER), device=device) if shuffle else position
    offsets = flips = lam = partner = uniforms = None
    if augment.crop_pad or augment.flip:
        crop = generator(_CROP)
        offsets = torch.randint(2 * augment.crop_pad + 1, (samples, 2), generator=crop, device=device)
        flips = torch.rand(samples, generator=crop, device=device) < (0.5 if augment.flip else 0.0)
    if augment.mixup:
        start = position - position % batch_size
        partner = start + (position - start + 1) % (samples - start).clamp(max=batch_size)
        rng = np.random.default_rng([seed, epoch, _MIXUP])
        draws = -(-samples // batch_size) if augment.mixup_per == "batch" else samples
        beta = torch.from_numpy(rng.beta(augment.mixup, augment.mixup, size=draws)).float().to(device)
        lam = beta[position // batch_size] if augment.mixup_per == "batch" else beta
    if augment.augmix:
        uniforms = torch.rand((samples, AUGMIX_DRAWS), generator=generator(_AUGMIX), device=device)
    return EpochPlan(order, offsets, flips, lam, partner, uniforms)
