"""The runs that a table still lacks: which, where, and what they would cost.

A cell is data/network; a table wants every loss it prints for that cell with every seed. Runs go to
`FOLDER/<data>-<model>/<recipe>/<loss>/seed-<n>`, so the same command after an interruption goes on where it stopped, and a
run that is there is not made again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calgrad.paper.published import read_published
from calgrad.paper.records import RunRow
from calgrad.paper.tables import SPECS, select_cells
from calgrad.recipes import load_recipe
from calgrad.sweep import Run, run_folder
from calgrad.sweep.cost import Cost, Speed
from calgrad.sweep.cost import estimate as estimate_cost
from calgrad.train.recipe import Recipe

RECIPES = {
    "cifar10": "cifar10-paper",
    "cifar100": "cifar100-paper",
    "tiny-imagenet": "tiny-imagenet-paper",
    "imagenet": "imagenet-finetune",
}
"""The recipe of each data set's published runs."""
VIT_RECIPE = "vit-finetune"


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


def estimate(runs: Sequence[Run], rows: Sequence[RunRow] = (), *, images_per_second: float | None = None) -> Cost:
    """What the unfinished part of `runs` costs, at the speeds that `rows` measured."""
    speeds = [
        Speed(row.run.data, row.run.model, row.values["images_per_second"], row.machine)
        for row in rows
        if "images_per_second" in row.values
    ]
    return estimate_cost(runs, speeds, images_per_second=images_per_second)


def _options(text: str) -> dict[str, Any]:
    return {k: float(v) if "." in v else int(v) for k, v in (part.split("=") for part in text.split(";") if part)}


def _own(base: Recipe, loss: str) -> dict[str, Any]:
    """Loss options given with --set belong to the losses that have them."""
    from calgrad.losses import LOSSES

    known = LOSSES[loss].defaults if loss in LOSSES else {}
    return {k: v for k, v in base.loss_options.items() if k in known}
