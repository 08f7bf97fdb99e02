"""Which loss gives the best calibrated model? From the runs of several losses to one comparison.

Every run is looked at in four views: as trained; after a temperature fitted on its validation set; after the link, which
turns the minimiser of its loss into the posterior it encodes; and after both. A view that a loss does not have (a penalty
that couples samples has no link) is absent, not invented, and `Comparison.notes` says why.
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from calgrad.checks import InputError
from calgrad.metrics import evaluate
from calgrad.posthoc import CalibrationWarning, make_calibrator
from calgrad.predictions import Predictions
from calgrad.report.pooled import POOLED, Estimate, Resampled, holm, pool, pool_difference, resample, resampling_weights

VIEWS = {"as trained": "identity", "temperature": "temperature", "link": "link", "link-temperature": "link-temperature"}
"""What a run is looked at through, and the calibrator that does it."""


@dataclass(frozen=True)
class Candidate:
    """One trained model: the predictions that a repair may see, and those that judge it."""

    loss: str
    seed: int
    module: nn.Module
    val: Predictions
    test: Predictions


@dataclass(frozen=True)
class View:
    """One model in one view: what it says about the test set."""

    loss: str
    seed: int
    view: str
    temperature: float | None
    log_probs: Tensor


@dataclass(frozen=True)
class Measured(View):
    """The same with every metric, on the test set and on resampled ones."""

    metrics: dict[str, float]
    resampled: Resampled


@dataclass(frozen=True)
class Row:
    """One loss in one view, pooled over seeds; `against` holds the paired differences to the baseline in that view."""

    loss: str
    view: str
    seeds: int
    temperature: float | None
    pooled: dict[str, Estimate]
    means: dict[str, float]
    against: dict[str, Estimate]


@dataclass(frozen=True)
class Comparison:
    """The rows of a comparison, and the single runs behind them."""

    baseline: str
    samples: int
    rows: list[Row]
    runs: list[dict[str, Any]]
    notes: list[str]

    def row(self, loss: str, view: str = "as trained") -> Row:
        """The row of a loss in a view."""
        for row in self.rows:
            if (row.loss, row.view) == (loss, view):
                return row
        raise InputError(f"no row for loss {loss!r} in view {view!r}")

    def is_best(self, row: Row, metric: str, *, level: float = 0.05) -> bool:
        """Best of its view, and significantly so.

        A loss must beat the baseline with an adjusted p-value below `level`; the baseline must beat every other. Rows
        that cannot be paired with the baseline (an ensemble) take no part.
        """
        sign = -1 if metric == "accuracy" else 1
        rivals = [o for o in self.rows if o.view == row.view and (o.against or o.loss == self.baseline)]
        if row not in rivals:
            return False
        if any(sign * other.pooled[metric].value < sign * row.pooled[metric].value for other in rivals):
            return False
        judged = rivals if row.loss == self.baseline else [row]
        tests = [other.against[metric] for other in judged if metric in other.against]
        return bool(tests) and all(t.p_value is not None and t.p_value < level for t in tests)

    def to_dict(self) -> dict[str, Any]:
        """Plain Python, for JSON."""
        return {
            "baseline": self.baseline,
            "samples": self.samples,
            "rows": [asdict(row) for row in self.rows],
            "runs": self.runs,
            "notes": self.notes,
        }


def compare(
    candidates: Sequence[Candidate], *, baseline: str = "ce", ensemble: bool = False, seed: int = 0
) -> Comparison:
    """Judge every candidate in every view, pool over seeds, and test each loss against the baseline.

    Args:
        candidates: one a run; all on the same test samples in the same order.
        baseline: the loss the others are tested against; the first one where it is not among the candidates.
        ensemble: add a row a loss whose prediction is the mean of its seeds' probabilities.
        seed: of the resampled test sets.
    """
    _same_test_set(candidates)
    losses = list(dict.fromkeys(c.loss for c in candidates))
    baseline = baseline if baseline in losses else losses[0]
    notes: dict[str, None] = {}  # an ordered set
    seen = [view for c in candidates for view in views_of(c, say=notes.setdefault)]
    if ensemble:
        seen += ensembles(seen)
    labels = candidates[0].test.labels
    weights = resampling_weights(len(labels), seed=seed)
    views = [measure(view, labels, weights) for view in seen]
    samples = candidates[0].test.n
    rows = []
    for name in VIEWS:
        rows += _rows_of_view(name, [v for v in views if v.view == name], baseline, samples)
    runs = [
        {"loss": v.loss, "seed": v.seed, "view": v.view, "temperature": v.temperature} | v.metrics for v in views
    ]  # fmt: skip
    return Comparison(baseline, samples, rows, runs, list(notes))


def views_of(candidate: Candidate, *, say: Callable[[str], Any]) -> list[View]:
    """A candidate in each view it has; `say` hears why it lacks one."""
    views = []
    for view, method in VIEWS.items():
        options = {"loss": candidate.module} if method.startswith("link") else {}
        try:
            with warnings.catch_warnings():
                # A repair that hurts is a result here: the table shows the NLL of both views.
                warnings.simplefilter("ignore", CalibrationWarning)
                calibrator = make_calibrator(method, **options).fit(candidate.val.logits, candidate.val.labels)
            log_probs = calibrator.log_probs(candidate.test.logits)
        except InputError as error:
            if not options:
                raise
            say(f"{candidate.loss} has no link. {error}")
            continue
        views.append(View(candidate.loss, candidate.seed, view, getattr(calibrator, "temperature", None), log_probs))
    return views


def ensembles(views: Sequence[View]) -> list[View]:
    """The mean of the seeds' probabilities of each loss in each view: members are repaired first, then averaged."""
    members: dict[tuple[str, str], list[Tensor]] = {}
    for view in views:
        members.setdefault((view.loss, view.view), []).append(view.log_probs.double())
    return [
        View(f"{loss} ensemble", 0, name, None, torch.stack(parts).logsumexp(0) - math.log(len(parts)))
        for (loss, name), parts in members.items()
        if len(parts) > 1
    ]


def measure(view: View, labels: Tensor, weights: Tensor) -> Measured:
    """Every metric of a model in a view."""
    found = evaluate(logits=view.log_probs, labels=labels, bootstrap=0)
    metrics = {
        "accuracy": found.accuracy,
        "ece": found.ece,
        "ece_debiased": found.ece_debiased,
        "floor": found.floor.mean,
        "p_calibrated": found.p_value,
        "adaptive_ece": found.adaptive_ece,
        "classwise_ece": found.classwise_ece,
        "nll": found.nll,
        "brier": found.brier,
    }
    return Measured(**vars(view), metrics=metrics, resampled=resample(view.log_probs, labels, weights))


def _rows_of_view(name: str, views: list[Measured], baseline: str, samples: int) -> list[Row]:
    by_loss: dict[str, list[Measured]] = {}
    for view in views:
        by_loss.setdefault(view.loss, []).append(view)
    reference = by_loss.get(baseline)
    tests: dict[tuple[str, str], Estimate] = {}
    if reference is not None:
        for metric in POOLED:
            rivals = [x for x, runs in by_loss.items() if x != baseline and _paired(runs, reference)]
            raw = [pool_difference(_draws(by_loss[x]), _draws(reference), metric, samples=samples) for x in rivals]
            adjusted = holm([r.p_value if r.p_value is not None else 1.0 for r in raw])
            for loss, estimate, p_value in zip(rivals, raw, adjusted, strict=True):
                tests[loss, metric] = Estimate(estimate.value, estimate.low, estimate.high, p_value)
    rows = []
    for loss, runs in by_loss.items():
        temperatures = [v.temperature for v in runs if v.temperature is not None]
        rows.append(
            Row(
                loss=loss,
                view=name,
                seeds=len(runs),
                temperature=statistics.fmean(temperatures) if temperatures else None,
                pooled={m: pool(_draws(runs), m, samples=samples) for m in POOLED},
                means={m: statistics.fmean(v.metrics[m] for v in runs) for m in runs[0].metrics},
                against={m: tests[loss, m] for m in POOLED if (loss, m) in tests},
            )
        )
    return rows


def _paired(runs: list[Measured], reference: list[Measured]) -> bool:
    return [v.seed for v in runs] == [v.seed for v in reference]


def _draws(views: list[Measured]) -> list[Resampled]:
    return [v.resampled for v in views]


def _same_test_set(candidates: Sequence[Candidate]) -> None:
    if not candidates:
        raise InputError("nothing to compare: no run was given")
    first = candidates[0].test
    for other in candidates[1:]:
        if other.test.n != first.n or not torch.equal(other.test.labels, first.labels):
            raise InputError(
                f"runs can be compared only on the same test samples in the same order; {other.loss} with seed {other.seed} "
                f"has other labels than {candidates[0].loss} with seed {candidates[0].seed}"
            )
