"""`load_data`: any data set by name, split into training, validation and test."""

from __future__ import annotations

from pathlib import Path

from calgrad.checks import InputError, one_of
from calgrad.data.digits import load_digits_parts
from calgrad.data.gaussians import load_gaussians_parts
from calgrad.data.parts import Part, Splits
from calgrad.data.spec import SPECS, find_spec
from calgrad.data.split import SplitIndices, paper_split, seeded_split

__all__ = ["load_data"]


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
        workers: Processes that decode images; default: one a core.

    Example:
        >>> from calgrad.data import load_data
        >>> data = load_data("digits", seed=1)
        >>> len(data.train), len(data.val), len(data.test)
        (1000, 257, 540)
    """
    one_of("on_corrupt", on_corrupt, ("raise", "skip"))
    spec = find_spec(name)
    if image_size is not None and spec.name not in ("imagenet", "folder"):
        raise InputError(
            f"`image_size` cannot be chosen for {spec.name}, whose images are {spec.image_size} pixels wide"
        )
    train, test = _load_parts(name, root, seed=seed, image_size=image_size, on_corrupt=on_corrupt, workers=workers)
    indices = _split(train, split, val_size, val_fraction, seed, stratified)
    indices.check_size(len(train))
    return Splits(train.spec, train.take(indices.train), train.take(indices.val), test, indices)


def _load_parts(
    name: str, root: str | Path | None, *, seed: int, image_size: int | None, on_corrupt: str, workers: int | None
) -> tuple[Part, Part]:
    if name == "digits":
        return load_digits_parts()
    if name == "gaussians":
        return load_gaussians_parts(seed)
    raise NotImplementedError(name)


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
    if split == "paper":
        if not train.spec.name.startswith("cifar"):
            raise InputError(f"split='paper' is the published CIFAR split, not one of {train.spec.name}: use 'seeded'")
        return paper_split(len(train), val_size or SPECS["cifar10"].val_size)
    return seeded_split(train.labels, val_size or train.spec.val_size, seed=seed, stratified=stratified)
