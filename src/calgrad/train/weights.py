"""Trained weights as one safetensors file that says what it is.

The file's header holds the recipe and the shape of the data, so `load_model(file)` needs nothing else.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from calgrad.checks import FileError, InputError
from calgrad.data import DataSpec, Part
from calgrad.files import write_bytes
from calgrad.models import Classifier, make_model
from calgrad.train.recipe import Recipe

WEIGHTS = "weights.safetensors"
HEADER = "calgrad"


@dataclass(frozen=True)
class InputShape:
    """What a trained network was made for: enough to build it again and to feed it."""

    classes: int
    image_size: int
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    class_names: tuple[str, ...] = ()

    @classmethod
    def of(cls, spec: DataSpec) -> InputShape:
        """The shape that a data set has."""
        return cls(spec.class_count, spec.image_size, spec.channels, spec.mean, spec.std, spec.classes)

    def fit(self, part: Part) -> Part:
        """`part`, normalised as the training data was; refuses images of another shape or another number of classes."""
        spec = part.spec
        ours = (self.classes, self.image_size, self.channels)
        theirs = (spec.class_count, spec.image_size, spec.channels)
        if theirs != ours:
            words = "{} classes, images of {} px and {} channels".format
            raise InputError(f"the network was trained for {words(*ours)}, but {spec.name} has {words(*theirs)}")
        return replace(part, spec=replace(spec, mean=self.mean, std=self.std))


@dataclass(frozen=True)
class TrainedModel:
    """A network with its trained weights, in evaluation mode, and where it came from."""

    model: Classifier
    recipe: Recipe
    seed: int
    shape: InputShape


def build_model(recipe: Recipe, shape: InputShape, *, empty: bool = False) -> Classifier:
    """The recipe's network, freshly initialised from torch's global generator.

    `empty` is for weights that follow: a pretrained start is then neither needed nor worth a download.
    """
    options: dict[str, Any] = dict(recipe.model_options)
    if empty:
        options.pop("weights", None)
        if recipe.model.startswith(("hf:", "timm:")):
            options["pretrained"] = False
    size = recipe.resize or shape.image_size
    return make_model(recipe.model, classes=shape.classes, image_size=size, channels=shape.channels, **options)


def save_weights(path: Path, model: nn.Module, recipe: Recipe, seed: int, shape: InputShape) -> None:
    """Write the network's state with the recipe in the header, whole or not at all."""
    from safetensors.torch import save

    header = {"recipe": recipe.to_dict(), "seed": seed, "shape": asdict(shape)}
    tensors: dict[str, Tensor] = {name: t.detach().cpu().contiguous() for name, t in model.state_dict().items()}
    write_bytes(path, save(tensors, metadata={HEADER: json.dumps(header)}), durable=True)


def load_model(source: str | Path, *, device: str | torch.device = "cpu") -> TrainedModel:
    """The trained network of a run folder or of a weights file.

    Args:
        source: A run folder, or a `weights.safetensors` of one.
        device: Where the network goes.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(source)
    path = path / WEIGHTS if path.is_dir() else path
    if not path.is_file():
        raise FileError(f"{path} does not exist; pass a finished run's folder or its {WEIGHTS}")
    try:
        with safe_open(str(path), framework="pt", device="cpu") as file:
            header = json.loads((file.metadata() or {})[HEADER])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        recipe, shape = Recipe.from_dict(header["recipe"]), InputShape(**header["shape"])
        seed = int(header["seed"])
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise FileError(f"{path} is not a weights file of a calgrad run: {error!r}") from error
    try:
        with torch.random.fork_rng(devices=[]):
            # On paper first: a small file may describe a network that no memory holds.
            with torch.device("meta"):
                plan = build_model(recipe, shape, empty=True)
            plan.load_state_dict(tensors, assign=True)
            model = build_model(recipe, shape, empty=True)
        model.load_state_dict(tensors)
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        raise FileError(f"{path} does not fit {recipe.model}: {error!s:.1000}") from error
    return TrainedModel(model.to(device).eval(), recipe, seed, shape)
