"""CIFAR-10H (Peterson et al. 2019): about 51 human answers for each CIFAR-10 test image.

The official file is `cifar10h-probs.npy` (or `cifar10h-counts.npy`) of https://github.com/jcpeterson/cifar-10h, a row a
test image, in the test set's order and with its class order.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from calgrad.checks import FileError, InputError, prob_matrix
from calgrad.data.parts import Splits, TensorPart

__all__ = ["attach_human_labels"]

_LEAST_AGREEMENT = 0.9  # people agree with 99 % of the labels; rows in another order agree with 10 %


def attach_human_labels(splits: Splits, path: str | Path) -> Splits:
    """CIFAR-10 with the human answers as the test part's `soft_labels`.

    Args:
        splits: `load_data("cifar10")`.
        path: `.npy` of probabilities or counts, shape (10000, 10), or `.npz` with an array `probs` or `counts`.
    """
    test = splits.test
    if splits.spec.name != "cifar10" or not isinstance(test, TensorPart):
        raise InputError(f"human labels exist for the cifar10 test set, not for {splits.spec.name}")
    votes = read_votes(Path(path))
    expected = (splits.spec.test_size, splits.spec.class_count)
    if votes.shape != expected:
        raise FileError(f"{path}: expected a row a test image, shape {expected}, got {votes.shape}")
    totals = votes.sum(axis=1, keepdims=True)
    if not np.isfinite(votes).all() or (votes < 0).any() or (totals <= 0).any():
        raise FileError(f"{path}: answers must be finite, not negative, and not all zero in any row")
    probs = prob_matrix(torch.from_numpy(votes / totals)).float()[test.ids.cpu()].to(test.labels.device)
    agreement = float((probs.argmax(dim=1) == test.labels).float().mean())
    if agreement < _LEAST_AGREEMENT:
        raise FileError(
            f"{path}: the most frequent answer is the label for only {agreement:.1%} of the test images; the rows (or "
            "classes) seem to stand in another order"
        )
    return replace(splits, test=replace(test, soft_labels=probs))


def read_votes(path: Path) -> np.ndarray:
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded.astype(np.float64)
        with loaded as archive:
            name = next((n for n in ("probs", "counts") if n in archive.files), None)
            if name is None:
                raise ValueError(f"no array `probs` or `counts`, only {archive.files}")
            return archive[name].astype(np.float64)
    except Exception as error:
        raise FileError(f"{path} cannot be read as human labels (.npy or .npz): {error}") from error
