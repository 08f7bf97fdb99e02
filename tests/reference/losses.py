"""The losses once more, slowly, in NumPy loops written from the formulas. Imports nothing from calgrad."""

from __future__ import annotations

import math

import numpy as np


def softmax(row):
    shifted = [math.exp(z - max(row)) for z in row]
    return np.array([value / sum(shifted) for value in shifted])


def rival(p, y):
    below = [p[i] for i in range(len(p)) if p[i] < p[y]]
    return max(below) if below else 0.0


def score(kind, p, y, *, gamma=1.0, beta=2.0):
    """u(p, y) of one sample."""
    if kind == "one":
        return 1.0
    if kind == "focal":
        return (1 - p[y]) ** gamma
    if kind == "flsd53":
        return (1 - p[y]) ** (5 if p[y] < 0.2 else 3)
    if kind == "inverse-focal":
        return (1 + p[y]) ** gamma
    if kind == "dual":
        return (1 - p[y] + rival(p, y)) ** gamma
    if kind == "bsce":
        power_sum = sum(abs(p[i] - (1.0 if i == y else 0.0)) ** beta for i in range(len(p)))
        return power_sum ** (gamma / beta)
    raise KeyError(kind)


def per_sample(kind, logits, labels, **options):
    """(N,): the loss of every sample on its own, without the batch-level ones."""
    values = []
    for row, y in zip(logits, labels):
        p = softmax(row)
        distance = sum((p[i] - (i == y)) ** 2 for i in range(len(p)))
        if kind == "brier":
            values.append(distance)
        elif kind == "mse":
            values.append(distance / len(p))
        elif kind == "label-smoothing":
            eps = options["label_smoothing"]
            values.append(sum(((1 - eps) * (k == y) + eps / len(p)) * -math.log(p[k]) for k in range(len(p))))
        else:
            values.append(score(kind, p, y, **options) * -math.log(p[y]))
    return np.array(values)


def confidence_and_correctness(logits, labels):
    probs = [softmax(row) for row in logits]
    return np.array([p.max() for p in probs]), np.array([float(p.argmax() == y) for p, y in zip(probs, labels)])


def mmce(logits, labels, *, width=0.4):
    r, c = confidence_and_correctness(logits, labels)
    total = 0.0
    for i in range(len(r)):
        for j in range(len(r)):
            total += (c[i] - r[i]) * (c[j] - r[j]) * math.exp(-abs(r[i] - r[j]) / width)
    return math.sqrt(total) / len(r)


def mmce_weighted(logits, labels, *, width=0.4):
    """The three kernel means of [Kumar18], Section 4.2: wrong-wrong, right-right, right-wrong."""
    r, c = confidence_and_correctness(logits, labels)
    right, wrong = np.flatnonzero(c == 1), np.flatnonzero(c == 0)
    k = lambda i, j: math.exp(-abs(r[i] - r[j]) / width)  # noqa: E731
    total = 0.0
    if len(wrong):
        total += np.mean([[r[i] * r[j] * k(i, j) for j in wrong] for i in wrong])
    if len(right):
        total += np.mean([[(1 - r[i]) * (1 - r[j]) * k(i, j) for j in right] for i in right])
    if len(right) and len(wrong):
        total -= 2 * np.mean([[(1 - r[i]) * r[j] * k(i, j) for j in wrong] for i in right])
    return math.sqrt(total)


def soft_ece(logits, labels, *, bins=15, temperature=0.01):
    r, c = confidence_and_correctness(logits, labels)
    centres = [(j + 0.5) / bins for j in range(bins)]
    total = 0.0
    members = np.array([softmax([-((x - centre) ** 2) / temperature for centre in centres]) for x in r])
    for j in range(bins):
        size = members[:, j].sum()
        if size > 0:
            gap = (members[:, j] * c).sum() / size - (members[:, j] * r).sum() / size
            total += size / len(r) * gap**2
    return math.sqrt(total)


def avuc(logits, labels, *, threshold):
    r, c = confidence_and_correctness(logits, labels)
    n = {"AC": 0.0, "AU": 0.0, "IC": 0.0, "IU": 0.0}
    for row, confidence, correct in zip(logits, r, c):
        p = softmax(row)
        h = -sum(x * math.log(x) for x in p)
        if correct:
            n["AC" if h <= threshold else "AU"] += confidence * ((1 - math.tanh(h)) if h <= threshold else math.tanh(h))
        else:
            n["IC" if h <= threshold else "IU"] += (1 - confidence) * (
                (1 - math.tanh(h)) if h <= threshold else math.tanh(h)
            )
    return math.log(1 + (n["AU"] + n["IC"]) / (n["AC"] + n["IU"]))


def entropy_midpoint(logits, labels):
    _, c = confidence_and_correctness(logits, labels)
    h = np.array([-sum(x * math.log(x) for x in softmax(row)) for row in logits])
    return (h[c == 1].mean() + h[c == 0].mean()) / 2


def gap_weights(logits, labels, *, bins=15, floor=0.05):
    r, c = confidence_and_correctness(logits, labels)
    index = [next(b for b in range(bins) if x <= (b + 1) / bins) for x in r]
    gaps = []
    for i in range(len(r)):
        same = [j for j in range(len(r)) if index[j] == index[i]]
        gaps.append(abs(sum(c[j] - r[j] for j in same)) / len(same))
    return (np.array(gaps) + floor) / (np.mean(gaps) + floor)
