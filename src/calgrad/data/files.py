"""Images in files: find, decode, crop. Pillow is imported when the first image is read."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from calgrad.checks import FileError
from calgrad.data.parts import FolderPart

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["IMAGE_SUFFIXES", "decode_batches", "default_workers", "image_files", "read_image"]

IMAGE_SUFFIXES = frozenset({".jpeg", ".jpg", ".png", ".bmp", ".ppm", ".webp", ".tif", ".tiff", ".gif"})
_RESIZE_RATIO = 256 / 224  # the shorter side is scaled to this many times the crop, as every ImageNet evaluation does


def default_workers() -> int:
    """One process a core this process may use, eight at most."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(8, cores)


def image_files(folder: Path) -> list[Path]:
    """The image files directly in a folder, by name."""
    # Names alone: asking the file system about each of a million files would take minutes.
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES)


def read_image(path: Path) -> Image:
    """Decode the whole file to RGB; a file that cannot be decoded is a `FileError` with its name."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise FileError(
            f"{path} cannot be decoded as an image: {error}; on_corrupt='skip' leaves such files out"
        ) from error


def centre_crop(image: Image, size: int) -> np.ndarray:
    """Scale the shorter side to size * 256 / 224 and cut the middle; an image of exactly this size is left alone."""
    from PIL import Image as Pillow

    width, height = image.size
    if (width, height) != (size, size):
        scale = round(size * _RESIZE_RATIO) / min(width, height)
        image = image.resize(
            (max(size, round(width * scale)), max(size, round(height * scale))), Pillow.Resampling.BILINEAR
        )
        left, top = (image.width - size) // 2, (image.height - size) // 2
        image = image.crop((left, top, left + size, top + size))
    return np.asarray(image)


def random_resized_crop(image: Image, size: int, rng: np.random.Generator) -> np.ndarray:
    """A random 8 to 100 % of the area at an aspect ratio between 3/4 and 4/3, scaled to size (Szegedy et al. 2015)."""
    from PIL import Image as Pillow

    width, height = image.size
    for _ in range(10):
        area = width * height * rng.uniform(0.08, 1.0)
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(rng.integers(width - w + 1)), int(rng.integers(height - h + 1))
            box = (left, top, left + w, top + h)
            break
    else:  # an extreme shape: the largest centred box with a ratio in range
        w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
        left, top = (width - w) // 2, (height - h) // 2
        box = (left, top, left + w, top + h)
    return np.asarray(image.resize((size, size), Pillow.Resampling.BILINEAR, box=box))


class _Decoded(Dataset[tuple[Tensor, Tensor, list[str]]]):
    """Indexed by a tensor of rows: their images as uint8, which could be read, and what was wrong with the others.

    Errors travel as text: the process that owns the part decides what to do about them.
    """

    def __init__(self, part: FolderPart, *, seed: int, epoch: int, resized_crop: bool) -> None:
        self.paths, self.ids, self.size = part.paths, part.ids, part.spec.image_size
        self.seed, self.epoch, self.resized_crop = seed, epoch, resized_crop

    def __getitem__(self, rows: Tensor) -> tuple[Tensor, Tensor, list[str]]:
        kept: list[int] = []
        errors: list[str] = []
        images = torch.empty((len(rows), 3, self.size, self.size), dtype=torch.uint8)
        for place, row in enumerate(rows.tolist()):
            try:
                image = read_image(self.paths[row])
            except FileError as error:
                errors.append(str(error))
                continue
            if self.resized_crop:
                rng = np.random.default_rng([self.seed, self.epoch, int(self.ids[row])])
                pixels = random_resized_crop(image, self.size, rng)
            else:
                pixels = centre_crop(image, self.size)
            images[len(kept)] = torch.from_numpy(pixels.transpose(2, 0, 1).copy())
            kept.append(place)
        return images[: len(kept)], torch.tensor(kept, dtype=torch.int64), errors


def decode_batches(
    part: FolderPart,
    rows: Sequence[Tensor],
    *,
    seed: int = 0,
    epoch: int = 0,
    resized_crop: bool = False,
    workers: int | None = None,
    pinned: bool = False,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Decode these lists of rows, in order: images (n, 3, S, S) uint8, and which places of the list they stand for."""
    workers = default_workers() if workers is None else workers
    loader: DataLoader[tuple[Tensor, Tensor, list[str]]] = DataLoader(
        _Decoded(part, seed=seed, epoch=epoch, resized_crop=resized_crop),
        sampler=rows,  # each "sample" is a whole batch
        batch_size=None,
        num_workers=workers,
        pin_memory=pinned,
        prefetch_factor=4 if workers else None,
    )
    for index, (images, kept, errors) in enumerate(loader):
        if errors and part.on_corrupt == "raise":
            raise FileError(errors[0])
        if errors:
            bad = set(range(len(rows[index]))) - set(kept.tolist())
            seen = set(part.skipped)
            part.skipped.extend(p for b in sorted(bad) if (p := part.paths[int(rows[index][b])]) not in seen)
        yield images, kept
