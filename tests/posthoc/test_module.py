"""A calibrator behind a model: outputs, devices, dtypes, state, export."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn

from calgrad.checks import InputError
from calgrad.posthoc import CALIBRATORS, CalibratedModel, CalibrationWarning, make_calibrator
from tests.posthoc.conftest import build, sample


def model_and_calibrator(name, classes=4, seed=0):
    torch.manual_seed(seed)
    net = nn.Linear(5, classes)
    x = 3 * torch.randn(200, 5)
    labels = torch.randint(classes, (200,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        return net, build(name).fit(net(x), labels), x


@pytest.mark.parametrize("classes", [2, 4])
def test_outputs(name, classes):
    net, calibrator, x = model_and_calibrator(name, classes)
    probs = CalibratedModel(net, calibrator)(x)
    assert torch.allclose(probs, calibrator(net(x)), atol=1e-6)
    assert torch.allclose(CalibratedModel(net, calibrator, output="log_probs")(x).exp(), probs, atol=1e-6)
    assert torch.allclose(CalibratedModel(net, calibrator, output="logits")(x).softmax(1), probs, atol=1e-6)


def test_state_dict_round_trip_replaces_another_fit(name):
    net, calibrator, x = model_and_calibrator(name)
    first = CalibratedModel(net, calibrator)
    other_net, other, _ = model_and_calibrator(name, seed=1)
    second = CalibratedModel(other_net, other)
    second.load_state_dict(first.state_dict())
    assert torch.equal(second(x), first(x))
    assert torch.equal(second.calibrator(net(x)), calibrator(net(x)))
    assert {key.removeprefix("calibrator_") for key in first.state_dict() if key.startswith("calibrator_")} == set(
        calibrator.parameters
    )


@pytest.mark.parametrize("name", sorted(CALIBRATORS))
def test_export(name):
    net, calibrator, x = model_and_calibrator(name)
    module = CalibratedModel(net, calibrator).eval()
    exported = torch.export.export(module, (x,), dynamic_shapes=({0: torch.export.Dim("rows", min=2)},)).module()
    assert torch.allclose(exported(x[:17]), module(x[:17]), atol=1e-6)


def test_half_precision_does_not_round_the_parameters():
    net, calibrator, x = model_and_calibrator("temperature")
    module = CalibratedModel(net, calibrator)
    exact = module.calibrator_temperature.clone()
    for narrow in (copy.deepcopy(module).bfloat16(), copy.deepcopy(module).to(torch.float16)):
        assert torch.equal(narrow.calibrator_temperature, exact)
        assert narrow.model.weight.dtype in (torch.bfloat16, torch.float16)
        probs = narrow(x.to(narrow.model.weight.dtype))
        assert probs.dtype == torch.float32
        assert torch.allclose(probs, module(x), atol=0.05)
    assert module.double()(x.double()).dtype == torch.float64


def test_moves_and_survives_meta():
    net, calibrator, _ = model_and_calibrator("isotonic")
    module = CalibratedModel(net, calibrator).to("meta")
    assert module.calibrator_knots.is_meta
    assert module.model.weight.is_meta


@pytest.mark.gpu
def test_moves_to_a_gpu(name):
    net, calibrator, x = model_and_calibrator(name)
    here = CalibratedModel(net, calibrator)(x)
    there = CalibratedModel(net, calibrator).cuda()(x.cuda())
    assert torch.allclose(there.cpu(), here, atol=1e-5)


def test_gradients_reach_the_model():
    net, calibrator, x = model_and_calibrator("temperature")
    module = CalibratedModel(net, calibrator, output="log_probs")
    module(x)[:, 0].sum().backward()
    assert net.weight.grad.abs().sum() > 0


def test_refusals():
    net, calibrator, x = model_and_calibrator("temperature")
    with pytest.raises(InputError, match="fit the 'temperature'"):
        CalibratedModel(net, make_calibrator("temperature"))
    with pytest.raises(InputError, match="output"):
        CalibratedModel(net, calibrator, output="odds")
    with pytest.raises(InputError, match="4 classes, got logits of 3"):
        CalibratedModel(nn.Linear(5, 3), calibrator)(x)


def test_the_wrapped_calibrator_is_its_own():
    net, calibrator, x = model_and_calibrator("temperature")
    module = CalibratedModel(net, calibrator)
    before = module(x)
    logits, labels = sample(100, 4)
    calibrator.fit(9 * logits, labels)
    assert torch.equal(module(x), before)
    assert "Temperature" in repr(module)
