"""Which loss gives the best calibrated model? From the runs of several losses to one comparison.

Every run is looked at in four views: as trained; after a temperature fitted on its validation set; after the link, which
turns the minimiser of its loss into the posterior it encodes; and after both. A view that a loss does not have (a penalty
that couples samples has no link) is absent, not invented, and `Comparison.notes` says why.
"""

from __future__ import annotations

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
    """One model in one view: its calibrated log-probabilities on the test set and every metric."""

    loss: str
    seed: int
    view: str
    temperature: float | None
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
    everyone = list(candidates)
    if ensemble:
        for loss in losses:
            members = [c for c in candidates if c.loss == loss]
            if len(members) > 1:
                everyone.append(averaged(members))
    weights = resampling_weights(candidates[0].test.n, seed=seed)
    notes: dict[str, None] = {}  # an ordered set
    views = [view for c in everyone for view in judge(c, weights, say=notes.setdefault)]
    samples = candidates[0].test.n
    rows = []
    for name in VIEWS:
        in_view = [v for v in views if v.view == name]
        rows += _rows_of_view(name, in_view, list(dict.fromkeys(c.loss for c in everyone)), baseline, samples)
    runs = [
        {"loss": v.loss, "seed": v.seed, "view": v.view, "temperature": v.temperature} | v.metrics for v in views
    ]  # fmt: skip
    return Comparison(baseline, samples, rows, runs, list(notes))


def averaged(members: Sequence[Candidate]) -> Candidate:
    """The ensemble of a loss's seeds: the mean of their probabilities, as a candidate of its own."""

    def mean(parts: list[Predictions]) -> Predictions:
        log_probs = torch.stack([p.log_probs.double() for p in parts]).logsumexp(0) - torch.log(
            torch.tensor(len(parts))
        )
        return Predictions(logits=log_probs, labels=parts[0].labels, ids=parts[0].ids, split=parts[0].split)

    first = members[0]
    return Candidate(
        f"{first.loss} ensemble", 0, first.module, mean([m.val for m in members]), mean([m.test for m in members])
    )


def judge(candidate: Candidate, weights: Tensor, *, say: Callable[[str], Any]) -> list[View]:
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
            say(f"{candidate.loss} has no view {view!r}: {error}")
            continue
        evaluation = evaluate(logits=log_probs, labels=candidate.test.labels, bootstrap=0)
        metrics = {
            "accuracy": evaluation.accuracy,
            "ece": evaluation.ece,
            "floor": evaluation.floor.mean,
            "p_calibrated": evaluation.p_value,
            "adaptive_ece": evaluation.adaptive_ece,
            "classwise_ece": evaluation.classwise_ece,
            "nll": evaluation.nll,
            "brier": evaluation.brier,
        }
        resampled = resample(log_probs, candidate.test.labels, weights)
        temperature = getattr(calibrator, "temperature", None)
        views.append(View(candidate.loss, candidate.seed, view, temperature, metrics, resampled))
    return views


def _rows_of_view(name: str, views: list[View], losses: list[str], baseline: str, samples: int) -> list[Row]:
    by_loss = {loss: [v for v in views if v.loss == loss] for loss in losses}
    by_loss = {loss: runs for loss, runs in by_loss.items() if runs}
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


def _paired(runs: list[View], reference: list[View]) -> bool:
    return [v.seed for v in runs] == [v.seed for v in reference]


def _draws(views: list[View]) -> list[Resampled]:
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
