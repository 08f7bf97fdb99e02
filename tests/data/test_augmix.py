"""Each operation against Pillow's, which the published AugMix uses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from calgrad.data.augmix import (
    AUGMIX_DRAWS,
    OPERATIONS,
    _affine,
    augmix,
    autocontrast,
    equalize,
    geometric,
    posterize,
    solarize,
)


@pytest.fixture
def images() -> torch.Tensor:
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (6, 3, 32, 32))
    noise[1] = noise[1] // 3 + 40  # little contrast
    noise[2] = 77  # none at all
    noise[3, 0] = 255
    smooth = np.linspace(0, 255, 32)[None, :] * np.ones((32, 1))
    noise[4] = smooth
    noise[5] = rng.integers(0, 4, (3, 32, 32)) * 60
    return torch.from_numpy(noise.astype(np.float32))


def pillow(image: torch.Tensor) -> Image.Image:
    return Image.fromarray(image.byte().numpy().transpose(1, 2, 0))


def back(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.asarray(image).transpose(2, 0, 1).astype(np.float32))


def test_autocontrast_and_equalize_are_pillows(images):
    for i, image in enumerate(images):
        assert torch.equal(autocontrast(images)[i], back(ImageOps.autocontrast(pillow(image)))), i
        assert torch.equal(equalize(images)[i], back(ImageOps.equalize(pillow(image)))), i


@pytest.mark.parametrize("bits", [1, 3, 4])
def test_posterize_is_pillows(images, bits):
    ours = posterize(images, torch.full((len(images),), float(bits)))
    assert all(torch.equal(o, back(ImageOps.posterize(pillow(i), bits))) for o, i in zip(ours, images))


@pytest.mark.parametrize("threshold", [256, 200, 1])
def test_solarize_is_pillows(images, threshold):
    ours = solarize(images, torch.full((len(images),), float(threshold)))
    assert all(torch.equal(o, back(ImageOps.solarize(pillow(i), threshold))) for o, i in zip(ours, images))


@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("name", ["rotate", "shear_x", "shear_y", "translate_x", "translate_y"])
def test_geometric_operations_are_pillows(images, name, sign):
    strength = torch.full((len(images),), 0.29)
    index = torch.full((len(images),), OPERATIONS.index(name))
    ours = geometric(images, *_affine(index, strength, sign * torch.ones(len(images)), 32))
    level, bilinear = sign * 0.29, Image.Resampling.BILINEAR
    coefficients = {
        "shear_x": (1, level * 0.3, 0, 0, 1, 0),
        "shear_y": (1, 0, 0, level * 0.3, 1, 0),
        "translate_x": (1, 0, sign * int(0.29 * 32 / 3), 0, 1, 0),
        "translate_y": (1, 0, 0, 0, 1, sign * int(0.29 * 32 / 3)),
    }
    for i, image in enumerate(images):
        if name == "rotate":
            theirs = pillow(image).rotate(sign * int(0.29 * 30), resample=bilinear)
        else:
            theirs = pillow(image).transform((32, 32), Image.Transform.AFFINE, coefficients[name], resample=bilinear)
        difference = (ours[i] - back(theirs)).abs()
        # Pillow interpolates in fixed point and treats the outermost half pixel in its own way.
        assert (difference <= 1).float().mean() > 0.97, (name, i)
        assert difference[:, 3:-3, 3:-3].max() <= 1, (name, i)


def test_augmix_without_weight_is_the_image(images):
    uniforms = torch.rand(len(images), AUGMIX_DRAWS)
    uniforms[:, -1] = 0
    assert torch.allclose(augmix(images.byte(), uniforms), images)


def test_augmix_mixes_and_stays_in_range(images):
    uniforms = torch.rand(len(images), AUGMIX_DRAWS, generator=torch.Generator().manual_seed(1))
    out = augmix(images.byte(), uniforms)
    assert out.shape == images.shape
    assert out.min() >= 0
    assert out.max() <= 255.001
    assert (out - images).abs().mean(dim=(1, 2, 3)).max() > 5
    assert torch.equal(out, augmix(images.byte(), uniforms))
    # What happens to an image does not depend on its neighbours.
    assert torch.allclose(augmix(images[2:4].byte(), uniforms[2:4]), out[2:4], atol=1e-3)


def test_the_weights_of_the_chains_sum_to_one():
    constant = torch.full((8, 3, 16, 16), 100.0)
    uniforms = torch.rand(8, AUGMIX_DRAWS)
    uniforms[:, : 3 * 3 * 3] = 0.0  # every operation is autocontrast, which leaves a constant image alone
    assert torch.allclose(augmix(constant, uniforms), constant, atol=1e-3)
