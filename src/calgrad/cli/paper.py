"""`calgrad paper ...`: every table and figure of the paper as a command, ours beside the published number."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calgrad.cli.paper_figures import register_figures
from calgrad.cli.paper_options import RESULTS, Format, Out, Runs, run_rows, show
from calgrad.cli.paper_tables import register_tables

paper_app = typer.Typer(
    help="The paper's tables and figures, ours beside the published numbers.\n\n"
    "Example: calgrad paper list, then calgrad paper table-ece",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    """Add the command group to the application."""
    app.add_typer(paper_app, name="paper")


register_tables(paper_app)
register_figures(paper_app)


@paper_app.command("list")
def list_items(runs: Runs = None, form: Format = "terminal") -> None:
    """Show every table and figure: its state here, the command and the cost."""
    from calgrad.paper.items import items_table
    from calgrad.paper.published import read_published
    from calgrad.paper.tables import SPECS, backing

    rows = run_rows(runs)
    found = {name: backing(read_published(spec.published), rows) for name, spec in SPECS.items()}
    show([items_table(found=found)], form)


@paper_app.command("collect")
def collect_runs(
    runs: Annotated[list[Path], typer.Argument(help="run folders, or folders that hold some")],
    out: Annotated[Path, typer.Option("--out", "-o", help="results/NAME: writes NAME.runs.csv and what belongs to it")],
) -> None:
    """Turn finished runs into small CSV files that can be committed, and that every table and figure can read."""
    from calgrad.cli.output import note
    from calgrad.paper.collect import collect

    written, left_out = collect(runs, out, on_run=lambda folder: note(f"read {folder}"))
    for folder in left_out:
        note(f"left out, not finished: {folder}")
    for path in written:
        print(path)


@paper_app.command("theory")
def theory(form: Format = "terminal", out: Out = RESULTS / "paper") -> None:
    """Eq. (12)'s constant gap; where the losses have their minimum, with y and with eta; what the link recovers."""
    from calgrad.paper.runs import write_csv
    from calgrad.paper.theory import gap_rows, minimiser_rows, proof_rows, theory_tables

    gap, proof, minima = gap_rows(), proof_rows(), minimiser_rows()
    for name, rows in (("theory_gap", gap), ("theory_proof", proof), ("theory_minima", minima)):
        write_csv(out / f"{name}.csv", rows)
    show(theory_tables(gap, proof, minima), form)


@paper_app.command("toy")
def toy(
    number: Annotated[int, typer.Option("--runs", help="how many Gaussians-and-net pairs")] = 5,
    form: Format = "terminal",
    out: Out = RESULTS / "paper",
) -> None:
    """The Gaussians of section 4.3: the correlation of each weight with the true error, in every reading of the paper."""
    from calgrad.paper.runs import write_csv
    from calgrad.paper.toy import toy_rows, toy_table

    rows = toy_rows(runs=number)
    write_csv(out / ("toy.csv" if number == 5 else f"toy_{number}runs.csv"), rows)
    show([toy_table(rows)], form)


@paper_app.command("findings")
def findings(form: Format = "terminal", out: Out = RESULTS / "paper") -> None:
    """Table 1 against the noise floor; the DFL-GRA bug; beta = 1; CIFAR-100's normalisation."""
    from calgrad.paper import findings as found
    from calgrad.paper.runs import write_csv

    floors = found.floor_rows()
    dual = [found.dual_gra_row(scale=scale) for scale in (1, 3)]
    write_csv(out / "findings_floor.csv", floors)
    write_csv(out / "findings_dual_gra.csv", dual)
    show(found.findings_tables(floors, dual, found.beta_one_error(), found.normalisation_rows()), form)


@paper_app.command("human")
def human(
    cifar10h: Annotated[Path, typer.Option(help="cifar10h-counts.npy, cifar10h-probs.npy or an .npz with either")],
    predictions: Annotated[
        list[Path] | None, typer.Option("--predictions", "-p", help="predictions of the test set")
    ] = None,
    runs: Annotated[list[Path] | None, typer.Option("--runs", "-r", help="folders of CIFAR-10 runs")] = None,
    form: Format = "terminal",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="also write the rows as CSV")] = None,
) -> None:
    """Sample by sample: the distance of predictions to the human answers for the CIFAR-10 test set."""
    from calgrad.paper.human import HumanLabels, human_rows, human_table
    from calgrad.paper.runs import write_csv

    rows = human_rows(HumanLabels.load(cifar10h), predictions=predictions or (), runs=runs or ())
    if out:
        write_csv(out, rows)
    show([human_table(rows)], form)
