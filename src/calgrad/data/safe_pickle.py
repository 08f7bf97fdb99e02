"""Read the CIFAR archives' pickles without running anything that a pickle could ask for.

A pickle is a program that may call any importable function. The official files need only dictionaries, lists,
numbers, text and one array of bytes, so the four names they refer to are answered by the harmless stand-ins below and
every other name is refused. Not even NumPy's own unpickling code sees the file: an array is accepted as a shape and
its bytes.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

__all__ = ["restricted_loads"]


class _Dtype:
    """Stands for numpy.dtype; only bytes are known."""

    def __init__(self, code: bytes | str, *_: Any) -> None:
        text = code.decode("latin1") if isinstance(code, bytes) else code
        if text not in ("u1", "|u1", "uint8"):
            raise pickle.UnpicklingError(f"an array of dtype {text!r}, where only bytes (u1) are expected")

    def __setstate__(self, state: Any) -> None:
        pass  # byte order and alignment mean nothing for bytes


class _Array:
    """Stands for numpy.ndarray until its state arrives; `value` is then a read-only view of the pickled bytes."""

    value: np.ndarray | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        if not isinstance(dtype, _Dtype) or not all(type(n) is int and n >= 0 for n in shape):
            raise pickle.UnpicklingError("a malformed array")
        raw = raw.encode("latin1") if isinstance(raw, str) else raw
        if type(raw) is not bytes or len(raw) != math.prod(shape):
            raise pickle.UnpicklingError(f"an array of shape {shape} with the wrong number of bytes")
        self.value = np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran else "C")


class _Reconstruct:
    """Stands for numpy's function of this name. Instances without attributes: a pickle may try to set some."""

    __slots__ = ()

    def __call__(self, *_: Any) -> _Array:
        return _Array()


class _Encode:
    """Stands for codecs.encode."""

    __slots__ = ()

    def __call__(self, text: str, encoding: str) -> bytes:
        if encoding not in ("latin1", "latin-1"):
            raise pickle.UnpicklingError(f"text encoded as {encoding!r}")
        return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _Reconstruct(),
    ("numpy._core.multiarray", "_reconstruct"): _Reconstruct(),
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _Encode(),
}


class _Unpickler(pickle._Unpickler):  # type: ignore[name-defined]
    """Python's own reader in Python: the one in C allocates whatever a pickle of ten bytes asks for.

    Bytearrays are the one thing that it, too, makes before it has read them; no data set has any.
    """

    dispatch: ClassVar = {
        code: load
        for code, load in pickle._Unpickler.dispatch.items()  # type: ignore[attr-defined]
        if code != pickle.BYTEARRAY8[0]
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}, which has no place in a data file")
        return _ALLOWED[module, name]


def restricted_loads(content: bytes) -> dict[str, Any]:
    """The pickled dictionary, with text keys and NumPy arrays of uint8; `pickle.UnpicklingError` for anything else."""
    try:
        loaded = _Unpickler(io.BytesIO(content), encoding="bytes").load()
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # a damaged pickle fails in many ways, none of which should look like a bug of ours
        raise pickle.UnpicklingError(f"{type(error).__name__}: {error}") from error
    if not isinstance(loaded, dict):
        raise pickle.UnpicklingError(f"it holds a {type(loaded).__name__}, not a dictionary")
    return {_text(key): value.value if isinstance(value, _Array) else value for key, value in loaded.items()}


def _text(key: Any) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else str(key)
