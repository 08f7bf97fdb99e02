"""A rank killed in the middle of an epoch: torchrun starts the processes again, and the run goes on from its checkpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

from calgrad.predictions import Predictions
from calgrad.train import Recipe, Record, load_model, train
from calgrad.train.lock import LOCK

RECIPE = {
    "data": "digits", "model": "mlp", "model_options": {"hidden": 16}, "epochs": 3, "batch": 250, "lr": 0.1,
    "loss": "bsce-gra", "ema": 0.9,
}  # fmt: skip

PROGRAM = """
import json, os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from calgrad.train import Recipe, train
from calgrad.train.step import TrainStep
folder, recipe = Path(sys.argv[1]), Recipe.from_dict(json.loads(sys.argv[2]))
life, step, taken = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), TrainStep.__call__, [0]
def step_or_die(self, size):
    step(self, size)
    taken[0] += 1
    # After an epoch and a half of the first life: nobody is asked, nothing is written.
    if life == 0 and os.environ["RANK"] == "1" and taken[0] == len(self.feed.sizes) * 3 // 2:
        (folder.parent / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
TrainStep.__call__ = step_or_die
def note(entry):
    with open(folder.parent / f"epochs-{life}", "a") as file:
        file.write(f"{entry['epoch']}\\n")
train(recipe, 1, folder=folder, device="cpu", quiet=True, on_epoch=note if os.environ["RANK"] == "0" else None)
"""


@pytest.mark.slow
def test_a_rank_killed_mid_epoch_resumes_from_the_checkpoint(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    folder = tmp_path / "run"
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1",
        "--monitor-interval", "0.1", str(script), str(folder), json.dumps(Recipe(**RECIPE).to_dict()),
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "died").exists()
    # The first life finished one epoch, the second the other two: none lost, none twice.
    assert (tmp_path / "epochs-0").read_text().split() == ["1"]
    assert (tmp_path / "epochs-1").read_text().split() == ["2", "3"]
    record = Record.load(folder)
    assert record.status == "finished"
    assert [entry["epoch"] for entry in record.epochs] == [1, 2, 3]
    assert record.device["processes"] == 2
    assert not (folder / LOCK).exists()
    alone = train(Recipe(**RECIPE), 1, folder=tmp_path / "alone", device="cpu", quiet=True)
    ours, theirs = (load_model(each).model.state_dict() for each in (alone, folder))
    for name, tensor in ours.items():
        torch.testing.assert_close(theirs[name], tensor, rtol=1e-4, atol=1e-6)
    one, two = (Predictions.load(each / "predictions-test.npz") for each in (alone, folder))
    assert two.ids.tolist() == one.ids.tolist()
