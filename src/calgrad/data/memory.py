"""Decode a part on disk into memory once; a cache file makes the next time instant.

The cache is one .npy of uint8 beside a list of what it was made from (path, size and time of each file), so a changed,
added or removed image makes it anew. It is written under another name and then moved: no half caches.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import torch

from calgrad.data.files import decode_batches
from calgrad.data.parts import FolderPart, TensorPart

__all__ = ["decode_to_memory"]

_CHUNK = 256


def decode_to_memory(part: FolderPart, *, cache: Path | None = None, workers: int | None = None) -> TensorPart:
    """The whole part as uint8, without the images that could not be decoded if the part skips those.

    Args:
        part: Paths and labels.
        cache: Where to keep the decoded pixels (`.npy`); None keeps nothing.
        workers: Decoding processes.
    """
    key = _fingerprint(part) if cache is not None else ""
    if cache is not None and (stored := _from_cache(part, cache, key)) is not None:
        return stored
    shape = (len(part), part.spec.channels, part.spec.image_size, part.spec.image_size)
    partial = None if cache is None else cache.with_suffix(f".{os.getpid()}.part")
    try:
        pixels = np.empty(shape, np.uint8) if partial is None else _open(partial, shape)
        kept: list[int] = []
        rows = torch.arange(len(part)).split(_CHUNK)
        for chunk, (images, places) in zip(rows, decode_batches(part, rows, workers=workers)):
            pixels[len(kept) : len(kept) + len(images)] = images.numpy()
            kept.extend(chunk[places].tolist())
        if cache is not None and partial is not None:
            pixels.flush()  # type: ignore[union-attr]
            os.replace(partial, cache)
            _note(cache).write_text(json.dumps({"key": key, "kept": kept if len(kept) < len(part) else None}))
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)
    return _tensor_part(part, pixels, kept)


def _open(path: Path, shape: tuple[int, ...]) -> np.memmap:
    path.parent.mkdir(parents=True, exist_ok=True)
    return np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)


def _from_cache(part: FolderPart, cache: Path, key: str) -> TensorPart | None:
    try:
        note = json.loads(_note(cache).read_text())
        if note["key"] != key:
            return None
        pixels = np.load(cache, mmap_mode="c")  # copy-on-write: read from disk as needed, never written back
    except (OSError, ValueError, KeyError):
        return None
    kept = list(range(len(part))) if note["kept"] is None else note["kept"]
    bad = sorted(set(range(len(part))) - set(kept))
    part.skipped.extend(part.paths[row] for row in bad)
    return _tensor_part(part, pixels, kept)


def _tensor_part(part: FolderPart, pixels: np.ndarray, kept: list[int]) -> TensorPart:
    index = torch.tensor(kept, dtype=torch.int64)
    images = torch.from_numpy(pixels[: len(kept)])
    return TensorPart(part.spec, images, part.labels[index], part.ids[index])


def _fingerprint(part: FolderPart) -> str:
    digest = hashlib.sha256(f"1 {part.spec.image_size} {part.on_corrupt}".encode())
    for path in part.paths:
        status = path.stat()
        digest.update(f"\n{path.parent.name}/{path.name} {status.st_size} {status.st_mtime_ns}".encode())
    return digest.hexdigest()


def _note(cache: Path) -> Path:
    return cache.with_suffix(".json")
