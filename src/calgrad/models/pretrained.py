"""Weights in torchvision's naming, from a local file, into our nets.

torchvision itself is not needed: a `.pth` is read with `weights_only=True`, which runs no code, and a `.safetensors`
holds none. A head for another number of classes is left as it was initialised, and that is said.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import torch
from torch import Tensor

from calgrad.checks import FileError
from calgrad.models.base import Classifier

__all__ = ["from_torchvision", "load_weights", "read_weights"]

_RENAMED = (
    (re.compile(r"^conv1\."), "stem.conv."),
    (re.compile(r"^bn1\."), "stem.norm."),
    (re.compile(r"^fc\."), "head."),
    (re.compile(r"\.downsample\."), ".shortcut."),
)
_LAYER = re.compile(r"^layer(\d+)\.")


def from_torchvision(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Torchvision's ResNet parameter names turned into ours; names that are ours already stay.

    Example:
        >>> import torch
        >>> from calgrad.models import from_torchvision
        >>> list(from_torchvision({"layer1.0.downsample.0.weight": torch.zeros(1)}))
        ['stages.0.0.shortcut.0.weight']
    """
    renamed = {}
    for name, value in weights.items():
        name = _LAYER.sub(lambda match: f"stages.{int(match[1]) - 1}.", name)
        for pattern, ours in _RENAMED:
            name = pattern.sub(ours, name)
        renamed[name] = value
    return renamed


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """A state dict from `.safetensors`, or from a `.pth`/`.pt` without running any code in it."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileError(f"{path} does not exist; `weights` names a local .pth or .safetensors file")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle, zip and safetensors each fail in their own way
        raise FileError(f"{path} cannot be read as weights without running code: {error}") from error
    for key in ("state_dict", "model"):  # how training scripts wrap it
        if isinstance(loaded, dict) and isinstance(loaded.get(key), dict):
            loaded = loaded[key]
    if not isinstance(loaded, dict) or not all(isinstance(value, Tensor) for value in loaded.values()):
        raise FileError(f"{path} is not a state dict of tensors")
    return loaded


def load_weights(model: Classifier, path: str | Path) -> Classifier:
    """Fill a model from a file; everything but the head must fit exactly."""
    weights = from_torchvision(read_weights(path))
    own = model.state_dict()
    skipped = [
        name for name in ("head.weight", "head.bias") if name in weights and weights[name].shape != own[name].shape
    ]
    for name in skipped:
        weights[name] = own[name]
    if skipped:
        warnings.warn(f"{path}: its head has other classes; the model's own starts untrained", stacklevel=2)
    # Old files lack the batch counters, which nothing here reads.
    missing = [name for name in own if name not in weights and not name.endswith("num_batches_tracked")]
    unexpected = [name for name in weights if name not in own]
    wrong = [name for name in weights if name in own and weights[name].shape != own[name].shape]
    for problem, names in (("lacks", missing), ("has too many:", unexpected), ("has other shapes for", wrong)):
        if names:
            shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            raise FileError(f"{path} does not fit {type(model).__name__}: it {problem} {shown}")
    model.load_state_dict(weights, strict=False)
    return model
