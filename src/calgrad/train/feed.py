"""Where a step's samples come from: a data set that lies on the device, or batches that workers decode.

On the device there is nothing to load: the images (uint8), the epoch's permutation and its random numbers are all
there, and a counter says where the epoch stands. Everything random is drawn on the CPU as a pure function of (seed,
epoch), so a resumed run repeats it, and so does the same run on another kind of device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from itertools import islice

import torch
from torch import Tensor

from calgrad.data import (
    Augment,
    Batch,
    DataSpec,
    EpochPlan,
    FolderPart,
    Part,
    TensorPart,
    batches,
    make_batch,
    plan_epoch,
)
from calgrad.train.distributed import Group
from calgrad.train.recipe import Recipe


def augmentation(recipe: Recipe, spec: DataSpec) -> Augment:
    """What the recipe's words mean for a data set."""
    if recipe.augment == "none":
        return Augment(mixup=recipe.mixup or 0.0)
    return Augment.usual(spec, mixup=recipe.mixup or 0.0, augmix=recipe.augment == "augmix")


def input_dtype(recipe: Recipe) -> torch.dtype:
    """What the network's first layer reads."""
    return torch.bfloat16 if recipe.precision == "bf16" else torch.float32


def batch_sizes(samples: int, batch: int) -> list[int]:
    """The sizes of an epoch's batches; the last one keeps what is left, as published.

    >>> batch_sizes(300, 128)
    [128, 128, 44]
    """
    full, rest = divmod(samples, batch)
    return [batch] * full + ([rest] if rest else [])


def make_feed(part: Part, recipe: Recipe, seed: int, *, device: torch.device, group: Group) -> DeviceFeed | StreamFeed:
    """The feed for a training part."""
    if isinstance(part, TensorPart):
        return DeviceFeed(part.to(device), recipe, seed, group=group)
    return StreamFeed(part, recipe, seed, device=device, group=group)


class DeviceFeed:
    """A data set on the device, read at a counter on the device."""

    def __init__(self, part: TensorPart, recipe: Recipe, seed: int, *, group: Group) -> None:
        self.part, self.recipe, self.seed, self.group = part, recipe, seed, group
        self.sizes = batch_sizes(len(part), recipe.batch)
        self.augment, self.dtype = augmentation(recipe, part.spec), input_dtype(recipe)
        device = part.labels.device
        self.mean, self.std = part.spec.channel_stats(device)
        self.cursor = torch.zeros((), dtype=torch.int64, device=device)
        first = self._draw(0)
        moved = (getattr(first, f.name) for f in fields(first))
        self.plan = EpochPlan(*(None if t is None else t.to(device, copy=True) for t in moved))  # type: ignore[arg-type]

    def start(self, epoch: int, step: int = 0) -> None:
        """Get ready for an epoch (from 0), at a step within it."""
        self.plan.copy_(self._draw(epoch))
        self.cursor.fill_(step * self.recipe.batch)

    def load(self, size: int) -> None:
        """Nothing: it is all there."""

    def take(self, size: int) -> tuple[Tensor, Tensor]:
        """This process's share of the batch at the counter."""
        start, stop = self.group.bounds(size)
        # A process whose share of a tiny last batch is empty still takes part in the backward pass, with a dropped row.
        positions = self.cursor + torch.arange(start, max(stop, start + 1), device=self.cursor.device).clamp(
            max=size - 1
        )
        taken = make_batch(
            self.part, self.plan, positions, augment=self.augment, mean=self.mean, std=self.std, dtype=self.dtype
        )
        return taken.images, taken.labels

    def advance(self, size: int) -> None:
        """Move the counter past the batch."""
        self.cursor.add_(size)

    def state_tensors(self) -> dict[str, Tensor]:
        """The counter."""
        return {"cursor": self.cursor}

    def _draw(self, epoch: int) -> EpochPlan:
        recipe = self.recipe
        return plan_epoch(
            len(self.part),
            seed=self.seed,
            epoch=epoch,
            batch_size=recipe.batch,
            augment=self.augment,
        )


class StreamFeed:
    """Batches that workers decode, copied into buffers that stay, so that a captured step can read them."""

    def __init__(self, part: FolderPart, recipe: Recipe, seed: int, *, device: torch.device, group: Group) -> None:
        self.part, self.recipe, self.seed, self.device, self.group = part, recipe, seed, device, group
        self.sizes = batch_sizes(len(part), recipe.batch)
        spec = part.spec
        start, stop = group.bounds(recipe.batch)
        rows = max(stop - start, 1)
        dtype = input_dtype(recipe)
        self.images = torch.zeros((rows, *spec.input_shape), dtype=dtype, device=device)
        soft = recipe.mixup is not None
        shape = (rows, spec.class_count) if soft else (rows,)
        self.labels = torch.zeros(shape, dtype=torch.float32 if soft else torch.int64, device=device)
        self.batches: Iterator[Batch] = iter(())

    def start(self, epoch: int, step: int = 0) -> None:
        """Start the workers on an epoch; batches before `step` are decoded and dropped."""
        stream = batches(
            self.part,
            self.recipe.batch,
            epoch=epoch,
            seed=self.seed,
            shuffle=True,
            augment=augmentation(self.recipe, self.part.spec),
            device=self.device,
            dtype=self.images.dtype,
            rank=self.group.rank,
            world=self.group.world,
            workers=self.recipe.workers,
        )
        self.batches = islice(stream, step, None)

    def load(self, size: int) -> None:
        """Copy the next batch into the buffers."""
        batch = next(self.batches)
        self.images[: len(batch.images)].copy_(batch.images, non_blocking=True)
        self.labels[: len(batch.labels)].copy_(batch.labels, non_blocking=True)

    def take(self, size: int) -> tuple[Tensor, Tensor]:
        """The rows of the buffers that the batch fills."""
        start, stop = self.group.bounds(size)
        rows = max(stop - start, 1)
        return self.images[:rows], self.labels[:rows]

    def advance(self, size: int) -> None:
        """Nothing: `load` brings the next batch."""

    def state_tensors(self) -> dict[str, Tensor]:
        """Nothing lasts from one batch to the next."""
        return {}
