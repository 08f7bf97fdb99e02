"""`calgrad train`: one run, or one a seed, of a recipe."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from calgrad.checks import InputError
from calgrad.train.recipe import Recipe, describe_fields, parse_assignment
from calgrad.train.record import Record

_FIELDS = "\n\n".join(f"  {name}: {doc}" for name, doc in describe_fields().items())


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("train", epilog=f"Fields of a recipe, for --set and YAML files:\n\n{_FIELDS}")(train_command)


def train_command(
    recipe: Annotated[
        str, typer.Argument(help="a shipped recipe's name or a YAML file; `list` shows the shipped ones")
    ],
    seed: Annotated[int | None, typer.Option("--seed", "-s", help="training seed [the recipe's first]")] = None,
    all_seeds: Annotated[bool, typer.Option("--all-seeds", help="one run for each of the recipe's seeds")] = False,
    loss: Annotated[str | None, typer.Option("--loss", "-l", help="another loss, see `calgrad losses`")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="change a field of the recipe: --set epochs=5")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="the run folder [runs/RECIPE/LOSS/seed-N]")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 [the best there is]")] = None,
    data_root: Annotated[str | None, typer.Option("--data", help="folder with the data sets")] = None,
    restart: Annotated[bool, typer.Option("--restart", help="start an unfinished run anew")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="start anew whatever is in the folder")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="write TensorBoard logs too")] = False,
    track: Annotated[
        str | None,
        typer.Option("--track", help="send each epoch's numbers to csv, tensorboard, mlflow or wandb (offline)"),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="print the run folder and nothing else")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the recipe as it would be run, and stop")] = False,
) -> None:
    """Train a network. A killed run goes on from its last checkpoint; a finished one is not run again.

    Example: calgrad train digits --loss bsce-gra --set epochs=10
    """
    from calgrad.recipes import list_recipes, load_recipe, recipe_header

    if recipe == "list":
        for name in list_recipes():
            print(f"{name}\n    " + recipe_header(name).replace("\n", "\n    "))
        return
    chosen = changed(load_recipe(recipe), loss, settings or [])
    if dry_run:
        print(chosen.to_yaml(), end="")
        return
    if all_seeds and (seed is not None or out is not None):
        raise InputError("--all-seeds makes one folder a seed: leave out --seed and --out")
    seeds = chosen.seeds if all_seeds else (chosen.seeds[0] if seed is None else seed,)
    for each in seeds:
        _one_run(chosen, each, out, device, data_root, restart, overwrite, tensorboard, track, quiet)


def changed(recipe: Recipe, loss: str | None, settings: list[str]) -> Recipe:
    """The recipe with the command line's changes; another loss starts from its own default options."""
    changes = dict(parse_assignment(text) for text in settings)
    if loss is not None and loss != recipe.loss:
        changes = {"loss": loss, "loss_options": {}, **changes}
    return recipe.replace(**changes)


def _one_run(
    recipe: Recipe,
    seed: int,
    out: Path | None,
    device: str | None,
    data_root: str | None,
    restart: bool,
    overwrite: bool,
    tensorboard: bool,
    track: str | None,
    quiet: bool,
) -> None:
    from calgrad.integrations.tracking import each_epoch, make_sink
    from calgrad.train import Interrupted, train
    from calgrad.train.folders import default_folder

    sink = None if track is None else make_sink(track, (out or default_folder(recipe, seed)) / track)
    leads = int(os.environ.get("RANK", "0")) == 0
    try:
        folder = train(
            recipe,
            seed,
            folder=out,
            resume=not restart,
            overwrite=overwrite,
            device=device,
            data_root=data_root,
            on_epoch=each_epoch(sink) if sink is not None and leads else None,
            tensorboard=tensorboard,
            quiet=quiet,
        )
    except Interrupted as stopped:
        typer.echo(str(stopped), err=True)
        raise typer.Exit(stopped.exit_code) from None
    finally:
        if sink is not None:
            sink.close()
    if leads:
        if not quiet:
            typer.echo(summary(Record.load(folder)), err=True)
        print(folder)


def summary(record: Record) -> str:
    """A finished run in one line."""
    last = record.epochs[-1]
    said = ", ".join(
        f"{name} {last['val_' + name]:.4f}" for name in ("accuracy", "nll", "ece") if f"val_{name}" in last
    )
    minutes = record.timings.get("total", 0.0) / 60
    notes = "".join(f"\nnote: {note}" for note in record.notes)
    return f"{last['epoch']} epochs in {minutes:.1f} min; validation: {said}{notes}"
