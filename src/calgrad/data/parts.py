"""The parts of a data set: training, validation and test, in memory or read from files as they are needed.

Both kinds of part have `labels`, `ids` (the index in the original order of the training or test set, so a prediction
can always be traced to its image) and a length. `calgrad.data.batches` reads both in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from calgrad.checks import ArrayLike, InputError, label_vector
from calgrad.data.spec import DataSpec
from calgrad.data.split import SplitIndices

__all__ = ["FolderPart", "Part", "Splits", "TensorPart"]


@dataclass(frozen=True)
class TensorPart:
    """A part that fits into memory, and so lives on the device: images as uint8, or feature vectors as float32."""

    spec: DataSpec
    images: Tensor
    """(N, C, H, W) uint8, or (N, D) float32."""
    labels: Tensor
    """(N,) int64."""
    ids: Tensor
    """(N,) int64: the index in the original training or test set."""
    soft_labels: Tensor | None = None
    """(N, K) class probabilities known besides the labels: human votes, or the exact posterior. Not trained on."""

    def __post_init__(self) -> None:
        rows = len(self.images)
        if tuple(self.images.shape[1:]) != self.spec.input_shape:
            raise InputError(
                f"`images` of {self.spec.name} must have shape (N, {', '.join(map(str, self.spec.input_shape))}), got "
                f"{tuple(self.images.shape)}"
            )
        if rows:
            label_vector(self.labels, rows, self.spec.class_count)
        if len(self.ids) != rows:
            raise InputError(f"`ids` must have one entry an image, got {len(self.ids)} for {rows} images")
        if self.soft_labels is not None and tuple(self.soft_labels.shape) != (rows, self.spec.class_count):
            raise InputError(
                f"`soft_labels` must have shape ({rows}, {self.spec.class_count}), got {tuple(self.soft_labels.shape)}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device | str) -> TensorPart:
        """The same part on another device."""
        if self.labels.device == torch.device(device):
            return self
        soft = None if self.soft_labels is None else self.soft_labels.to(device)
        return TensorPart(
            self.spec, self.images.to(device), self.labels.to(device), self.ids.to(device), soft_labels=soft
        )

    def take(self, rows: ArrayLike) -> TensorPart:
        """The part made of these rows, in this order."""
        index = torch.as_tensor(rows, dtype=torch.int64, device=self.labels.device)
        soft = None if self.soft_labels is None else self.soft_labels[index]
        return TensorPart(self.spec, self.images[index], self.labels[index], self.ids[index], soft_labels=soft)


@dataclass(frozen=True)
class FolderPart:
    """A part too large for memory: paths and labels; images are decoded by workers when a batch asks for them."""

    spec: DataSpec
    paths: tuple[Path, ...]
    labels: Tensor
    ids: Tensor
    on_corrupt: str = "raise"
    """"raise" names the file of an image that cannot be decoded; "skip" leaves it out and adds it to `skipped`."""
    skipped: list[Path] = field(default_factory=list, compare=False)

    def __post_init__(self) -> None:
        if not len(self.paths) == len(self.labels) == len(self.ids):
            raise InputError(
                "`paths`, `labels` and `ids` must have one entry an image, got "
                f"{len(self.paths)}, {len(self.labels)} and {len(self.ids)}"
            )

    def __len__(self) -> int:
        return len(self.paths)

    def take(self, rows: ArrayLike) -> FolderPart:
        """The part made of these rows, in this order."""
        index = torch.as_tensor(rows, dtype=torch.int64)
        paths = tuple(self.paths[i] for i in index.tolist())
        return FolderPart(self.spec, paths, self.labels[index], self.ids[index], on_corrupt=self.on_corrupt)


Part = TensorPart | FolderPart


@dataclass(frozen=True)
class Splits:
    """A data set ready for use: its constants, its three parts and the indices that made them."""

    spec: DataSpec
    train: Part
    val: Part
    test: Part
    indices: SplitIndices

    def to(self, device: torch.device | str) -> Splits:
        """In-memory parts moved to the device; parts on disk stay there."""
        train, val, test = (
            part.to(device) if isinstance(part, TensorPart) else part for part in (self.train, self.val, self.test)
        )
        return replace(self, train=train, val=val, test=test)
