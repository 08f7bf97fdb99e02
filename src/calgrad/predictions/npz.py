"""NumPy's `.npz`: a zip of arrays, which any framework can write with one line of NumPy.

The zip is read as a stream: every byte passes its checksum, stored and compressed members are one code path, and
nothing is allocated that the file cannot fill. A member of Python objects is a pickle, which could run code: it is
refused unread.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.lib import format as npy

from calgrad.checks import FileError
from calgrad.predictions.core import Predictions
from calgrad.predictions.files import Piece, PredictionFile, checked_shapes, column_of_values, meta_from_json

_DEFLATE_LIMIT = 1100
"""No deflate stream grows by more than 1032 to 1; a member that claims more is lying about its size."""
_TEXT_LIMIT = 16 * 2**20


class Member(NamedTuple):
    """One array's header."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    fortran: bool


def read(path: Path) -> PredictionFile:
    """Open a `.npz` with `logits` or `probs`, `labels`, optionally `ids`, `split` and `meta`."""
    with zipfile.ZipFile(path) as archive:
        names = {name.removesuffix(".npy"): name for name in archive.namelist()}
        if any(name.endswith("data.pkl") for name in names):
            raise FileError(f"{path} is a PyTorch checkpoint (a pickle, never opened); use np.savez instead")
        values = column_of_values(path, names)
        wanted = [values, "labels", *(name for name in ("ids",) if name in names)]
        members = {name: _header(archive, names[name], path) for name in wanted}
        rows, classes = checked_shapes(path, {name: member.shape for name, member in members.items()}, values)
        split, meta = (_text(archive, names.get(name), path) for name in ("split", "meta"))

    def pieces(limit: int | None) -> Iterator[Piece]:
        return _pieces(path, [members.get(name) for name in (values, "labels", "ids")], rows, limit)

    nbytes = sum(member.dtype.itemsize * int(np.prod(member.shape)) for member in members.values())
    return PredictionFile(
        path, classes, rows, values, nbytes, pieces, split=split, meta=meta_from_json(path, meta) if meta else {}
    )


def write(predictions: Predictions, path: Path) -> None:
    """Uncompressed: compressing floats costs thirty times the time for a tenth of the size."""
    arrays = {"logits": predictions.logits.numpy(), "labels": predictions.labels.numpy()}
    if predictions.ids is not None:
        arrays["ids"] = predictions.ids
    arrays["split"] = np.array(predictions.split)
    arrays["meta"] = np.array(json.dumps(predictions.meta))
    with open(path, "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def _header(archive: zipfile.ZipFile, name: str, path: Path) -> Member:
    info = archive.getinfo(name)
    with archive.open(name) as file:
        shape, fortran, dtype = _npy_header(file)
        consumed = file.tell()
    if dtype.hasobject:
        raise FileError(
            f"{path}: `{name}` holds Python objects, that is a pickle, which could run code; it was not opened. Save "
            "plain numbers (ids: whole numbers or strings)"
        )
    if dtype.kind not in "biufU":
        raise FileError(f"{path}: `{name}` must hold numbers (ids: or strings), got dtype {dtype}")
    # Python integers: a hostile shape must not overflow into a small product.
    declared = dtype.itemsize
    for length in shape:
        declared *= length
    stored = min(info.compress_size, path.stat().st_size)
    holds = info.file_size - consumed
    if declared != holds or info.file_size > stored * (
        1 if info.compress_type == zipfile.ZIP_STORED else _DEFLATE_LIMIT
    ):
        raise FileError(
            f"{path}: `{name}` declares shape {shape} of {dtype}, {declared:,} bytes, but the file holds "
            f"{min(holds, stored):,}; truncated or damaged?"
        )
    return Member(name, shape, dtype, fortran)


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = npy.read_magic(file)
    if version == (1, 0):
        return npy.read_array_header_1_0(file)
    if version == (2, 0):
        return npy.read_array_header_2_0(file)
    raise ValueError(f".npy version {version} holds structured arrays, not numbers")


def _text(archive: zipfile.ZipFile, name: str | None, path: Path) -> str:
    if name is None:
        return ""
    member = _header(archive, name, path)
    if member.dtype.kind != "U" or member.shape != () or member.dtype.itemsize > _TEXT_LIMIT:
        raise FileError(f"{path}: `{name}` must be one string, got {member.dtype} of shape {member.shape}")
    with archive.open(name) as file:
        _npy_header(file)
        return str(np.frombuffer(file.read(), dtype=member.dtype)[0]) if member.dtype.itemsize else ""


def _pieces(path: Path, members: list[Member | None], rows: int, limit: int | None) -> Iterator[Piece]:
    with zipfile.ZipFile(path) as archive:
        columns = [_rows_of(archive, member, limit or max(rows, 1)) if member else None for member in members]
        for values in columns[0] or ():
            labels, ids = (next(column) if column else None for column in columns[1:])
            yield Piece(values, labels, ids)
        for column in columns:
            next(column, None) if column else None  # reach the end of every member, where its checksum is compared


def _rows_of(archive: zipfile.ZipFile, member: Member, limit: int) -> Iterator[np.ndarray]:
    """The array's leading dimension in pieces of `limit`."""
    rows = member.shape[0]
    with archive.open(member.name) as file:
        _npy_header(file)
        if member.fortran and len(member.shape) > 1:
            # Columns lie one after the other, so a row is everywhere: there is no way but to hold the whole.
            whole = _fill(file, (member.shape[1], rows), member.dtype).T
            for start in range(0, rows, limit):
                yield np.ascontiguousarray(whole[start : start + limit])
        else:
            for start in range(0, rows, limit):
                yield _fill(file, (min(limit, rows - start), *member.shape[1:]), member.dtype)
        if file.read(1):
            raise ValueError("bytes after the end of the array")


def _fill(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    array = np.empty(shape, dtype)
    if array.size == 0 or dtype.itemsize == 0:
        return array
    view = array.reshape(-1).view(np.uint8).data
    filled = 0
    while filled < len(view):
        got = file.readinto(view[filled:])  # type: ignore[attr-defined]
        if not got:
            raise EOFError(f"{len(view) - filled:,} bytes missing")
        filled += got
    return array
