"""Fitted calibrators as small JSON files: no pickle, nothing executed on loading, readable from any language.

    {"calgrad_calibrator": 1, "method": "temperature", "classes": 10, "options": {},
     "parameters": {"temperature": 2.4975199043229983}, "report": {...}}

Tensors are nested lists. A float is written with the fewest digits that read back as the same float64, so nothing is
rounded. docs/posthoc.md gives the formula of each method.
"""

from __future__ import annotations

import json
import math
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from calgrad.checks import FileError, InputError
from calgrad.files import write_text
from calgrad.posthoc.base import Calibrator, FitReport

VERSION = 1
MARK = "calgrad_calibrator"
MOST_CLASSES = 10_000_000
"""A file that claims more is no calibrator: one row of such logits alone would fill a memory."""


def to_dict(calibrator: Calibrator) -> dict[str, Any]:
    """Everything that rebuilds a fitted calibrator, as plain JSON values."""
    report = calibrator.report
    if isinstance(calibrator.options.get("loss"), torch.nn.Module):
        raise InputError(
            f"a {calibrator.method!r} calibrator made from a loss object cannot be saved; "
            'make it by name: loss="bsce-gra", loss_options={"gamma": 4}'
        )
    return {
        MARK: VERSION,
        "method": calibrator.method,
        "classes": calibrator.classes,
        "options": calibrator.options,
        "parameters": {name: value.tolist() for name, value in calibrator.parameters.items()},
        "report": report.to_dict(),
    }


def from_dict(content: Any) -> Calibrator:
    """The calibrator that `to_dict` described; refuses anything else with an InputError."""
    from calgrad.posthoc.named import make_calibrator

    if not isinstance(content, dict) or MARK not in content:
        raise InputError(f"this is no calgrad calibrator: it has no {MARK!r} entry")
    if content[MARK] != VERSION:
        raise InputError(
            f"this calibrator has format {content[MARK]!r}, and this calgrad reads {VERSION}; upgrade calgrad"
        )
    missing = {"method", "classes", "options", "parameters"} - content.keys()
    if missing:
        raise InputError(f"this calibrator lacks {', '.join(sorted(missing))}: the file is incomplete")
    calibrator = make_calibrator(str(content["method"]), **dict(content["options"]))
    classes = content["classes"]
    if isinstance(classes, bool) or not isinstance(classes, int) or not 2 <= classes <= MOST_CLASSES:
        raise InputError(f"`classes` must be a whole number from 2 to {MOST_CLASSES:,}, got {classes!r:.80}")
    values = content["parameters"]
    if not isinstance(values, dict) or values.keys() != calibrator.shapes.keys():
        raise InputError(
            f"a {calibrator.method!r} calibrator has the parameters {sorted(calibrator.shapes)}, got {values!r:.80}"
        )
    calibrator.classes = classes
    calibrator.parameters = {name: _tensor(name, value) for name, value in values.items()}
    report = content.get("report") or {"nll_before": math.nan, "nll_after": math.nan}
    calibrator._report = FitReport(**report)
    _try_out(calibrator, classes)
    return calibrator


def save(calibrator: Calibrator, path: str | PathLike[str]) -> None:
    """Write a fitted calibrator as JSON; the file appears whole or not at all."""
    text = json.dumps(to_dict(calibrator), allow_nan=False)
    write_text(Path(path), text + "\n")


def load_calibrator(path: str | PathLike[str]) -> Calibrator:
    """Read a calibrator that `save` wrote.

    Example:
        >>> import torch, calgrad
        >>> logits, labels = torch.randn(500, 3), torch.randint(3, (500,))
        >>> calgrad.make_calibrator("platt").fit(logits, labels).save("platt.json")  # doctest: +SKIP
        >>> probs = calgrad.load_calibrator("platt.json")(logits)  # doctest: +SKIP
    """
    source = Path(path)
    try:
        content = json.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"cannot read the calibrator {source}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # undecodable, not JSON, a number of too many digits
        raise FileError(f"{source} is not a calibrator: it is not JSON, or truncated ({error})") from error
    try:
        return from_dict(content)
    except (InputError, TypeError, ValueError, AttributeError, KeyError, OverflowError) as error:
        raise FileError(f"{source} is not a usable calibrator: {error!s:.500}") from error


def _tensor(name: str, value: Any) -> torch.Tensor:
    try:
        tensor = torch.tensor(value, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError, RecursionError) as error:
        raise InputError(f"parameter {name!r} is not a number or a full table of numbers") from error
    if not bool(torch.isfinite(tensor).all()):
        raise InputError(f"parameter {name!r} holds a number that is not finite")
    return tensor


def _try_out(calibrator: Calibrator, classes: int) -> None:
    """Sizes are checked by use: whatever fits the formula is right, and nothing else is."""
    lengths: dict[str, int] = {"K": classes, "C": classes if classes > 2 else 1, "3": 3}
    for name, shape in calibrator.shapes.items():
        tensor = calibrator.parameters[name]
        letters = shape.replace("+1", "")
        if tensor.ndim != len(letters) or any(lengths.get(a, size) != size for a, size in zip(letters, tensor.shape)):
            raise InputError(
                f"parameter {name!r} has shape {tuple(tensor.shape)}, which does not fit {classes} classes"
            )
    try:
        probs = calibrator(torch.zeros(1, classes, dtype=torch.float64))
    except (RuntimeError, IndexError) as error:
        raise InputError(f"its parameters do not fit together: {error}") from error
    if not bool(torch.isfinite(probs).all()):
        raise InputError("its parameters do not give probabilities")
