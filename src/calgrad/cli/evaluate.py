"""`calgrad evaluate`: everything about one file of predictions, or several side by side."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calgrad.cli.inputs import resolve
from calgrad.cli.output import JSON_HELP, note, print_json, print_table, progress

if TYPE_CHECKING:
    from calgrad.metrics import Evaluation
    from calgrad.metrics.comparison import Comparison
    from calgrad.predictions import PredictionFile, Predictions

FILES_HELP = "Predictions: .npz, .safetensors, .csv or .parquet; `example` is a shipped one."


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("evaluate")(evaluate_command)


def evaluate_command(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help=FILES_HELP)],
    bins: Annotated[int, typer.Option(help="Bins of the calibration errors.", min=1)] = 15,
    bootstrap: Annotated[int, typer.Option(help="Draws for the interval of the ECE; 0: none.", min=0)] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 0,
    stream: Annotated[
        bool | None,
        typer.Option("--stream/--no-stream", help="Read in pieces, in constant memory; large files always are."),
    ] = None,
    as_one: Annotated[
        bool, typer.Option("--as-one", help="The files are shards of one set; a folder stands for the files in it.")
    ] = False,
    jobs: Annotated[int, typer.Option(help="Processes that read shards (with --as-one).", min=1)] = 1,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Measure how far the probabilities in a file can be believed.

    Accuracy, NLL, Brier score and calibration errors, each with what chance alone would show: intervals, the noise
    floor of the ECE, and the p-value of "calibrated". Several files are compared, pair by pair where they hold the same
    samples; with --as-one they are shards of one set, read in pieces and measured together.

    Example: calgrad evaluate example
    """
    from calgrad.predictions import open_file

    options = {"bins": bins, "bootstrap": bootstrap, "seed": seed}
    if as_one:
        _evaluate_as_one(files, jobs, as_json, options)
        return
    sources = [open_file(resolve(name)) for name in files]
    found, kept = [], []
    for source in sources:
        evaluation, predictions = measure(source, stream=stream, keep=len(sources) > 1, **options)
        found.append(evaluation)
        kept.append(predictions)
    names = short_names([source.path for source in sources])
    pairs = list(compared(names, kept, bins=bins, seed=seed)) if len(sources) > 1 else []
    if as_json:
        rows = [{"file": str(source.path), "split": source.split, **e.to_dict()} for source, e in zip(sources, found)]
        tests = [{"a": a, "b": b, **comparison.to_dict()} for a, b, comparison in pairs]
        print_json(rows[0] if len(rows) == 1 else {"files": rows, "comparisons": tests})
    elif len(found) == 1:
        print(f"{names[0]}: {found[0]}")
    else:
        print_evaluations(names, found)
        for a, b, comparison in pairs:
            print(f"\na: {a}, b: {b}\n{comparison}")


def _evaluate_as_one(names: list[str], jobs: int, as_json: bool, options: dict[str, Any]) -> None:
    from calgrad.metrics import evaluate_shards

    paths = [path for name in names for path in shards(resolve(name))]
    with progress(f"{len(paths)} files", None) as advance:
        found = evaluate_shards(paths, jobs=jobs, advance=advance, **options)
    if as_json:
        print_json({"files": [str(path) for path in paths], **found.to_dict()})
    else:
        print(f"{paths[0] if len(paths) == 1 else f'{len(paths)} files'}: {found}")


def shards(path: Path) -> list[Path]:
    """The files that a path stands for: itself, or a folder's files of predictions by name."""
    from calgrad.checks import FileError
    from calgrad.predictions.files import READS

    if not path.is_dir():
        return [path]
    found = sorted(p for p in path.iterdir() if p.suffix.lower() in READS and not p.name.startswith("."))
    if not found:
        raise FileError(f"{path} holds no file of predictions ({', '.join(READS)})")
    return found


def measure(
    source: PredictionFile, *, stream: bool | None = None, keep: bool = False, **options: Any
) -> tuple[Evaluation, Predictions | None]:
    """A file's evaluation, and what it holds if asked for and if it was loaded at once."""
    from calgrad.files import memory
    from calgrad.metrics import evaluate, evaluate_stream
    from calgrad.metrics.shards import rows_of_piece

    if stream is None:
        stream = source.nbytes * 4 > memory()
    if not stream:
        predictions = source.load()
        return evaluate(predictions, **options), predictions if keep else None

    def watched() -> Iterator[Predictions]:
        for chunk in source.chunks(rows_of_piece(source.classes)):
            yield chunk
            advance(chunk.n)

    with progress(source.path.name, source.rows) as advance:
        return evaluate_stream(watched(), **options), None


def compared(
    names: list[str], kept: list[Predictions | None], *, bins: int, seed: int
) -> Iterator[tuple[str, str, Comparison]]:
    """The paired test of each two files that hold the same samples; says so where they do not."""
    from calgrad.metrics import compare_models

    for (first, a), (second, b) in combinations(zip(names, kept), 2):
        if a is None or b is None:
            note(f"no paired test of {first} and {second}: they were read in pieces")
            continue
        partner = same_samples(a, b)
        if partner is None:
            note(f"no paired test of {first} and {second}: they do not hold the same samples (ids or labels differ)")
            continue
        yield first, second, compare_models(a, partner, bins=bins, seed=seed)


def same_samples(a: Predictions, b: Predictions) -> Predictions | None:
    """`b` in the order of `a`, by ids where both have them; None if they are not the same samples."""
    import numpy as np

    if a.n != b.n:
        return None
    if a.ids is not None and b.ids is not None:
        ours, theirs = a.ids.astype(str), b.ids.astype(str)
        if not np.array_equal(ours, theirs):
            by_a, by_b = np.argsort(ours, kind="stable"), np.argsort(theirs, kind="stable")
            if not np.array_equal(ours[by_a], theirs[by_b]) or len(np.unique(ours)) < a.n:
                return None
            order = np.empty(a.n, dtype=np.int64)
            order[by_a] = by_b
            b = b.select(order)
    return b if bool((a.labels == b.labels).all()) else None


def short_names(paths: list[Path]) -> list[str]:
    """File names; whole paths where two files share a name."""
    names = [path.name for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]


def print_evaluations(names: list[str], evaluations: list[Evaluation], *, first: str = "file") -> None:
    """One line an evaluation, in percent but NLL and Brier score."""
    columns = (first, "n", "accuracy", "NLL", "Brier", "ECE", "95 %", "floor", "p", "AdaECE", "classwise", "smooth")
    rows = []
    for name, e in zip(names, evaluations):
        interval = e.ece_interval
        rows.append(
            (
                name,
                f"{e.n:,}",
                f"{100 * e.accuracy:.2f}",
                f"{e.nll:.4f}",
                f"{e.brier:.4f}",
                f"{100 * e.ece:.2f}",
                f"{100 * interval.low:.2f} - {100 * interval.high:.2f}" if interval else "-",
                f"{100 * e.floor.mean:.2f}",
                f"{e.p_value:.3f}",
                f"{100 * e.adaptive_ece:.2f}",
                f"{100 * e.classwise_ece:.3f}",
                f"{100 * e.smooth_ece:.2f}",
            )
        )
    print_table(columns, rows, numbers=True)
