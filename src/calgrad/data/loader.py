"""Batches of any part, with one interface: augmented, normalised, on the device, in this process's share.

In-memory parts are indexed on the device; nothing is copied and nothing synchronises. Parts on disk are decoded by
worker processes, pinned and prefetched as uint8; flips, mixup and normalisation then run on the device, in the same
code. What an
image undergoes depends on (seed, epoch, image) alone, not on the number of workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from calgrad.checks import InputError, positive_int
from calgrad.data.augment import Augment, mixup, normalise, random_crop_flip
from calgrad.data.augmix import augmix
from calgrad.data.files import decode_batches
from calgrad.data.parts import FolderPart, Part, TensorPart
from calgrad.data.plan import EpochPlan, plan_epoch

__all__ = ["Batch", "batches", "make_batch", "rank_slice"]


class Batch(NamedTuple):
    """Normalised inputs, labels (indices, or class probabilities under mixup), and the ids of the samples."""

    images: Tensor
    labels: Tensor
    ids: Tensor


def batches(
    part: Part,
    batch_size: int,
    *,
    epoch: int = 0,
    seed: int = 0,
    shuffle: bool = False,
    augment: Augment | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    drop_last: bool = False,
    rank: int = 0,
    world: int = 1,
    workers: int | None = None,
) -> Iterator[Batch]:
    """One epoch of a part.

    Args:
        part: An in-memory part (move it to the device once, with `Splits.to`) or one on disk.
        batch_size: Of the *global* batch; process `rank` of `world` gets its slice of it.
        epoch: With `seed`, decides order and augmentation.
        seed: Any whole number from 0.
        shuffle: A new order each epoch. Without it samples come in order, none twice, for evaluation.
        augment: None for evaluation; `Augment.usual(part.spec)` for training.
        device: Where the batches are.
        dtype: Of the images, after normalisation in float32.
        drop_last: Leave out a last batch that is not full.
        rank: This process.
        world: How many processes there are.
        workers: Decoding processes for a part on disk; 0 decodes in this one, None takes one a core, eight at most.

    Yields:
        `Batch(images, labels, ids)`. Skipped corrupt images are missing from it; where `shuffle` is on, other images
        of the batch take their places.

    Example:
        >>> from calgrad.data import batches, load_data
        >>> images, labels, ids = next(batches(load_data("digits").train, 32, shuffle=True))
        >>> images.shape, labels.shape
        (torch.Size([32, 1, 8, 8]), torch.Size([32]))
    """
    positive_int("batch_size", batch_size)
    positive_int("world", world)
    if not 0 <= rank < world:
        raise InputError(f"`rank` must lie in [0, {world}) for {world} processes, got {rank}")
    if not len(part):
        return
    augment = augment or Augment()
    slices = [
        rank_slice(start, min(batch_size, len(part) - start), rank, world)
        for start in range(0, len(part), batch_size)
        if not drop_last or start + batch_size <= len(part)
    ]
    mean, std = part.spec.channel_stats(device)
    if isinstance(part, TensorPart):
        part = part.to(device)
        plan = plan_epoch(
            len(part), seed=seed, epoch=epoch, batch_size=batch_size, shuffle=shuffle, augment=augment, device=device
        )
        positions = torch.arange(len(part), device=device)
        for share in slices:
            yield make_batch(part, plan, positions[share], augment=augment, mean=mean, std=std, dtype=dtype)
        return
    plan = plan_epoch(len(part), seed=seed, epoch=epoch, batch_size=batch_size, shuffle=shuffle, augment=augment)
    pinned = torch.device(device).type == "cuda"
    shares = [torch.arange(share.start, share.stop) for share in slices]
    decoded = decode_batches(
        part, [plan.order[at] for at in shares], seed=seed, epoch=epoch, resized_crop=augment.resized_crop,
        workers=workers, pinned=pinned,
    )  # fmt: skip
    for at, (images, kept) in zip(shares, decoded):
        if shuffle and 0 < len(kept) < len(at):
            # Training wants batches of one size: other images of the batch stand in for those that were skipped.
            again = torch.arange(len(at)) % len(kept)
            images, kept = images[again], kept[again]
        yield _finish_folder_batch(part, plan, at[kept], images, augment, mean, std, dtype)


def rank_slice(start: int, size: int, rank: int, world: int) -> slice:
    """Positions of process `rank` in the global batch of `size` samples at `start`: contiguous, equal to within one."""
    return slice(start + size * rank // world, start + size * (rank + 1) // world)


def make_batch(
    part: TensorPart,
    plan: EpochPlan,
    positions: Tensor,
    *,
    augment: Augment,
    mean: Tensor,
    std: Tensor,
    dtype: torch.dtype = torch.float32,
) -> Batch:
    """The batch at these positions of a planned epoch: tensor operations alone, so it may stand inside a CUDA graph."""
    if augment.resized_crop:
        raise InputError(
            "`resized_crop` needs images read from files; in-memory images all have one size: use `crop_pad`"
        )
    rows = plan.order[positions]
    images = normalise(_augmented(part.images[rows], plan, positions, augment), mean, std, dtype)
    labels, ids = part.labels[rows], part.ids[rows]
    if plan.partner is None or plan.lam is None:
        return Batch(images, labels, ids)
    partner = plan.partner[positions]
    partner_rows = plan.order[partner]
    partner_images = normalise(_augmented(part.images[partner_rows], plan, partner, augment), mean, std, dtype)
    mixed, soft = mixup(
        images, partner_images, labels, part.labels[partner_rows], plan.lam[positions], classes=part.spec.class_count
    )
    return Batch(mixed, soft, ids)


def _augmented(images: Tensor, plan: EpochPlan, positions: Tensor, augment: Augment) -> Tensor:
    if plan.offsets is not None and plan.flips is not None:
        images = random_crop_flip(images, plan.offsets[positions], plan.flips[positions], pad=augment.crop_pad)
    return images if plan.augmix is None else augmix(images, plan.augmix[positions])


def _finish_folder_batch(
    part: FolderPart,
    plan: EpochPlan,
    positions: Tensor,
    images: Tensor,
    augment: Augment,
    mean: Tensor,
    std: Tensor,
    dtype: torch.dtype,
) -> Batch:
    device = mean.device
    rows = plan.order[positions]
    draws = plan.at(positions, device)
    here = torch.arange(len(positions), device=device)
    pixels = _augmented(images.to(device, non_blocking=True), draws, here, augment)
    values = normalise(pixels, mean, std, dtype)
    labels, ids = (t[rows].to(device, non_blocking=True) for t in (part.labels, part.ids))
    if draws.lam is None or not len(positions):
        return Batch(values, labels, ids)
    # The partner is the neighbour in this process's share: one of another process would have to be decoded twice.
    mixed, soft = mixup(
        values, values.roll(-1, 0), labels, labels.roll(-1, 0), draws.lam, classes=part.spec.class_count
    )
    return Batch(mixed, soft, ids)
