"""Many runs on one machine: side by side gives the same bits, and one failure does not take the others with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
import torch

from calgrad.checks import InputError
from calgrad.recipes import load_recipe
from calgrad.sweep import Run, SweepError, run_all
from calgrad.sweep.local import gpu_slots, local_engine
from calgrad.sweep.schedule import schedule
from calgrad.sweep.worker import Outcome, Place, make_run, read_progress
from calgrad.train import Record

QUICK = load_recipe("digits").replace(
    model="mlp", model_options={}, epochs=2, warmup=0, checkpoint_every=0, eval_every=2
)


def runs_in(folder, recipe=QUICK):
    return [Run(recipe, seed, folder / f"seed{seed}") for seed in (1, 2)]


def test_side_by_side_equals_one_after_the_other(tmp_path):
    done = []
    run_all(runs_in(tmp_path / "one"), jobs=1, on_done=done.append)
    run_all(runs_in(tmp_path / "two"), jobs=2, on_done=done.append)
    assert len(done) == 4
    for seed in ("seed1", "seed2"):
        weights = [(tmp_path / way / seed / "weights.safetensors").read_bytes() for way in ("one", "two")]
        assert weights[0] == weights[1]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failure_is_named_and_the_others_finish(tmp_path, jobs):
    diverging = Run(QUICK.replace(lr=1e30), 1, tmp_path / "diverging")
    good = runs_in(tmp_path)
    with pytest.raises(SweepError, match=r"1 of 3 runs failed(.|\n)*diverging"):
        run_all([diverging, *good], jobs=jobs)
    assert all(Record.load(run.folder).status == "finished" for run in good)


def test_finished_runs_are_left_alone(tmp_path):
    run_all(runs_in(tmp_path), jobs=1)
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}
    run_all(runs_in(tmp_path), jobs=1)
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()} == before


SLOW = QUICK.replace(model="cnn", model_options={"width": 16}, epochs=10, checkpoint_every=1)


@pytest.mark.slow
def test_a_killed_worker_goes_on_from_its_checkpoint(tmp_path):
    runs, killed, outcomes = runs_in(tmp_path, SLOW), [], []

    def kill(board):
        for run in runs:
            said = read_progress(run.folder)
            if not killed and said and 2 <= said["epoch"] <= 6:
                os.kill(said["pid"], signal.SIGKILL)
                killed.append(run.folder)

    engine = local_engine(jobs=2, threads=1, device="cpu")
    board = schedule(runs, engine, watch=kill, on_end=lambda status, outcome: outcomes.append((status, outcome)))
    assert [status.state for status in board] == ["done", "done"]
    assert [(s.run.folder, o.message) for s, o in outcomes if o.kind == "died"] == [
        (killed[0], "its process ended by SIGKILL")
    ]
    run_all(runs_in(tmp_path / "undisturbed", SLOW), jobs=1)
    for run in runs:
        assert [entry["epoch"] for entry in Record.load(run.folder).epochs] == list(range(1, 11))
        undisturbed = tmp_path / "undisturbed" / run.folder.name / "weights.safetensors"
        assert (run.folder / "weights.safetensors").read_bytes() == undisturbed.read_bytes()


def test_a_run_that_somebody_else_makes_is_busy(tmp_path):
    (run, _) = runs_in(tmp_path)
    run.folder.mkdir()
    code = (
        "import sys, pathlib; from calgrad.train.lock import run_lock\n"
        "with run_lock(pathlib.Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, run.folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline() == b"held\n"
        outcome = make_run(run, Place())
        assert outcome.kind == "busy"
        assert str(holder.pid) in outcome.message
        holder.stdin.close()
        holder.wait()
    assert make_run(run, Place()) == Outcome("done", made=True)
    assert make_run(run, Place()) == Outcome("done", made=False)


@pytest.mark.slow
def test_several_processes_share_a_run(tmp_path):
    (run, _) = runs_in(tmp_path)
    assert make_run(run, Place(device="cpu", threads=1, processes=2)) == Outcome("done", made=True)
    record = Record.load(run.folder)
    assert (record.status, record.device["processes"]) == ("finished", 2)
    diverging = Run(QUICK.replace(lr=1e30), 1, tmp_path / "diverging")
    outcome = make_run(diverging, Place(device="cpu", threads=1, processes=2))
    assert outcome.kind == "died"
    assert "torchrun ended with" in outcome.message


@pytest.mark.parametrize(
    ("jobs", "per_run", "expected"),
    [
        (None, None, ["0", "1", "2", "3"]),
        (None, 2, ["0,1", "2,3"]),
        (None, 3, ["0,1,2"]),
        (None, 0.5, ["0", "1", "2", "3", "0", "1", "2", "3"]),
        (2, 1, ["0", "1"]),
        (6, 1, ["0", "1", "2", "3", "0", "1"]),
        (3, 0, [None, None, None]),
    ],
)
def test_gpus_are_dealt_out(monkeypatch, jobs, per_run, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpu_slots(jobs, None, per_run) == expected
    assert gpu_slots(2, "cpu", per_run) == [None, None]
    assert gpu_slots(None, "cuda:1", None) == [None]


def test_gpus_that_this_process_may_not_see_are_not_dealt_out(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert gpu_slots(None, "cuda", 1) == ["5", "7"]
    with pytest.raises(InputError, match="2 GPUs cannot be dealt out 3 a run"):
        gpu_slots(None, "cuda", 3)
