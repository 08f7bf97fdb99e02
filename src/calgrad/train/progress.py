"""What a person watching sees: a bar with the time that is left, on a terminal only; and TensorBoard, if asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from calgrad.checks import InputError
from calgrad.train.recipe import Recipe


class Progress:
    """Shows nothing; the base of what does."""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def step(self) -> None:
        """A step was started."""

    def epoch(self, entry: Mapping[str, Any]) -> None:
        """An epoch was finished."""


class Bar(Progress):
    """A line on stderr: epoch, loss, what validation said, time left. On a GPU it counts queued steps."""

    def __init__(self, recipe: Recipe, steps: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self.steps, self.epochs = steps, recipe.epochs
        self.stride = max(1, steps // 50)  # redrawing is slower than a small step
        self.waiting = self.done = 0
        columns = (
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"),
            TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(elapsed_when_finished=True),
        )  # fmt: skip
        self.rich = RichProgress(*columns, console=Console(stderr=True), transient=True)
        self.task = self.rich.add_task(self._title(0), total=steps * recipe.epochs, said="")

    def __enter__(self) -> Progress:
        self.rich.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.rich.stop()

    def step(self) -> None:
        """Move on; drawn now and then."""
        self.waiting += 1
        if self.waiting >= self.stride:
            self.rich.advance(self.task, self.waiting)
            self.waiting = 0

    def epoch(self, entry: Mapping[str, Any]) -> None:
        """Say what the epoch gave."""
        self.waiting = 0
        said = f"loss {entry['train_loss']:.4g}"
        said += "".join(
            f"  {name} {entry['val_' + name]:.4g}" for name in ("accuracy", "nll", "ece") if f"val_{name}" in entry
        )
        self.rich.update(
            self.task, completed=entry["epoch"] * self.steps, description=self._title(entry["epoch"]), said=said
        )

    def _title(self, done: int) -> str:
        return f"epoch {done}/{self.epochs}"


def open_progress(recipe: Recipe, steps: int, *, enabled: bool) -> Progress:
    """A bar where someone can see it."""
    return Bar(recipe, steps) if enabled and sys.stderr.isatty() else Progress()


def open_tensorboard(folder: Path) -> Callable[[Mapping[str, Any]], None]:
    """A listener that writes each epoch's numbers to `folder`/tensorboard."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError("`tensorboard` needs the extra: pip install 'calgrad[tensorboard]'") from error
    writer = SummaryWriter(str(folder / "tensorboard"))  # type: ignore[no-untyped-call]

    def listen(entry: Mapping[str, Any]) -> None:
        for name, value in entry.items():
            if name != "epoch":
                writer.add_scalar(name.replace("val_", "val/"), value, entry["epoch"])  # type: ignore[no-untyped-call]
        writer.flush()  # type: ignore[no-untyped-call]

    return listen
