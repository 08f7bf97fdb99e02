"""`calgrad calibrate`: fit, apply, judge, save; and warn where it did harm."""

from __future__ import annotations

import json

import pytest
import torch

from calgrad.cli.app import run
from calgrad.cli.inputs import parse_options, resolve
from calgrad.metrics import evaluate
from calgrad.posthoc import CALIBRATORS, load_calibrator, make_calibrator
from calgrad.predictions import Predictions

PAIR = ["calibrate", "example-val", "example-test", "--bootstrap", "0"]


@pytest.fixture
def pair() -> tuple[Predictions, Predictions]:
    return Predictions.load(resolve("example-val")), Predictions.load(resolve("example-test"))


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_writes_what_the_library_computes(tmp_path, capsys, pair, suffix):
    out, saved = tmp_path / f"out.{suffix}", tmp_path / "calibrator.json"
    assert run([*PAIR, "-o", str(out), "--save-calibrator", str(saved), "--json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    val, test = pair
    calibrator = make_calibrator("temperature").fit(val.logits, val.labels)
    repaired = Predictions.load(out)
    torch.testing.assert_close(repaired.probs, calibrator(test.logits))
    assert repaired.ids.tolist() == test.ids.tolist()
    assert repaired.meta["calibrator"]["method"] == "temperature"
    assert repaired.meta["calibrator"]["temperature"] == pytest.approx(calibrator.temperature)
    assert found["parameters"]["temperature"] == pytest.approx(calibrator.temperature)
    assert found["before"] == json.loads(evaluate(test, bootstrap=0).to_json())
    assert found["after"]["nll"] == pytest.approx(evaluate(repaired, bootstrap=0).nll, abs=1e-6)
    assert found["after"]["nll"] < found["before"]["nll"]
    assert found["fit"]["nll_after"] < found["fit"]["nll_before"]
    assert found["worse"] == []
    assert found["out"] == str(out)
    assert load_calibrator(saved).temperature == pytest.approx(calibrator.temperature)
    assert str(out) in printed.err


def test_a_table_for_people(capsys):
    assert run(PAIR) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("temperature (temperature 2.969")
    for word in ("before", "after", "validation NLL 0.4549 -> 0.2390", "5.86"):
        assert word in shown


@pytest.mark.parametrize("method", [name for name in CALIBRATORS if not name.startswith("link")])
def test_every_calibrator_by_name(tmp_path, capsys, pair, method):
    files = [str(part.select(slice(0, 120)).save(tmp_path / f"{part.split}.npz")) for part in pair]
    assert run(["calibrate", *files, "--bootstrap", "0", "--method", method, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["method"] == method
    assert (found["before"]["n"], found["after"]["n"]) == (120, 120)
    assert 0 < found["after"]["nll"] < 3


@pytest.mark.parametrize("method", ["link", "link-temperature"])
def test_link_methods_know_their_loss(capsys, method):
    assert run([*PAIR, "-m", method]) == 2
    assert "--loss" in capsys.readouterr().err
    assert run([*PAIR, "-m", method, "--loss", "focal-gra", "--loss-option", "gamma=2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["options"] == {"loss": "focal-gra", "loss_options": {"gamma": 2}}


def test_says_when_it_made_things_worse(capsys):
    # This network was trained with cross-entropy: undoing a weight that was never there makes it more confident still.
    assert run([*PAIR, "-m", "link", "--loss", "bsce-gra", "--json"]) == 0
    printed = capsys.readouterr()
    assert [text.split()[0] for text in json.loads(printed.out)["worse"]] == ["NLL", "Brier", "ECE"]
    assert "warning: link: validation NLL rose" in printed.err
    assert "link made worse: NLL" in printed.err


def test_warns_when_validation_is_the_test_set(tmp_path, capsys, pair):
    assert run(["calibrate", "example", "example-test", "--bootstrap", "0", "--json"]) == 0
    assert "they hold the same logits" in capsys.readouterr().err
    val, test = pair
    for name, ids in (("some", [*test.ids[:5], *val.ids[5:]]), ("none", val.ids)):
        Predictions(val.logits, val.labels, ids, "val").save(tmp_path / f"{name}.npz")
        assert run(["calibrate", str(tmp_path / f"{name}.npz"), "example-test", "--bootstrap", "0", "--json"]) == 0
        assert ("5 samples of example-test were fitted on" in capsys.readouterr().err) == (name == "some")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "out.csv"], "written as .npz or .safetensors"),
        (["-o", "out"], "no suffix"),
        (["--option", "bins"], "--option takes name=value"),
        (["--option", "sharpness=3"], "no option 'sharpness'"),
        (["-m", "link", "--loss", "nonsense"], "unknown loss 'nonsense'"),
        (["-m", "link", "--loss", "bsce-gra", "--loss-option", "alpha=3"], "alpha"),
        (["-m", "temperature", "--loss", "ce"], "no option 'loss'"),
    ],
)
def test_bad_options(capsys, arguments, message):
    assert run([*PAIR, *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err


def test_refuses_to_replace_its_input_and_to_mix_models(tmp_path, capsys, pair):
    path = pair[1].save(tmp_path / "test.npz")
    before = path.read_bytes()
    assert run(["calibrate", "example-val", str(path), "-o", str(path)]) == 2
    assert "is one of the inputs" in capsys.readouterr().err
    assert path.read_bytes() == before
    Predictions(pair[1].logits[:, :3], pair[1].labels % 3).save(path)
    assert run(["calibrate", "example-val", str(path)]) == 2
    assert "10 classes and" in capsys.readouterr().err


def test_options_are_json_where_they_can_be():
    texts = ["gamma=4", "beta=0.5", "on=loss", "flag=true", "label-smoothing=0.1", "bins=[1, 2]", "name = text"]
    assert parse_options(texts, flag="--option") == {
        "gamma": 4, "beta": 0.5, "on": "loss", "flag": True, "label_smoothing": 0.1, "bins": [1, 2], "name": "text",
    }  # fmt: skip
