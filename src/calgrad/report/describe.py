"""All that the page says about one model, as plain lists and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from calgrad.metrics import Evaluation, evaluate, noise_floor
from calgrad.posthoc import CALIBRATORS
from calgrad.report.cells import BIN_COUNTS, SCHEMES, make_cells, rounded
from calgrad.report.coverage import curve_of
from calgrad.report.gradients import gradient_trend, read_gradients
from calgrad.report.images import Images
from calgrad.report.mistakes import class_rows, surest_mistakes
from calgrad.report.repairs import METHODS, Repair, code_for, compare_repairs
from calgrad.report.smooth_curve import smooth_curve
from calgrad.report.sources import Model
from calgrad.report.verdict import judge

FLOOR_DRAWS = 300
SMALLEST_CLASS = 10


def describe_model(
    model: Model, *, images: Images | None = None, methods: Sequence[str] = METHODS, classes: int = 40, seed: int = 0
) -> dict[str, Any]:
    """All that the page says about one model."""
    test = model.test
    probs = test.probs
    confidence, prediction = probs.max(dim=1)
    is_correct = prediction == test.labels
    evaluation = evaluate(logits=test.logits, labels=test.labels, seed=seed)
    rows = class_rows(test, probs)
    whole = _part("all", "all samples", confidence, is_correct, evaluation)
    parts = [whole]
    for row in [r for r in rows if r["n"] >= SMALLEST_CLASS][:classes]:
        chosen = prediction == int(row["key"].removeprefix("class-"))
        parts.append(_part(row["key"], f"predicted: {row['name']}", confidence[chosen], is_correct[chosen], None))
    coverage = curve_of(confidence, is_correct, area=evaluation.aurc).thinned(120)
    return {
        "name": model.name,
        "n": test.n,
        "classes": test.classes,
        "verdict": judge(evaluation, confidence, is_correct).to_dict(),
        "numbers": numbers_of(evaluation),
        "parts": parts,
        "class_rows": rows,
        "mistakes": surest_mistakes(test, probs, images=images),
        "coverage": {
            "x": [round(x, 4) for x in coverage.coverage.tolist()],
            "y": [round(x, 5) for x in coverage.risk.tolist()],
        },
        "repairs": _repairs(model, methods, seed) if methods else None,
        "gradients": _gradients(model),
        "against": None,
    }


def numbers_of(evaluation: Evaluation) -> dict[str, Any]:
    """Every metric as value, low and high (None where it has no interval)."""

    def number(metric: str, value: float) -> dict[str, float | None]:
        interval = evaluation.intervals.get(metric)
        low, high = (interval.low, interval.high) if interval else (None, None)
        return {"value": value, "low": low, "high": high}

    names = ("accuracy", "confidence", "ece", "nll", "brier", "adaptive_ece", "classwise_ece", "smooth_ece", "aurc")
    return {name: number(name, getattr(evaluation, name)) for name in names} | {
        "floor": {"mean": evaluation.floor.mean, "high": evaluation.floor.high},
        "p_value": evaluation.p_value,
    }


# ---------------------------------------------------------------------------------------------------------------- pieces


def _part(key: str, name: str, confidence: Tensor, is_correct: Tensor, evaluation: Evaluation | None) -> dict[str, Any]:
    """The diagrams of some samples; the floors of all settings where an evaluation of them is at hand."""
    cells = {scheme: make_cells(confidence, is_correct, scheme=scheme).to_dict() for scheme in SCHEMES}
    width = {name: values for name, values in cells["width"].items() if name not in ("edges", "cuts")}
    curve = smooth_curve(confidence, is_correct, bandwidth=None if evaluation else 0.05)
    lines = {
        n: rounded(torch.from_numpy(getattr(curve, n)), 4) for n in ("right", "low", "high", "band_low", "band_high")
    }
    smooth = {"x": rounded(torch.from_numpy(curve.says), 4), "y": lines.pop("right"), "error": curve.error, **lines}
    part = {"key": key, "name": name, "width": width, "mass": cells["mass"], "smooth": smooth}
    if evaluation is not None:
        part["floors"] = {
            scheme: {
                str(b): noise_floor(confidence=confidence, bins=b, binning=binning, draws=FLOOR_DRAWS).mean
                for b in BIN_COUNTS
            }
            for scheme, binning in SCHEMES.items()
        }
        part["floors"]["width"][str(evaluation.bins)] = evaluation.floor.mean  # type: ignore[index]
    return part


def shared_cells() -> dict[str, Any]:
    """Edges and cuts of the equal-width cells, the same for every model."""
    cells = make_cells(torch.tensor([0.5], dtype=torch.float64), torch.tensor([True]), scheme="width").to_dict()
    return {name: cells[name] for name in ("edges", "cuts")}


def _repairs(model: Model, methods: Sequence[str], seed: int) -> dict[str, Any]:
    found = compare_repairs(model, methods=methods, seed=seed)
    shown = {r.method: r for r in (found.identity, found.best)}
    shown |= {
        r.method: r for r in found.rows if r.method == "temperature" or (r.method == "link" and r is not found.best)
    }

    def curve(repair: Repair) -> dict[str, Any]:
        confidence, prediction = repair.log_probs.exp().max(dim=1)
        part = _part(repair.method, repair.method, confidence, prediction == found.labels, repair.evaluation)
        return part | {"title": "As it is" if repair.method == "identity" else f"After {repair.method}"}

    def row(repair: Repair) -> dict[str, Any]:
        e = repair.evaluation
        change = None
        if repair.against is not None:
            nll = repair.against.nll
            change = {"value": nll.difference, "low": nll.low, "high": nll.high, "p_value": repair.p_nll}
        return {
            "name": repair.method if repair.method != "identity" else "nothing",
            "detail": repair.detail,
            "best": repair is found.best,
            **{m: numbers_of(e)[m] for m in ("ece", "nll", "brier", "accuracy")},
            "floor": e.floor.mean,
            "floor_high": e.floor.high,
            "p_calibrated": e.p_value,
            "change": change,
        }

    method = found.best.method
    return {
        "how": found.how,
        "headline": _repair_headline(found.identity, found.best),
        "rows": [row(r) for r in found.rows],
        "code": code_for(method, model.loss),
        "code_title": "Nothing to apply:" if method == "identity" else f"To apply {method}:",
        "curves": [curve(r) for r in shown.values()],
        "notes": [f"{r.method}: {r.note}" for r in found.rows if r.note] + [f"left out: {s}" for s in found.skipped],
    }


def _repair_headline(before: Repair, best: Repair) -> str:
    a, b = before.evaluation, best.evaluation
    if best is before:
        return "Nothing needs to be done: no method has an NLL that a test can tell from that of the model as it is."
    lost = best.against.accuracy if best.against is not None else None
    accuracy = (
        "keeps the accuracy"
        if lost is None or lost.difference == 0
        else f"changes the accuracy by {100 * lost.difference:+.2f} points"
    )
    what = CALIBRATORS[best.method].summary.split(".")[0]
    calibrated = " After it no test can tell the model from calibrated." if b.p_value >= 0.05 else ""
    return (
        f"{best.method} ({what}) takes the ECE from {100 * a.ece:.2f} % to {100 * b.ece:.2f} % and the NLL from {a.nll:.4f} to "
        f"{b.nll:.4f}, and {accuracy}. It is the simplest method whose NLL no test can tell from the lowest.{calibrated}"
    )


def _gradients(model: Model) -> dict[str, Any] | None:
    if model.folder is None:
        return None
    series = []
    for path in sorted(model.folder.glob("gradients-epoch-*.npz")):
        trend = gradient_trend(read_gradients(path))
        epoch = int(path.stem.rsplit("-", 1)[1])
        series.append(
            {
                "name": f"epoch {epoch} (Spearman {trend.correlation:.2f})",
                "x": trend.brier.tolist(),
                "y": trend.median.tolist(),
            }
        )
    caption = (
        "Median norm of the last layer's gradient in groups of training samples with rising Brier score. A rising line: "
        "the loss pulls hardest where the model is most wrong."
    )
    return {"series": series, "caption": caption} if series else None
