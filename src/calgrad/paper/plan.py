"""The runs that a table still lacks: which, where, and what they would cost.

A cell is data/network; a table wants every loss it prints for that cell with every seed. Runs go to
`FOLDER/<data>-<model>/<recipe>/<loss>/seed-<n>`, so the same command after an interruption goes on where it stopped, and a
run that is there is not made again.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calgrad.data.spec import find_spec
from calgrad.paper.published import read_published
from calgrad.paper.records import RunRow
from calgrad.paper.tables import SPECS, select_cells
from calgrad.recipes import load_recipe
from calgrad.sweep import Run
from calgrad.train.recipe import Recipe
from calgrad.train.record import RECORD, Record

RECIPES = {
    "cifar10": "cifar10-paper",
    "cifar100": "cifar100-paper",
    "tiny-imagenet": "tiny-imagenet-paper",
    "imagenet": "imagenet-finetune",
}
"""The recipe of each data set's published runs."""
VIT_RECIPE = "vit-finetune"

MEASURED = ("cifar10", "resnet50", 17_700.0, "one H200, whole step in one CUDA graph, bf16")
"""The speed that estimates start from where no run here measured one: data, network, images/s, on what."""


@dataclass(frozen=True)
class Cost:
    """What a list of runs still needs.

    Attributes:
        runs: How many are not finished.
        images: Training images still to be seen.
        hours: At the speeds of `basis`.
        basis: Where each network's speed comes from, in words.
    """

    runs: int
    images: float
    hours: float
    basis: list[str]


def plan_runs(
    table: str,
    *,
    cells: Sequence[str] = (),
    losses: Sequence[str] = (),
    seeds: Sequence[int] = (),
    recipe: str | None = None,
    changes: Mapping[str, Any] | None = None,
    folder: Path = Path("runs/paper"),
) -> list[Run]:
    """Every run that would fill the cells of a table, finished or not.

    Args:
        table: A key of `calgrad.paper.tables.SPECS`.
        cells: "cifar10/resnet50" or "cifar10"; all by default.
        losses: Only these of the table's losses, or others by name.
        seeds: By default the recipe's own.
        recipe: Another recipe than the paper's, such as cifar10-short.
        changes: Fields of the recipe to change.
        folder: Where the runs go.
    """
    published = select_cells(read_published(SPECS[table].published), cells)
    runs: list[Run] = []
    for data, model in dict.fromkeys((c.data, c.model) for c in published):
        printed = dict.fromkeys((c.loss, c.options) for c in published if (c.data, c.model) == (data, model))
        wanted = [(loss, options) for loss, options in printed if not losses or loss in losses]
        wanted += [(loss, "") for loss in losses if loss not in {name for name, _ in printed}]
        base = load_recipe(recipe or (VIT_RECIPE if model.startswith("hf:") else RECIPES[data]))
        base = base.replace(model=model, **(changes or {}))
        for seed in seeds or base.seeds:
            for loss, options in wanted:
                own = base.replace(loss=loss, loss_options={**_options(options), **_own(base, loss)})
                runs.append(Run(own, seed, run_folder(folder, own, seed)))
    return runs


def run_folder(folder: Path, recipe: Recipe, seed: int) -> Path:
    """Where a run of the paper goes."""
    options = "".join(f"-{k}{v}" for k, v in sorted(recipe.loss_options.items()))
    place = f"{recipe.data}-{recipe.model}".replace("/", "_").replace(":", "_")
    length = f"{recipe.name}-{recipe.epochs}ep"
    return folder / place / length / f"{recipe.loss}{options}" / f"seed-{seed}"


def estimate(runs: Sequence[Run], rows: Sequence[RunRow] = (), *, images_per_second: float | None = None) -> Cost:
    """What the unfinished part of `runs` costs.

    Speeds, in this order: `images_per_second`; the mean of finished runs of the same network and data in `rows`; else
    `MEASURED` times the ratio of multiply-adds an image, which is rough.
    """
    left = [(run, _images_left(run)) for run in runs]
    left = [(run, images) for run, images in left if images > 0]
    seconds = 0.0
    basis: dict[str, str] = {}
    for run, images in left:
        speed, words = _speed(run.recipe, rows, images_per_second)
        basis.setdefault(f"{run.recipe.data}/{run.recipe.model}", f"{speed:,.0f} images/s ({words})")
        seconds += images / speed
    return Cost(len(left), sum(images for _, images in left), seconds / 3600, [f"{k}: {v}" for k, v in basis.items()])


def _images_left(run: Run) -> float:
    spec = find_spec(run.recipe.data)
    val = run.recipe.val_size if run.recipe.val_size is not None else spec.val_size
    epochs = run.recipe.epochs
    if (run.folder / RECORD).exists():
        record = Record.load(run.folder)
        epochs = 0 if record.status == "finished" else epochs - len(record.epochs)
    return float(epochs * (spec.train_size - val))


def _speed(recipe: Recipe, rows: Sequence[RunRow], given: float | None) -> tuple[float, str]:
    if given:
        return given, "as given"
    known = [
        r
        for r in rows
        if (r.run.data, r.run.model) == (recipe.data, recipe.model) and r.values.get("images_per_second", 0) > 0
    ]
    if known:
        fastest = max(known, key=lambda r: r.values["images_per_second"])
        return fastest.values["images_per_second"], f"measured on {fastest.machine or 'a machine without a name'}"
    data, model, speed, machine = MEASURED
    if (recipe.data, recipe.model) == (data, model):
        return speed, f"measured on {machine}"
    ratio = multiply_adds(data, model) / multiply_adds(recipe.data, recipe.model)
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


def _options(text: str) -> dict[str, Any]:
    return {k: float(v) if "." in v else int(v) for k, v in (part.split("=") for part in text.split(";") if part)}


def _own(base: Recipe, loss: str) -> dict[str, Any]:
    """Loss options given with --set belong to the losses that have them."""
    from calgrad.losses import LOSSES

    known = LOSSES[loss].defaults if loss in LOSSES else {}
    return {k: v for k, v in base.loss_options.items() if k in known}
