"""ResNets: one class for ResNet-18/50, the paper's "ResNet-110", He's CIFAR ResNet-110 and WRN-26-10.

They differ in block, depths, widths and stem. `image_size` picks the stem (`calgrad.models.stem`). The paper's 110 is
bottlenecks [3, 4, 26, 3] at ImageNet's widths; He's has 6n + 2 = 110 layers in basic blocks of width 16, 32, 64, whose
shortcuts have no parameters (his option A). A bottleneck's stride is on its 3x3 convolution, as in torchvision and in
the paper's code.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calgrad.checks import one_of
from calgrad.models.base import Classifier, init_fan_out
from calgrad.models.stem import Stem, pool_size

__all__ = ["BasicBlock", "Bottleneck", "ResNet"]


def _conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs)]


class PadShortcut(nn.Module):
    """He's option A: every `stride`-th pixel, and zeros for the channels that are new."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride, self.missing = stride, outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) to (N, outputs, H / stride, W / stride)."""
        front = self.missing // 2
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, front, self.missing - front))


def _shortcut(inputs: int, outputs: int, stride: int, option: str) -> nn.Module:
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    if option == "A":
        return PadShortcut(inputs, outputs, stride)
    return nn.Sequential(*_conv_norm(inputs, outputs, 1, stride))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut, ReLU after the sum."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, shortcut: str) -> None:
        super().__init__()
        self.conv1, self.bn1 = _conv_norm(inputs, width, 3, stride)
        self.conv2, self.bn2 = _conv_norm(width, width, 3)
        self.shortcut = _shortcut(inputs, width, stride, shortcut)

    def forward(self, x: Tensor) -> Tensor:
        """Maps of `width` channels."""
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(out)) + self.shortcut(x), inplace=True)


class Bottleneck(nn.Module):
    """1x1 down, 3x3, 1x1 up to four times the width."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, shortcut: str) -> None:
        super().__init__()
        self.conv1, self.bn1 = _conv_norm(inputs, width, 1)
        self.conv2, self.bn2 = _conv_norm(width, width, 3, stride)
        self.conv3, self.bn3 = _conv_norm(width, 4 * width, 1)
        self.shortcut = _shortcut(inputs, 4 * width, stride, shortcut)

    def forward(self, x: Tensor) -> Tensor:
        """Maps of 4 * `width` channels."""
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = F.relu(self.bn2(self.conv2(out)), inplace=True)
        return F.relu(self.bn3(self.conv3(out)) + self.shortcut(x), inplace=True)


class ResNet(Classifier):
    """Stem, stages of blocks (each after the first halves the maps), average pool, linear head.

    Weights start as torch initialises them, which is what the paper's ResNets do.

    Args:
        block: `BasicBlock` or `Bottleneck`.
        depths: Blocks in each stage.
        widths: Channels of each stage, before the block's expansion.
        stem_width: Channels after the stem.
        classes: K.
        image_size: Picks the stem and the pool.
        channels: Of the input.
        shortcut: "B", a 1x1 convolution where shapes change, or "A", without parameters.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        widths: Sequence[int],
        *,
        stem_width: int,
        classes: int,
        image_size: int,
        channels: int = 3,
        shortcut: str = "B",
    ) -> None:
        super().__init__()
        one_of("shortcut", shortcut, ("A", "B"))
        self.stem = Stem(channels, stem_width, image_size=image_size)
        stages, inputs = [], stem_width
        for index, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            blocks = []
            for place in range(depth):
                blocks.append(block(inputs, width, 2 if index and not place else 1, shortcut))
                inputs = width * block.expansion
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(pool_size(image_size))
        self.head = nn.Linear(inputs * pool_size(image_size) ** 2, classes)

    def features(self, x: Tensor) -> Tensor:
        """Pooled maps of the last stage, flattened."""
        return torch.flatten(self.pool(self.stages(self.stem(x))), 1)


_IMAGENET_WIDTHS = (64, 128, 256, 512)


def resnet18(*, classes: int, image_size: int, channels: int = 3) -> ResNet:
    """ResNet-18."""
    return ResNet(
        BasicBlock,
        (2, 2, 2, 2),
        _IMAGENET_WIDTHS,
        stem_width=64,
        classes=classes,
        image_size=image_size,
        channels=channels,
    )


def resnet50(*, classes: int, image_size: int, channels: int = 3) -> ResNet:
    """ResNet-50."""
    return ResNet(
        Bottleneck,
        (3, 4, 6, 3),
        _IMAGENET_WIDTHS,
        stem_width=64,
        classes=classes,
        image_size=image_size,
        channels=channels,
    )


def resnet110(*, classes: int, image_size: int, channels: int = 3) -> ResNet:
    """The paper's "ResNet-110": bottlenecks [3, 4, 26, 3]."""
    return ResNet(
        Bottleneck,
        (3, 4, 26, 3),
        _IMAGENET_WIDTHS,
        stem_width=64,
        classes=classes,
        image_size=image_size,
        channels=channels,
    )


def resnet110_he(*, classes: int, image_size: int, channels: int = 3, shortcut: str = "A") -> ResNet:
    """He et al.'s CIFAR ResNet-110: 18 basic blocks in each of three stages."""
    net = ResNet(
        BasicBlock,
        (18, 18, 18),
        (16, 32, 64),
        stem_width=16,
        shortcut=shortcut,
        classes=classes,
        image_size=image_size,
        channels=channels,
    )
    init_fan_out(net)
    return net


def wrn26_10(*, classes: int, image_size: int, channels: int = 3) -> ResNet:
    """The paper's WRN-26-10: post-activation basic blocks ten times as wide, no dropout."""
    net = ResNet(
        BasicBlock, (4, 4, 4), (160, 320, 640), stem_width=16, classes=classes, image_size=image_size, channels=channels
    )
    init_fan_out(net)
    return net
