"""AugMix (Hendrycks et al. 2020): mix an image with three short chains of random operations on it.

Every chain applies one to three operations; the chains are mixed with Dirichlet(1, 1, 1) weights and the result with
the image itself by a Beta(1, 1) weight. The original draws per image in Python; here the whole batch goes through
together: the five geometric operations are one `grid_sample` with a matrix per sample, the four pixel operations are
computed for all and chosen per sample. Operations and their strength follow the published ones, which are Pillow's. The
consistency term of the AugMix *loss* is not part of this; a caller who wants it draws several views.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["AUGMIX_DRAWS", "augmix", "autocontrast", "equalize", "geometric", "posterize", "solarize"]

WIDTH, DEPTH, SEVERITY = 3, 3, 3
OPERATIONS = (
    "autocontrast", "equalize", "posterize", "solarize", "rotate", "shear_x", "shear_y", "translate_x", "translate_y",
)  # fmt: skip
AUGMIX_DRAWS = WIDTH * DEPTH * 3 + WIDTH + WIDTH + 1
"""Uniform numbers one image needs: operation, level, sign a step; depth and weight a chain; the last mix."""


def augmix(images: Tensor, uniforms: Tensor) -> Tensor:
    """AugMix of (B, C, H, W) images in 0..255, as float32 in 0..255.

    Args:
        images: uint8, or float holding whole numbers.
        uniforms: (B, AUGMIX_DRAWS) in [0, 1): all the randomness.
    """
    batch = len(images)
    steps = uniforms[:, : WIDTH * DEPTH * 3].view(batch, WIDTH, DEPTH, 3)
    depth = (uniforms[:, -2 * WIDTH - 1 : -WIDTH - 1] * DEPTH).floor() + 1
    exponential = -torch.log1p(-uniforms[:, -WIDTH - 1 : -1]).clamp(max=-1e-7)
    weights = exponential / exponential.sum(dim=1, keepdim=True)  # Dirichlet(1, 1, 1)
    original = images.to(torch.float32)
    mixed = torch.zeros_like(original)
    for chain in range(WIDTH):
        view = original
        for step in range(DEPTH):
            changed = _operation(view, *steps[:, chain, step].unbind(dim=1))
            view = torch.where(_per_image(depth[:, chain] > step), changed, view)
        mixed = mixed + _per_image(weights[:, chain]) * view
    m = _per_image(uniforms[:, -1])
    return (1 - m) * original + m * mixed


def _operation(images: Tensor, which: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    index = (which * len(OPERATIONS)).long()
    strength = (0.1 + level * (SEVERITY - 0.1)) / 10  # a fraction of each operation's greatest value
    sign = torch.where(sign < 0.5, -1.0, 1.0)
    out = geometric(images, *_affine(index, strength, sign, images.shape[-1]))
    pixelwise = (
        autocontrast(images),
        equalize(images),
        posterize(images, 4 - (strength * 4).floor()),
        solarize(images, 256 - (strength * 256).floor()),
    )
    for k, changed in enumerate(pixelwise):
        out = torch.where(_per_image(index == k), changed, out)
    return out


def _affine(index: Tensor, strength: Tensor, sign: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Matrix (B, 2, 2) and shift (B, 2), in pixels, from an output point (x, y) to the input point it is read from."""

    def amount(name: str, value: Tensor) -> Tensor:
        return torch.where(index == OPERATIONS.index(name), value * sign, 0.0)

    angle = amount("rotate", (strength * 30).floor()) * (math.pi / 180)
    cos, sin = angle.cos(), angle.sin()
    # A positive angle turns counter-clockwise, as Pillow's does, about the centre of the image.
    matrix = torch.stack(
        [torch.stack([cos, -sin + amount("shear_x", strength * 0.3)], 1),
         torch.stack([sin + amount("shear_y", strength * 0.3), cos], 1)], dim=1
    )  # fmt: skip
    centre = size / 2
    shift = torch.stack([centre - (cos - sin) * centre, centre - (sin + cos) * centre], dim=1)
    pixels = (strength * (size / 3)).floor()
    return matrix, shift + torch.stack([amount("translate_x", pixels), amount("translate_y", pixels)], dim=1)


def geometric(images: Tensor, matrix: Tensor, shift: Tensor) -> Tensor:
    """Read output pixel centre (x, y) from the input at `matrix` (x, y) + `shift`: bilinear, black outside, rounded."""
    height, width = images.shape[-2:]
    y, x = torch.meshgrid(
        torch.arange(height, device=images.device) + 0.5, torch.arange(width, device=images.device) + 0.5, indexing="ij"
    )
    points = torch.stack([x, y], dim=-1)  # (H, W, 2)
    source = torch.einsum("bij,hwj->bhwi", matrix, points) + shift[:, None, None]
    # Not in place of a tensor of sizes: that would be a copy from the host inside a captured step.
    grid = torch.stack([source[..., 0] * (2 / width), source[..., 1] * (2 / height)], dim=-1) - 1
    # Pillow repeats the edge within half a pixel of the border and is black beyond it.
    read = F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)
    inside = (grid.abs() <= 1).all(dim=-1)[:, None]
    return torch.where(inside, read, 0.0).round().clamp(0, 255)


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the highest `bits` (B,) bits of each pixel."""
    step = _per_image(torch.exp2(8 - bits))
    return (images / step).floor() * step


def solarize(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert the pixels that are not below `threshold` (B,)."""
    return torch.where(images < _per_image(threshold), images, 255 - images)


def autocontrast(images: Tensor) -> Tensor:
    """Stretch each channel so that its darkest pixel is 0 and its lightest 255."""
    low, high = torch.aminmax(images.flatten(2), dim=2)
    low, spread = low[..., None, None], (high - low)[..., None, None]
    stretched = ((images - low) * (255 / spread.clamp(min=1))).add(1e-3).floor().clamp(0, 255)
    return torch.where(spread > 0, stretched, images)


def equalize(images: Tensor) -> Tensor:
    """Spread each channel's histogram evenly, by Pillow's integer rule."""
    batch, channels, height, width = images.shape
    pixels = images.long().view(batch * channels, -1)
    histogram = torch.zeros(batch * channels, 256, dtype=torch.int64, device=images.device)
    histogram.scatter_add_(1, pixels, torch.ones_like(pixels))
    last = pixels.amax(dim=1, keepdim=True)
    step = (height * width - histogram.gather(1, last)) // 255
    before = histogram.cumsum(dim=1) - histogram
    table = ((before + step // 2) // step.clamp(min=1)).clamp(max=255)
    table = torch.where(step > 0, table, torch.arange(256, device=images.device))
    return table.gather(1, pixels).view_as(images).to(images.dtype)


def _per_image(values: Tensor) -> Tensor:
    return values[:, None, None, None]
