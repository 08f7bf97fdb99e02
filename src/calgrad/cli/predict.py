"""`calgrad predict`: a trained network over a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calgrad.checks import one_of

PARTS = ("train", "val", "test")


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("predict")(predict_command)


def predict_command(
    source: Annotated[Path, typer.Argument(help="a run folder, or its weights.safetensors")],
    data: Annotated[
        str | None, typer.Option("--data", help="data set, or folder:PATH [the one it was trained on]")
    ] = None,
    part: Annotated[str, typer.Option("--part", help="train, val or test")] = "test",
    out: Annotated[Path, typer.Option("--out", "-o", help="where to write: .npz or .safetensors")] = Path(
        "predictions.npz"
    ),
    root: Annotated[str | None, typer.Option("--root", help="folder with the data sets")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 [the best there is]")] = None,
) -> None:
    """Write a trained network's logits over a part of a data set, for `calgrad evaluate` and `calgrad calibrate`.

    The images are normalised as the training data was. Example: calgrad predict runs/digits/ce/seed-1 -o test.npz
    """
    from calgrad.data import find_spec, load_data
    from calgrad.train import load_model, predict
    from calgrad.train.distributed import choose_device
    from calgrad.train.run import load_splits

    one_of("part", part, PARTS)
    chosen = choose_device(device)
    trained = load_model(source, device=chosen)
    if data is None or data == trained.recipe.data:
        # Split as for training: otherwise "val" would hold samples the network has seen.
        splits = load_splits(trained.recipe, root)
    else:
        any_size = find_spec(data).name in ("imagenet", "folder")
        splits = load_data(data, root, image_size=trained.shape.image_size if any_size else None)
    print(predict(trained, getattr(splits, part), split=part, device=chosen).save(out))
