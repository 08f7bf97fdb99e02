"""The metrics once more, slowly, in NumPy, from their formulas. Imports nothing from calgrad."""

from __future__ import annotations

from itertools import pairwise

import numpy as np


def softmax(logits):
    z = np.asarray(logits, dtype=np.float64)
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def top(probs, labels):
    prediction = probs.argmax(axis=1)
    return probs[np.arange(len(probs)), prediction], prediction == labels


def accuracy(probs, labels):
    return sum(int(np.argmax(p) == y) for p, y in zip(probs, labels)) / len(labels)


def nll(probs, labels):
    return -np.mean([np.log(p[y]) for p, y in zip(probs, labels)])


def generalised_brier(probs, labels, gamma, beta):
    total = 0.0
    for p, y in zip(probs, labels):
        error = np.array(p, dtype=np.float64)
        error[y] -= 1
        norm = np.abs(error).max() if np.isinf(beta) else (np.abs(error) ** beta).sum() ** (1 / beta)
        total += norm**gamma
    return total / len(labels)


def brier(probs, labels):
    return sum(
        sum((p[k] - (k == y)) ** 2 for k in range(len(p))) for p, y in zip(np.asarray(probs, dtype=np.float64), labels)
    ) / len(labels)


def edges(bins, dtype):
    return np.array([i / bins for i in range(bins + 1)]).astype(dtype)


def gaps(confidence, is_correct, members):
    """(count, mean confidence, accuracy) of each non-empty group."""
    found = []
    for inside in members:
        if inside.any():
            found.append((inside.sum(), confidence[inside].astype(np.float64).mean(), is_correct[inside].mean()))
    return found


def combine(found, n, norm):
    if norm == "l1":
        return sum(count / n * abs(c - a) for count, c, a in found)
    if norm == "l2":
        return np.sqrt(sum(count / n * (c - a) ** 2 for count, c, a in found))
    return max(abs(c - a) for count, c, a in found)


def ece(confidence, is_correct, bins=15, norm="l1"):
    """Equal width, (lo, hi], 0 in the first bin."""
    cut = edges(bins, confidence.dtype)
    members = []
    for i in range(bins):
        inside = (confidence > cut[i]) & (confidence <= cut[i + 1])
        members.append(inside | (confidence <= 0) if i == 0 else inside)
    return combine(gaps(confidence, is_correct, members), len(confidence), norm)


def published_adaptive_ece(confidence, is_correct, bins=15):
    """The loop of the published code: interpolated order statistics, and (lo, hi] from the smallest confidence on."""
    n = len(confidence)
    cut = np.interp(np.linspace(0, n, bins + 1), np.arange(n), np.sort(confidence)).astype(confidence.dtype)
    members = [(confidence > lo) & (confidence <= hi) for lo, hi in pairwise(cut)]
    return combine(gaps(confidence, is_correct, members), n, "l1")


def classwise_ece(probs, labels, bins=15, prevalence=False):
    by_class = np.array([ece(probs[:, k], labels == k, bins) for k in range(probs.shape[1])])
    if prevalence:
        return (by_class * np.bincount(labels, minlength=probs.shape[1])).sum() / len(labels)
    return by_class.mean()


def debiased_square(confidence, is_correct, bins=15):
    cut = edges(bins, confidence.dtype)
    total = 0.0
    for i in range(bins):
        inside = (confidence > cut[i]) & (confidence <= cut[i + 1])
        m = inside.sum()
        if m >= 2:
            a = is_correct[inside].mean()
            total += m * ((confidence[inside].astype(np.float64).mean() - a) ** 2 - a * (1 - a) / (m - 1))
    return total / len(confidence)


def sweep_ece(confidence, is_correct):
    """Equal-mass bins, one more at a time, as long as the accuracies rise. Needs distinct confidences."""
    order = np.argsort(confidence)
    c, a = confidence[order].astype(np.float64), is_correct[order].astype(np.float64)
    n, best = len(c), None
    for bins in range(1, n + 1):
        cut = [int(np.ceil(j * n / bins - 1e-9)) for j in range(bins + 1)]
        found = [(j - i, c[i:j].mean(), a[i:j].mean()) for i, j in pairwise(cut)]
        if any(later[2] < earlier[2] for earlier, later in pairwise(found)):
            break
        best = found
    return combine(best, n, "l1")


def aurc(confidence, is_correct, rng, orders=2000):
    """Mean over random orders of the ties; exact where there are none."""
    n, total = len(confidence), 0.0
    distinct = len(np.unique(confidence)) == n
    for _ in range(1 if distinct else orders):
        shuffled = rng.permutation(n)
        order = shuffled[np.argsort(-confidence[shuffled], kind="stable")]
        total += (np.cumsum(~is_correct[order]) / np.arange(1, n + 1)).mean()
    return total / (1 if distinct else orders)


def smoothed_error(confidence, is_correct, bandwidth, mesh=4001):
    """smECE at a bandwidth: sum over all mirror images of every sample, integrated on a mesh."""
    t = np.linspace(0, 1, mesh)
    residual = (confidence - is_correct) / len(confidence)
    curve = np.zeros(mesh)
    images = int(np.ceil(5 * bandwidth)) + 1
    for start in range(0, len(confidence), 500):
        c, r = confidence[start : start + 500], residual[start : start + 500]
        for m in range(-images, images + 1):
            for sign in (1, -1):
                curve += np.exp(-0.5 * ((t[:, None] - sign * c - 2 * m) / bandwidth) ** 2) @ r
    curve /= bandwidth * np.sqrt(2 * np.pi)
    return np.trapezoid(np.abs(curve), t)


def null_eces(confidence, draws, rng, bins=15):
    """ECEs with labels drawn from the confidences, sample by sample."""
    index = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    found = []
    for _ in range(draws):
        right = rng.random(len(confidence)) < confidence
        found.append(np.abs(np.bincount(index, confidence - right, bins)).sum() / len(confidence))
    return np.array(found)


def resampled_eces(confidence, is_correct, draws, rng, bins=15):
    """ECEs of test sets drawn with replacement, row by row."""
    index = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    found = []
    for _ in range(draws):
        rows = rng.integers(len(confidence), size=len(confidence))
        gap = np.bincount(index[rows], confidence[rows] - is_correct[rows], bins)
        found.append(np.abs(gap).sum() / len(confidence))
    return np.array(found)
