"""Parameter counts against published numbers, and output shapes, for every model and stem; on the meta device, so free."""

from __future__ import annotations

import pytest
import torch

from calgrad.models import MODELS, make_model

PUBLISHED = {
    ("resnet18", 224, 1000): 11_689_512,  # torchvision
    ("resnet50", 224, 1000): 25_557_032,  # torchvision
    ("densenet121", 224, 1000): 7_978_856,  # torchvision
    ("resnet18", 32, 10): 11_173_962,  # the widely used CIFAR versions
    ("resnet50", 32, 10): 23_520_842,
    ("densenet121", 32, 10): 6_956_298,
    ("wrn-28-10", 32, 10): 36_479_194,
    ("resnet110-he", 32, 10): 1_727_962,  # "1.7M" in He et al., Table 6
}


def build(name, size, classes, channels=3, **options):
    with torch.device("meta"):
        return make_model(name, classes=classes, image_size=size, channels=channels, **options)


def count(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(("case", "expected"), PUBLISHED.items(), ids=lambda v: str(v))
def test_parameter_counts_are_the_published_ones(case, expected):
    assert count(build(*case)) == expected


def test_the_papers_own_variants():
    # Twenty more bottlenecks in the third stage of ResNet-50, each 1024*256 + 9*256*256 + 256*1024 and its batch norms.
    assert count(build("resnet110", 32, 10)) == 23_520_842 + 20 * (2 * 1024 * 256 + 9 * 256**2 + 2 * (2 * 256 + 1024))
    assert count(build("wrn-26-10", 32, 10)) == 36_481_434
    assert count(build("resnet110-he", 32, 10, shortcut="B")) == 1_730_714
    # Tiny-ImageNet: the head sees 2 x 2 x 2048 numbers.
    assert build("resnet50", 64, 200).head.in_features == 8192
    assert count(build("resnet50", 64, 200)) == 23_520_842 - 20_490 + 200 * 8193


@pytest.mark.parametrize("size", [32, 64, 224])
@pytest.mark.parametrize("name", sorted(MODELS))
def test_shapes_of_every_model_at_every_stem(name, size):
    model = build(name, size, 7)
    x = torch.empty(2, 3, size, size, device="meta")
    features = model.features(x)
    assert features.shape == (2, model.head.in_features)
    assert model(x).shape == (2, 7)


@pytest.mark.parametrize("name", sorted(set(MODELS) - {"mlp"}))
def test_stems_by_image_size(name):
    """The first stage works at 32 px for 32 px images, at 64 px for 64 px, and at 56 px for 224 px."""
    if name == "cnn":
        pytest.skip("has no stem")
    for size, expected in ((32, 32), (64, 64), (224, 56)):
        out = build(name, size, 10).stem(torch.empty(1, 3, size, size, device="meta"))
        assert out.shape[-1] == expected


@pytest.mark.parametrize("channels", [1, 4])
@pytest.mark.parametrize("name", sorted(MODELS))
def test_other_numbers_of_channels(name, channels):
    model = build(name, 32, 3, channels=channels)
    assert model(torch.empty(2, channels, 32, 32, device="meta")).shape == (2, 3)
