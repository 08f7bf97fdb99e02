"""A number with an interval over seeds *and* test samples.

A trained model's ECE is uncertain twice: another seed gives another model, another test set another estimate. Runs of one
loss share their test set, so the two parts are crossed and their variances add:

    SE^2 = SD(over seeds)^2 / S  +  Var(over resampled test sets of the mean over seeds)

The interval is estimate +- t SE with Welch and Satterthwaite's degrees of freedom, so three seeds that disagree give the
wide interval that three seeds deserve. The same resampled test sets serve every run, which makes differences between
losses paired: what is easy or hard about a test set cancels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from calgrad.metrics.binning import bin_edges, bin_index, top_label
from calgrad.metrics.proper import brier_rows

POOLED = ("accuracy", "ece", "nll", "brier")
"""The metrics that carry an interval and a test."""


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval, or a difference with its p-value as well."""

    value: float
    low: float
    high: float
    p_value: float | None = None


@dataclass(frozen=True)
class Resampled:
    """One model's metrics on its test set, and on each of B resampled ones: `value[m]` and `draws[m]` of shape (B,)."""

    value: dict[str, float]
    draws: dict[str, Tensor]


def resampling_weights(n: int, *, draws: int = 400, seed: int = 0) -> Tensor:
    """(B, N) weights, each row how often a bootstrap test set holds each sample, over N; rows sum to one."""
    generator = torch.Generator().manual_seed(seed)
    picks = torch.randint(0, n, (draws, n), generator=generator)
    counts = torch.zeros(draws, n).scatter_add_(1, picks, torch.ones(1).expand(draws, n))
    return counts / n


def resample(log_probs: Tensor, labels: Tensor, weights: Tensor, *, bins: int = 15) -> Resampled:
    """Every pooled metric of one model under every row of `weights`, as one matrix product."""
    log_probs = log_probs.double()
    probs = log_probs.exp()
    confidence, is_correct = top_label(probs, labels)
    index = bin_index(confidence, bin_edges(confidence, bins=bins))
    gap = torch.zeros(len(labels), bins, dtype=torch.float64)
    gap[torch.arange(len(labels)), index] = confidence - is_correct.double()
    nll = -log_probs.gather(1, labels[:, None]).squeeze(1)
    columns = (is_correct.double(), nll, brier_rows(probs, labels))
    per_sample = torch.cat([torch.stack(columns, dim=1), gap], dim=1)

    def metrics(sums: Tensor) -> dict[str, Tensor]:
        return {"accuracy": sums[:, 0], "nll": sums[:, 1], "brier": sums[:, 2], "ece": sums[:, 3:].abs().sum(1)}

    whole = metrics(per_sample.mean(0, keepdim=True))
    return Resampled({name: float(x) for name, x in whole.items()}, metrics(weights.double() @ per_sample))


def pool(runs: list[Resampled], metric: str, *, samples: int) -> Estimate:
    """Mean over the seeds of one loss, with its interval."""
    values = torch.tensor([run.value[metric] for run in runs], dtype=torch.float64)
    draws = torch.stack([run.draws[metric] for run in runs])
    return _interval(values, draws, samples, test=False)


def pool_difference(runs: list[Resampled], baseline: list[Resampled], metric: str, *, samples: int) -> Estimate:
    """Mean over seeds of (loss - baseline), paired by seed and by sample, with interval and two-sided p-value."""
    pairs = list(zip(runs, baseline, strict=True))
    values = torch.tensor([a.value[metric] - b.value[metric] for a, b in pairs], dtype=torch.float64)
    draws = torch.stack([a.draws[metric] - b.draws[metric] for a, b in pairs])
    return _interval(values, draws, samples, test=True)


def holm(p_values: list[float]) -> list[float]:
    """Holm's step-down adjustment: the family-wise error stays at the level, however many comparisons there are."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, running = [1.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = running
    return adjusted


def _interval(values: Tensor, draws: Tensor, samples: int, *, test: bool) -> Estimate:
    from scipy.stats import t as student

    seeds = len(values)
    mean = float(values.mean())
    by_sample = float(draws.mean(0).var())
    by_seed = float(values.var()) / seeds if seeds > 1 else 0.0
    variance = by_sample + by_seed
    if variance == 0:
        return Estimate(mean, mean, mean, (1.0 if mean == 0 else 0.0) if test else None)
    freedom = variance**2 / (by_sample**2 / max(samples - 1, 1) + (by_seed**2 / (seeds - 1) if seeds > 1 else 0.0))
    error = math.sqrt(variance)
    half = float(student.ppf(0.975, freedom)) * error
    p_value = 2 * float(student.sf(abs(mean) / error, freedom)) if test else None
    low = mean - half if test else max(0.0, mean - half)
    return Estimate(mean, low, mean + half, p_value)
