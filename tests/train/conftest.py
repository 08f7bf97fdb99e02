"""Small recipes that train in a fraction of a second."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from calgrad.train import Recipe
from calgrad.train.distributed import Group
from calgrad.train.run import Run, build_run

TINY = {
    "data": "digits", "model": "mlp", "model_options": {"hidden": 16}, "epochs": 3, "batch": 300, "lr": 0.1,
    "schedule": "cosine", "name": "tiny",
}  # fmt: skip


@pytest.fixture
def tiny() -> Recipe:
    return Recipe(**TINY)


@pytest.fixture
def build(tmp_path: Path):
    """A run on the CPU, in place and at the start of its first epoch."""

    def make(recipe: Recipe, seed: int = 1, *, group: Group | None = None, device: str = "cpu") -> Run:
        run = build_run(recipe, seed, tmp_path / "run", device=torch.device(device), group=group or Group())
        run.begin_epoch()
        return run

    return make


def weights_of(run: Run) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in run.net.model.state_dict().items()}
