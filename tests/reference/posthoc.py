"""Post-hoc calibration in slow NumPy, written from the formulas of docs/posthoc.md. Imports nothing from calgrad."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np


def log_softmax(z: np.ndarray) -> np.ndarray:
    z = z - z.max(axis=1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=1, keepdims=True))


def nll(log_probs: np.ndarray, labels: np.ndarray) -> float:
    return -float(np.mean([row[label] for row, label in zip(log_probs, labels)]))


def ece(probs: np.ndarray, labels: np.ndarray, bins: int = 15) -> float:
    """15 right-closed bins of equal width, sample by sample."""
    cells: list[list[tuple[float, bool]]] = [[] for _ in range(bins)]
    for row, label in zip(probs, labels):
        confidence, prediction = row.max(), row.argmax()
        cells[min(max(math.ceil(confidence * bins) - 1, 0), bins - 1)].append((confidence, prediction == label))
    return sum(abs(sum(c for c, _ in cell) - sum(hit for _, hit in cell)) for cell in cells) / len(labels)


def grid_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """All 100 temperatures, the first of least ECE."""
    errors = [ece(np.exp(log_softmax(logits / (step / 10))), labels) for step in range(1, 101)]
    return (int(np.argmin(errors)) + 1) / 10


def log_odds(logits: np.ndarray) -> np.ndarray:
    """s_k = log(p_k / (1 - p_k)), each as a logit minus the log-sum-exp of the others."""
    n, classes = logits.shape
    out = np.empty((n, classes))
    for i in range(n):
        for k in range(classes):
            others = np.delete(logits[i], k)
            top = others.max()
            out[i, k] = logits[i, k] - top - np.log(np.exp(others - top).sum())
    return out if classes > 2 else out[:, 1:]


def pool_adjacent_violators(hits: np.ndarray) -> np.ndarray:
    """Isotonic fit to values that stand in order of their score."""
    blocks: list[list[float]] = []  # [sum, count]
    for hit in hits:
        blocks.append([float(hit), 1.0])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] >= blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += count
    return np.concatenate([np.full(int(count), total / count) for total, count in blocks])


def bbq(score: np.ndarray, hit: np.ndarray, at: np.ndarray, prior: float = 2.0) -> np.ndarray:
    """BBQ of one binary problem with distinct scores, evaluated at `at`: every model kept, bin by bin."""
    order = np.argsort(score)
    score, hit = score[order], hit[order]
    n = len(score)
    root = n ** (1 / 3)
    answers, scores = [], []
    for bins in range(max(1, int(root / 10)), int(10 * root) + 1):
        cuts = sorted({i * n // bins for i in range(1, bins)} - {0, n})
        edges = [(score[c - 1] + score[c]) / 2 for c in cuts]
        bounds = [-np.inf, *edges, np.inf]
        log_score, values = 0.0, []
        for low, high in pairwise(bounds):
            inside = (score > low) & (score <= high)
            count, positive = inside.sum(), hit[inside].sum()
            middle = (1 / (1 + np.exp(-low)) + 1 / (1 + np.exp(-high))) / 2
            strength = prior / (len(bounds) - 1)
            a, b = strength * middle, strength * (1 - middle)
            log_score += math.lgamma(a + b) - math.lgamma(count + a + b) + math.lgamma(positive + a) - math.lgamma(a)
            log_score += math.lgamma(count - positive + b) - math.lgamma(b)
            values.append((positive + a) / (count + a + b))
        scores.append(log_score)
        answers.append([values[sum(x > edge for edge in edges)] for x in at])
    weights = np.exp(np.array(scores) - max(scores))
    return weights @ np.array(answers) / weights.sum()


def apply(document: dict, logits: np.ndarray) -> np.ndarray:
    """Calibrated probs from the JSON of a saved calibrator: the table of docs/posthoc.md, line by line."""
    method, classes = document["method"], document["classes"]
    par = {name: np.array(value) for name, value in document["parameters"].items()}
    z = logits
    if method == "identity":
        out = z
    elif method in ("temperature", "temperature-ece"):
        out = z / par["temperature"]
    elif method == "ensemble-temperature":
        parts = np.stack([z / par["temperature"], z, np.zeros_like(z)])
        out = np.log(sum(w * np.exp(log_softmax(part)) for w, part in zip(par["weights"], parts)))
    elif method == "vector":
        out = par["weight"] * z + par["bias"]
    elif method == "matrix":
        out = z @ par["weight"].T + par["bias"]
    elif method == "dirichlet":
        out = log_softmax(z) @ par["weight"].T + par["bias"]
    elif method in ("svs", "sms"):
        u = par["uniform"]
        x = np.log((1 - u) * np.exp(log_softmax(z / par["temperature"])) + u / classes)
        out = (par["weight"] * x if method == "svs" else x @ par["weight"].T) + par["bias"]
    else:
        out = np.log(one_versus_rest(method, par, z, classes))
    return np.exp(log_softmax(out))


def one_versus_rest(method: str, par: dict[str, np.ndarray], z: np.ndarray, classes: int) -> np.ndarray:
    s = log_odds(z)
    if method == "platt":
        q = 1 / (1 + np.exp(-(par["slope"] * s + par["bias"])))
    elif method == "beta":
        log_p, log_1mp = -np.log1p(np.exp(-s)), -np.log1p(np.exp(s))
        q = 1 / (1 + np.exp(-(par["a"] * log_p - par["b"] * log_1mp + par["c"])))
    elif method == "isotonic":
        q = np.stack([np.interp(s[:, c], par["knots"][c], par["values"][c]) for c in range(s.shape[1])], axis=1)
    else:  # histogram, bbq: the number of edges below s is the index of the bin
        index = (s[:, :, None] > par["edges"][None]).sum(axis=2)
        q = np.stack([par["values"][c][index[:, c]] for c in range(s.shape[1])], axis=1)
    if classes == 2:
        q = np.concatenate([1 - q, q], axis=1)
    e = par["pseudo"]
    return (q + e / classes) / (q.sum(axis=1, keepdims=True) + e)
