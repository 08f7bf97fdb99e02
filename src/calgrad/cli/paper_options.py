"""What the commands of `calgrad paper` share: their options, where runs are found, and how tables are shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

RESULTS = Path("results")

Runs = Annotated[
    list[Path] | None,
    typer.Option("--runs", "-r", help="run folders, or what `paper collect` made of them [results, where it exists]"),
]
Format = Annotated[str, typer.Option("--format", "-f", help="terminal, markdown, latex or csv")]
Out = Annotated[Path, typer.Option("--out", "-o", help="folder for the figure's data (CSV)")]
Pictures = Annotated[Path | None, typer.Option(help="folder for PNG and SVG [as --out]")]
CellName = Annotated[
    str | None, typer.Option("--cell", help="which network: cifar10/resnet50 [the longest runs there are]")
]
RecipeName = Annotated[str | None, typer.Option("--recipe", help="only runs of this recipe")]
Losses = Annotated[str, typer.Option("--losses", "-l", help="only these losses: ce,focal,bsce-gra:gamma=2,beta=2")]


def places(runs: Sequence[Path] | None) -> list[Path]:
    """Where to look for runs: as given, else in `results`."""
    return list(runs) if runs else [RESULTS] if RESULTS.is_dir() else []


def run_rows(runs: Sequence[Path] | None) -> list[Any]:
    """A row for every finished run there."""
    from calgrad.paper.records import read_rows

    return read_rows(places(runs))


def parts(text: str) -> list[str]:
    """`a,b` as a list."""
    return [part.strip() for part in text.split(",") if part.strip()]


def loss_parts(text: str) -> list[str]:
    """`ce,bsce-gra:gamma=2,beta=2` as ["ce", "bsce-gra:gamma=2;beta=2"]: an option belongs to the loss before it."""
    losses: list[str] = []
    for part in parts(text):
        if "=" in part and ":" not in part and losses:
            losses[-1] += f";{part}"
        else:
            losses.append(part)
    return losses


def show(tables: Sequence[Any], form: str) -> None:
    """Print tables in one of the four dresses."""
    from calgrad.checks import one_of

    one_of("format", form, ("terminal", "markdown", "latex", "csv"))
    if form != "terminal":
        print("\n".join(getattr(table, f"to_{form}")() for table in tables), end="")
        return
    from rich.console import Console
    from rich.measure import Measurement

    for table in tables:
        # A table that is cut off tells nothing, so a pipe or a narrow window gets the width it needs.
        shown, console = table.to_rich(), Console(width=1000)
        needed = Measurement.get(console, console.options, shown).maximum
        Console(width=max(needed, Console().width)).print(shown)
