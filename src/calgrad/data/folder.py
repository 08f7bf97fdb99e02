"""Any folder of images, one folder a class.

- `PATH/<class>/*`: a fifth of each class becomes the test set, by a fixed seed;
- `PATH/train/<class>/*` with `PATH/test/...`, or with `PATH/val/...` as in ImageNet: validation comes out of train;
- `PATH/train`, `PATH/val` and `PATH/test`: all three as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from calgrad.checks import FileError
from calgrad.data.files import image_files
from calgrad.data.parts import FolderPart
from calgrad.data.spec import DataSpec
from calgrad.data.split import SplitIndices, seeded_split

__all__ = ["class_folders", "list_class_folders", "load_folder_parts", "make_folder_part"]

TEST_FRACTION, TEST_SEED = 0.2, 2025


def load_folder_parts(
    spec: DataSpec, path: str | Path, *, on_corrupt: str = "raise"
) -> tuple[FolderPart, FolderPart, SplitIndices | None]:
    """Training and test part, and the split that the folder itself makes, if it does."""
    place = Path(path).expanduser()
    if not place.is_dir():
        raise FileError(f"{place} is not a folder; folder:PATH needs one with a folder of images for each class")
    if not (place / "train").is_dir():
        classes = class_folders(place)
        whole = make_folder_part(spec, classes, *list_class_folders(place, classes), on_corrupt=on_corrupt)
        cut = seeded_split(whole.labels, max(1, round(TEST_FRACTION * len(whole))), seed=TEST_SEED)
        return whole.take(cut.train), whole.take(cut.val), None
    classes = class_folders(place / "train")
    listed = {
        name: list_class_folders(place / name, classes) for name in ("train", "val", "test") if (place / name).is_dir()
    }
    if len(listed) == 1:
        raise FileError(f"{place} has a train folder but neither test nor val")
    test = make_folder_part(spec, classes, *listed["test" if "test" in listed else "val"], on_corrupt=on_corrupt)
    paths, labels = listed["train"]
    given = None
    if len(listed) == 3:
        given = SplitIndices(
            np.arange(len(paths)), np.arange(len(paths), len(paths) + len(listed["val"][0])), name="folder"
        )
        paths, labels = paths + listed["val"][0], labels + listed["val"][1]
    return make_folder_part(spec, classes, paths, labels, on_corrupt=on_corrupt), test, given


def class_folders(folder: Path) -> tuple[str, ...]:
    """Names of the folders in a folder, sorted: the classes."""
    names = tuple(sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")))
    if len(names) < 2:
        raise FileError(f"{folder} must hold a folder for each of at least two classes, got {len(names)}")
    return names


def list_class_folders(folder: Path, classes: Sequence[str]) -> tuple[list[Path], list[int]]:
    """Every image below the class folders, with its class number; a class that training does not know is refused."""
    number = {name: index for index, name in enumerate(classes)}
    paths: list[Path] = []
    labels: list[int] = []
    for name in class_folders(folder):
        if name not in number:
            raise FileError(f"{folder / name} is a class that the training folder does not have")
        found = image_files(folder / name)
        if not found:
            raise FileError(f"{folder / name} holds no images")
        paths += found
        labels += [number[name]] * len(found)
    return paths, labels


def make_folder_part(
    spec: DataSpec, classes: tuple[str, ...], paths: Sequence[Path], labels: Sequence[int], *, on_corrupt: str
) -> FolderPart:
    """A part whose spec knows the classes that were found."""
    found = replace(spec, classes=classes, class_count=len(classes))
    return FolderPart(found, tuple(paths), torch.tensor(labels), torch.arange(len(paths)), on_corrupt=on_corrupt)
