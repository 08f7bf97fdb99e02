"""Training from files that workers decode: a folder of images, as ImageNet is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from calgrad.train import Interrupted, Recipe, Record, load_model, train
from calgrad.train.feed import StreamFeed
from calgrad.train.step import TrainStep


@pytest.fixture
def recipe(tmp_path) -> Recipe:
    rng = np.random.default_rng(0)
    for number, name in enumerate(("dark", "light")):
        place = tmp_path / "images" / name
        place.mkdir(parents=True)
        for sample in range(14):
            pixels = rng.integers(0, 100, (20, 24, 3)) + 120 * number
            Image.fromarray(pixels.astype(np.uint8)).save(place / f"{sample}.png")
    return Recipe(
        data=f"folder:{tmp_path / 'images'}", image_size=16, val_size=4, model="cnn", model_options={"width": 4},
        augment="crop-flip", epochs=3, batch=8, lr=0.05, workers=0, name="stream",
    )  # fmt: skip


def test_a_folder_trains(recipe, build, tmp_path):
    run = build(recipe)
    assert isinstance(run.feed, StreamFeed)
    assert run.feed.images.shape == (8, 3, 16, 16)
    folder = train(recipe.replace(epochs=6), 1, folder=tmp_path / "trained", quiet=True)
    record = Record.load(folder)
    assert record.epochs[-1]["val_accuracy"] == 1.0
    assert record.epochs[-1]["train_loss"] < 0.5 * record.epochs[0]["train_loss"]


def test_a_stop_within_an_epoch_goes_on_bit_for_bit(recipe, tmp_path, monkeypatch):
    import os
    import signal

    whole = train(recipe, 1, folder=tmp_path / "whole", quiet=True)
    taken, step = [0], TrainStep.__call__

    def step_then_signal(self, size):
        step(self, size)
        taken[0] += 1
        if taken[0] == 4:  # within the second epoch of three batches
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(TrainStep, "__call__", step_then_signal)
    with pytest.raises(Interrupted) as caught:
        train(recipe, 1, folder=tmp_path / "broken", quiet=True)
    monkeypatch.undo()
    assert caught.value.exit_code == 143
    broken = train(recipe, 1, folder=tmp_path / "broken", quiet=True)
    first, second = (load_model(folder).model.state_dict() for folder in (whole, broken))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_mixup_fills_soft_labels(recipe, build):
    run = build(recipe.replace(mixup=0.3))
    run.step(8)
    assert run.feed.labels.shape == (8, 2)
    torch.testing.assert_close(run.feed.labels.sum(dim=1), torch.ones(8))
    assert torch.isfinite(run.step.total)
