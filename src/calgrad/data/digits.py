"""scikit-learn's handwritten digits: 1,797 grey images of 8x8 pixels, the embedded default that needs no download.

There is no official test set, so 540 images are held out, stratified, by a fixed seed that no option changes: test
numbers of different runs are always about the same images.
"""

from __future__ import annotations

import numpy as np
import torch

from calgrad.data.parts import TensorPart
from calgrad.data.spec import SPECS
from calgrad.data.split import seeded_split

__all__ = ["load_digits_parts"]

TEST_SEED = 2025


def load_digits_parts() -> tuple[TensorPart, TensorPart]:
    """The training and the test part; `ids` are scikit-learn's row numbers."""
    from sklearn.datasets import load_digits

    spec = SPECS["digits"]
    bunch = load_digits()
    pixels = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[:, None]  # 17 grey levels
    whole = TensorPart(
        spec, torch.from_numpy(pixels), torch.from_numpy(bunch.target.astype(np.int64)), torch.arange(len(pixels))
    )
    split = seeded_split(bunch.target, spec.test_size, seed=TEST_SEED)
    return whole.take(split.train), whole.take(split.val)
