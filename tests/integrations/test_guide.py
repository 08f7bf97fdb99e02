"""docs/integrations.md runs, section by section, with the real libraries; and so do two of the examples."""

from __future__ import annotations

import importlib.util
import re
import sys
import warnings
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")


def test_the_page_runs(tmp_path, monkeypatch):
    for module in ("lightning", "transformers", "accelerate", "tensorboard"):
        pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    scope: dict = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice about workers
        for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
            exec(block, scope)
    # What each section promises:
    assert scope["metrics"].shift
    assert set(scope["found"]) >= {"eval_ece", "eval_ece_floor", "eval_nll_calibrated"}
    assert scope["token_metrics"]["eval_accuracy"] > 0.5
    assert (tmp_path / "tokens.json").exists()
    assert (tmp_path / "out" / "calibrator.json").exists()
    assert torch.allclose(scope["deployed"](torch.randn(4, 8)).sum(dim=1), torch.ones(4))
    assert scope["pixel_probs"].shape == (4, 5, 32, 32)
    assert list((tmp_path / "runs" / "tracked" / "tensorboard").iterdir())


def example(name: str):
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def numbers(text: str, row: str) -> list[float]:
    (line,) = [line for line in text.splitlines() if line.startswith(row)]
    return [float(word.rstrip("%")) for word in line.removeprefix(row).split()]


def test_the_segmentation_example(capsys):
    example("segmentation").main(steps=12, train_scenes=24)
    text = capsys.readouterr().out
    accuracy, _, nll, ece, _ = numbers(text, "ce ")
    assert 0 < accuracy <= 100
    assert 0 < ece < 100
    assert nll > 0
    streamed = re.search(r"streamed.* accuracy ([\d.]+)%, ECE ([\d.]+)%", text)
    (repaired,) = [line.split() for line in text.split("bsce-gra")[1].splitlines() if "temperature " in line][:1]
    assert streamed[1] == repaired[2].rstrip("%")
    assert streamed[2] == repaired[5].rstrip("%")


def test_the_text_example(capsys):
    example("text_classification").main(epochs=8, per_class=250)
    text = capsys.readouterr().out
    plain, repaired = numbers(text, "ce "), numbers(text, "bsce-gra")
    assert plain[0] > 40  # eleven packages or so: chance is below 10 percent
    assert repaired[0] > 40
    assert text.count("temperature") == 2
