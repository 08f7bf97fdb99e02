"""Is one model better than another on the same samples, or was it luck?

Two models that answer the same samples make mostly the same mistakes, so their *difference* is known far better than
either number. Each test here works on pairs:

- accuracy: McNemar's exact test on the samples that one has right and the other wrong;
- NLL, Brier: the mean of the per-sample differences; its p-value by flipping their signs at random up to 20,000
samples,
  by its normal limit beyond;
- ECE: a paired bootstrap. A sample enters through four small facts (its two bins and whether each answer was right), so
  a resampled test set is one multinomial draw over the combinations that occur. ECE's upward bias is nearly the same
  for both and mostly cancels in the difference.

All of it is about the choice of test samples. Whether a training *method* is better needs several runs of each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calgrad.checks import ArrayLike, InputError, positive_int, probs_and_labels
from calgrad.metrics.binning import right_index, top_label
from calgrad.metrics.inference import add_up, errors_of_differences
from calgrad.metrics.intervals import check_level, normal_quantile
from calgrad.metrics.proper import brier_rows, nll_rows

MOST_FLIPPED = 20_000
"""Up to so many samples the sign-flip test is drawn; beyond, its normal limit is closer than the draws would be."""


@dataclass(frozen=True)
class Difference:
    """One metric of two models: both values, a - b with its interval, and the p-value of "they are equal"."""

    metric: str
    a: float
    b: float
    difference: float
    low: float
    high: float
    p_value: float
    test: str


@dataclass(frozen=True)
class Comparison:
    """What `compare_models` found, metric by metric; prints as a table in percent (NLL in nats)."""

    n: int
    level: float
    accuracy: Difference
    nll: Difference
    brier: Difference
    ece: Difference

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        rows = (self.accuracy, self.nll, self.brier, self.ece)
        return {"n": self.n, "level": self.level, **{row.metric: dict(vars(row)) for row in rows}}

    def __str__(self) -> str:
        head = f"{'':9}{'a':>10}{'b':>10}{'a - b':>10}   {100 * self.level:g} % interval      p"
        lines = [f"Two models on the same {self.n:,} samples", head]
        for row in (self.accuracy, self.nll, self.brier, self.ece):
            scale, digits = (1, 4) if row.metric == "nll" else (100, 2)
            a, b, difference, low, high = (
                f"{scale * x:.{digits}f}" for x in (row.a, row.b, row.difference, row.low, row.high)
            )
            lines.append(f"{row.metric:9}{a:>10}{b:>10}{difference:>10}   [{low}, {high}]  {row.p_value:.3g}")
        return "\n".join(lines)


def compare_models(
    a: Any = None,
    b: Any = None,
    *,
    logits: tuple[ArrayLike, ArrayLike] | None = None,
    probs: tuple[ArrayLike, ArrayLike] | None = None,
    labels: ArrayLike | None = None,
    bins: int = 15,
    draws: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Compare two models on the same samples, in accuracy, NLL, Brier score and ECE.

    Args:
        a: predictions of the first model, with `.logits` and `.labels`; or pass `logits` or `probs`, and `labels`.
        b: predictions of the second model on the same samples in the same order.
        logits: the pair of (N, K) logits instead of `a` and `b`.
        probs: the pair of (N, K) probabilities instead.
        labels: (N,) class indices, with `logits` or `probs`.
        bins: equal-width bins of the ECE.
        draws: of the bootstrap and of the sign flips.
        level: the coverage of the intervals.
        seed: of the draws.

    Example:
        >>> import torch
        >>> from calgrad.metrics import compare_models
        >>> logits = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
        >>> result = compare_models(logits=(logits, 9 * logits), labels=logits.argmax(1))
        >>> result.accuracy.difference, result.nll.p_value < 0.01
        (0.0, True)
    """
    positive_int("draws", draws)
    positive_int("bins", bins)
    check_level(level)
    logits, probs, labels = _pair(a, b, logits, probs, labels)
    sides = []
    for side in (0, 1):
        given = None if logits is None else logits[side]
        checked, indices = probs_and_labels(None if probs is None else probs[side], labels, given)
        rows = nll_rows(None, indices, logits=given) if given is not None else nll_rows(checked, indices)
        sides.append((*top_label(checked, indices), rows.double().cpu(), brier_rows(checked, indices).double().cpu()))
    (f_a, right_a, nll_a, brier_a), (f_b, right_b, nll_b, brier_b) = sides
    if len(f_a) != len(f_b):
        raise InputError(f"both models must have answered the same samples, got {len(f_a)} and {len(f_b)} rows")
    z, generator = normal_quantile(level), np.random.default_rng(seed)
    return Comparison(
        len(f_a),
        level,
        mcnemar(right_a.cpu(), right_b.cpu(), z=z),
        mean_difference("nll", nll_a, nll_b, z=z, draws=draws, generator=generator),
        mean_difference("brier", brier_a, brier_b, z=z, draws=draws, generator=generator),
        ece_difference(
            (f_a.cpu(), right_a.cpu()),
            (f_b.cpu(), right_b.cpu()),
            bins=bins,
            draws=draws,
            level=level,
            generator=generator,
        ),
    )


def mcnemar(right_a: Tensor, right_b: Tensor, *, z: float) -> Difference:
    """McNemar's exact test: among samples that only one model has right, each is equally likely to be that one."""
    only_a, only_b, n = int((right_a & ~right_b).sum()), int((~right_a & right_b).sum()), len(right_a)
    differ = only_a + only_b
    k = np.arange(min(only_a, only_b) + 1)
    log_choose = np.array([math.lgamma(differ + 1) - math.lgamma(i + 1) - math.lgamma(differ - i + 1) for i in k])
    p_value = min(1.0, 2 * float(np.exp(log_choose - differ * math.log(2)).sum()))
    difference = (only_a - only_b) / n
    half = z * math.sqrt(max(differ / n - difference**2, 0) / n)
    a, b = float(right_a.double().mean()), float(right_b.double().mean())
    return Difference("accuracy", a, b, difference, difference - half, difference + half, p_value, "McNemar, exact")


def mean_difference(
    metric: str, a: Tensor, b: Tensor, *, z: float, draws: int, generator: np.random.Generator
) -> Difference:
    """The paired difference of two means of per-sample values."""
    each = (a - b).numpy()
    n, difference = len(each), float(each.mean())
    spread = float(each.std()) / math.sqrt(max(n - 1, 1))
    if n <= MOST_FLIPPED:
        reached, size = 0, abs(each.sum()) * (1 - 1e-12)
        step = max(1, 2**22 // n)
        for start in range(0, draws, step):
            signs = 2.0 * generator.integers(0, 2, (min(step, draws - start), n), dtype=np.int8) - 1
            reached += int((np.abs(signs @ each) >= size).sum())
        p_value, test = (1 + reached) / (1 + draws), "sign flips"
    else:
        p_value, test = (math.erfc(abs(difference) / spread / math.sqrt(2)) if spread else 1.0), "paired normal"
    low, high = difference - z * spread, difference + z * spread
    return Difference(metric, float(a.mean()), float(b.mean()), difference, low, high, p_value, test)


def ece_difference(
    a: tuple[Tensor, Tensor],
    b: tuple[Tensor, Tensor],
    *,
    bins: int,
    draws: int,
    level: float,
    generator: np.random.Generator,
) -> Difference:
    """The paired bootstrap of the difference of two l1 ECEs, each model given as (confidence, is_correct).

    Basic interval: the resampled differences' deviations from the one seen, reflected. The p-value asks how often such
    a deviation is at least as large as the difference itself.
    """
    codes = [2 * right_index(f, bins).long() + right for f, right in (a, b)]
    _, pair, count = torch.unique(codes[0] * 2 * bins + codes[1], return_inverse=True, return_counts=True)
    size = count.numpy()
    times = generator.multinomial(len(pair), size / size.sum(), size=draws)
    seen, resampled = [], []
    for code, (f, right) in zip(codes, (a, b)):
        residual = torch.bincount(pair, weights=f.double() - right.double(), minlength=len(size)).numpy() / size
        where = np.zeros(len(size), dtype=np.int64)
        where[pair.numpy()] = (code // 2).numpy()
        seen.append(float(np.abs(np.bincount(where, weights=residual * size)).sum() / len(f)))
        resampled.append(errors_of_differences(add_up(times * residual, where, bins), add_up(times, where, bins)))
    difference = seen[0] - seen[1]
    deviation = resampled[0] - resampled[1] - difference
    low, high = np.quantile(deviation, [(1 - level) / 2, (1 + level) / 2])
    reached = int((np.abs(deviation - deviation.mean()) >= abs(difference) * (1 - 1e-12)).sum())
    p_value = (1 + reached) / (1 + draws)
    ends = difference - float(high), difference - float(low)
    return Difference("ece", seen[0], seen[1], difference, *ends, p_value, "paired bootstrap")


def _pair(a: Any, b: Any, logits: Any, probs: Any, labels: Any) -> tuple[Any, Any, Any]:
    """The pair of logits or probs and the labels, from whichever way they were given."""
    if (a is None) != (b is None) or sum(x is not None for x in (a, logits, probs)) != 1:
        raise InputError("pass two predictions (a, b), or logits=(..., ...), or probs=(..., ...), with labels")
    if a is None:
        return logits, probs, labels
    if not torch.equal(torch.as_tensor(a.labels), torch.as_tensor(b.labels)):
        raise InputError("`a` and `b` must be predictions for the same samples in the same order; their labels differ")
    return (a.logits, b.logits), None, a.labels
