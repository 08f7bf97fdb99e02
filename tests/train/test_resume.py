"""A run killed at any moment, by a real SIGKILL, ends with the bits of a run that nothing stopped."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest
import torch

from calgrad.train import Interrupted, Recipe, Record, load_model, train
from calgrad.train.checkpoint import list_checkpoints
from calgrad.train.signals import StopRequest

# Dropout-like randomness (feature noise), state in the loss, an average and momentum: everything a checkpoint must hold.
HARD = {"model": "cnn", "model_options": {"width": 4}, "ema": 0.9, "loss": "consistency-gra", "epochs": 6, "batch": 100}


def bits(folder: Path) -> dict[str, torch.Tensor]:
    return load_model(folder).model.state_dict()


def same_run(one: Path, other: Path) -> None:
    first, second = bits(one), bits(other)
    assert all(torch.equal(first[name], second[name]) for name in first)
    for split in ("val", "test"):
        assert (one / f"predictions-{split}.npz").read_bytes() == (other / f"predictions-{split}.npz").read_bytes()
    entries = [[{k: v for k, v in e.items() if k != "seconds"} for e in Record.load(f).epochs] for f in (one, other)]
    assert entries[0] == entries[1]


class DeathError(Exception):
    pass


@pytest.mark.parametrize("loss", ["consistency-gra", "adafocal"])
@pytest.mark.parametrize("epochs", [1, 4])
def test_a_run_that_died_between_epochs_goes_on_bit_for_bit(tiny, tmp_path, epochs, loss):
    recipe = tiny.replace(**{**HARD, "loss": loss})

    def die(entry):
        if entry["epoch"] == epochs:
            raise DeathError

    whole = train(recipe, 1, folder=tmp_path / "whole", quiet=True)
    with pytest.raises(DeathError):
        train(recipe, 1, folder=tmp_path / "broken", on_epoch=die, quiet=True)
    resumed: list[int] = []
    broken = train(
        recipe, 1, folder=tmp_path / "broken", on_epoch=lambda entry: resumed.append(entry["epoch"]), quiet=True
    )
    assert resumed == list(range(epochs + 1, 7))
    same_run(whole, broken)


@pytest.mark.parametrize("at", [1, 7, 10, 23])
def test_a_signal_within_an_epoch_checkpoints_there_and_goes_on_bit_for_bit(tiny, tmp_path, monkeypatch, at):
    from calgrad.train.step import TrainStep

    recipe = tiny.replace(**HARD)
    whole = train(recipe, 1, folder=tmp_path / "whole", quiet=True)
    taken, step = [0], TrainStep.__call__

    def step_then_signal(self, size):
        step(self, size)
        taken[0] += 1
        if taken[0] == at:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(TrainStep, "__call__", step_then_signal)
    with pytest.raises(Interrupted, match="stopped by signal 2 at epoch") as caught:
        train(recipe, 1, folder=tmp_path / "broken", quiet=True)
    monkeypatch.undo()
    assert caught.value.exit_code == 130
    assert Record.load(tmp_path / "broken").status == "interrupted"
    assert list_checkpoints(tmp_path / "broken" / "checkpoints")[0].name == f"step-{at:09d}.pt"
    same_run(whole, train(recipe, 1, folder=tmp_path / "broken", quiet=True))


def test_a_checkpoint_by_the_clock_within_an_epoch(tiny, tmp_path, monkeypatch):
    saved: list[int] = []
    from calgrad.train.run import Run

    original = Run.checkpoint
    monkeypatch.setattr(Run, "checkpoint", lambda self: (saved.append(self.steps_done), original(self))[1])
    train(tiny.replace(checkpoint_minutes=0.0, checkpoint_every=0, epochs=1), 1, folder=tmp_path / "run", quiet=True)
    assert saved == [1, 2, 3, 4]


def test_starting_an_unfinished_run_anew(tiny, tmp_path):
    def die(entry):
        raise DeathError

    with pytest.raises(DeathError):
        train(tiny, 1, folder=tmp_path / "run", on_epoch=die, quiet=True)
    seen: list[int] = []
    train(tiny, 1, folder=tmp_path / "run", resume=False, on_epoch=lambda e: seen.append(e["epoch"]), quiet=True)
    assert seen == [1, 2, 3]


def test_a_damaged_latest_checkpoint_costs_one_epoch_and_is_noted(tiny, tmp_path):
    def die(entry):
        if entry["epoch"] == 2:
            raise DeathError

    whole = train(tiny, 1, folder=tmp_path / "whole", quiet=True)
    with pytest.raises(DeathError):
        train(tiny, 1, folder=tmp_path / "run", on_epoch=die, quiet=True)
    latest = list_checkpoints(tmp_path / "run" / "checkpoints")[0]
    latest.write_bytes(latest.read_bytes()[:1000])
    seen: list[int] = []
    folder = train(tiny, 1, folder=tmp_path / "run", on_epoch=lambda e: seen.append(e["epoch"]), quiet=True)
    assert seen == [2, 3]
    assert "passed over" in Record.load(folder).notes[0]
    same_run(whole, folder)


def test_the_handlers_of_before_come_back():
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.number == signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) == before  # a second signal is not waited for
    assert signal.getsignal(signal.SIGTERM) == before


# ------------------------------------------------------------------------------------------------- real processes


def work(recipe: Recipe, folder: Path) -> None:
    train(recipe, 1, folder=folder, device="cpu", quiet=True)


def wait_for_checkpoint(process: multiprocessing.Process, folder: Path, after: int) -> int:
    """Until a checkpoint later than `after` is whole; its number."""
    for _ in range(30_000):
        done = [int(p.name[5:14]) for p in folder.glob("checkpoints/step-*.sha256")]
        if max(done, default=0) > after:
            return max(done)
        assert process.is_alive()
        time.sleep(0.001)
    raise AssertionError("no checkpoint in time")


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
def test_killed_again_and_again_it_ends_with_the_same_bits(tiny, tmp_path):
    recipe = tiny.replace(**HARD).replace(epochs=40)
    folder, reached = tmp_path / "broken", 0
    context = multiprocessing.get_context("fork")
    # At once, and after parts of an epoch: within steps, within validation and within the writing of a checkpoint.
    for delay in (0.0, 0.004, 0.011, 0.017, 0.023):
        process = context.Process(target=work, args=(recipe, folder))
        process.start()
        reached = wait_for_checkpoint(process, folder, after=reached)
        time.sleep(delay)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert Record.load(folder).status == "running"
    assert reached < 400  # it was killed early enough to mean something
    same_run(
        train(recipe, 1, folder=tmp_path / "whole", device="cpu", quiet=True),
        train(recipe, 1, folder=folder, quiet=True),
    )
