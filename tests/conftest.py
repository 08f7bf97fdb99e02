"""Shared by all tests: two threads at most, one seed, and where real data would be."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 - seeds libraries that still draw from the global generator


def real_data_folder() -> Path | None:
    """Real data sets and logits are not in the repository: `CALGRAD_TEST_DATA` or ../shared/data says where they are."""
    for candidate in (os.environ.get("CALGRAD_TEST_DATA"), Path(__file__).parents[2] / "shared" / "data"):
        if candidate and Path(candidate).is_dir():
            return Path(candidate)
    return None


@pytest.fixture(scope="session")
def golden() -> dict[str, np.ndarray]:
    """Real CIFAR-10 ResNet-50 logits (validation and test) with published calibration numbers."""
    folder = real_data_folder()
    path = folder / "golden" / "cifar10_resnet50_ce.npz" if folder else None
    if path is None or not path.exists():
        pytest.skip("golden logits are not here: set CALGRAD_TEST_DATA to a folder that holds golden/")
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


def pytest_collection_modifyitems(items):
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="needs a CUDA device")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)
