from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calgrad.checks import InputError
from calgrad.data import Augment, find_spec, mixup, normalise, random_crop_flip


def slow_crop_flip_normalise(image, top, left, flip, pad, mean, std):
    """torchvision's RandomCrop(padding), RandomHorizontalFlip, ToTensor, Normalize, one pixel at a time."""
    channels, height, width = image.shape
    out = np.zeros(image.shape, np.float32)
    for c in range(channels):
        for y in range(height):
            for x in range(width):
                source_y, source_x = y + top - pad, (width - 1 - x if flip else x) + left - pad
                inside = 0 <= source_y < height and 0 <= source_x < width
                raw = image[c, source_y, source_x] if inside else 0  # black, before normalisation
                out[c, y, x] = (np.float32(raw) / np.float32(255) - np.float32(mean[c])) / np.float32(std[c])
    return out


@given(st.integers(1, 5), st.integers(1, 3), st.integers(2, 9), st.integers(0, 4), st.integers(0, 10**6))
@settings(deadline=None, max_examples=40)
def test_crop_flip_normalise_equals_the_slow_reference(batch, channels, size, pad, seed):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (batch, channels, size, size + 1), dtype=np.uint8)
    offsets = rng.integers(0, 2 * pad + 1, (batch, 2))
    flips = rng.random(batch) < 0.5
    mean, std = rng.random(channels).astype(np.float32), (rng.random(channels) + 0.1).astype(np.float32)
    cropped = random_crop_flip(*map(torch.from_numpy, (images, offsets, flips)), pad=pad)
    assert cropped.dtype == torch.uint8
    fast = normalise(cropped, *(torch.from_numpy(v).view(-1, 1, 1) for v in (mean, std)))
    for i in range(batch):
        slow = slow_crop_flip_normalise(images[i], *offsets[i], flips[i], pad, mean, std)
        np.testing.assert_allclose(fast[i].numpy(), slow, rtol=1e-6, atol=1e-6)


def test_the_middle_crop_without_flip_is_the_image():
    images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
    middle = torch.full((4, 2), 4)
    assert torch.equal(random_crop_flip(images, middle, torch.zeros(4, dtype=torch.bool)), images)
    assert torch.equal(random_crop_flip(images, middle, torch.ones(4, dtype=torch.bool)), images.flip(3))


def test_normalise_computes_in_float32_and_leaves_features_alone():
    spec = find_spec("cifar10")
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    single = normalise(images, *spec.channel_stats())
    half = normalise(images, *spec.channel_stats(), dtype=torch.bfloat16)
    assert half.dtype == torch.bfloat16
    assert torch.equal(single.to(torch.bfloat16), half)
    points = torch.randn(3, 2)
    assert torch.equal(normalise(points, *find_spec("gaussians").channel_stats()), points)


@pytest.mark.parametrize("shape", [(1,), (5,)])
def test_mixup_mixes_images_and_labels_alike(shape):
    images, partners = torch.rand(5, 3, 4, 4), torch.rand(5, 3, 4, 4)
    labels, partner_labels = torch.tensor([0, 1, 2, 3, 4]), torch.tensor([1, 1, 3, 3, 0])
    lam = torch.rand(shape)
    mixed, soft = mixup(images, partners, labels, partner_labels, lam, classes=6)
    for i in range(5):
        weight = lam[i % len(lam)]
        assert torch.allclose(mixed[i], weight * images[i] + (1 - weight) * partners[i])
        expected = torch.zeros(6)
        expected[labels[i]] += weight
        expected[partner_labels[i]] += 1 - weight
        assert torch.allclose(soft[i], expected)
    assert torch.allclose(soft.sum(1), torch.ones(5))


def test_usual_augmentation_comes_from_the_spec():
    assert Augment.usual(find_spec("cifar10")) == Augment(crop_pad=4, flip=True)
    assert Augment.usual(find_spec("digits")) == Augment()
    assert Augment.usual(find_spec("imagenet")).resized_crop
    with pytest.raises(InputError, match="mixup_per"):
        Augment(mixup_per="epoch")
    with pytest.raises(InputError, match="crop_pad"):
        Augment(crop_pad=-1)


def test_crop_compiles_without_a_graph_break():
    images = torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8)
    offsets, flips = torch.randint(0, 9, (4, 2)), torch.rand(4) < 0.5
    compiled = torch.compile(random_crop_flip, fullgraph=True, backend="eager")
    assert torch.equal(compiled(images, offsets, flips), random_crop_flip(images, offsets, flips))
