"""Thumbnails for the mistakes: from an array of images in row order, or from a folder of files named by id.

They enter the page as data URIs, a few kilobytes each, re-encoded here: nothing of a foreign file reaches the page.
"""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np

from calgrad.checks import ArrayLike, FileError, InputError

SIDE = 64
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif")


class Images:
    """Images that can be looked up by row or by id; make one with `open_images`."""

    def __init__(self, *, array: np.ndarray | None = None, folder: Path | None = None) -> None:
        self.array, self.folder = array, folder

    def thumbnail(self, row: int, name: str) -> str | None:
        """A data URI, or None where there is no image for this sample."""
        from PIL import Image

        if self.array is not None:
            return _encoded(Image.fromarray(_pixels(self.array[row]))) if row < len(self.array) else None
        path = self._file(name)
        if path is None:
            return None
        try:
            with Image.open(path) as image:
                image.draft("RGB", (2 * SIDE, 2 * SIDE))  # a large JPEG is decoded small
                return _encoded(image.convert("RGB"))
        except (OSError, ValueError, Image.DecompressionBombError):
            return None

    def _file(self, name: str) -> Path | None:
        # Ids come from files: one that leads out of the folder is no image of ours.
        root = self.folder.resolve()  # type: ignore[union-attr]
        for candidate in (name, *(name + suffix for suffix in SUFFIXES)):
            try:
                path = (root / candidate).resolve()
                if path.is_relative_to(root) and path.suffix.lower() in SUFFIXES and path.is_file():
                    return path
            except (OSError, ValueError):
                continue
        return None


def open_images(source: str | Path | ArrayLike) -> Images:
    """Images from an array (N, H, W), (N, H, W, C) or (N, C, H, W), a `.npy` or `.npz` of one, or a folder of files.

    Args:
        source: Arrays are in the order of the predictions' rows, uint8 or floats in [0, 1]; a `.npz` holds `images`. In a
            folder the files are named by the samples' ids.
    """
    if not isinstance(source, (str, Path)):
        return Images(array=_checked(np.asarray(source)))
    path = Path(source)
    if path.is_dir():
        return Images(folder=path)
    try:
        loaded: Any = np.load(path, mmap_mode="r" if path.suffix == ".npy" else None, allow_pickle=False)
        return Images(array=_checked(loaded["images"] if path.suffix == ".npz" else loaded))
    except (OSError, ValueError, KeyError) as error:
        raise FileError(
            f"{path} holds no images: {error}; expected a folder, a .npy, or a .npz with `images` (N, H, W, C)"
        ) from error


def _checked(array: np.ndarray) -> np.ndarray:
    channels = array.ndim == 4 and (array.shape[-1] in (1, 3) or array.shape[1] in (1, 3))
    if not (array.ndim == 3 or channels) or array.dtype.kind not in "uif":
        raise InputError(
            f"`images` must be (N, H, W), (N, H, W, C) or (N, C, H, W) with 1 or 3 channels, got {array.shape}"
        )
    return array


def _pixels(image: np.ndarray) -> np.ndarray:
    image = np.asarray(image)
    if image.ndim == 3 and image.shape[-1] not in (1, 3):
        image = image.transpose(1, 2, 0)
    if image.ndim == 3 and image.shape[-1] == 1:
        image = image[..., 0]
    if image.dtype.kind == "f":
        image = 255 * np.clip(np.nan_to_num(image), 0, 1)
    return np.ascontiguousarray(np.clip(image, 0, 255).astype(np.uint8))


def _encoded(image: Any) -> str:
    if max(image.size) > SIDE:
        image.thumbnail((SIDE, SIDE))
    out = io.BytesIO()
    image.save(out, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()
