"""Hugging Face's `.safetensors`: a JSON header and raw tensors, no code; the fastest to write and to read.

It has no strings, so ids that are strings are stored as UTF-8 bytes (`ids_utf8`) and where each one ends (`ids_ends`);
split and meta are strings of the header.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calgrad.checks import FileError
from calgrad.predictions.core import Predictions
from calgrad.predictions.files import Piece, PredictionFile, checked_shapes, column_of_values, meta_from_json


def read(path: Path) -> PredictionFile:
    """Open a `.safetensors` with `logits` or `probs`, `labels`, optionally `ids`."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        names = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
        header = file.metadata() or {}
        values = column_of_values(path, names)
        shapes = {name: tuple(names[name].get_shape()) for name in (values, "labels", "ids") if name in names}
        if "ids_ends" in names:
            shapes["ids"] = tuple(names["ids_ends"].get_shape())
        rows, classes = checked_shapes(path, shapes, values)

    def pieces(limit: int | None) -> Iterator[Piece]:
        step = limit or max(rows, 1)
        with safe_open(path, framework="pt") as file:
            for start in range(0, rows, step):
                stop = min(start + step, rows)
                logits, labels = (_rows(file, name, start, stop) for name in (values, "labels"))
                yield Piece(logits, labels, _ids(file, names, path, start, stop))

    return PredictionFile(
        path,
        classes,
        rows,
        values,
        nbytes=path.stat().st_size,
        pieces=pieces,
        split=header.get("split", ""),
        meta=meta_from_json(path, header["meta"]) if "meta" in header else {},
    )


def write(predictions: Predictions, path: Path) -> None:
    """Tensors `logits`, `labels` and the ids; header strings `split` and `meta`."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    tensors = {"logits": predictions.logits.contiguous(), "labels": predictions.labels.contiguous()}
    if predictions.ids is not None and predictions.ids.dtype.kind == "U":
        encoded = [name.encode() for name in predictions.ids.tolist()]
        tensors["ids_utf8"] = torch.from_numpy(np.frombuffer(b"".join(encoded), np.uint8).copy())
        tensors["ids_ends"] = torch.tensor([len(name) for name in encoded]).cumsum(0)
    elif predictions.ids is not None:
        tensors["ids"] = torch.tensor(predictions.ids)
    header = {"format": "pt", "split": predictions.split, "meta": json.dumps(predictions.meta)}
    try:
        save_file(tensors, path, metadata=header)
    except SafetensorError as error:  # a full disk, in its words
        raise OSError(str(error)) from error


def _rows(file: Any, name: str, start: int, stop: int) -> Tensor:
    # A copy: a view would keep the whole file mapped, and die with it if the file were cut short later.
    return file.get_slice(name)[start:stop].clone()


def _ids(file: Any, names: dict[str, Any], path: Path, start: int, stop: int) -> np.ndarray | None:
    if "ids" in names:
        return _rows(file, "ids", start, stop).numpy()
    if "ids_ends" not in names:
        return None
    if "ids_utf8" not in names:
        raise FileError(f"{path} holds `ids_ends` without `ids_utf8`")
    before = int(_rows(file, "ids_ends", start - 1, start)) if start else 0
    ends = [before, *_rows(file, "ids_ends", start, stop).tolist()]
    total = names["ids_utf8"].get_shape()[0]
    if any(a > b for a, b in pairwise(ends)) or ends[-1] > total or before < 0:
        raise FileError(f"{path}: `ids_ends` must rise from 0 to at most {total}, the length of `ids_utf8`")
    text = _rows(file, "ids_utf8", before, ends[-1]).numpy().tobytes()
    return np.array([text[a - before : b - before].decode() for a, b in pairwise(ends)], dtype=np.str_)
