"""`calgrad compare`: which loss gives the best calibrated model? The main job, on one recipe."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from calgrad.report.tables import Table

WIDTH = 120
PAGE_METHODS = ("temperature", "link", "link-temperature")
"""The repairs shown in the page: those of the table; `calgrad report RUNS` compares them all."""

LOSSES_HELP = "losses to compare, separated by spaces or commas; options after a colon: bsce-gra:gamma=3,beta=2"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("compare")(compare)


def compare(
    recipe: Annotated[str, typer.Argument(help="a shipped recipe's name or a YAML file")] = "digits",
    losses: Annotated[str, typer.Option("--losses", "-l", help=LOSSES_HELP)] = "",
    seeds: Annotated[str, typer.Option("--seeds", "-s", help="how many seeds (3) or which (1,42,71)")] = "3",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="folder for runs and results [runs/compare-RECIPE]")
    ] = None,
    baseline: Annotated[str, typer.Option(help="the loss that the others are tested against")] = "ce",
    select: Annotated[
        bool, typer.Option("--select", help="choose gamma of bsce and bsce-gra on validation first")
    ] = False,
    gammas: Annotated[str, typer.Option(help="the gammas that --select tries")] = "1,2,3,4,5",
    betas: Annotated[str, typer.Option(help="the betas that --select tries")] = "2",
    select_by: Annotated[str, typer.Option(help="what --select minimises on validation: nll, brier or ece")] = "nll",
    ensemble: Annotated[
        bool, typer.Option("--ensemble", help="add the averaged prediction of a loss's seeds as a row")
    ] = False,
    settings: Annotated[list[str] | None, typer.Option("--set", help="change a recipe's field: --set epochs=5")] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", help="runs side by side [a core each; 1 on a GPU]")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 [the best there is]")] = None,
    data_root: Annotated[str | None, typer.Option("--data", help="folder with the data sets")] = None,
    page: Annotated[bool, typer.Option(help="write report.html, a page about the first seed's models")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="print the comparison as JSON, and nothing else")] = False,
) -> None:
    """Train several losses over several seeds and say which one is calibrated best, with intervals and tests.

    With no arguments: seven losses, three seeds, on the embedded digits, in about a minute. Nothing is downloaded. Runs that
    are finished already are not made again.

    Example: calgrad compare cifar10-short --losses ce,bsce-gra --seeds 1,42,71
    """
    from calgrad.recipes import load_recipe
    from calgrad.report import compare_runs as runs
    from calgrad.report.compare_files import comparison_table, write_comparison
    from calgrad.report.comparison import compare as compare_candidates
    from calgrad.report.document import make_report
    from calgrad.report.sources import read_sources
    from calgrad.sweep import run_all
    from calgrad.train.recipe import parse_assignment

    start = time.perf_counter()
    chosen_recipe = load_recipe(recipe).replace(**dict(parse_assignment(text) for text in settings or []))
    choices = [runs.LossChoice.parse(text) for text in _loss_texts(losses) or runs.DEFAULT_LOSSES]
    seed_list = _seed_list(seeds)
    folder = out or Path("runs") / f"compare-{chosen_recipe.name or 'recipe'}"
    options: dict[str, Any] = {"jobs": jobs, "device": device, "data_root": data_root}

    with _Progress(quiet=as_json) as progress:
        trials: list[dict[str, Any]] = []
        if select:
            grid = {"gamma": _numbers("gammas", gammas), "beta": _numbers("betas", betas)}
            progress.title("selecting on validation")
            choices, trials = runs.select(
                chosen_recipe, choices, seed_list[0], folder, grid=grid, by=select_by, on_done=progress.done, **options
            )
        planned = runs.plan(chosen_recipe, choices, seed_list, folder)
        progress.title("training", total=len(planned))
        run_all(planned, on_done=progress.done, **options)
        progress.title("judging")
        comparison = compare_candidates(
            [runs.read_candidate(run) for run in planned], baseline=baseline, ensemble=ensemble
        )  # fmt: skip
    title = f"{chosen_recipe.data}, {chosen_recipe.model}, {chosen_recipe.epochs} epochs"
    seconds = time.perf_counter() - start
    about = {"recipe": chosen_recipe.to_dict(), "seeds": seed_list, "selection": trials, "seconds": round(seconds, 1)}
    paths = write_comparison(comparison, folder, title=title, about=about)
    if page:
        first = read_sources([run.folder for run in planned if run.seed == seed_list[0]])
        report = make_report(first, title=title, methods=PAGE_METHODS, comparison=comparison)
        paths.append(report.save(folder / "report.html"))
    if as_json:
        print(json.dumps({"about": about} | comparison.to_dict(), indent=1))
        return
    table = comparison_table(comparison, title=title)
    seconds = time.perf_counter() - start
    remarks = [f"selected on validation: {trial['setting']}" for trial in trials if trial["chosen"]] + comparison.notes
    files = f"{seconds:.0f} s. Files in {folder}: {', '.join(path.name for path in paths)}"
    _show(table, [*remarks, files])


def _show(table: Table, remarks: list[str]) -> None:
    from rich.console import Console

    # A table that is cut off at 80 columns tells nothing, so a pipe or a narrow window gets the width it needs.
    console = Console()
    if console.width < WIDTH:
        console = Console(width=WIDTH)
    console.print(table.to_rich())
    for remark in remarks:
        console.print(remark, markup=False, highlight=False, soft_wrap=True)


def _loss_texts(text: str) -> list[str]:
    # A comma also separates options (bsce-gra:gamma=3,beta=2), so a part with "=" and no ":" belongs to the loss before it.
    parts: list[str] = []
    for part in text.replace(" ", ",").split(","):
        if "=" in part and ":" not in part and parts:
            parts[-1] += f",{part}"
        elif part:
            parts.append(part)
    return parts


def _seed_list(text: str) -> list[int]:
    numbers = [int(n) for n in _numbers("seeds", text)]
    return list(range(1, numbers[0] + 1)) if "," not in text else numbers


def _numbers(option: str, text: str) -> list[float]:
    try:
        numbers = [float(part) if "." in part else int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        numbers = []
    if not numbers or (option == "seeds" and ("." in text or numbers[0] < 1)):
        raise typer.BadParameter(f"expected numbers such as 1,2,3, got {text!r}", param_hint=f"--{option}")
    return numbers


class _Progress:
    """A bar on stderr while runs are made, only where someone looks."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet

    def __enter__(self) -> _Progress:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=self.quiet or not sys.stderr.isatty(),
            transient=True,
        )
        self.task = self.bar.add_task("", total=None)
        self.bar.start()
        return self

    def title(self, text: str, total: int | None = None) -> None:
        self.bar.reset(self.task, description=text, total=total)

    def done(self, run: Any) -> None:
        self.bar.advance(self.task)

    def __exit__(self, *_: object) -> None:
        self.bar.stop()
