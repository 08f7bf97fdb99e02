"""`calgrad sweep`: a grid of runs on this machine's cores and GPUs, or on a Ray cluster."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calgrad.cli.output import note, print_table

if TYPE_CHECKING:
    from calgrad.sweep import Run
    from calgrad.sweep.grid import Grid
    from calgrad.sweep.ledger import Ledger
    from calgrad.sweep.schedule import Engine, Status
    from calgrad.sweep.worker import Outcome

ENGINES = ("local", "ray", "here")
SHOWN = 12
"""Lines of the live table at most."""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("sweep")(sweep)


def sweep(
    grid: Annotated[
        str | None, typer.Argument(help="a YAML file, or a shipped grid: paper-table1, digits; or give --recipe")
    ] = None,
    recipe: Annotated[str | None, typer.Option("--recipe", "-r", help="a grid from flags: the recipe")] = None,
    losses: Annotated[
        str, typer.Option("--losses", "-l", help="losses, options after a colon: ce,bsce-gra:gamma=3,beta=2")
    ] = "",
    seeds: Annotated[str, typer.Option("--seeds", "-s", help="which seeds: 1,42,71")] = "",
    vary: Annotated[
        list[str] | None, typer.Option("--vary", help="a field and its values: --vary model=[mlp,cnn]")
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="a field of every run: --set epochs=5")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="folder for runs and results [runs/GRID]")] = None,
    engine: Annotated[
        str, typer.Option(help="local (workers over cores and GPUs), ray, or here (in this process)")
    ] = "local",
    address: Annotated[str, typer.Option(help="of the Ray cluster; local starts one")] = "auto",
    gpus_per_run: Annotated[
        float | None, typer.Option("--gpus-per-run", help="0.5: two runs share one; 2: two processes share a run [1]")
    ] = None,
    cpus_per_run: Annotated[
        int | None, typer.Option("--cpus-per-run", help="threads of a run; with Ray, cores too [cores / jobs; Ray: 1]")
    ] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", help="runs at a time [as many as there is room]")] = None,
    retries: Annotated[int, typer.Option(help="further attempts, from checkpoint, where a worker died")] = 2,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 [the best there is]")] = None,
    data_root: Annotated[str | None, typer.Option("--data", help="folder with the data sets")] = None,
    speed: Annotated[float | None, typer.Option("--images-per-second", help="a known speed, for the cost")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print plan and cost, and stop")] = False,
) -> None:
    """Make every run of a grid that is not finished yet; the same command again does only what is missing.

    Results go to FOLDER/results.csv, a row a run. What failed, and why, is in FOLDER/events.jsonl.

    Example: calgrad sweep --recipe digits --losses ce,bsce-gra --seeds 1,2,3 --vary lr=[0.05,0.1]
    """
    from calgrad.checks import one_of
    from calgrad.sweep.ledger import Ledger
    from calgrad.sweep.schedule import raise_failures, schedule

    one_of("engine", engine, ENGINES)
    chosen = _grid(grid, recipe, losses, seeds, vary or [], settings or [])
    folder = (out or Path("runs") / Path(grid or f"sweep-{recipe}").stem).resolve()
    runs = chosen.runs(folder)
    ledger = Ledger(folder)
    if dry_run:
        _show_plan(runs, ledger, speed)
        return
    options: dict[str, Any] = {
        "device": device, "data_root": data_root, "gpus_per_run": gpus_per_run, "jobs": jobs,
    }  # fmt: skip
    with _Screen(ledger) as screen:
        maker = _engine(engine, address, cpus_per_run, len(runs), options)
        board = schedule(runs, maker, retries=retries, watch=screen.watch(maker), on_end=screen.ended)
    rows = ledger.save()
    failed = sum(status.state == "failed" for status in board)
    note(f"{len(board) - failed} of {len(board)} runs are done; {len(rows)} rows in {ledger.table}")
    raise_failures(board)


def _grid(
    name: str | None, recipe: str | None, losses: str, seeds: str, vary: Sequence[str], settings: Sequence[str]
) -> Grid:
    from calgrad.checks import InputError
    from calgrad.cli.compare import _loss_texts
    from calgrad.sweep.grid import Grid, load_grid
    from calgrad.train.recipe import parse_assignment

    if (name is None) == (recipe is None):
        raise InputError("give a grid (a YAML file or a shipped one), or --recipe and what to vary")
    values: dict[str, Any] = {"set": dict(map(parse_assignment, settings)), "vary": dict(map(parse_assignment, vary))}
    if recipe is not None:
        values["recipe"] = recipe
    if losses:
        values["losses"] = _loss_texts(losses)
    if seeds:
        values["seeds"] = [parse_assignment(f"seed={part}")[1] for part in seeds.split(",")]
    return (load_grid(name) if name is not None else Grid()).changed(values)


def _engine(name: str, address: str, cpus: int | None, count: int, options: dict[str, Any]) -> Engine:
    from calgrad.sweep.local import Here, local_engine
    from calgrad.sweep.worker import Place

    if name == "ray":
        from calgrad.sweep.ray_engine import RayEngine

        return RayEngine(address=address, cpus_per_run=cpus or 1, **options)
    if name == "here":
        return Here(Place(options["device"], options["data_root"], cpus))
    return local_engine(threads=cpus, most=count, apart=True, **options)


def _show_plan(runs: Sequence[Run], ledger: Ledger, speed: float | None) -> None:
    from calgrad.sweep.board import duration
    from calgrad.sweep.cost import estimate
    from calgrad.sweep.ledger import speeds

    measured = speeds(ledger.rows() if ledger.folder.is_dir() else [])
    cells: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        cells.setdefault(
            (run.recipe.data, run.recipe.model, f"{run.recipe.name}, {run.recipe.epochs} epochs"), []
        ).append(run)
    lines = []
    for cell, members in cells.items():
        cost = estimate(members, measured, images_per_second=speed)
        losses, seeds = ({f(run) for run in members} for f in (lambda r: r.recipe.loss, lambda r: r.seed))
        about = [len(losses), len(seeds), len(members), len(members) - cost.runs, cost.runs]
        lines.append([*cell, *map(str, about), f"{cost.images:,.0f}", duration(cost.hours)])
    print_table(["data", "network", "recipe", "losses", "seeds", "runs", "done", "to make", "images", "time"], lines)
    total = estimate(runs, measured, images_per_second=speed)
    print(
        f"{len(runs)} runs, {total.runs} to make: {total.images:,.0f} images, {total.hours:,.1f} hours one after the other"
    )
    for line in total.basis:
        print(f"  {line}")
    print(f"Runs and results go to {ledger.folder}")


class _Screen:
    """A live table on a terminal, a line for each run that ends elsewhere; keeps the ledger up to date."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.rows: list[dict[str, Any]] = []
        self.live: Any = None
        self.made = 0

    def __enter__(self) -> _Screen:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self.live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
            self.live.start()
        self.rows = self.ledger.save()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def ended(self, status: Status, outcome: Outcome) -> None:
        from calgrad.sweep.board import describe

        if outcome.kind == "busy" or (outcome.kind == "done" and not outcome.made):
            return  # nothing happened here
        name, _, said = describe(status, self.ledger.folder)
        again = outcome.kind == "died" and status.state == "waiting"
        self.ledger.note(outcome.kind, status.run.folder, attempt=status.attempts, message=outcome.message)
        if outcome.kind == "done":
            self.rows = self.ledger.save()
        if not self.live:
            note(f"{outcome.kind}: {name}{': ' + said if said else ''}{'; it is tried again' if again else ''}")

    def watch(self, engine: Engine) -> Any:
        """What `schedule` calls now and then."""
        from calgrad.sweep.board import counts, describe, duration, hours_left

        drawn = 0.0

        def draw(board: Sequence[Status]) -> None:
            nonlocal drawn
            if not self.live or time.monotonic() - drawn < 1:
                return
            from rich.table import Table

            drawn = time.monotonic()
            hours = hours_left(board, self.rows, engine.slots)
            left = "no estimate of the rest yet" if hours is None else f"about {duration(hours)} left"
            table = Table(title=f"{counts(board)}; {left}", title_justify="left", box=None, pad_edge=False)
            for column in ("run", "state", ""):
                table.add_column(column, no_wrap=True)
            order = {"failed": 0, "running": 1, "waiting": 2, "done": 3}
            shown = sorted(board, key=lambda status: order[status.state])
            for status in shown[:SHOWN]:
                table.add_row(*(cell.replace("[", r"\[") for cell in describe(status, self.ledger.folder)))
            if len(shown) > SHOWN:
                table.add_row(f"and {len(shown) - SHOWN} more", "", "")
            self.live.update(table, refresh=True)

        return draw
