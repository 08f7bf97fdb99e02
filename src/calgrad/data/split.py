"""Which training samples are held out for validation.

A split is two disjoint lists of indices into the *training* set, made from a seed or read from a file. Nothing here
ever sees the test set, so validation cannot be the test set.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calgrad.checks import ArrayLike, FileError, InputError

__all__ = ["SplitIndices", "paper_split", "seeded_split"]


@dataclass(frozen=True, eq=False)
class SplitIndices:
    """Indices of the training and of the validation samples, in the training set's own order of samples."""

    train: np.ndarray
    val: np.ndarray
    name: str = ""

    def __post_init__(self) -> None:
        for part in ("train", "val"):
            indices = np.asarray(getattr(self, part))
            if indices.ndim != 1 or indices.dtype.kind not in "iu":
                raise InputError(f"`{part}` must be a list of indices, got {indices.dtype} of shape {indices.shape}")
            object.__setattr__(self, part, indices.astype(np.int64))
        both = np.concatenate([self.train, self.val])
        if len(both) and both.min() < 0:
            raise InputError(f"split indices must not be negative, got {both.min()}")
        if len(np.unique(both)) != len(both):
            raise InputError("a split's training and validation indices must be distinct and disjoint")

    def check_size(self, samples: int) -> None:
        """Refuse a split that points past the training set (and so, perhaps, was made for another one)."""
        highest = max((int(part.max()) for part in (self.train, self.val) if len(part)), default=-1)
        if highest >= samples:
            raise InputError(
                f"the split {self.name!r} holds index {highest}, but the training set has {samples} samples"
            )

    def save(self, path: str | Path) -> None:
        """Write to `.npz` or `.json`."""
        path = Path(path)
        if path.suffix == ".npz":
            np.savez_compressed(path, train=self.train, val=self.val, name=np.array(self.name))
        elif path.suffix == ".json":
            path.write_text(json.dumps({"name": self.name, "train": self.train.tolist(), "val": self.val.tolist()}))
        else:
            raise InputError(f"a split is saved as .npz or .json, got {path.name!r}")

    @classmethod
    def load(cls, path: str | Path) -> SplitIndices:
        """Read what `save` wrote."""
        path = Path(path)
        try:
            if path.suffix == ".json":
                content = json.loads(path.read_text())
                return cls(np.array(content["train"], int), np.array(content["val"], int), str(content.get("name", "")))
            with np.load(path, allow_pickle=False) as archive:
                return cls(archive["train"], archive["val"], str(archive["name"]) if "name" in archive.files else "")
        except InputError:
            raise
        except Exception as error:
            raise FileError(
                f"{path} cannot be read as a split (.npz or .json with `train` and `val`): {error}"
            ) from error


def paper_split(samples: int = 50_000, val_size: int = 5_000) -> SplitIndices:
    """The published CIFAR split: shuffle the indices with NumPy's legacy seed 1; the first 5,000 are validation.

    It is not stratified, and the same for every training seed.
    """
    _check_val_size(val_size, samples)
    indices = np.arange(samples)
    np.random.RandomState(1).shuffle(indices)
    return SplitIndices(indices[val_size:], indices[:val_size], name="paper")


def seeded_split(labels: ArrayLike, val_size: int, *, seed: int = 0, stratified: bool = True) -> SplitIndices:
    """Hold out `val_size` samples at random; stratified, each class gives its share to within one sample.

    Example:
        >>> from calgrad.data import seeded_split
        >>> seeded_split([0, 0, 0, 0, 1, 1, 1, 1], 4, seed=1).val
        array([0, 1, 4, 5])
    """
    labels = np.asarray(labels)
    _check_val_size(val_size, len(labels))
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    val = order[:val_size]
    if stratified:
        counts = np.bincount(labels)
        share = counts * val_size / len(labels)
        take = np.floor(share).astype(int)
        # The samples that rounding down left over go to the largest remainders; equal ones are decided at random.
        by_remainder = np.lexsort((rng.random(len(counts)), -(share - take).round(9)))
        take[by_remainder[: val_size - take.sum()]] += 1
        by_class = order[np.argsort(labels[order], kind="stable")]
        place = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)  # within its class
        val = by_class[place < np.repeat(take, counts)]
    name = f"seeded-{seed}" + ("-stratified" if stratified else "")
    return SplitIndices(np.setdiff1d(order, val), np.sort(val), name=name)


def _check_val_size(val_size: int, samples: int) -> None:
    if not 0 < val_size < samples:
        raise InputError(f"`val_size` must lie in (0, {samples}) for {samples} training samples, got {val_size}")
