"""`calgrad data list | fetch | verify`: which data sets there are, getting them, and whether they are whole."""

from __future__ import annotations

import json
from typing import Annotated

import typer

_Root = Annotated[
    str | None, typer.Option("--data", help="folder with the data sets [CALGRAD_DATA or the user's cache]")
]
_Json = Annotated[bool, typer.Option("--json", help="print JSON, and nothing else")]

data_app = typer.Typer(help="List, download and check data sets.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the command group to the application."""
    app.add_typer(data_app, name="data")


@data_app.command("list")
def list_data(root: _Root = None, as_json: _Json = False) -> None:
    """Show every data set, its sizes, and whether it is here."""
    from calgrad.data import SPECS, data_root

    base = data_root(root)
    rows = []
    for spec in SPECS.values():
        places = [base / name for name in (spec.folder, spec.archive) if name]
        here = next((str(place) for place in places if place.exists()), None)
        embedded = spec.name in ("digits", "gaussians")
        rows.append(
            {
                "name": "folder:PATH" if spec.name == "folder" else spec.name,
                "title": spec.title,
                "classes": spec.class_count or None,
                "image_size": spec.image_size if spec.image_size > 1 else None,
                "train": spec.train_size or None,
                "test": spec.test_size or None,
                "here": "embedded" if embedded else here,
                "fetch": bool(spec.url),
            }
        )
    if as_json:
        typer.echo(json.dumps({"root": str(base), "data": rows}, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("name", title=f"data sets in {base}", title_justify="left", box=None, pad_edge=False)
    for column in ("classes", "px", "train", "test"):
        table.add_column(column, justify="right")
    table.add_column("here")
    table.add_column("what")
    for row in rows:
        here = "yes" if row["here"] else "fetch" if row["fetch"] else "no"
        numbers = ["" if row[key] is None else f"{row[key]:,}" for key in ("classes", "image_size", "train", "test")]
        table.add_row(str(row["name"]), *numbers, here, str(row["title"]))
    Console().print(table, "\nfetch: `calgrad data fetch NAME` downloads it", highlight=False)


@data_app.command("fetch")
def fetch_data(
    name: Annotated[str, typer.Argument(help="cifar10, cifar100 or tiny-imagenet")],
    root: _Root = None,
    force: Annotated[bool, typer.Option("--force", help="download again what is there already")] = False,
) -> None:
    """Download a data set from its official address, with checksum; a broken download goes on where it stopped."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from calgrad.data.download import fetch

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=None)
        folder = fetch(
            name, root, force=force, progress=lambda done, total: bar.update(task, completed=done, total=total)
        )
    typer.echo(str(folder))


@data_app.command("verify")
def verify_data(
    name: Annotated[str, typer.Argument(help="a data set that `calgrad data list` shows, or folder:PATH")],
    root: _Root = None,
    decode: Annotated[bool, typer.Option("--decode", help="also decode every image file")] = False,
    as_json: _Json = False,
) -> None:
    """Check counts, shapes, classes and the archive's checksum; exit code 1 if something is wrong."""
    from calgrad.data.verification import verify

    result = verify(name, root, decode=decode)
    if as_json:
        checks = [{"subject": c.subject, "passed": c.passed, "found": c.found} for c in result.checks]
        typer.echo(json.dumps({"name": name, "passed": result.passed, "checks": checks}, indent=2))
    else:
        for check in result.checks:
            typer.echo(f"{'ok   ' if check.passed else 'WRONG'} {check.subject}: {check.found}")
    if not result.passed:
        raise typer.Exit(1)
