from __future__ import annotations

import os
import pickle

import pytest
import torch
from safetensors.torch import save_file

from calgrad.checks import FileError
from calgrad.models import from_torchvision, load_weights, make_model
from tests.reference import models as reference


@pytest.fixture(scope="module")
def weights():
    """A ResNet-18 in torchvision's naming, for 1,000 classes."""
    shapes = reference.resnet_shapes(False, (2, 2, 2, 2), (64, 128, 256, 512), 64, kernel=7, classes=1000)
    named = {name: value.float() for name, value in reference.random_weights(shapes).items()}
    counters = {
        name.replace("running_mean", "num_batches_tracked"): torch.tensor(7) for name in named if "running_mean" in name
    }
    return named | counters


def test_resnet50_names_are_torchvisions():
    shapes = reference.resnet_shapes(True, (3, 4, 6, 3), (64, 128, 256, 512), 64, kernel=7, classes=1000)
    renamed = from_torchvision({name: torch.empty(shape, device="meta") for name, shape in shapes.items()})
    with torch.device("meta"):
        own = make_model("resnet50", classes=1000, image_size=224).state_dict()
    assert {name: value.shape for name, value in renamed.items()} == {
        name: value.shape for name, value in own.items() if not name.endswith("num_batches_tracked")
    }


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("counters", [True, False])
def test_weights_are_loaded_from_a_file(weights, tmp_path, suffix, counters):
    path = tmp_path / f"resnet18{suffix}"
    chosen = {k: v for k, v in weights.items() if counters or not k.endswith("num_batches_tracked")}
    torch.save(chosen, path) if suffix == ".pth" else save_file(chosen, path)
    model = make_model("resnet18", classes=1000, image_size=224, weights=path).eval()
    x = torch.randn(1, 3, 64, 64)
    with torch.inference_mode():
        expected = reference.resnet(weights, x, (2, 2, 2, 2), bottleneck=False, large=True)
        assert torch.allclose(model(x), expected, rtol=1e-3, atol=1e-3)


def test_a_head_for_other_classes_starts_anew(weights, tmp_path):
    torch.save({"state_dict": weights}, tmp_path / "wrapped.pth")
    with pytest.warns(UserWarning, match="other classes"):
        model = make_model("resnet18", classes=10, image_size=224, weights=tmp_path / "wrapped.pth")
    assert model.head.weight.shape == (10, 512)
    assert torch.equal(model.stem.conv.weight, weights["conv1.weight"])
    assert torch.equal(model.stages[1][0].shortcut[1].running_var, weights["layer2.0.downsample.1.running_var"])


def test_our_own_weights_load_too(tmp_path):
    model = make_model("mlp", classes=3, image_size=2, channels=1)
    save_file(model.state_dict(), tmp_path / "own.safetensors")
    other = make_model("mlp", classes=3, image_size=2, channels=1, weights=tmp_path / "own.safetensors")
    assert torch.equal(other.head.weight, model.head.weight)


class Evil:
    def __reduce__(self):
        return os.system, ("touch should-not-exist",)


def test_wrong_and_hostile_files_are_refused(weights, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = make_model("resnet18", classes=1000, image_size=224)
    with pytest.raises(FileError, match="does not exist"):
        load_weights(model, "absent.pth")
    torch.save({"a": Evil()}, "evil.pth")
    (tmp_path / "evil2.pth").write_bytes(pickle.dumps(Evil()))
    (tmp_path / "text.safetensors").write_text("no")
    torch.save([1, 2], "list.pth")
    for name in ("evil.pth", "evil2.pth", "text.safetensors", "list.pth"):
        with pytest.raises(FileError, match=name):
            load_weights(model, name)
    assert not (tmp_path / "should-not-exist").exists()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for change, message in (
        ({k: v for k, v in weights.items() if k != "layer3.1.conv2.weight"}, r"lacks stages\.2\.1\.conv2\.weight"),
        (weights | {"extra": torch.zeros(1)}, "too many: extra"),
        (weights | {"conv1.weight": torch.zeros(64, 3, 3, 3)}, r"other shapes for stem\.conv\.weight"),
    ):
        torch.save(change, "wrong.pth")
        with pytest.raises(FileError, match=message):
            load_weights(model, "wrong.pth")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
