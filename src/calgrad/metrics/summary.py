"""`evaluate`: everything about a set of predictions in one object, for little more than one pass over the data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from calgrad.checks import ArrayLike, InputError
from calgrad.metrics.binning import equal_width_edges, error_of_sums, ordered_pairs, sums_of_ordered
from calgrad.metrics.calibration import debiased_square
from calgrad.metrics.curve import curve_of_sums
from calgrad.metrics.decomposition import parts_of_sums
from calgrad.metrics.evaluation import Evaluation
from calgrad.metrics.inference import judge_cells
from calgrad.metrics.intervals import ece_interval, mean_interval, wilson_interval
from calgrad.metrics.onepass import Tally, tally
from calgrad.metrics.selective import aurc_of_cells, aurc_of_ordered
from calgrad.metrics.sketch import equal_mass_sums
from calgrad.metrics.smooth import fixed_point, residual_grid
from calgrad.metrics.stream import StreamSums, sums_of_stream


def evaluate(
    predictions: Any = None,
    *,
    logits: ArrayLike | None = None,
    probs: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    bins: int = 15,
    bootstrap: int = 1000,
    seed: int = 0,
) -> Evaluation:
    """Measure a set of predictions: scores, calibration errors, what chance alone would show, intervals.

    Args:
        predictions: an object with `.logits` and `.labels`, such as `calgrad.Predictions`; or pass the arrays.
        logits: (N, K) logits, with `labels`.
        probs: (N, K) probabilities instead of logits.
        labels: (N,) class indices.
        bins: equal-width (and equal-mass) bins.
        bootstrap: resampled test sets for the interval of the ECE; 0 leaves that interval out.
        seed: of the bootstrap and of the noise floor.

    Example:
        >>> import torch
        >>> from calgrad.metrics import evaluate
        >>> logits = torch.randn(2000, 5, generator=torch.Generator().manual_seed(0))
        >>> result = evaluate(logits=logits, labels=logits.argmax(1))
        >>> result.accuracy, result.overconfidence < 0, result.p_value < 0.01
        (1.0, True, True)
    """
    logits, probs, labels = _arrays(predictions, logits, probs, labels)
    _check_draws(bootstrap)
    found, doubt, is_correct = tally(probs, labels, logits=logits, bins=bins)
    ordered, ordered_correct = ordered_pairs(doubt, is_correct)
    return _evaluation(
        found,
        bootstrap=bootstrap,
        seed=seed,
        adaptive_ece=error_of_sums(sums_of_ordered((1 - ordered).flip(0), ordered_correct.flip(0), bins=bins)),
        aurc=aurc_of_ordered(ordered, ordered_correct),
        smooth_ece=fixed_point(residual_grid(1 - doubt, is_correct) / found.n),
    )


def evaluate_stream(chunks: Iterable[Any], *, bins: int = 15, bootstrap: int = 1000, seed: int = 0) -> Evaluation:
    """`evaluate` for data that does not fit into memory: one pass, state constant in N.

    Everything is as exact as in `evaluate` but adaptive ECE and AURC, which need an order of all samples: they come
    from a fine histogram of the confidences, and `approximate` says how far they can be off, at most.

    Args:
        chunks: objects with `.logits` and `.labels`, such as `Predictions.stream(path)` yields, or (logits, labels)
            pairs.
        bins: as in `evaluate`.
        bootstrap: as in `evaluate`.
        seed: as in `evaluate`.
    """
    _check_draws(bootstrap)
    return evaluation_of_sums(sums_of_stream(chunks, bins=bins), bootstrap=bootstrap, seed=seed)


def evaluation_of_sums(sums: StreamSums, *, bootstrap: int = 1000, seed: int = 0) -> Evaluation:
    """The evaluation that the sums of a stream, or of many streams added up, make."""
    _check_draws(bootstrap)
    found = sums.tally
    masses = (sums.count, sums.confidence, sums.correct)
    equal_mass, adaptive_bound = equal_mass_sums(*masses, bins=found.given.shape[1])
    area, area_bound = aurc_of_cells(sums.ranks.sum(0).numpy(), sums.ranks[1].numpy())
    return _evaluation(
        found,
        bootstrap=bootstrap,
        seed=seed,
        adaptive_ece=error_of_sums(equal_mass),
        aurc=area,
        smooth_ece=fixed_point(sums.residuals / found.n),
        approximate={"adaptive_ece": adaptive_bound, "aurc": area_bound},
    )


def _evaluation(found: Tally, *, bootstrap: int, seed: int, **ranked: Any) -> Evaluation:
    """The evaluation that a tally makes, with the metrics that needed more than it."""
    sums, bins = found.bins, found.given.shape[1]
    test = judge_cells(found.cells, seed=seed)
    accuracy = wilson_interval(found.correct, found.n)
    intervals = {
        "accuracy": accuracy,
        "nll": mean_interval(found.nll.mean, found.nll.variance, found.n),
        "brier": mean_interval(found.brier.mean, found.brier.variance, found.n),
    }
    if bootstrap:
        intervals["ece"] = ece_interval(found.cells, draws=bootstrap, seed=seed)
    return Evaluation(
        n=found.n,
        classes=found.classes,
        bins=bins,
        accuracy=accuracy.value,
        confidence=found.confidence,
        overconfidence=found.confidence - accuracy.value,
        nll=found.nll.mean,
        brier=found.brier.mean,
        ece=error_of_sums(sums),
        ece_l2=error_of_sums(sums, norm="l2"),
        ece_max=error_of_sums(sums, norm="max"),
        ece_debiased=max(0.0, debiased_square(sums)) ** 0.5,
        classwise_ece=found.classwise_ece(),
        parts=parts_of_sums(sums),
        floor=test.floor,
        p_value=test.p_value,
        intervals=intervals,
        curve=curve_of_sums(sums, equal_width_edges(bins).numpy()),
        **ranked,
    )


def _arrays(predictions: Any, logits: Any, probs: Any, labels: Any) -> tuple[Any, Any, Any]:
    if predictions is None:
        return logits, probs, labels
    if any(given is not None for given in (logits, probs, labels)):
        raise InputError("pass either `predictions` or the arrays (`logits=` or `probs=`, with `labels=`), not both")
    if not (hasattr(predictions, "logits") and hasattr(predictions, "labels")):
        raise InputError(
            f"`predictions` must have `.logits` and `.labels`, got {type(predictions).__name__}; arrays are passed by "
            "name: evaluate(logits=..., labels=...) or evaluate(probs=..., labels=...)"
        )
    return predictions.logits, None, predictions.labels


def _check_draws(bootstrap: int) -> None:
    if isinstance(bootstrap, bool) or not isinstance(bootstrap, int) or bootstrap < 0:
        raise InputError(f"`bootstrap` must be a whole number of draws, 0 for none, got {bootstrap!r}")
