"""One run of a grid: what, with which seed, and where.

    FOLDER/<data>-<model>/<recipe>-<epochs>ep/[<what else varies>/]<loss and its options>/seed-<n>

The place follows from the run alone, so the same grid finds its runs again, and the paper's commands find those of a grid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calgrad.train import Recipe


@dataclass(frozen=True)
class Run:
    """One run to make: what, with which seed, and where."""

    recipe: Recipe
    seed: int
    folder: Path


def run_folder(folder: Path, recipe: Recipe, seed: int, varied: Mapping[str, Any] | None = None) -> Path:
    """Where a run goes; `varied` are fields of the recipe that differ within the grid and have no place of their own."""
    options = "".join(f"-{k}{_plain(v)}" for k, v in sorted(recipe.loss_options.items()))
    place = folder / _plain(f"{recipe.data}-{recipe.model}") / f"{recipe.name}-{recipe.epochs}ep"
    if varied:
        place /= ",".join(f"{k}={_plain(v)}" for k, v in sorted(varied.items()))
    return place / f"{recipe.loss}{options}" / f"seed-{seed}"


def _plain(value: Any) -> str:
    """Without what would make a folder of a folder's name."""
    return str(value).replace("/", "_").replace(":", "_").replace(" ", "")
