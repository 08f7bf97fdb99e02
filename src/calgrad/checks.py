"""Every input check and every error text.

Two rules. A bad value is refused with what was wrong, where, and what to do; nothing is repaired in silence. And a training
step is never held up: the losses use `loss_inputs`, which looks at shapes and dtypes only and so needs no device sync.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

ArrayLike = Any
"""A torch tensor, a NumPy array, or a (nested) list of numbers."""

SUM_TOLERANCE = 1e-3
"""How far a row of `probs` may sum from one: generous enough for rounded CSV files and half precision."""


class CalgradError(Exception):
    """Base of every error that calgrad raises on purpose."""


class InputError(CalgradError, ValueError):
    """A value, shape or option that cannot be right."""


class FileError(CalgradError, OSError):
    """A file that is missing, truncated, foreign or unsafe."""


# ---------------------------------------------------------------------------------------------------------------- names


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not in a table: says the nearest one and lists them all."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return InputError(f"unknown {kind} {name!r}.{hint} Known: {', '.join(names)}.")


def one_of(option: str, value: Any, allowed: Collection[Any]) -> None:
    """Refuse an option whose value is not among `allowed`."""
    if value not in allowed:
        raise InputError(f"`{option}` must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def positive_int(option: str, value: int) -> None:
    """Refuse a count that is not a whole number of at least one."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise InputError(f"`{option}` must be a whole number of at least 1, got {value!r}")


def at_least(option: str, value: float, low: float) -> None:
    """Refuse a number below `low` (NaN too)."""
    if not value >= low:
        raise InputError(f"`{option}` must be at least {low:g}, got {value!r}")


def between(option: str, value: float, low: float, high: float) -> None:
    """Refuse what is not a number in [low, high] (NaN too)."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not low <= value <= high:
        raise InputError(f"`{option}` must be a number in [{low:g}, {high:g}], got {value!r}")


# -------------------------------------------------------------------------------------------------------------- tensors


def to_tensor(values: ArrayLike, name: str) -> Tensor:
    """A tensor that shares memory with `values` where it can; refuses what is not numbers."""
    if isinstance(values, Tensor):
        return values.detach()
    array = np.asarray(values)
    if array.dtype == object or array.dtype.kind not in "biuf":
        raise InputError(f"`{name}` must hold numbers, got dtype {array.dtype} of shape {array.shape}")
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    if array.dtype == np.longdouble:
        array = array.astype(np.float64)
    if not array.dtype.isnative or not array.flags.writeable or any(s < 0 for s in array.strides):
        array = array.astype(array.dtype.newbyteorder("="))
    return torch.from_numpy(array) if array.ndim else torch.tensor(array.item())


def matrix(values: ArrayLike, name: str) -> Tensor:
    """(N, K) floating point, N >= 1, K >= 2; half precision is widened to float32."""
    tensor = to_tensor(values, name)
    if tensor.ndim != 2:
        raise InputError(f"`{name}` must have shape (N, K), a row a sample and a column a class, got {_shape(tensor)}")
    if tensor.shape[0] == 0:
        raise InputError(f"`{name}` is empty: got shape {_shape(tensor)}, and nothing can be measured on no samples")
    if tensor.shape[1] < 2:
        raise InputError(
            f"`{name}` must have at least two classes, got shape {_shape(tensor)}; for a binary model with one output z "
            "pass the two columns (0, z) as logits, or (1 - p, p) as probs"
        )
    if not tensor.is_floating_point():
        raise InputError(f"`{name}` must be floating point, got {tensor.dtype}; class indices go into `labels`")
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def logit_matrix(values: ArrayLike, name: str = "logits") -> Tensor:
    """A `matrix` of finite numbers."""
    tensor = matrix(values, name)
    _refuse_not_finite(tensor, name)
    return tensor


def prob_matrix(values: ArrayLike, name: str = "probs") -> Tensor:
    """A `matrix` whose rows are probability distributions."""
    tensor = matrix(values, name)
    _refuse_not_finite(tensor, name)
    low, high = torch.aminmax(tensor)
    if low < 0 or high > 1 + SUM_TOLERANCE:
        row = int(((tensor < 0) | (tensor > 1 + SUM_TOLERANCE)).any(dim=1).nonzero()[0])
        raise InputError(
            f"`{name}` must lie in [0, 1], got values in [{low:.4g}, {high:.4g}] (first in row {row}); "
            "if these are logits, pass them as logits=..."
        )
    off = (tensor.sum(dim=1) - 1).abs()
    worst = int(off.argmax())
    if off[worst] > SUM_TOLERANCE:
        count = int((off > SUM_TOLERANCE).sum())
        raise InputError(
            f"each row of `{name}` must sum to 1; {count} of {len(off)} do not (row {worst} sums to "
            f"{float(tensor[worst].sum()):.6g}); if these are logits or one-versus-rest scores, pass logits=... or "
            "normalise them first"
        )
    return tensor


def label_vector(values: ArrayLike, rows: int, classes: int, name: str = "labels") -> Tensor:
    """(N,) int64 class indices in [0, K)."""
    tensor = to_tensor(values, name)
    if tensor.ndim == 2 and tuple(tensor.shape) == (rows, classes):
        raise InputError(
            f"`{name}` must be class indices of shape ({rows},), got shape {_shape(tensor)}; if they are one-hot, pass "
            f"{name}.argmax(1)"
        )
    if tensor.ndim != 1 or tensor.shape[0] != rows:
        raise InputError(f"`{name}` must have shape ({rows},), one class index a row, got {_shape(tensor)}")
    if tensor.is_floating_point() or tensor.dtype == torch.bool:
        raise InputError(
            f"`{name}` must be integer class indices, got {tensor.dtype}; convert them knowingly, to int64"
        )
    tensor = tensor.to(torch.int64)
    low, high = torch.aminmax(tensor)
    if low < 0 or high >= classes:
        bad = (tensor < 0) | (tensor >= classes)
        row = int(bad.nonzero()[0])
        hint = "; are they counted from 1?" if low == 1 and high == classes else ""
        raise InputError(
            f"`{name}` must lie in [0, {classes}) for {classes} classes, got {int(tensor[row])} in row {row} "
            f"({int(bad.sum())} such rows){hint}"
        )
    return tensor


def confidence_vector(values: ArrayLike, name: str = "confidence") -> Tensor:
    """(N,) floating point in [0, 1], N >= 1."""
    tensor = to_tensor(values, name)
    if tensor.ndim != 1 or tensor.shape[0] == 0 or not tensor.is_floating_point():
        raise InputError(
            f"`{name}` must be a floating-point vector of one sample or more, got {tensor.dtype}, shape {_shape(tensor)}"
        )
    low, high = torch.aminmax(tensor)
    if not (low >= 0 and high <= 1 + SUM_TOLERANCE):
        raise InputError(f"`{name}` must lie in [0, 1], got values in [{low:.4g}, {high:.4g}]")
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def probs_and_labels(probs: ArrayLike | None, labels: ArrayLike, logits: ArrayLike | None) -> tuple[Tensor, Tensor]:
    """The checked pair that every metric works on, from exactly one of `probs` and `logits`."""
    _exactly_one(probs, logits)
    checked = prob_matrix(probs) if logits is None else logit_matrix(logits).softmax(dim=1)
    return checked, label_vector(labels, *checked.shape).to(checked.device)


def logits_and_labels(logits: ArrayLike, labels: ArrayLike) -> tuple[Tensor, Tensor]:
    """The checked pair that every calibrator is fitted on."""
    checked = logit_matrix(logits)
    return checked, label_vector(labels, *checked.shape).to(checked.device)


def loss_inputs(logits: Tensor, labels: Tensor) -> bool:
    """Check shapes and dtypes of a loss's arguments without looking at a value. True: labels are probabilities.

    Accepts what `torch.nn.CrossEntropyLoss` does: logits (N, K) or (N, K, d1, ...), or (K,) for one sample.
    """
    if not logits.is_floating_point():
        raise InputError(f"`logits` must be floating point, got {logits.dtype}")
    if logits.ndim == 0:
        raise InputError("`logits` must have a class dimension, got a scalar")
    class_dim = 0 if logits.ndim == 1 else 1
    if logits.shape[class_dim] < 2:
        raise InputError(f"`logits` must have at least two classes, got shape {_shape(logits)}")
    if labels.is_floating_point():
        if labels.shape != logits.shape:
            raise InputError(
                f"floating-point `labels` are class probabilities and need the shape of logits {_shape(logits)}, got "
                f"{_shape(labels)}; class indices must be an integer tensor: labels.long()"
            )
        return True
    expected = logits.shape[:class_dim] + logits.shape[class_dim + 1 :]
    if labels.shape != expected:
        hint = "; one-hot labels: pass them as floats, or labels.argmax(1)" if labels.shape == logits.shape else ""
        raise InputError(
            f"`labels` must have shape {tuple(expected)} for logits of shape {_shape(logits)}, got {_shape(labels)}{hint}"
        )
    if labels.dtype == torch.bool:
        raise InputError("`labels` must be integer class indices, got torch.bool")
    return False


def _exactly_one(probs: ArrayLike | None, logits: ArrayLike | None) -> None:
    if (probs is None) == (logits is None):
        raise InputError("pass exactly one of `probs` and `logits=`: nothing here guesses which one a tensor is")


def _refuse_not_finite(tensor: Tensor, name: str) -> None:
    # One cheap pass decides the ordinary case: a sum is finite only if every term is. Only a bad (or overflowing) sum is
    # looked at more closely.
    if bool(torch.isfinite(tensor.sum())):
        return
    bad = ~torch.isfinite(tensor)
    count = int(bad.sum())
    if count:
        row, column = (int(i) for i in bad.nonzero()[0])
        rows = int(bad.any(dim=1).sum())
        raise InputError(
            f"`{name}` must be finite, got {count} NaN or infinite values in {rows} of {len(bad)} rows; the first is "
            f"{float(tensor[row, column])} at row {row}, class {column}"
        )


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)
