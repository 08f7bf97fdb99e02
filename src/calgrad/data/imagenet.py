"""ImageNet-1k in folders: train/<wnid>/*.JPEG, and val either in such folders or flat beside a list of labels.

The list may be any of the usual ones: `LOC_val_solution.csv` (name, wnid, box), `val_annotations.txt` (name, wnid),
or `synset_labels.txt` (a wnid a line, in the order of the file names). The official val folder is the test set;
validation is carved out of train.
"""

from __future__ import annotations

import re
from pathlib import Path

from calgrad.checks import FileError
from calgrad.data.files import image_files
from calgrad.data.folder import class_folders, list_class_folders, make_folder_part
from calgrad.data.parts import FolderPart
from calgrad.data.root import data_root, missing_data
from calgrad.data.spec import DataSpec

__all__ = ["load_imagenet_parts"]

LABEL_LISTS = (
    "LOC_val_solution.csv", "val_annotations.txt", "synset_labels.txt", "imagenet_2012_validation_synset_labels.txt",
)  # fmt: skip
_WNID = re.compile(r"n\d{8}")


def load_imagenet_parts(
    spec: DataSpec, root: str | Path | None = None, *, on_corrupt: str = "raise"
) -> tuple[FolderPart, FolderPart]:
    """Paths and labels; classes are numbered in the order of their WordNet ids, as pretrained nets expect."""
    base = data_root(root)
    place = next((p for p in (base, base / spec.folder) if (p / "train").is_dir()), None)
    if place is None:
        raise missing_data(spec, [base / "train", base / spec.folder / "train"])
    classes = class_folders(place / "train")
    train = make_folder_part(spec, classes, *list_class_folders(place / "train", classes), on_corrupt=on_corrupt)
    if not (place / "val").is_dir():
        raise FileError(f"{place / 'val'} is missing: it is the test set")
    flat = image_files(place / "val")
    paths, labels = _read_flat(place, flat, classes) if flat else list_class_folders(place / "val", classes)
    return train, make_folder_part(spec, classes, paths, labels, on_corrupt=on_corrupt)


def _read_flat(place: Path, files: list[Path], classes: tuple[str, ...]) -> tuple[list[Path], list[int]]:
    candidates = [folder / name for folder in (place / "val", place) for name in LABEL_LISTS]
    listed = next((path for path in candidates if path.is_file()), None)
    if listed is None:
        raise FileError(f"{place / 'val'} holds images but no labels: put one of {', '.join(LABEL_LISTS)} beside them")
    wnid_of = _read_label_list(listed, [path.stem for path in files])
    number = {wnid: index for index, wnid in enumerate(classes)}
    labels = []
    for path in files:
        wnid = wnid_of.get(path.stem)
        if wnid not in number:
            raise FileError(f"{listed} gives {path.name} the class {wnid}, which has no folder in {place / 'train'}")
        labels.append(number[wnid])
    return files, labels


def _read_label_list(path: Path, stems: list[str]) -> dict[str, str]:
    rows = [re.split(r"[\s,]+", line.strip()) for line in path.read_text(encoding="utf8").splitlines() if line.strip()]
    if all(len(row) == 1 and _WNID.fullmatch(row[0]) for row in rows):
        if len(rows) != len(stems):
            raise FileError(f"{path} lists {len(rows)} classes for {len(stems)} images")
        return {stem: row[0] for stem, row in zip(sorted(stems), rows)}
    return {Path(row[0]).stem: row[1] for row in rows if len(row) > 1 and _WNID.fullmatch(row[1])}
