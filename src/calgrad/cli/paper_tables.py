"""`calgrad paper table-...`: the tables that runs fill, and `--run` to make the runs that are missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from calgrad.cli.paper_options import Format, Losses, Runs, parts, places, run_rows, show
from calgrad.paper.tables import SPECS


def register_tables(app: typer.Typer) -> None:
    """Add a command for each table."""
    for name, spec in SPECS.items():
        app.command(name, help=f"{spec.title}, ours beside the published number.")(_table_command(name))
    app.command("table-efficiency")(table_efficiency)


def table_efficiency(runs: Runs = None, form: Format = "terminal") -> None:
    """What a loss costs over cross-entropy: 1.086 times in the paper."""
    from calgrad.paper.efficiency import efficiency_table

    show([efficiency_table(run_rows(runs))], form)


def _table_command(name: str) -> Callable[..., None]:
    def command(
        runs: Runs = None,
        cells: Annotated[str, typer.Option(help="only these: cifar10/resnet50,cifar100")] = "",
        form: Format = "terminal",
        run: Annotated[
            bool, typer.Option("--run", help="make the runs that are missing, after showing what they cost")
        ] = False,
        losses: Losses = "",
        seeds: Annotated[str, typer.Option(help="with --run: 1,42,71 [the recipe's]")] = "",
        recipe: Annotated[str | None, typer.Option(help="with --run: another recipe, such as cifar10-short")] = None,
        settings: Annotated[list[str] | None, typer.Option("--set", help="with --run: change a field of it")] = None,
        folder: Annotated[Path, typer.Option(help="with --run: where the runs go")] = Path("runs/paper"),
        yes: Annotated[bool, typer.Option("--yes", "-y", help="with --run: do not ask")] = False,
        speed: Annotated[float | None, typer.Option("--images-per-second", help="with --run: known speed")] = None,
        jobs: Annotated[int | None, typer.Option("--jobs", "-j", help="with --run: runs side by side")] = None,
        device: Annotated[str | None, typer.Option(help="with --run: cpu, cuda, cuda:1")] = None,
        data_root: Annotated[str | None, typer.Option("--data", help="with --run: folder with the data sets")] = None,
    ) -> None:
        from calgrad.paper.plan import plan_runs
        from calgrad.paper.tables import build_table
        from calgrad.train.recipe import parse_assignment

        chosen = parts(cells)
        if run:
            changes = dict(parse_assignment(text) for text in settings or [])
            planned = plan_runs(
                name, cells=chosen, losses=parts(losses), seeds=[int(s) for s in parts(seeds)], recipe=recipe,
                changes=changes, folder=folder,
            )  # fmt: skip
            _make(planned, run_rows(runs), yes=yes, speed=speed, jobs=jobs, device=device, data_root=data_root)
        found = [*places(runs), *([folder] if folder.is_dir() else [])]
        show([build_table(name, run_rows(found) if found else [], cells=chosen)], form)

    return command


def _make(planned: Sequence[Any], rows: Sequence[Any], *, yes: bool, speed: float | None, **options: Any) -> None:
    from calgrad.cli.output import note
    from calgrad.paper.plan import estimate
    from calgrad.sweep import run_all

    cost = estimate(planned, rows, images_per_second=speed)
    note(f"{len(planned)} runs planned, {cost.runs} to make: {cost.images:,.0f} images, about {cost.hours:.1f} hours")
    for line in cost.basis:
        note(f"  {line}")
    if cost.runs and not yes:
        typer.confirm("Make them now?", abort=True, err=True)
    done = iter(range(1, len(planned) + 1))
    run_all(planned, on_done=lambda run: note(f"{next(done)} of {len(planned)}: {run.folder}"), **options)
