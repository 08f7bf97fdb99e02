"""Files of predictions, whatever their format: one way to open, load, stream and save them.

A format is a module with `read(path) -> PredictionFile` and, where calgrad writes it, `write(predictions, path)`. A
reader looks at the file's header only; the numbers come in `pieces`, so that loading (one piece) and streaming (many)
are the same code.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calgrad.checks import ArrayLike, FileError, InputError, positive_int
from calgrad.files import memory, whole_file
from calgrad.predictions.core import Predictions

_FORMATS = {".npz": "npz", ".safetensors": "tensors", ".csv": "tables", ".parquet": "tables"}
READS = tuple(_FORMATS)
WRITES = (".npz", ".safetensors")
DEFAULT_ROWS = 65_536


class Piece(NamedTuple):
    """Consecutive rows as a reader finds them, not yet checked."""

    values: ArrayLike
    labels: ArrayLike
    ids: np.ndarray | None


Pieces = Callable[[int | None], Iterator[Piece]]
"""Yields the rows of a file, at most so many at a time (None: all at once)."""


@dataclass(frozen=True)
class PredictionFile:
    """A file of predictions whose header was read and whose numbers were not.

    Attributes:
        path: The file.
        classes: K.
        rows: N, or None where the format does not say (CSV).
        space: "logits" or "probs": what the file holds.
        nbytes: Memory that all logits and labels take once loaded, as far as the header or the file's size tells.
        pieces: Yields the rows, unchecked; use `chunks`.
        split: As saved, or "".
        meta: As saved, or {}.
    """

    path: Path
    classes: int
    rows: int | None
    space: str
    nbytes: int
    pieces: Pieces = field(repr=False)
    split: str = ""
    meta: dict[str, Any] = field(default_factory=dict)

    def load(self) -> Predictions:
        """All of it, where it fits into memory: a small compressed file may stand for very much."""
        if self.nbytes > memory():
            raise FileError(
                f"{self.path} takes {self.nbytes / 2**30:,.1f} GiB once read, and this process may use "
                f"{memory() / 2**30:,.1f}; read it in pieces (stream(path), calgrad evaluate --stream)"
            )
        for whole in self.chunks(None):
            return whole
        raise FileError(f"{self.path} holds no rows: nothing can be measured on no samples")

    def chunks(self, rows: int | None = DEFAULT_ROWS) -> Iterator[Predictions]:
        """The file in order, `rows` samples at a time; memory does not grow with the file."""
        if rows is not None:
            positive_int("rows", rows)
        start = 0
        with reading(self.path):
            pieces = self.pieces(rows)
            while (chunk := self._next(pieces, start)) is not None:
                yield chunk
                start += chunk.n

    def _next(self, pieces: Iterator[Piece], start: int) -> Predictions | None:
        try:
            piece = next(pieces, None)
            if piece is None:
                return None
            make = Predictions.from_probs if self.space == "probs" else Predictions
            return make(piece.values, piece.labels, ids=piece.ids, split=self.split, meta=self.meta)
        except InputError as error:
            where = f"{self.path}, rows counted from {start}" if start else str(self.path)
            raise InputError(f"{where}: {error}") from None


def open_file(path: str | Path) -> PredictionFile:
    """Read the header of a file of predictions: its shape and meaning, not its numbers."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in _FORMATS:
        raise FileError(f"{path}: predictions are read from {', '.join(READS)}, got {suffix or 'no suffix'!r}")
    if path.is_dir():
        raise FileError(f"{path} is a folder; give the file inside it")
    if not path.exists():
        raise FileError(f"{path} does not exist (looked in {path.parent.resolve()})")
    if path.stat().st_size == 0:
        raise FileError(f"{path} is empty: 0 bytes; was writing it interrupted?")
    module = importlib.import_module(f"calgrad.predictions.{_FORMATS[suffix]}")
    with reading(path):
        return module.read(path)


def stream(path: str | Path, rows: int = DEFAULT_ROWS) -> Iterator[Predictions]:
    """A file of predictions in order, `rows` samples at a time, without ever holding the whole file.

    Example:
        >>> from calgrad.predictions import stream
        >>> correct = sum(int((part.prediction == part.labels).sum()) for part in stream("test.npz"))  # doctest: +SKIP
    """
    return open_file(path).chunks(rows)


def save(predictions: Predictions, path: str | Path) -> Path:
    """Write `.npz` or `.safetensors`, by suffix, whole or not at all."""
    path = Path(path)
    if path.suffix.lower() not in WRITES:
        raise FileError(f"{path}: predictions are written as {' or '.join(WRITES)}, got {path.suffix or 'no suffix'!r}")
    module = importlib.import_module(f"calgrad.predictions.{_FORMATS[path.suffix.lower()]}")
    with whole_file(path) as beside:
        module.write(predictions, beside)
    return path


# ---------------------------------------------------------------------------------------------- for the format modules


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Whatever a reader stumbles over in a damaged file becomes a FileError that names it and what it looks like."""
    try:
        yield
    except (FileError, InputError):
        raise
    except PermissionError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise FileError(
            f"{path} is not a whole {path.suffix.lower()} file of predictions ({why:.300}); it begins like "
            f"{looks_like(path)}. Truncated, damaged, or of another kind?"
        ) from error


_MAGIC = {
    b"PK\x03\x04": "a zip archive (.npz, or PyTorch's .pt)",
    b"PK\x05\x06": "an empty zip archive",
    b"\x93NUMPY": "a NumPy .npy array (save logits and labels together: np.savez)",
    b"PAR1": "a Parquet file",
    b"\x89HDF": "an HDF5 file",
    b"\x1f\x8b": "a gzip file",
    b"BZh": "a bzip2 file",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"\x80": "a pickle (which could run code and is never opened)",
    b"\x7fELF": "a program",
    b"\x89PNG": "a PNG picture",
}


def looks_like(path: Path) -> str:
    """What kind of file this is, by its first bytes."""
    with open(path, "rb") as file:
        head = file.read(64)
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            return kind
    if len(head) > 9 and int.from_bytes(head[:8], "little") < 100_000_000 and head[8:9] == b"{":
        return "a safetensors file"
    if head and all(byte in b"\t\r\n" or byte >= 32 for byte in head):
        return f"text: {head[:40].decode('utf-8', 'replace')!r}"
    return f"bytes {head[:8].hex(' ')}" if head else "nothing: it is empty"


def column_of_values(path: Path, names: Mapping[str, Any]) -> str:
    """Whether a file's arrays are `logits` or `probs`; refuses one that holds neither, both, or no labels."""
    found = [name for name in ("logits", "probs") if name in names]
    if len(found) != 1 or "labels" not in names:
        problem = "both logits and probs: keep one" if len(found) == 2 else ", ".join(names) or "nothing"
        raise FileError(
            f"{path} holds {problem}; expected `logits` (N, K), or `probs` (N, K) where no logits exist, and `labels` "
            "(N,), optionally `ids` (N,)"
        )
    return found[0]


def checked_shapes(path: Path, shapes: dict[str, tuple[int, ...]], values: str) -> tuple[int, int]:
    """(N, K), where the declared shapes fit together."""
    shape = shapes[values]
    if len(shape) != 2:
        raise InputError(f"{path}: `{values}` must have shape (N, K), a row a sample and a column a class, got {shape}")
    if shapes["labels"] == shape:
        raise InputError(f"{path}: `labels` must be class indices (N,), got {shape}; if one-hot: labels.argmax(1)")
    for name in ("labels", "ids"):
        if name in shapes and shapes[name] != shape[:1]:
            raise InputError(
                f"{path}: `{name}` must have shape ({shape[0]},) beside `{values}` {shape}, got {shapes[name]}"
            )
    return shape[0], shape[1]


def meta_from_json(path: Path, text: str) -> dict[str, Any]:
    """The provenance that was saved as JSON."""
    meta = json.loads(text)
    if not isinstance(meta, dict):
        raise FileError(f"{path}: `meta` must be a JSON object, got {text!r:.100}")
    return meta
