"""The first layers and the last pool, by image size.

| image | stem | maps before the last pool of a four-stage net | pool |
|---|---|---|---|
| below 48 px (CIFAR) | 3x3 convolution | 4x4 | 1x1 |
| 48 to 127 px (Tiny-ImageNet) | 3x3 convolution | 8x8 | 2x2 (ResNets), as the paper's: its head sees 8192 numbers |
| 128 px and above (ImageNet) | 7x7 convolution of stride 2, 3x3 max-pool of stride 2 | 7x7 | 1x1 |
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from calgrad.checks import InputError, positive_int

__all__ = ["Stem", "is_large", "pool_size"]

_MEDIUM, _LARGE = 48, 128


def is_large(image_size: int) -> bool:
    """Whether the ImageNet stem is used."""
    return image_size >= _LARGE


def pool_size(image_size: int) -> int:
    """Side of a ResNet's pooled maps."""
    return 2 if _MEDIUM <= image_size < _LARGE else 1


class Stem(nn.Module):
    """Convolution, batch norm, ReLU and, for large images, a max-pool."""

    def __init__(self, channels: int, width: int, *, image_size: int) -> None:
        super().__init__()
        positive_int("image_size", image_size)
        if image_size < 4:
            raise InputError(
                f"a convolutional net needs images of at least 4 pixels, got `image_size` {image_size}: use 'mlp'"
            )
        large = is_large(image_size)
        kernel, stride = (7, 2) if large else (3, 1)
        self.conv = nn.Conv2d(channels, width, kernel, stride, kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.pool = nn.MaxPool2d(3, 2, 1) if large else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Maps of `width` channels."""
        return self.pool(F.relu(self.norm(self.conv(x)), inplace=True))
