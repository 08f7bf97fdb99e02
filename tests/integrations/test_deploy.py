"""Every calibrator leaves Python with the same probabilities: torch.export, TorchScript, ONNX, plain JSON."""

from __future__ import annotations

import importlib.util
import json
import logging
import re
import shutil
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import calgrad
from calgrad.checks import InputError
from calgrad.integrations.deploy import to_exported, to_onnx, to_torchscript
from calgrad.posthoc import CALIBRATORS, CalibrationWarning

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
CASES = [(name, 4) for name in CALIBRATORS] + [("isotonic", 2), ("platt", 2), ("bbq", 2)]
# Each ONNX export takes two seconds: one of those that share their formula.
FORMULAS = [case for case in CASES if case[0] not in ("temperature-ece", "matrix", "histogram", "svs", "identity")]


def fitted(name, classes=4, **options):
    torch.manual_seed(0)
    logits = 3 * torch.randn(300, classes)
    labels = torch.multinomial((logits / 2).softmax(1), 1)[:, 0]
    options = options or ({"loss": "bsce-gra", "loss_options": {"gamma": 2}} if name.startswith("link") else {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        return calgrad.make_calibrator(name, **options).fit(logits, labels), logits


def calibrated_net(name, classes=4, **options):
    calibrator, _ = fitted(name, classes, **options)
    net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Linear(16, classes))
    return calgrad.CalibratedModel(net, calibrator).eval(), 3 * torch.randn(40, 5)


def run_onnx(path, x):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(["probs"], {"input": x.numpy()})[0])


@pytest.mark.parametrize(("name", "classes"), CASES)
def test_export_and_torchscript(name, classes, tmp_path):
    model, x = calibrated_net(name, classes)
    expected = model(x)
    torch.export.save(to_exported(model, x[:2]), tmp_path / "model.pt2")
    exported = torch.export.load(tmp_path / "model.pt2").module()
    to_torchscript(model, x[:3]).save(tmp_path / "model.ts")
    scripted = torch.jit.load(tmp_path / "model.ts")
    for answer in (exported(x), scripted(x)):
        assert torch.allclose(answer, expected, atol=1e-6)
    assert torch.allclose(scripted(x[:1]), expected[:1], atol=1e-6)


@pytest.mark.parametrize(("name", "classes"), FORMULAS)
def test_onnx_gives_the_same_probabilities(name, classes, tmp_path, caplog):
    pytest.importorskip("onnxscript")
    caplog.set_level(logging.ERROR)
    model, x = calibrated_net(name, classes)
    to_onnx(model, tmp_path / "model.onnx", x[:2])
    for rows in (x, x[:1]):
        assert torch.allclose(run_onnx(tmp_path / "model.onnx", rows), model(rows), atol=1e-6)


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        ("focal-gra", {"gamma": 3}),
        ("dual-gra", {"gamma": 5}),
        ("flsd53-gra", {}),
        ("focal", {"gamma": 3}),
        ("bsce-gra", {"gamma": 4, "weight": torch.tensor([1.0, 2.0, 3.0, 4.0]), "label_smoothing": 0.05}),
    ],
)
def test_links_in_closed_form_are_exported(loss, options):
    made = calgrad.make_loss(loss, **options)
    model, x = calibrated_net("link", loss=made)
    assert torch.allclose(to_exported(model, x[:2]).module()(x), model(x), atol=1e-6)
    assert torch.allclose(model(x).double(), calgrad.posterior(made, model.model(x).double().softmax(1)), atol=1e-6)


def test_what_cannot_be_exported_says_why():
    model, x = calibrated_net("link", loss="bsce", loss_options={"gamma": 2})
    with pytest.raises(Exception, match="solves a linear system for each row"):
        to_exported(model, x)
    model, x = calibrated_net("temperature")
    with pytest.raises(InputError, match="at least two rows"):
        to_exported(model, x[:1])
    with pytest.raises(InputError, match=r"model\.eval\(\)"):
        to_torchscript(model.train(), x)


class Branches(nn.Module):
    def forward(self, x):
        return x * 2 if len(x) > 1 else x


def test_a_trace_that_lost_a_branch_is_refused():
    with pytest.raises(InputError, match="branches on values"):
        to_torchscript(Branches().eval(), torch.randn(3, 4))


# ----------------------------------------------------------------------------------------------------- the file of JSON


def standard_library():
    path = ROOT / "examples" / "apply_calibrator.py"
    imports = set(re.findall(r"^(?:from|import) (\w+)", path.read_text(), re.MULTILINE))
    assert imports == {"__future__", "json", "sys", "bisect", "math"}
    spec = importlib.util.spec_from_file_location("apply_calibrator", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("name", CALIBRATORS)
def test_the_standard_library_applies_every_file(name, classes, tmp_path):
    calibrator, logits = fitted(name, classes)
    calibrator.save(tmp_path / "calibrator.json")
    file = json.loads((tmp_path / "calibrator.json").read_text())
    rows = logits[:50].double()
    answers = [standard_library().calibrate(file, row) for row in rows.tolist()]
    assert np.allclose(answers, calibrator(rows).numpy(), atol=1e-12)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.parametrize("name", ["identity", "temperature", "vector", "matrix"])
def test_javascript_applies_the_file(name, tmp_path):
    calibrator, logits = fitted(name)
    calibrator.save(tmp_path / "calibrator.json")
    function = re.search(r"```javascript\n(.*?)```", PAGE, re.DOTALL)[1]
    rows = logits[:20].double()
    script = (
        f"{function}\nconst file = JSON.parse(require('fs').readFileSync('calibrator.json', 'utf8'));"
        f"console.log(JSON.stringify({json.dumps(rows.tolist())}.map(row => calibrate(file, row))));"
    )
    out = subprocess.run(["node", "-e", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert np.allclose(json.loads(out.stdout), calibrator(rows).numpy(), atol=1e-12)


def test_the_pages_code_runs(tmp_path, monkeypatch):
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
            exec(block, scope)
    assert np.allclose(scope["probs"], scope["model"](scope["val_x"]).detach().numpy(), atol=1e-6)
