"""The example scripts run, quickly, and show what they say they show."""

from __future__ import annotations

import importlib.util
import json
import warnings
from importlib.resources import files
from pathlib import Path

import pytest

import calgrad

FOLDER = Path(__file__).parents[1] / "examples"


def example(name: str):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        yield


def test_existing_checkpoint(capsys):
    shipped = files("calgrad") / "examples"
    test_file = str(shipped / "example-test.npz")
    repaired = example("existing_checkpoint").main(str(shipped / "example-val.npz"), test_file)
    test = calgrad.Predictions.load(test_file)
    assert calgrad.nll(logits=repaired.logits, labels=repaired.labels) < 0.5 * calgrad.nll(
        logits=test.logits, labels=test.labels
    )
    assert json.loads(Path("calibrator.json").read_text())["method"] == repaired.meta["repaired_by"]
    assert "Two models on the same 997 samples" in capsys.readouterr().out


def test_fine_tuning(capsys):
    results = example("fine_tuning").main()
    assert all(found.accuracy > 0.85 for found in results.values())
    for name in ("ce", "bsce-gra"):
        assert results[f"{name}, repaired"].nll < results[name].nll
        assert results[f"{name}, repaired"].ece < results[name].ece
    assert "496 test samples" in capsys.readouterr().out


def test_imbalanced(capsys):
    rows = example("imbalanced").main()
    for name in ("class weights", "weights, bsce-gra"):
        assert rows[name]["recall"] > rows["plain cross-entropy"]["recall"] + 0.1  # what the weights are for
        assert rows[name]["rare"] > 0.1  # what they cost: one in a hundred is called one in five
        assert rows[f"{name}, link"]["rare"] == pytest.approx(0.01, abs=0.005)
        assert rows[f"{name}, link"]["nll"] == pytest.approx(rows["plain cross-entropy"]["nll"], abs=0.02)
        assert rows[f"{name}, link"]["prevalence"] < 0.1 * rows[name]["prevalence"]
    assert "rare (the last class) in truth" in capsys.readouterr().out


def test_choose_gamma(capsys):
    gamma, repair = example("choose_gamma").main()
    assert (gamma, repair) == (0, "temperature")  # on these data; without repair a large gamma would be chosen
    text = capsys.readouterr().out
    assert "without repair gamma 4 would be best" in text
    assert "chosen: gamma 0 with temperature" in text
