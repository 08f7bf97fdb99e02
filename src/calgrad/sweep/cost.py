"""What a list of runs still costs: images to be seen over images a second.

Speeds, in this order: as given; the best that finished runs of the same network and data measured; else one known speed
times the ratio of multiply-adds an image, which is rough, and said to be.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from calgrad.checks import CalgradError
from calgrad.data.spec import find_spec
from calgrad.sweep.run import Run
from calgrad.train.recipe import Recipe
from calgrad.train.record import RECORD, Record

MEASURED = ("cifar10", "resnet50", 17_700.0, "one H200, whole step in one CUDA graph, bf16")
"""The speed that estimates start from where no run here measured one: data, network, images/s, on what."""


@dataclass(frozen=True)
class Speed:
    """What a finished run measured."""

    data: str
    model: str
    images_per_second: float
    machine: str = ""


@dataclass(frozen=True)
class Cost:
    """What a list of runs still needs.

    Attributes:
        runs: How many are not finished.
        images: Training images still to be seen.
        hours: At the speeds of `basis`, one run after the other.
        basis: Where each network's speed comes from, in words.
    """

    runs: int
    images: float
    hours: float
    basis: list[str]


def estimate(runs: Sequence[Run], speeds: Sequence[Speed] = (), *, images_per_second: float | None = None) -> Cost:
    """What the unfinished part of `runs` costs."""
    left = [(run, images_left(run)) for run in runs]
    left = [(run, images) for run, images in left if images > 0]
    seconds = 0.0
    basis: dict[str, str] = {}
    for run, images in left:
        speed, words = _speed(run.recipe, speeds, images_per_second)
        basis.setdefault(f"{run.recipe.data}/{run.recipe.model}", f"{speed:,.0f} images/s ({words})")
        seconds += images / speed
    return Cost(len(left), sum(images for _, images in left), seconds / 3600, [f"{k}: {v}" for k, v in basis.items()])


def images_left(run: Run) -> float:
    """Training images that a run has still to see, by its record; zero once it is finished."""
    spec = find_spec(run.recipe.data)
    val = run.recipe.val_size if run.recipe.val_size is not None else spec.val_size
    epochs = run.recipe.epochs
    if (run.folder / RECORD).exists():
        record = Record.load(run.folder)
        epochs = 0 if record.status == "finished" else epochs - len(record.epochs)
    return float(epochs * (spec.train_size - val))


def _speed(recipe: Recipe, speeds: Sequence[Speed], given: float | None) -> tuple[float, str]:
    if given:
        return given, "as given"
    known = [s for s in speeds if (s.data, s.model) == (recipe.data, recipe.model) and s.images_per_second > 0]
    if known:
        fastest = max(known, key=lambda s: s.images_per_second)
        return fastest.images_per_second, f"measured on {fastest.machine or 'a machine without a name'}"
    data, model, speed, machine = MEASURED
    if (recipe.data, recipe.model) == (data, model):
        return speed, f"measured on {machine}"
    try:
        ratio = multiply_adds(data, model) / multiply_adds(recipe.data, recipe.model)
    except (CalgradError, ImportError) as error:
        # A network from a zoo that is not here cannot be counted; the plan is still worth printing.
        return speed, f"a guess, {model}'s on {machine}: {error}"
    return speed * ratio, f"estimated: {model}'s {speed:,.0f} on {machine}, by the ratio of multiply-adds"


@functools.cache
def multiply_adds(data: str, model: str) -> float:
    """Multiply-adds of a forward pass over one image, counted without computing anything."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from calgrad.models import make_model

    if model.startswith("hf:"):
        return 17.6e9  # ViT-B/16 at 224 pixels; building it here would need its weights
    spec = find_spec(data)
    with torch.device("meta"):
        net = make_model(model, classes=spec.class_count, image_size=spec.image_size, channels=spec.channels)
        counter = FlopCounterMode(display=False)
        with counter, torch.no_grad():
            net.eval()(torch.empty(1, *spec.input_shape))
    return counter.get_total_flops() / 2
