"""`calgrad calibrate`: fit a calibrator on one file, apply it to another, and say what that changed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calgrad.cli.inputs import parse_options, resolve
from calgrad.cli.output import JSON_HELP, note, print_json, warn

if TYPE_CHECKING:
    from calgrad.metrics import Evaluation
    from calgrad.posthoc import Calibrator
    from calgrad.predictions import Predictions


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("calibrate")(calibrate)


def calibrate(
    val: Annotated[
        str, typer.Argument(metavar="VAL", help="Predictions to fit on: samples the model did not learn from.")
    ],
    test: Annotated[str, typer.Argument(metavar="TEST", help="Predictions to repair and to judge by.")],
    method: Annotated[str, typer.Option("--method", "-m", help="A name from `calgrad calibrators`.")] = "temperature",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the repaired test predictions: .npz or .safetensors.")
    ] = None,
    save_calibrator: Annotated[
        Path | None, typer.Option("--save-calibrator", help="Write the fitted calibrator: .json.")
    ] = None,
    loss: Annotated[
        str | None, typer.Option("--loss", help="For link methods: the loss the model was trained with.")
    ] = None,
    loss_options: Annotated[
        list[str] | None, typer.Option("--loss-option", help="An option of that loss: --loss-option gamma=4.")
    ] = None,
    method_options: Annotated[
        list[str] | None, typer.Option("--option", help="An option of the calibrator: --option bins=20.")
    ] = None,
    bins: Annotated[int, typer.Option(help="Bins of the calibration errors.", min=1)] = 15,
    bootstrap: Annotated[int, typer.Option(help="Draws for the interval of the ECE; 0: none.", min=0)] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Repair probabilities: fit on validation, apply to test, compare before and after.

    `temperature` is the exact NLL optimum, `temperature-ece` the grid of the published papers; `calgrad calibrators`
    lists them all. A calibrator that makes things worse says so.

    Example: calgrad calibrate example-val example-test --method temperature -o calibrated.npz
    """
    from calgrad.checks import InputError
    from calgrad.metrics import evaluate
    from calgrad.posthoc import make_calibrator
    from calgrad.predictions import Predictions

    val_path, test_path = resolve(val), resolve(test)
    check_out(out, val_path, test_path)
    options = parse_options(method_options, flag="--option")
    if method.startswith("link") and loss is None:
        raise InputError(f"--method {method} undoes a loss and must know which: --loss bsce-gra --loss-option gamma=4")
    if loss is not None or loss_options:
        options |= {"loss": loss, "loss_options": parse_options(loss_options, flag="--loss-option")}
    calibrator = make_calibrator(method, **options)
    fit_on, judged = Predictions.load(val_path), Predictions.load(test_path)
    check_pair(fit_on, judged, val, test)
    calibrator.fit(fit_on.logits, fit_on.labels)
    repaired = judged.with_logits(
        calibrator.log_probs(judged.logits),
        calibrator={"method": method, "fitted_on": str(val), "n": fit_on.n, **scalars(calibrator)},
    )
    if out is not None:
        repaired.save(out)
    if save_calibrator is not None:
        calibrator.save(save_calibrator)
    before, after = (evaluate(p, bins=bins, bootstrap=bootstrap, seed=seed) for p in (judged, repaired))
    worse = what_got_worse(before, after)
    if as_json:
        print_json(
            {
                "method": method,
                "options": {name: value for name, value in options.items() if value},
                "parameters": scalars(calibrator),
                "fit": calibrator.report.to_dict(),
                "before": before.to_dict(),
                "after": after.to_dict(),
                "worse": worse,
                "out": None if out is None else str(out),
                "calibrator": None if save_calibrator is None else str(save_calibrator),
            }
        )
    else:
        show(calibrator, method, before, after)
    if worse:
        warn(f"on {test_path.name}, {method} made worse: {', '.join(worse)}")
    for what, path in (("repaired predictions", out), ("calibrator", save_calibrator)):
        if path is not None:
            note(f"{what}: {path}")


def show(calibrator: Calibrator, method: str, before: Evaluation, after: Evaluation) -> None:
    """The report of the fit, then before and after."""
    from calgrad.cli.evaluate import print_evaluations

    report = calibrator.report
    parameters = ", ".join(f"{name} {value:.4f}" for name, value in scalars(calibrator).items())
    print(f"{method} ({parameters})" if parameters else method)
    print(f"validation NLL {report.nll_before:.4f} -> {report.nll_after:.4f}")
    print_evaluations(["before", "after"], [before, after], first="test")
    print(f"before: {before.verdict}\nafter:  {after.verdict}")


def scalars(calibrator: Calibrator) -> dict[str, float]:
    """The fitted parameters that are single numbers, such as the temperature."""
    return {
        name: float(value)
        for name, value in calibrator.parameters.items()
        if value.numel() == 1 and math.isfinite(float(value))
    }


def what_got_worse(before: Evaluation, after: Evaluation) -> list[str]:
    """The metrics in which doing nothing would have been better, beyond rounding."""
    lower_is_better = {"NLL": "nll", "Brier": "brier", "ECE": "ece"}
    worse = [
        f"{name} {getattr(before, field):.4f} -> {getattr(after, field):.4f}"
        for name, field in lower_is_better.items()
        if getattr(after, field) > getattr(before, field) + 1e-6
    ]
    if after.accuracy < before.accuracy:
        worse.append(f"accuracy {before.accuracy:.4f} -> {after.accuracy:.4f}")
    return worse


def check_out(out: Path | None, *inputs: Path) -> None:
    """Refuse what could not be written, or would replace an input, before any work is done."""
    from calgrad.checks import FileError
    from calgrad.predictions import WRITES

    if out is None:
        return
    if out.suffix.lower() not in WRITES:
        raise FileError(f"{out}: predictions are written as {' or '.join(WRITES)}, got {out.suffix or 'no suffix'!r}")
    if any(out.resolve() == path.resolve() for path in inputs):
        raise FileError(f"{out} is one of the inputs; give the repaired predictions another name")


def check_pair(fit_on: Predictions, judged: Predictions, val: str, test: str) -> None:
    """Refuse files of different classes; warn where the test set was fitted on."""
    from calgrad.checks import InputError

    if fit_on.classes != judged.classes:
        raise InputError(f"{val} has {fit_on.classes} classes and {test} has {judged.classes}: not one model's")
    same = fit_on.logits.shape == judged.logits.shape and bool((fit_on.logits == judged.logits).all())
    if same or (fit_on.split and fit_on.split == judged.split):
        why = "they hold the same logits" if same else f"both say split={fit_on.split!r}"
        warn(f"{val} and {test} may be the same samples ({why}): after fitting on them, their numbers are too good")
    elif fit_on.ids is not None and judged.ids is not None:
        shared = len(set(fit_on.ids.astype(str)) & set(judged.ids.astype(str)))
        if shared:
            warn(f"{shared} samples of {test} were fitted on (their ids are in {val} too): its numbers are too good")
