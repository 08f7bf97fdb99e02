"""Random crops, flips, mixup and normalisation as pure functions of tensors.

Everything random comes in as an argument, drawn for a whole epoch at a time (`calgrad.data.plan`). So a function here
has static shapes, no loop over samples and no device sync, and can be captured in a CUDA graph together with the
training step. Images stay in raw pixel space (0..255) until `normalise`, as in torchvision's RandomCrop, ToTensor,
Normalize: the zeros that pad a crop are black pixels, not mean pixels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from calgrad.checks import at_least, one_of
from calgrad.data.spec import DataSpec

__all__ = ["Augment", "mixup", "normalise", "random_crop_flip"]


@dataclass(frozen=True)
class Augment:
    """What is done to a training image. `Augment.usual(spec)` is the set's customary crop and flip."""

    crop_pad: int = 0
    """Random crop after padding with this many zeros on each side."""
    flip: bool = False
    """Mirror left and right with probability one half."""
    mixup: float = 0.0
    """alpha of mixup's Beta(alpha, alpha); 0: none. Labels become class probabilities."""
    mixup_per: str = "batch"
    """One mixing weight a "batch", as published, or a "sample"."""
    augmix: bool = False
    """AugMix after crop and flip."""
    resized_crop: bool = False
    """Crop a random area and aspect ratio and scale it to size; for images read from files."""

    def __post_init__(self) -> None:
        at_least("crop_pad", self.crop_pad, 0)
        at_least("mixup", self.mixup, 0)
        one_of("mixup_per", self.mixup_per, ("batch", "sample"))

    @classmethod
    def usual(cls, spec: DataSpec, *, mixup: float = 0.0, augmix: bool = False) -> Augment:
        """The data set's customary augmentation, from its spec."""
        return cls(crop_pad=spec.crop_pad, flip=spec.flip, mixup=mixup, augmix=augmix, resized_crop=spec.resized_crop)


def random_crop_flip(images: Tensor, offsets: Tensor, flips: Tensor, *, pad: int = 4) -> Tensor:
    """Crop each image at its own offset out of its zero-padded self, and mirror some.

    Args:
        images: (B, C, H, W), any dtype.
        offsets: (B, 2) integers in [0, 2 * pad]: the crop's top row and left column in the padded image.
        flips: (B,) bool: mirror left and right, after the crop.
        pad: Zero rows and columns added on each side.
    """
    batch, channels, height, width = images.shape
    device = images.device
    padded = F.pad(images, (pad, pad, pad, pad)) if pad else images
    rows = offsets[:, 0, None] + torch.arange(height, device=device)
    columns = torch.arange(width, device=device)
    columns = offsets[:, 1, None] + torch.where(flips[:, None], width - 1 - columns, columns)
    sample = torch.arange(batch, device=device)[:, None, None, None]
    channel = torch.arange(channels, device=device)[None, :, None, None]
    return padded[sample, channel, rows[:, None, :, None], columns[:, None, None, :]]


def normalise(images: Tensor, mean: Tensor, std: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Pixels 0..255 to zero mean and unit variance per channel: (images / 255 - mean) / std, computed in float32.

    `mean` and `std` broadcast over the images, as `DataSpec.channel_stats(device)` gives them. Feature vectors (N, D)
    are not pixels and are not divided by 255.
    """
    values = images.to(torch.float32)
    if images.ndim == 4:
        values = values / 255
    return ((values - mean) / std).to(dtype)


def mixup(
    images: Tensor, partner_images: Tensor, labels: Tensor, partner_labels: Tensor, lam: Tensor, *, classes: int
) -> tuple[Tensor, Tensor]:
    """Lam * x + (1 - lam) * partner for images and one-hot labels alike (Zhang et al. 2018).

    Args:
        images: (B, ...) float.
        partner_images: (B, ...) float.
        labels: (B,) class indices.
        partner_labels: (B,) class indices.
        lam: (B,) or one number as a tensor of shape (1,), in [0, 1].
        classes: K.

    Returns:
        Mixed images and class probabilities (B, K).
    """
    shape = (-1,) + (1,) * (images.ndim - 1)
    weight = lam.to(images.dtype).view(shape)
    soft = lam.to(torch.float32).view(-1, 1)
    one_hot, partner_one_hot = (F.one_hot(y, classes).to(torch.float32) for y in (labels, partner_labels))
    return weight * images + (1 - weight) * partner_images, soft * one_hot + (1 - soft) * partner_one_hot
