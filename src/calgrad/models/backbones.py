"""Pretrained nets of `transformers` and `timm`, split into `features` and a linear `head` like every model here.

Both are extras, imported when such a model is made. A name is looked up on the hub; a local folder (transformers) or a
local checkpoint (timm) needs no network.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from calgrad.checks import CalgradError, FileError, InputError
from calgrad.models.base import Classifier

__all__ = ["Headless", "HeadlessTransformer", "make_hf", "make_timm", "split_head"]


class Headless(Classifier):
    """A net whose last linear layer was taken out and put behind it."""

    def __init__(self, backbone: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head

    def features(self, x: Tensor) -> Tensor:
        """What the taken-out layer used to see."""
        return self.backbone(x)


class HeadlessTransformer(Headless):
    """The same around a transformers model, which names its argument and returns an object."""

    def features(self, x: Tensor) -> Tensor:
        """What the classifier used to see."""
        return self.backbone(pixel_values=x).logits


def make_hf(name: str, *, classes: int, image_size: int, channels: int = 3, pretrained: bool = True) -> Classifier:
    """An image classifier of transformers, by hub name or local folder; its head is new if it had other classes.

    Args:
        name: `google/vit-base-patch16-224`, or a folder with config.json and weights.
        classes: K.
        image_size: Must be what the model was configured for.
        channels: Likewise.
        pretrained: False takes the configuration alone and starts from random weights.
    """
    transformers = _extra("transformers", "hf", f"hf:{name}")
    try:
        config = transformers.AutoConfig.from_pretrained(name, num_labels=classes)
    except (OSError, ValueError) as error:
        raise FileError(
            f"hf:{name} is neither a folder here nor a model on the hub that can be reached: {error}"
        ) from error
    for option, wanted in (("image_size", image_size), ("num_channels", channels)):
        have = getattr(config, option, wanted)
        if have != wanted:
            raise InputError(
                f"hf:{name} is configured for {option} {have}, but the data have {wanted}: resize the images"
            )
    auto = transformers.AutoModelForImageClassification
    if pretrained:
        model = auto.from_pretrained(name, config=config, ignore_mismatched_sizes=True)
    else:
        model = auto.from_config(config)
    return HeadlessTransformer(*split_head(model, classes))


def make_timm(
    name: str, *, classes: int, image_size: int, channels: int = 3, pretrained: bool = False, weights: str | None = None
) -> Classifier:
    """A model of timm by name.

    Args:
        name: As `timm.list_models()` shows it.
        classes: K.
        image_size: Passed to the models that need it.
        channels: Of the images.
        pretrained: Download timm's weights.
        weights: A local checkpoint in place of that.
    """
    timm = _extra("timm", "timm", f"timm:{name}")
    options: dict[str, Any] = {"pretrained": pretrained, "num_classes": classes, "in_chans": channels}
    if weights is not None:
        options["checkpoint_path"] = weights
    try:
        try:
            model = timm.create_model(name, img_size=image_size, **options)
        except TypeError:  # convolutional nets take any size and know no such option
            model = timm.create_model(name, **options)
    except RuntimeError as error:
        raise InputError(f"timm:{name} could not be made: {error}") from error
    return Headless(*split_head(model, classes))


def split_head(model: nn.Module, classes: int) -> tuple[nn.Module, nn.Linear]:
    """Take the last linear layer, the one that gives the classes, out of a model; the identity takes its place."""
    found = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    name, head = found[-1] if found else ("", None)
    if head is None or head.out_features != classes:
        raise InputError(f"{type(model).__name__} does not end in a linear layer of {classes} classes")
    owner, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(owner), attribute, nn.Identity())
    return model, head


def _extra(package: str, extra: str, wanted: str) -> ModuleType:
    try:
        return importlib.import_module(package)
    except Exception as error:  # a broken torchvision fails with a RuntimeError, not an ImportError
        message = (
            f"{wanted} needs the package {package}: pip install 'calgrad[{extra}]' ({type(error).__name__}: {error})"
        )
        raise CalgradError(message) from error
