"""Is a data set whole? Counts, shapes, class balance, and the archive's checksum where it is still there."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch

from calgrad.checks import FileError
from calgrad.data.cifar import load_cifar_parts, read_cifar_classes
from calgrad.data.download import file_md5
from calgrad.data.files import decode_batches
from calgrad.data.load import load_parts
from calgrad.data.parts import FolderPart, Part, TensorPart
from calgrad.data.root import data_root, find_data
from calgrad.data.spec import DataSpec, find_spec
from calgrad.data.tiny_imagenet import list_tiny_imagenet

__all__ = ["Check", "Verification", "verify"]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    subject: str
    passed: bool
    found: str


@dataclass
class Verification:
    """What was looked at, and whether all of it was right."""

    name: str
    checks: list[Check] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return bool(self.checks) and all(check.passed for check in self.checks)

    def add(self, subject: str, passed: bool, found: object) -> None:
        """Note a check."""
        self.checks.append(Check(subject, passed, str(found)))


def verify(
    name: str, root: str | Path | None = None, *, decode: bool = False, workers: int | None = None
) -> Verification:
    """Look at a data set. Damage becomes a failed check; a set that is not there at all is a `FileError`.

    Args:
        name: As in `load_data`.
        root: Folder of the data sets.
        decode: Also decode every image of a set that is kept in image files.
        workers: Decoding processes.
    """
    spec = find_spec(name)
    result = Verification(name)
    archive = data_root(root) / spec.archive
    if spec.md5 and archive.is_file():
        found = file_md5(archive)
        result.add(f"MD5 of {spec.archive}", found == spec.md5, found)
    if spec.url:
        find_data(spec, root)
    try:
        train, test = _parts(spec, name, root)
    except FileError as error:
        result.add("files", False, error)
        return result
    for title, part, size in (("training", train, spec.train_size), ("test", test, spec.test_size)):
        _check_part(result, spec, title, part, size)
        if decode and isinstance(part, FolderPart):
            _check_decoding(result, title, part, workers)
    if spec.name in ("cifar10", "cifar100"):
        names = read_cifar_classes(spec, find_data(spec, root))
        result.add("class names", names == spec.classes, f"{names[0]} ... {names[-1]}")
    return result


def _parts(spec: DataSpec, name: str, root: str | Path | None) -> tuple[Part, Part]:
    if spec.name in ("cifar10", "cifar100"):
        return load_cifar_parts(spec, root)
    if spec.name == "tiny-imagenet":
        place = find_data(spec, root)
        if not place.is_dir():
            raise FileError(f"{place} is still packed; `calgrad data fetch {spec.name}` unpacks it")
        return list_tiny_imagenet(spec, place, on_corrupt="skip")
    train, test, _ = load_parts(spec, name, root, on_corrupt="skip")
    return train, test


def _check_part(result: Verification, spec: DataSpec, title: str, part: Part, size: int) -> None:
    result.add(f"{title} samples", len(part) == size or size == 0, len(part))
    if isinstance(part, TensorPart):
        shape = tuple(part.images.shape[1:])
        result.add(f"{title} shape", shape == spec.input_shape, f"{shape} {part.images.dtype}")
    counts = part.labels.bincount(minlength=part.spec.class_count)
    low, high = int(counts.min()), int(counts.max())
    result.add(f"{title} classes", low > 0, f"{len(counts)} of {low} to {high} samples")


def _check_decoding(result: Verification, title: str, part: FolderPart, workers: int | None) -> None:
    good = sum(len(images) for images, _ in decode_batches(part, torch.arange(len(part)).split(256), workers=workers))
    bad = ", ".join(str(path) for path in part.skipped[:5])
    found = f"{good} decoded" + (f", {len(part.skipped)} damaged: {bad}" if part.skipped else "")
    result.add(f"{title} images decode", not part.skipped, found)
