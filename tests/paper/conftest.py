"""Small real runs on digits, made once for all tests of the paper's tables and figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from calgrad.train import Recipe, train

RECIPE = Recipe(
    data="digits",
    model="mlp",
    name="digits-tiny",
    epochs=4,
    lr=0.1,
    batch=64,
    gradient_epochs=(2, 4),
    checkpoint_every=0,
)
CHOICES = [("ce", {}), ("focal", {}), ("bsce-gra", {"gamma": 2, "beta": 2}), ("bsce-gra", {"gamma": 4, "beta": 2})]


@pytest.fixture(scope="session")
def digit_runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for loss, options in CHOICES:
        for seed in (1, 2) if loss != "focal" else (1,):
            recipe = RECIPE.replace(loss=loss, loss_options=options)
            name = loss + "".join(f"-{k}{v}" for k, v in options.items())
            train(recipe, seed, folder=folder / name / f"seed-{seed}", quiet=True)
    return folder
