"""CIFAR-10 and CIFAR-100 from the official python archives, as a folder or as the .tar.gz itself."""

from __future__ import annotations

import lzma
import pickle
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from calgrad.checks import FileError
from calgrad.data.download import open_tar
from calgrad.data.parts import TensorPart
from calgrad.data.root import find_data
from calgrad.data.safe_pickle import restricted_loads
from calgrad.data.spec import DataSpec

__all__ = ["load_cifar_parts", "read_cifar_classes"]

_FILES: dict[str, dict[str, tuple[str, ...]]] = {
    "cifar10": {
        "train": ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"),
        "test": ("test_batch",),
        "meta": ("batches.meta",),
    },
    "cifar100": {"train": ("train",), "test": ("test",), "meta": ("meta",)},
}
_LABELS = {"cifar10": "labels", "cifar100": "fine_labels"}
_NAMES = {"cifar10": "label_names", "cifar100": "fine_label_names"}
_LARGEST = 256 * 2**20  # bytes; CIFAR-100's training file has 155 MB


def load_cifar_parts(spec: DataSpec, root: str | Path | None = None) -> tuple[TensorPart, TensorPart]:
    """The training and the test part, in the official order."""
    place = find_data(spec, root)
    train = _load_part(spec, place, _FILES[spec.name]["train"], spec.train_size)
    return train, _load_part(spec, place, _FILES[spec.name]["test"], spec.test_size)


def read_cifar_classes(spec: DataSpec, place: Path) -> tuple[str, ...]:
    """The class names as the archive gives them."""
    (name,) = _FILES[spec.name]["meta"]
    names = _unpickle(_read(place, (name,), spec)[name], f"{place} ({name})").get(_NAMES[spec.name])
    if not isinstance(names, list):
        raise FileError(f"{place} ({name}) holds no list `{_NAMES[spec.name]}`")
    return tuple(n.decode("utf8", "replace") if isinstance(n, bytes) else str(n) for n in names)


def _load_part(spec: DataSpec, place: Path, names: Sequence[str], size: int) -> TensorPart:
    contents = _read(place, names, spec)
    batches = [_decode(spec, contents.pop(name), f"{place} ({name})") for name in names]
    images = np.concatenate([images for images, _ in batches])
    if len(images) != size:
        raise FileError(f"{place} holds {len(images)} images in {', '.join(names)}, but {spec.name} has {size} there")
    labels = np.concatenate([labels for _, labels in batches])
    return TensorPart(spec, torch.from_numpy(images), torch.from_numpy(labels), torch.arange(size))


def _decode(spec: DataSpec, content: bytes, where: str) -> tuple[np.ndarray, np.ndarray]:
    batch = _unpickle(content, where)
    pixels, labels = batch.get("data"), batch.get(_LABELS[spec.name])
    values = spec.channels * spec.image_size**2
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != values:
        shape = getattr(pixels, "shape", None)
        raise FileError(f"{where}: `data` must be an array of bytes of shape (N, {values}), got {shape}")
    if not isinstance(labels, list) or len(labels) != len(pixels):
        count = len(labels) if isinstance(labels, list) else None
        raise FileError(f"{where}: `{_LABELS[spec.name]}` must list {len(pixels)} labels, got {count}")
    for row, label in enumerate(labels):
        if type(label) is not int or not 0 <= label < spec.class_count:
            raise FileError(f"{where}: label {label!r} of image {row} does not lie in [0, {spec.class_count})")
    return pixels.reshape(-1, spec.channels, spec.image_size, spec.image_size), np.array(labels, np.int64)


def _unpickle(content: bytes, where: str) -> dict[str, Any]:
    try:
        return restricted_loads(content)
    except pickle.UnpicklingError as error:
        raise FileError(f"{where} is not a CIFAR file, or it is damaged: {error}") from error


def _all(stream: IO[bytes]) -> bytes:
    """The whole stream, in the small pieces that `open_tar` gives out."""
    return b"".join(iter(lambda: stream.read(1 << 20), b""))


def _read(place: Path, names: Sequence[str], spec: DataSpec) -> dict[str, bytes]:
    """The bytes of these files, out of a folder or an archive; nothing else in the archive is looked at."""
    found: dict[str, bytes] = {}
    try:
        if place.is_dir():
            there = [name for name in names if (place / name).is_file() and (place / name).stat().st_size <= _LARGEST]
            found = {name: (place / name).read_bytes() for name in there}
        else:
            wanted = {f"{spec.folder}/{name}": name for name in names}
            with open_tar(place) as archive:
                for member in archive:
                    name = wanted.get(member.name.removeprefix("./"))
                    if name is None or not member.isfile() or member.size > _LARGEST:
                        continue
                    stream = archive.extractfile(member)
                    found[name] = b"" if stream is None else _all(stream)
                    if len(found) == len(names):
                        break
    except (OSError, EOFError, ValueError, tarfile.TarError, zlib.error, lzma.LZMAError) as error:
        raise FileError(f"{place} cannot be read: {error}; is it a whole {spec.archive}?") from error
    missing = [name for name in names if name not in found]
    if missing:
        advice = f"`calgrad data fetch {spec.name} --force` downloads it anew"
        raise FileError(f"{place} is not a whole {spec.name}: {', '.join(missing)} missing; {advice}")
    return found
