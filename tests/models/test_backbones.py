"""transformers and timm, where they are installed; and with stand-ins, where they are not."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

from calgrad.checks import CalgradError, FileError, InputError
from calgrad.models import make_model
from calgrad.models.backbones import split_head


def test_an_absent_package_says_what_to_install(monkeypatch):
    for package, name in (("transformers", "hf:google/vit-base-patch16-224"), ("timm", "timm:vit_tiny_patch16_224")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(CalgradError, match=r"pip install 'calgrad\["):
            make_model(name, classes=10, image_size=224)


def test_a_broken_torchvision_below_it_is_reported_the_same_way(monkeypatch):
    class Broken:
        def find_spec(self, name, path=None, target=None):
            if name == "timm":
                raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.delitem(sys.modules, "timm", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    with pytest.raises(CalgradError, match="torchvision::nms"):
        make_model("timm:resnet18", classes=10, image_size=224)


def test_split_head_takes_out_the_last_linear_layer():
    model = nn.Sequential(nn.Linear(4, 6), nn.Sequential(nn.ReLU(), nn.Linear(6, 3)))
    x = torch.randn(5, 4)
    expected = model(x)
    backbone, head = split_head(model, 3)
    assert torch.equal(head(backbone(x)), expected)
    with pytest.raises(InputError, match="linear layer of 3 classes"):
        split_head(nn.Sequential(nn.Linear(4, 6)), 3)
    with pytest.raises(InputError, match="linear layer of 3 classes"):
        split_head(nn.Conv2d(3, 3, 1), 3)


class StandInForTransformers(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.body, self.classifier = nn.Linear(12, 5), nn.Linear(5, config.num_labels)

    def forward(self, pixel_values):
        return SimpleNamespace(logits=self.classifier(self.body(pixel_values.flatten(1))))


@pytest.fixture
def transformers_stand_in(monkeypatch):
    module = ModuleType("transformers")

    def config(name, num_labels):
        if name == "absent":
            raise OSError("no such model")
        return SimpleNamespace(image_size=2, num_channels=3, num_labels=num_labels)

    def pretrained(name, *, config, ignore_mismatched_sizes):
        assert ignore_mismatched_sizes
        return StandInForTransformers(config)

    module.AutoConfig = SimpleNamespace(from_pretrained=config)
    module.AutoModelForImageClassification = SimpleNamespace(
        from_pretrained=pretrained, from_config=StandInForTransformers
    )
    monkeypatch.setitem(sys.modules, "transformers", module)


@pytest.mark.usefixtures("transformers_stand_in")
def test_hf_models_have_features_and_a_head():
    for pretrained in (True, False):
        model = make_model("hf:some/model", classes=7, image_size=2, pretrained=pretrained)
        x = torch.randn(4, 3, 2, 2)
        assert model.features(x).shape == (4, 5)
        assert model(x).shape == (4, 7)
        assert torch.equal(model(x), model.head(model.features(x)))
    with pytest.raises(InputError, match="image_size 2, but the data have 32"):
        make_model("hf:some/model", classes=7, image_size=32)
    with pytest.raises(FileError, match="neither a folder"):
        make_model("hf:absent", classes=7, image_size=2)
    with pytest.raises(InputError, match="Did you mean 'pretrained'"):
        make_model("hf:some/model", classes=7, image_size=2, pretraned=True)


def test_timm_models_have_features_and_a_head(monkeypatch):
    module = ModuleType("timm")
    seen = {}

    def create_model(name, *, pretrained, num_classes, in_chans, checkpoint_path="", **others):
        if "img_size" in others and name == "conv":
            raise TypeError("unexpected keyword argument 'img_size'")
        if name == "absent":
            raise RuntimeError("Unknown model (absent)")
        seen.update(others, checkpoint_path=checkpoint_path)
        return nn.Sequential(nn.Flatten(), nn.Linear(in_chans * 4, 6), nn.ReLU(), nn.Linear(6, num_classes))

    module.create_model = create_model
    monkeypatch.setitem(sys.modules, "timm", module)
    for name in ("vit", "conv"):
        model = make_model(f"timm:{name}", classes=3, image_size=2, weights="local.pth")
        assert model.features(torch.randn(4, 3, 2, 2)).shape == (4, 6)
        assert model(torch.randn(4, 3, 2, 2)).shape == (4, 3)
    assert seen == {"img_size": 2, "checkpoint_path": "local.pth"}
    with pytest.raises(InputError, match="Unknown model"):
        make_model("timm:absent", classes=3, image_size=2)


def test_a_vit_from_a_local_folder(tmp_path):
    transformers = pytest.importorskip("transformers", exc_type=Exception)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=8, patch_size=4,
        num_labels=4,
    )  # fmt: skip
    saved = transformers.ViTForImageClassification(config).eval()
    saved.save_pretrained(tmp_path / "vit")
    x = torch.randn(2, 3, 8, 8)
    same = make_model(f"hf:{tmp_path / 'vit'}", classes=4, image_size=8).eval()
    with torch.no_grad():
        assert torch.allclose(same(x), saved(pixel_values=x).logits, atol=1e-6)
        assert same.features(x).shape == (2, 16)
    other = make_model(f"hf:{tmp_path / 'vit'}", classes=7, image_size=8)
    assert other(x).shape == (2, 7)


def test_a_real_timm_model():
    pytest.importorskip("timm", exc_type=Exception)
    for name, size in (("resnet18", 32), ("vit_tiny_patch16_224", 32)):
        model = make_model(f"timm:{name}", classes=5, image_size=size).eval()
        x = torch.randn(2, 3, size, size)
        assert model.features(x).shape == (2, model.head.in_features)
        assert model(x).shape == (2, 5)
