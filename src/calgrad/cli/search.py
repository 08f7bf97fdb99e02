"""`calgrad search`: gamma and beta of a loss, chosen on validation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from calgrad.cli.output import JSON_HELP, note, print_json, print_table


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("search")(search_command)


def search_command(
    recipe: Annotated[str, typer.Argument(help="a shipped recipe's name or a YAML file")],
    loss: Annotated[str, typer.Option("--loss", "-l", help="the loss whose options are searched")] = "bsce-gra",
    space: Annotated[
        list[str] | None, typer.Option("--space", help="option=low:high:step [gamma=0.5:6:0.5, beta=1:4:0.5]")
    ] = None,
    trials: Annotated[int, typer.Option("--trials", "-n", min=1, help="settings to try, earlier calls included")] = 20,
    by: Annotated[str, typer.Option(help="what is minimised on validation: nll, brier or ece")] = "nll",
    seed: Annotated[int, typer.Option("--seed", "-s", help="training seed of every trial")] = 1,
    settings: Annotated[list[str] | None, typer.Option("--set", help="change a recipe's field: --set epochs=5")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="folder [runs/search-RECIPE-LOSS]")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 [the best there is]")] = None,
    data_root: Annotated[str | None, typer.Option("--data", help="folder with the data sets")] = None,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Choose gamma and beta on validation; the test set has no say.

    The same command goes on where it stopped; started several times, also on several machines, it shares the trials.

    Example: calgrad search digits --loss bsce-gra --space gamma=0.5:4:0.5 --space beta=2:2:1 --trials 10
    """
    from calgrad.cli.train import changed
    from calgrad.recipes import load_recipe
    from calgrad.sweep.search import SPACE, search

    chosen = changed(load_recipe(recipe), loss, settings or [])
    folder = out or Path("runs") / f"search-{chosen.name or 'recipe'}-{loss}"

    def told(row: dict[str, Any]) -> None:
        value = row[f"val_{by}"]
        shown = "no value" if value is None else f"{by} {value:.4f}"
        note(f"trial {row['trial']}: {row['folder']}: {row['state']} after {row['epochs']} epochs, {shown}")

    found = search(
        chosen, folder, space=dict(map(_range, space)) if space else SPACE, trials=trials, by=by, seed=seed,
        device=device, data_root=data_root, on_trial=told,
    )  # fmt: skip
    if as_json:
        print_json({"best": {"loss": loss, **found.best.options}, f"val_{by}": found.value, "trials": found.trials})
        return
    value = f"val_{by}"
    ended = sorted((t for t in found.trials if t[value] is not None), key=lambda t: (t["state"], t[value]))
    rows = [[str(t["trial"]), t["folder"], t["state"], str(t["epochs"]), f"{t[value]:.4f}"] for t in ended]
    print_table(["trial", "setting", "state", "epochs", value], rows)
    print(f"best on validation: {found.best.label}, {by} {found.value:.4f}; trials in {folder / 'trials.csv'}")


def _range(text: str) -> tuple[str, tuple[float, float, float]]:
    name, _, rest = text.partition("=")
    try:
        low, high, step = map(float, rest.split(":"))
    except ValueError:
        raise typer.BadParameter(f"expected option=low:high:step, got {text!r}", param_hint="--space") from None
    return name, (low, high, step)
