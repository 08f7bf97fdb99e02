"""`calgrad train` and `calgrad predict`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from calgrad.cli.app import run
from calgrad.predictions import Predictions
from calgrad.train import Recipe, Record, describe_fields

SMALL = [
    "--set",
    "epochs=2",
    "--set",
    "warmup=1",
    "--set",
    "eval_every=1",
    "--set",
    "model=mlp",
    "--set",
    "model_options={}",
]


def test_train_then_predict(tmp_path, capsys):
    folder = tmp_path / "run"
    assert run(["train", "digits", "--loss", "bsce-gra", *SMALL, "-o", str(folder), "--seed", "7"]) == 0
    shown = capsys.readouterr()
    assert shown.out.strip() == str(folder)
    assert "2 epochs in" in shown.err
    record = Record.load(folder)
    assert (record.status, record.seed, record.recipe["loss"], record.recipe["epochs"]) == (
        "finished",
        7,
        "bsce-gra",
        2,
    )

    out = tmp_path / "again.npz"
    assert run(["predict", str(folder), "-o", str(out), "--device", "cpu"]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    again, saved = Predictions.load(out), Predictions.load(folder / "predictions-test.npz")
    assert torch.equal(again.logits, saved.logits)
    assert (
        run(["predict", str(folder / "weights.safetensors"), "--part", "val", "-o", str(out), "--device", "cpu"]) == 0
    )
    assert Predictions.load(out).ids.tolist() == Predictions.load(folder / "predictions-val.npz").ids.tolist()


def test_a_finished_run_is_not_run_again(tmp_path, capsys):
    command = ["train", "digits", *SMALL, "-o", str(tmp_path / "run"), "--quiet"]
    assert run(command) == 0
    first = (tmp_path / "run" / "record.json").read_bytes()
    assert run(command) == 0
    assert (tmp_path / "run" / "record.json").read_bytes() == first
    assert run([*command, "--overwrite"]) == 0
    assert (tmp_path / "run" / "record.json").read_bytes() != first


def test_a_dry_run_prints_the_recipe_and_trains_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["train", "cifar10-paper", "--loss", "dual", "--set", "clip=none", "--dry-run"]) == 0
    path = tmp_path / "shown.yaml"
    path.write_text(capsys.readouterr().out)
    recipe = Recipe.load(path)
    assert (recipe.name, recipe.loss, recipe.clip, recipe.epochs) == ("cifar10-paper", "dual", None, 350)
    assert list(tmp_path.iterdir()) == [path]


def test_list_shows_every_recipe_with_its_header(capsys):
    assert run(["train", "list"]) == 0
    shown = capsys.readouterr().out
    assert "cifar10-paper\n" in shown
    assert "gradient clipped to" in shown


def test_the_help_holds_every_field_of_a_recipe(capsys):
    assert run(["train", "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"{name}:" in shown for name in describe_fields())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "digit"], "Did you mean 'digits'"),
        (["train", "digits", "--set", "epoch=3"], "Did you mean 'epochs'"),
        (["train", "digits", "--set", "epochs"], "expected key=value"),
        (["train", "digits", "--loss", "bsce-gar"], "bsce-gra"),
        (["train", "digits", "--all-seeds", "--seed", "3"], "leave out --seed and --out"),
        (["predict", "nowhere"], "does not exist"),
    ],
)
def test_usage_errors_are_one_line_and_exit_code_two(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_sigterm_checkpoints_and_exits_with_143(tmp_path):
    folder = tmp_path / "run"
    program = "import sys; from calgrad.cli.app import run; sys.exit(run(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "train", "digits", "--set", "epochs=2000", "-o", str(folder), "-q"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(6000):
            if list(folder.glob("checkpoints/*.sha256")):
                break
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 143, errors
    assert "the same command goes on from there" in errors
    record = json.loads(Path(folder / "record.json").read_text())
    assert record["status"] == "interrupted"
