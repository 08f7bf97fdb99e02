"""Run folders: where they are, whether they are done, and how they are emptied."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

from calgrad.checks import FileError
from calgrad.train.checkpoint import list_checkpoints
from calgrad.train.recipe import Recipe
from calgrad.train.record import RECORD, Record, same_run
from calgrad.train.run import CHECKPOINTS
from calgrad.train.weights import WEIGHTS


def default_folder(recipe: Recipe, seed: int) -> Path:
    """`runs/<recipe>/<loss and its options>/seed-<seed>`."""
    options = "".join(f"-{k}{v}" for k, v in sorted(recipe.loss_options.items()))
    return (
        Path("runs")
        / (recipe.name or f"{recipe.data}-{recipe.model}").replace("/", "_")
        / (recipe.loss + options)
        / f"seed-{seed}"
    )


def is_finished(folder: Path, recipe: Recipe, seed: int) -> bool:
    """Whether this very run was finished there; refuses a folder of another one."""
    if not (folder / RECORD).exists():
        return False
    try:
        record = Record.load(folder)
    except FileError as error:
        # A damaged record costs nothing while a checkpoint holds a copy; it is checked there, when the run goes on.
        if not list_checkpoints(folder / CHECKPOINTS):
            raise
        warnings.warn(f"{error}; the copy in the last checkpoint is used", stacklevel=3)
        return False
    same_run(record, recipe, seed, folder)
    return record.status == "finished"


def clear(folder: Path) -> None:
    """Remove what a run writes, and nothing else."""
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    shutil.rmtree(folder / "tensorboard", ignore_errors=True)
    for pattern in (RECORD, WEIGHTS, "predictions-*.npz", "gradients-epoch-*.npz"):
        for path in folder.glob(pattern):
            path.unlink()
