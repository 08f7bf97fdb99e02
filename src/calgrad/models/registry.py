"""`make_model`: every model by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calgrad.checks import InputError, positive_int, unknown_name
from calgrad.models import backbones, densenet, resnet, small, wide_resnet
from calgrad.models.base import Classifier
from calgrad.models.pretrained import load_weights

__all__ = ["MODELS", "ModelEntry", "make_model"]


@dataclass(frozen=True)
class ModelEntry:
    """A model's line in the table."""

    name: str
    summary: str
    build: Callable[..., Classifier]
    reference: str = ""

    @property
    def options(self) -> dict[str, Any]:
        """The options beyond classes, image_size and channels, with their defaults."""
        return _options(self.build)


_HE, _ZAGORUYKO = "He et al. CVPR 2016", "Zagoruyko, Komodakis. BMVC 2016"

MODELS: dict[str, ModelEntry] = {
    entry.name: entry
    for entry in (
        ModelEntry("mlp", "a hidden layer of 128 units; the paper's two-layer toy net", small.MLP),
        ModelEntry("cnn", "two convolutions; a second on one core for digits", small.CNN),
        ModelEntry("resnet18", "basic blocks [2, 2, 2, 2]", resnet.resnet18, _HE),
        ModelEntry("resnet50", "bottlenecks [3, 4, 6, 3]", resnet.resnet50, _HE),
        ModelEntry("resnet110", "the paper's: bottlenecks [3, 4, 26, 3]", resnet.resnet110, "[Lin25]"),
        ModelEntry("resnet110-he", "He's for CIFAR: 3 x 18 basic blocks of width 16, 32, 64", resnet.resnet110_he, _HE),
        ModelEntry("wrn-26-10", "the paper's wide ResNet: post-activation, no dropout", resnet.wrn26_10, _ZAGORUYKO),
        ModelEntry("wrn-28-10", "the standard wide ResNet: pre-activation", wide_resnet.wrn28_10, _ZAGORUYKO),
        ModelEntry("densenet121", "growth 32, reduction 0.5", densenet.densenet121, "Huang et al. CVPR 2017"),
    )
}


_PREFIXES: dict[str, Callable[..., Classifier]] = {"hf": backbones.make_hf, "timm": backbones.make_timm}


def make_model(
    name: str, *, classes: int, image_size: int, channels: int = 3, weights: str | Path | None = None, **options: Any
) -> Classifier:
    """Build a model whose `features(x)` is (N, D) and whose `head` is linear.

    Args:
        name: A name in `MODELS`, `hf:NAME_OR_FOLDER` (transformers) or `timm:NAME`.
        classes: K.
        image_size: Side of the images; picks the stem.
        channels: Of the images.
        weights: A local `.pth` or `.safetensors` to start from, in our naming or torchvision's.
        **options: The model's own, see `MODELS[name].options`.

    Example:
        >>> import torch
        >>> from calgrad.models import make_model
        >>> make_model("resnet18", classes=10, image_size=32)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    for option, value in (("classes", classes), ("image_size", image_size), ("channels", channels)):
        positive_int(option, value)
    if classes < 2:
        raise InputError(f"`classes` must be at least 2, got {classes}")
    shape = {"classes": classes, "image_size": image_size, "channels": channels}
    prefix, _, rest = name.partition(":")
    if rest and prefix in _PREFIXES:
        build = _PREFIXES[prefix]
        if weights is not None:
            options = {"weights": str(weights), **options}
        _refuse_unknown(name, options, _options(build))
        return build(rest, **shape, **options)
    if name not in MODELS:
        raise unknown_name("model", name, [*MODELS, *(f"{prefix}:NAME" for prefix in _PREFIXES)])
    _refuse_unknown(name, options, MODELS[name].options)
    model = MODELS[name].build(**shape, **options)
    return model if weights is None else load_weights(model, weights)


def _options(build: Callable[..., Classifier]) -> dict[str, Any]:
    shape = ("name", "classes", "image_size", "channels")
    return {k: p.default for k, p in inspect.signature(build).parameters.items() if k not in shape}


def _refuse_unknown(name: str, options: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for option in options:
        if option not in known:
            raise unknown_name(f"option of model {name!r}", option, known)
