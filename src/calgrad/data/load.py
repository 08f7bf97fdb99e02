"""`load_data`: any data set by name, split into training, validation and test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from calgrad.checks import InputError, one_of
from calgrad.data.cifar import load_cifar_parts
from calgrad.data.digits import load_digits_parts
from calgrad.data.folder import load_folder_parts
from calgrad.data.gaussians import load_gaussians_parts
from calgrad.data.imagenet import load_imagenet_parts
from calgrad.data.memory import decode_to_memory
from calgrad.data.parts import FolderPart, Part, Splits
from calgrad.data.spec import DataSpec, find_spec
from calgrad.data.split import SplitIndices, paper_split, seeded_split
from calgrad.data.tiny_imagenet import load_tiny_imagenet_parts

__all__ = ["load_data", "load_parts"]


def load_data(
    name: str,
    root: str | Path | None = None,
    *,
    split: str | Path | SplitIndices = "seeded",
    val_size: int | None = None,
    val_fraction: float | None = None,
    seed: int = 0,
    stratified: bool = True,
    image_size: int | None = None,
    on_corrupt: str = "raise",
    in_memory: bool | None = None,
    workers: int | None = None,
) -> Splits:
    """Load a data set and carve its validation part out of its training part; the test part is never touched.

    Args:
        name: digits, gaussians, cifar10, cifar100, tiny-imagenet, imagenet, or folder:PATH.
        root: Folder of the data sets; default: CALGRAD_DATA, else the user's cache folder.
        split: "seeded"; "paper", the published CIFAR validation indices; a `SplitIndices`, or a file that holds one.
        val_size: How many samples are held out for validation; default: as the set's spec says.
        val_fraction: The same as a fraction of the training samples.
        seed: Of the split (and of the gaussians themselves). Independent of a training seed.
        stratified: Give each class its share of validation.
        image_size: Side of the images of `imagenet` and folders; the other sets have one size.
        on_corrupt: "raise" on an image that cannot be decoded, or "skip" and count it.
        in_memory: True decodes `imagenet` or a folder into memory at once (every image cut to `image_size`).
        workers: Processes that decode images; default: one a core.

    Example:
        >>> from calgrad.data import load_data
        >>> data = load_data("digits", seed=1)
        >>> len(data.train), len(data.val), len(data.test)
        (1000, 257, 540)
    """
    one_of("on_corrupt", on_corrupt, ("raise", "skip"))
    spec = find_spec(name)
    if spec.name in ("imagenet", "folder"):
        spec = replace(spec, image_size=image_size or spec.image_size)
    elif image_size not in (None, spec.image_size):
        raise InputError(f"`image_size` cannot be chosen for {spec.name}: its images are {spec.image_size} pixels wide")
    elif in_memory is False:
        raise InputError(f"{spec.name} is always in memory")
    train, test, given = load_parts(spec, name, root, seed=seed, on_corrupt=on_corrupt, workers=workers)
    if in_memory and isinstance(train, FolderPart) and isinstance(test, FolderPart):
        train, test = decode_to_memory(train, workers=workers), decode_to_memory(test, workers=workers)
    if given is not None and split == "seeded" and val_size is None and val_fraction is None:
        split = given
    indices = _split(train, split, val_size, val_fraction, seed, stratified)
    indices.check_size(len(train))
    return Splits(train.spec, train.take(indices.train), train.take(indices.val), test, indices)


def load_parts(
    spec: DataSpec,
    name: str,
    root: str | Path | None,
    *,
    seed: int = 0,
    on_corrupt: str = "raise",
    workers: int | None = None,
) -> tuple[Part, Part, SplitIndices | None]:
    """The whole training part, the test part, and the split that comes with the data, if one does."""
    if spec.name == "digits":
        return *load_digits_parts(), None
    if spec.name == "gaussians":
        return *load_gaussians_parts(seed), None
    if spec.name in ("cifar10", "cifar100"):
        return *load_cifar_parts(spec, root), None
    if spec.name == "tiny-imagenet":
        return *load_tiny_imagenet_parts(spec, root, on_corrupt=on_corrupt, workers=workers), None
    if spec.name == "imagenet":
        return *load_imagenet_parts(spec, root, on_corrupt=on_corrupt), None
    return load_folder_parts(spec, name.partition(":")[2], on_corrupt=on_corrupt)


def _split(
    train: Part,
    split: str | Path | SplitIndices,
    val_size: int | None,
    val_fraction: float | None,
    seed: int,
    stratified: bool,
) -> SplitIndices:
    if isinstance(split, SplitIndices):
        return split
    if str(split).endswith((".npz", ".json")):
        return SplitIndices.load(split)
    one_of("split", split, ("seeded", "paper"))
    if val_size is not None and val_fraction is not None:
        raise InputError("pass `val_size` or `val_fraction`, not both")
    if val_fraction is not None:
        val_size = round(val_fraction * len(train))
    # A folder, or a subset of ImageNet, gives a tenth where the spec's number is unknown or too large.
    usual = train.spec.val_size if 0 < train.spec.val_size < len(train) else max(1, len(train) // 10)
    held_out = usual if val_size is None else val_size
    if split == "paper":
        if train.spec.name not in ("cifar10", "cifar100"):
            raise InputError(f"split='paper' is the published CIFAR split, not one of {train.spec.name}: use 'seeded'")
        return paper_split(len(train), held_out)
    return seeded_split(train.labels, held_out, seed=seed, stratified=stratified)
