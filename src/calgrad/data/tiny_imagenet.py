"""Tiny-ImageNet-200 in its official layout.

Read are `train/<wnid>/images/*.JPEG`, `val/images/*.JPEG` with `val/val_annotations.txt`, `wnids.txt` and `words.txt`.
The labels of its `test` folder were never published, so, as everywhere, the official `val` folder is the test set, and
validation is carved out of train.

DEVIATES: the published code validates on that same folder -> docs/deviations.md#tiny-imagenet
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import torch

from calgrad.checks import FileError
from calgrad.data.files import image_files
from calgrad.data.memory import decode_to_memory
from calgrad.data.parts import FolderPart, TensorPart
from calgrad.data.root import data_root, find_data
from calgrad.data.spec import DataSpec

__all__ = ["list_tiny_imagenet", "load_tiny_imagenet_parts"]


def load_tiny_imagenet_parts(
    spec: DataSpec, root: str | Path | None = None, *, on_corrupt: str = "raise", workers: int | None = None
) -> tuple[TensorPart, TensorPart]:
    """The training and the test part in memory; the first load decodes and keeps a cache of 1.4 GB beside the data."""
    place = find_data(spec, root)
    if not place.is_dir():
        raise FileError(f"{place} is still packed; `calgrad data fetch {spec.name}` unpacks it")
    train, test = list_tiny_imagenet(spec, place, on_corrupt=on_corrupt)
    cache = place / ".calgrad" if os.access(place, os.W_OK) else data_root() / f"{spec.folder}.calgrad"
    return (
        decode_to_memory(train, cache=cache / "train.npy", workers=workers),
        decode_to_memory(test, cache=cache / "val.npy", workers=workers),
    )


def list_tiny_imagenet(spec: DataSpec, place: Path, *, on_corrupt: str = "raise") -> tuple[FolderPart, FolderPart]:
    """Paths and labels of both parts. Classes are numbered in the order of their WordNet ids."""
    wnids = sorted(_lines(place / "wnids.txt"))
    if len(wnids) != spec.class_count or len(set(wnids)) != len(wnids):
        raise FileError(f"{place / 'wnids.txt'} must list {spec.class_count} distinct classes, got {len(wnids)}")
    number = {wnid: index for index, wnid in enumerate(wnids)}
    named = replace(spec, classes=_class_names(place / "words.txt", wnids))
    paths, labels = [], []
    for wnid in wnids:
        folder = place / "train" / wnid / "images"
        if not folder.is_dir():
            raise FileError(f"{folder} is missing; is {place} a whole {spec.name}?")
        found = image_files(folder)
        paths += found
        labels += [number[wnid]] * len(found)
    train = _part(named, paths, labels, spec.train_size, place / "train", on_corrupt)
    paths, labels = [], []
    annotations = place / "val" / "val_annotations.txt"
    for row, line in enumerate(_lines(annotations), start=1):
        name, _, rest = line.partition("\t")
        wnid = rest.partition("\t")[0]
        if wnid not in number or Path(name).name != name:
            raise FileError(
                f"{annotations}, line {row}: expected `file<TAB>wnid<TAB>box` with a known wnid, got {line!r}"
            )
        paths.append(place / "val" / "images" / name)
        labels.append(number[wnid])
    return train, _part(named, paths, labels, spec.test_size, annotations, on_corrupt)


def _part(spec: DataSpec, paths: list[Path], labels: list[int], size: int, where: Path, on_corrupt: str) -> FolderPart:
    if len(paths) != size:
        raise FileError(f"{where} has {len(paths)} images, but {spec.name} has {size} there")
    missing = next((path for path in paths if not path.is_file()), None)
    if missing is not None:
        raise FileError(f"{missing} is listed in {where} but is not there")
    return FolderPart(spec, tuple(paths), torch.tensor(labels), torch.arange(size), on_corrupt=on_corrupt)


def _class_names(words: Path, wnids: list[str]) -> tuple[str, ...]:
    table = dict(line.split("\t", 1) for line in _lines(words) if "\t" in line) if words.is_file() else {}
    return tuple(table.get(wnid, wnid).split(",")[0] for wnid in wnids)


def _lines(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text(encoding="utf8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path} cannot be read: {error}") from error
