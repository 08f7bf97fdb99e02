"""Forward passes equal to the plain definitions, with the same weights, in float64."""

from __future__ import annotations

import pytest
import torch

from calgrad.models import MODELS, from_torchvision, make_model
from calgrad.models.densenet import DenseNet
from calgrad.models.wide_resnet import WideResNet
from tests.reference import models as reference

WIDE = (64, 128, 256, 512)
RESNETS = {
    # name: (bottleneck, depths, widths, stem width, shortcut)
    "resnet18": (False, (2, 2, 2, 2), WIDE, 64, "B"),
    "resnet50": (True, (3, 4, 6, 3), WIDE, 64, "B"),
    "resnet110": (True, (3, 4, 26, 3), WIDE, 64, "B"),
    "resnet110-he": (False, (18, 18, 18), (16, 32, 64), 16, "A"),
    "wrn-26-10": (False, (4, 4, 4), (160, 320, 640), 16, "B"),
}


def torchvision_weights(name, size, classes):
    bottleneck, depths, widths, stem, shortcut = RESNETS[name]
    pooled = 2 if size == 64 else 1
    shapes = reference.resnet_shapes(
        bottleneck,
        depths,
        widths,
        stem,
        kernel=7 if size == 224 else 3,
        classes=classes,
        pooled=pooled,
        shortcut=shortcut,
    )
    return reference.random_weights(shapes), pooled


def filled(build, weights):
    with torch.device("meta"):
        model = build()
    model.to_empty(device="cpu").double()
    result = model.load_state_dict(weights, strict=False)
    assert not result.unexpected_keys
    assert all(key.endswith("num_batches_tracked") for key in result.missing_keys)
    return model.eval()


@pytest.mark.parametrize(
    ("name", "size"), [(n, 32) for n in RESNETS] + [("resnet18", 64), ("resnet50", 64), ("resnet50", 224)]
)
def test_resnets_equal_the_plain_definition(name, size):
    weights, pooled = torchvision_weights(name, size, 10)
    model = filled(lambda: make_model(name, classes=10, image_size=size), from_torchvision(weights))
    x = torch.randn(
        2, 3, 64 if size == 224 else min(size, 32), 64 if size == 224 else min(size, 32), dtype=torch.float64
    )
    bottleneck, depths, *_ = RESNETS[name]
    with torch.inference_mode():
        expected = reference.resnet(weights, x, depths, bottleneck=bottleneck, large=size == 224, pooled=pooled)
        found = model(x)
    assert expected.std() > 1e-3
    assert torch.allclose(found, expected, rtol=1e-9, atol=1e-9 * expected.abs().max().item())


def shapes_of(model):
    return {k: tuple(v.shape) for k, v in model.state_dict().items() if not k.endswith("num_batches_tracked")}


def with_own_names(build):
    with torch.device("meta"):
        shapes = shapes_of(build())
    weights = reference.random_weights(shapes)
    return weights, filled(build, weights)


@pytest.mark.parametrize("build", [
    lambda: WideResNet(16, 2, classes=5, image_size=32),
    lambda: make_model("wrn-28-10", classes=10, image_size=32),
], ids=["wrn-16-2", "wrn-28-10"])  # fmt: skip
def test_wide_resnets_equal_the_plain_definition(build):
    weights, model = with_own_names(build)
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    with torch.inference_mode():
        expected = reference.wide_resnet(weights, x, blocks=len(model.stages[0]))
        assert torch.allclose(model(x), expected, rtol=1e-9, atol=1e-9 * expected.abs().max().item())


@pytest.mark.parametrize("depths", [(2, 3, 2), (6, 12, 24, 16)], ids=str)
def test_densenets_equal_the_plain_definition(depths):
    weights, model = with_own_names(lambda: DenseNet(depths, classes=5, image_size=32))
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    with torch.inference_mode():
        expected = reference.densenet(weights, x, depths)
        assert torch.allclose(model(x), expected, rtol=1e-9, atol=1e-9 * expected.abs().max().item())


@pytest.mark.parametrize("name", ["cnn", "mlp", "resnet18", "densenet121", "wrn-28-10"])
def test_forward_is_head_of_features_and_everything_gets_a_gradient(name):
    if name == "wrn-28-10":
        model = WideResNet(10, 1, classes=4, image_size=16)
    else:
        model = make_model(name, classes=4, image_size=16)
    x = torch.randn(4, 3, 16, 16)
    model(x).square().mean().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())
    model.eval()
    assert torch.equal(model(x), model.head(model.features(x)))
    assert isinstance(model.head, torch.nn.Linear)


@pytest.mark.parametrize("name", ["cnn", "resnet18", "resnet110-he"])
def test_channels_last_gives_the_same_numbers(name):
    model = make_model(name, classes=4, image_size=16).double().eval()
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    with torch.inference_mode():
        expected = model(x)
        model = model.to(memory_format=torch.channels_last)
        found = model(x.contiguous(memory_format=torch.channels_last))
    assert torch.allclose(found, expected, atol=1e-10)


@pytest.mark.parametrize("name", ["mlp", "cnn", "resnet18"])
def test_compiles_without_a_graph_break(name):
    model = make_model(name, classes=4, image_size=16).eval()
    x = torch.randn(2, 3, 16, 16)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    with torch.no_grad():
        assert torch.allclose(compiled(x), model(x), atol=1e-6)


def test_initialisation():
    """The paper's ResNets and DenseNet start as torch does; the wide ones and He's by He's fan-out rule."""
    model = make_model("resnet18", classes=10, image_size=32)
    weight = model.stages[2][1].conv1.weight
    bound = 1 / (256 * 9) ** 0.5  # kaiming_uniform(a=sqrt(5))
    assert weight.abs().max().item() <= bound
    assert weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)
    for model, block in (
        (make_model("resnet110-he", classes=10, image_size=32), lambda m: m.stages[2][1].conv1),
        (WideResNet(10, 4, classes=10, image_size=32), lambda m: m.stages[2][0].conv2),
    ):
        conv = block(model)
        assert conv.weight.std().item() == pytest.approx((2 / (9 * conv.out_channels)) ** 0.5, rel=0.02)


def test_options_of_the_small_nets():
    assert len(list(make_model("mlp", classes=3, image_size=1, channels=2, hidden=16, layers=3).parameters())) == 8
    assert make_model("cnn", classes=3, image_size=8, channels=1, width=4).head.in_features == 32
    assert MODELS["mlp"].options == {"hidden": 128, "layers": 1}
    assert MODELS["wrn-28-10"].options == {"dropout": 0.0}
