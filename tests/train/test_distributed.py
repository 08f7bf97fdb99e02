"""Two gloo processes started by torchrun against one process."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from calgrad.checks import InputError
from calgrad.predictions import Predictions
from calgrad.train import Recipe, Record, load_model, train
from calgrad.train.distributed import Group, choose_device

BASE = {
    "data": "digits", "model": "mlp", "model_options": {"hidden": 16}, "epochs": 2, "batch": 333, "lr": 0.1, "clip": 2.0,
}  # fmt: skip
# 1000 = 3 x 333 + 1: shares of 166 and 167, and a last batch whose first process has nothing to do.
RECIPES = {
    "mean": {"loss": "bsce-gra"},
    "sum": {"loss": "ce", "reduction": "sum"},
    "coupled": {"loss": "mmce"},
    "learning": {"loss": "adafocal", "ema": 0.9},
}

PROGRAM = """
import json, sys, torch
torch.set_num_threads(1)
import torch.distributed as dist
from calgrad.train import Recipe, train
dist.init_process_group("gloo")
for name, recipe in json.loads(sys.argv[1]).items():
    train(Recipe.from_dict(recipe), 1, folder=sys.argv[2] + "/" + name, device="cpu", quiet=True)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    script = folder / "program.py"
    script.write_text(PROGRAM)
    recipes = json.dumps({name: Recipe(**BASE, **changes).to_dict() for name, changes in RECIPES.items()})
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    done = subprocess.run(
        [*command, recipes, str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_two_processes_equal_one(two_processes, tmp_path, name):
    alone = train(Recipe(**BASE, **RECIPES[name]), 1, folder=tmp_path / "alone", device="cpu", quiet=True)
    together = two_processes / name
    ours, theirs = load_model(alone).model.state_dict(), load_model(together).model.state_dict()
    for key, tensor in ours.items():
        torch.testing.assert_close(theirs[key], tensor, rtol=1e-4, atol=1e-6)
    record = Record.load(together)
    assert record.device["processes"] == 2
    assert record.epochs[-1]["train_loss"] == pytest.approx(Record.load(alone).epochs[-1]["train_loss"], rel=1e-5)
    for split in ("val", "test"):
        one, two = (Predictions.load(folder / f"predictions-{split}.npz") for folder in (alone, together))
        assert two.ids.tolist() == one.ids.tolist()  # in order, none twice, none missing
        assert torch.equal(two.labels, one.labels)
        torch.testing.assert_close(two.logits, one.logits, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("world", [1, 2, 3, 7])
@pytest.mark.parametrize("rows", [0, 1, 6, 7, 128])
def test_shares_cover_everything_once(world, rows):
    bounds = [Group(rank, world).bounds(rows) for rank in range(world)]
    assert bounds[0][0] == 0
    assert bounds[-1][1] == rows
    assert all(stop == start for (_, stop), (start, _) in itertools.pairwise(bounds))
    assert max(b - a for a, b in bounds) - min(b - a for a, b in bounds) <= 1


def test_alone_everything_is_free():
    rows = torch.randn(3, 2, requires_grad=True)
    group = Group()
    assert group.gather(rows, 3) is rows
    assert group.any(True, False, device=torch.device("cpu")) == (True, False)
    assert group.leads


def test_devices_by_name():
    assert choose_device("cpu") == torch.device("cpu")
    with pytest.raises(InputError, match="`device` must be cpu, cuda or cuda:N, got 'gpu'"):
        choose_device("gpu")
    with pytest.raises(InputError, match="`device` must be cpu, cuda or cuda:N, got 'meta'"):
        choose_device("meta")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="sees no CUDA device"):
            choose_device("cuda")
