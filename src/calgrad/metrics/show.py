"""How an `Evaluation` looks: a table in percent for a terminal, the same in HTML for a notebook, and one sentence."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calgrad.metrics.summary import Evaluation


def percent(value: float, digits: int = 2) -> str:
    """A fraction as percent."""
    return f"{100 * value:.{digits}f} %"


def rows_of(evaluation: Evaluation) -> list[tuple[str, str, str]]:
    """The table: (what, how much, what to know about it)."""
    e, floor = evaluation, evaluation.floor
    direction = "over" if e.overconfidence >= 0 else "under"
    about = {name: f"at most {percent(bound, 3)} off" for name, bound in e.approximate.items()}
    return [
        ("Accuracy", percent(e.accuracy), _interval(e, "accuracy")),
        ("Confidence, mean", percent(e.confidence), f"{percent(abs(e.overconfidence))} {direction} accuracy"),
        ("NLL", f"{e.nll:.4f}", _interval(e, "nll")),
        ("Brier", f"{e.brier:.4f}", _interval(e, "brier")),
        (f"ECE, {e.bins} bins", percent(e.ece), _interval(e, "ece")),
        ("  noise floor", percent(floor.mean), f"sd {percent(floor.sd)}, 95 % point {percent(floor.high)}"),
        ("  p of calibrated", p_value(e), "chance of such an ECE if it were calibrated"),
        ("ECE, l2", percent(e.ece_l2), f"debiased {percent(e.ece_debiased)}"),
        ("ECE, largest bin gap", percent(e.ece_max), ""),
        ("Adaptive ECE", percent(e.adaptive_ece), about.get("adaptive_ece", "equal-mass bins")),
        ("Classwise ECE", percent(e.classwise_ece, 3), f"mean over {e.classes} classes"),
        ("Smooth ECE", percent(e.smooth_ece), "no bins"),
        ("AURC", percent(e.aurc, 3), about.get("aurc", "mean error over all coverages")),
    ]


def p_value(evaluation: Evaluation) -> str:
    """The p-value as text, which cannot be finer than one draw."""
    smallest = 1 / (1 + evaluation.floor.draws)
    return f"<= {smallest:.2g}" if evaluation.p_value <= smallest else f"{evaluation.p_value:.3f}"


def verdict(evaluation: Evaluation) -> str:
    """One sentence: is it calibrated, and in which direction is it wrong?"""
    e, floor = evaluation, evaluation.floor
    if e.p_value > 0.05:
        return (
            f"No miscalibration seen: a calibrated model with these confidences shows an ECE of {percent(floor.mean)} "
            f"(sd {percent(floor.sd)}) on {e.n:,} samples, this one {percent(e.ece)}."
        )
    if abs(e.overconfidence) < 0.5 * e.ece:
        how = "Miscalibrated in both directions"
    else:
        how = f"{'Over' if e.overconfidence > 0 else 'Under'}-confident by {percent(abs(e.overconfidence))}"
    times = f", {e.ece / floor.mean:.1f} times the noise floor" if floor.mean > 0 else ""
    return f"{how}: ECE {percent(e.ece)}{times} (p {p_value(e)})."


def as_text(evaluation: Evaluation) -> str:
    """The table for a terminal."""
    rows = rows_of(evaluation)
    widths = [max(len(row[i]) for row in rows) for i in (0, 1)]
    lines = [f"{evaluation.n:,} samples, {evaluation.classes} classes"]
    lines += [f"{name:{widths[0]}}  {value:>{widths[1]}}  {note}".rstrip() for name, value, note in rows]
    return "\n".join([*lines, verdict(evaluation)])


def as_html(evaluation: Evaluation) -> str:
    """The table for a notebook."""
    body = "".join(
        f"<tr><td>{html.escape(name.strip())}</td><td style='text-align:right'>{html.escape(value)}</td>"
        f"<td style='text-align:left'>{html.escape(note)}</td></tr>"
        for name, value, note in rows_of(evaluation)
    )
    title = f"{evaluation.n:,} samples, {evaluation.classes} classes"
    return f"<table><caption>{title}</caption><tbody>{body}</tbody></table><p>{html.escape(verdict(evaluation))}</p>"


def _interval(evaluation: Evaluation, metric: str) -> str:
    interval = evaluation.intervals.get(metric)
    if interval is None:
        return ""
    if metric in ("nll", "brier"):
        return f"{100 * interval.level:g} % interval {interval.low:.4f} to {interval.high:.4f}"
    return f"{100 * interval.level:g} % interval {percent(interval.low)} to {percent(interval.high)}"
