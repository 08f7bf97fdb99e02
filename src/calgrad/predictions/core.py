"""The object itself: what a classifier said about N samples, and what was true."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calgrad import checks
from calgrad.checks import ArrayLike, InputError


@dataclass(frozen=True, eq=False, repr=False)
class Predictions:
    """Logits and labels of N samples over K classes, checked once, with where they come from.

    The tensors lie on the CPU in float32 or float64 and share memory with what was passed where they can; treat them as
    read-only.

    Attributes:
        logits: (N, K), finite; half precision is widened to float32.
        labels: (N,) int64 in [0, K).
        ids: Names of the samples, (N,) integers or strings, or None.
        split: Which part of the data this is, such as "val" or "test".
        meta: Provenance: anything JSON can hold. `class_names` (K strings) and `space` ("probs" where the logits are
            the logarithms of given probabilities) have a meaning here; the rest is the caller's.

    Example:
        >>> from calgrad.predictions import Predictions
        >>> test = Predictions([[2.0, -1.0], [0.5, 1.5]], [0, 1], split="test")
        >>> test.n, test.classes, test.prediction.tolist()
        (2, 2, [0, 1])
    """

    logits: Tensor
    labels: Tensor
    ids: np.ndarray | None = None
    split: str = ""
    meta: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        logits = checks.logit_matrix(self.logits).cpu()
        if logits.dtype not in (torch.float32, torch.float64):
            raise InputError(f"`logits` must be float16, bfloat16, float32 or float64, got {logits.dtype}")
        labels = checks.label_vector(self.labels, *logits.shape).cpu()
        ids = None if self.ids is None else id_vector(self.ids, logits.shape[0])
        meta = checked_meta(self.meta, logits.shape[1])
        _plain_text(self.split, "split")
        for name, value in (("logits", logits), ("labels", labels), ("ids", ids), ("meta", meta)):
            object.__setattr__(self, name, value)

    @classmethod
    def from_probs(
        cls,
        probs: ArrayLike,
        labels: ArrayLike,
        *,
        ids: ArrayLike | None = None,
        split: str = "",
        meta: Mapping[str, Any] | None = None,
    ) -> Predictions:
        """Predictions where only probabilities exist: the logits are their logarithms, and `meta["space"]` is "probs".

        A probability of exactly 0 has no finite logarithm and becomes the smallest normal number of its dtype (1e-38 in
        float32), so the NLL of a label that was called impossible is large (87 nats) and not infinite.
        """
        checked = checks.prob_matrix(probs)
        logits = checked.clamp_min(torch.finfo(checked.dtype).tiny).log()
        return cls(logits, labels, ids, split, {**(meta or {}), "space": "probs"})  # type: ignore[arg-type]

    # ---------------------------------------------------------------------------------------------------- what it says

    @property
    def n(self) -> int:
        """Number of samples."""
        return self.logits.shape[0]

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.logits.shape[1]

    @property
    def probs(self) -> Tensor:
        """(N, K) softmax of the logits."""
        return self.logits.softmax(dim=1)

    @property
    def log_probs(self) -> Tensor:
        """(N, K) logarithm of `probs`."""
        return self.logits.log_softmax(dim=1)

    @property
    def prediction(self) -> Tensor:
        """(N,) the class with the largest logit."""
        return self.logits.argmax(dim=1)

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The K names in `meta["class_names"]`, or None."""
        names = self.meta.get("class_names")
        return None if names is None else tuple(names)

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        ids = "" if self.ids is None else ", with ids"
        split = f", split={self.split!r}" if self.split else ""
        return f"Predictions(n={self.n}, classes={self.classes}, {self.logits.dtype}{split}{ids})"

    # ---------------------------------------------------------------------------------------------------- new from old

    def select(self, rows: ArrayLike) -> Predictions:
        """The samples that `rows` picks: a slice, indices, or a mask of N booleans.

        Example:
            >>> from calgrad.predictions import Predictions
            >>> both = Predictions([[2.0, -1.0], [0.5, 1.5]], [0, 1], ids=["a", "b"])
            >>> both.select([1]).ids.tolist()
            ['b']
        """
        if not isinstance(rows, slice):
            rows = checks.to_tensor(rows, "rows")
            if rows.is_floating_point() or rows.ndim != 1 or (rows.dtype == torch.bool and len(rows) != self.n):
                raise InputError(
                    f"`rows` must be a slice, whole-number indices or a mask of {self.n} booleans, got {rows.dtype} of "
                    f"shape {tuple(rows.shape)}"
                )
            rows = rows.nonzero().squeeze(1) if rows.dtype == torch.bool else rows.long()
            if len(rows) and not (-self.n <= int(rows.min()) and int(rows.max()) < self.n):
                raise InputError(f"`rows` must lie in [0, {self.n}), got values in [{rows.min()}, {rows.max()}]")
        ids = None if self.ids is None else self.ids[rows if isinstance(rows, slice) else rows.numpy()]
        return replace(self, logits=self.logits[rows], labels=self.labels[rows], ids=ids)

    def with_logits(self, logits: ArrayLike, **meta: Any) -> Predictions:
        """The same samples with other logits (after a calibrator, say) and more provenance."""
        kept = {key: value for key, value in self.meta.items() if key != "space"}
        return replace(self, logits=logits, meta={**kept, **meta})  # type: ignore[arg-type]

    # ----------------------------------------------------------------------------------------------------------- files

    def save(self, path: str | Path) -> Path:
        """Write `.npz` or `.safetensors`, by suffix; the file appears whole or not at all."""
        from calgrad.predictions.files import save

        return save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Predictions:
        """Read `.npz`, `.safetensors`, `.csv` or `.parquet`, by suffix, as docs/predictions.md describes them."""
        from calgrad.predictions.files import open_file

        return open_file(path).load()


def id_vector(values: ArrayLike, rows: int) -> np.ndarray:
    """(N,) int64 or unicode, read-only."""
    array = values.cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if array.dtype == object and all(isinstance(value, str) for value in array.flat):
        array = array.astype(np.str_)
    if array.shape != (rows,):
        raise InputError(f"`ids` must have shape ({rows},), one a sample, got {array.shape}")
    if array.dtype.kind not in "iuU":
        raise InputError(f"`ids` must be whole numbers or strings, got dtype {array.dtype}")
    if array.dtype.kind == "U":
        try:
            np.char.encode(array, "utf-8")
        except UnicodeEncodeError as error:
            raise InputError(f"`ids` must be valid Unicode: {error}") from None
    elif array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
        raise InputError(f"`ids` must fit into int64, got {array.max()}; pass them as strings")
    array = np.array(array, dtype=array.dtype.newbyteorder("=") if array.dtype.kind == "U" else np.int64)
    array.flags.writeable = False
    return array


def checked_meta(meta: Mapping[str, Any], classes: int) -> dict[str, Any]:
    """A deep copy of `meta` as JSON returns it; refuses what JSON cannot hold."""
    try:
        if not isinstance(meta, Mapping) or not all(isinstance(key, str) for key in meta):
            raise TypeError(f"got {type(meta).__name__}" if not isinstance(meta, Mapping) else "a key is not a string")
        copy = json.loads(json.dumps(dict(meta), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"`meta` must be a dict that JSON can hold, and finite: {error}") from None
    names = copy.get("class_names")
    if names is not None and not (
        isinstance(names, list) and len(names) == classes and all(isinstance(name, str) for name in names)
    ):
        raise InputError(f"`meta['class_names']` must be {classes} strings, one a class, got {names!r:.200}")
    if copy.get("space", "probs") not in ("probs", "logits"):
        raise InputError(f"`meta['space']` must be 'probs' or 'logits', got {copy['space']!r:.200}")
    return copy


def _plain_text(text: str, name: str) -> None:
    if not isinstance(text, str) or not text.isprintable():
        raise InputError(f"`{name}` must be a printable string, got {text!r:.200}")
