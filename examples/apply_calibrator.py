"""Apply a calibrator's JSON file with nothing but Python's standard library.

What another language would do, line by line: the formulas of docs/posthoc.md and no dependency.

    python examples/apply_calibrator.py calibrator.json 2.0 -1.0 0.5        # the logits of one sample
"""

from __future__ import annotations

import json
import sys
from bisect import bisect_left
from math import exp, inf, log, log1p


def logsumexp(values):
    top = max(values)
    return top if top == -inf else top + log(sum(exp(value - top) for value in values))


def log_softmax(values):
    total = logsumexp(values)
    return [value - total for value in values]


def log_sigmoid(value):
    return -log1p(exp(-value)) if value > 0 else value - log1p(exp(value))


def calibrate(file, logits):
    """The calibrated probabilities of one sample's logits; `file` is the parsed JSON."""
    return [exp(value) for value in log_softmax(answer(file["method"], file["parameters"], file["options"], logits))]


def answer(method, p, options, z):
    """The column "answer" of the table in docs/posthoc.md: numbers whose softmax is calibrated."""
    if method == "identity":
        return z
    if method in ("temperature", "temperature-ece"):
        return [value / p["temperature"] for value in z]
    if method == "ensemble-temperature":
        tempered = log_softmax([value / p["temperature"] for value in z])
        parts = [tempered, log_softmax(z), [-log(len(z))] * len(z)]
        weights = [log(weight) if weight > 0 else -inf for weight in p["weights"]]
        return [logsumexp([w + part[k] for w, part in zip(weights, parts)]) for k in range(len(z))]
    if method in ("vector", "matrix", "dirichlet", "svs", "sms"):
        return affine(p, features(method, p, z))
    if method in ("link", "link-temperature"):
        return link(options, log_softmax([value / p.get("temperature", 1) for value in z]))
    return one_versus_rest(method, p, z)


def features(method, p, z):
    if method == "dirichlet":
        return log_softmax(z)
    if method in ("svs", "sms"):  # log((1 - u) softmax(z / T) + u / K)
        tempered, u = log_softmax([value / p["temperature"] for value in z]), p["uniform"]
        return [log((1 - u) * exp(value) + u / len(z)) for value in tempered]
    return z


def affine(p, x):
    weight, bias = p["weight"], p["bias"]
    if isinstance(weight[0], list):
        return [sum(w * value for w, value in zip(row, x)) + b for row, b in zip(weight, bias)]
    return [w * value + b for w, value, b in zip(weight, x, bias)]


def one_versus_rest(method, p, z):
    """A binary calibrator for each class (for two classes: for class 1), normalised."""
    classes = range(len(z)) if len(z) > 2 else [1]
    total = logsumexp(z)
    log_q = []
    for c, k in enumerate(classes):
        log_p, log_1mp = z[k] - total, logsumexp([value for j, value in enumerate(z) if j != k]) - total
        log_q.append(binary(method, p, c, log_p, log_1mp))
    if len(z) == 2:
        log_q = [log(max(0.0, 1 - exp(log_q[0]))) if log_q[0] < 0 else -inf, *log_q]
    pseudo = log(p["pseudo"] / len(z)) if p["pseudo"] > 0 else -inf
    mixed = [logsumexp([value, pseudo]) for value in log_q]
    return mixed if max(mixed) > -inf else [0.0] * len(z)


def binary(method, p, c, log_p, log_1mp):
    """Log q of problem number c."""
    s = log_p - log_1mp
    if method == "platt":
        return log_sigmoid(p["slope"][c] * s + p["bias"][c])
    if method == "beta":
        return log_sigmoid(p["a"][c] * log_p - p["b"][c] * log_1mp + p["c"][c])
    if method == "isotonic":
        q = interpolate(p["knots"][c], p["values"][c], s)
    elif method in ("histogram", "bbq"):
        q = p["values"][c][bisect_left(p["edges"][c], s)]
    else:
        raise ValueError(f"unknown method {method!r}")
    return log(q) if q > 0 else -inf


def interpolate(knots, values, s):
    after = min(max(bisect_left(knots, s), 1), len(knots) - 1)
    left, right = knots[after - 1], knots[after]
    part = min(max((s - left) / (right - left), 0.0), 1.0) if right > left else 0.0
    return values[after - 1] + part * (values[after] - values[after - 1])


def link(options, log_p):
    """Log p_k - log u_k, with u_k the weight of a -gra loss if the label were k."""
    given = options["loss_options"]
    p = [exp(value) for value in log_p]
    rest = [sum(value for j, value in enumerate(p) if j != k) for k in range(len(p))]  # 1 - p_k, exactly
    if options["loss"] == "ce":
        return log_p
    if options["loss"] == "focal-gra":
        return [value - given.get("gamma", 3) * log(r) for value, r in zip(log_p, rest)]
    if options["loss"] == "bsce-gra":
        gamma, beta = given.get("gamma", 4), given.get("beta", 2)
        powers = [sum(value**beta for j, value in enumerate(p) if j != k) for k in range(len(p))]
        return [value - gamma / beta * log(r**beta + power) for value, r, power in zip(log_p, rest, powers)]
    raise ValueError(f"the link of {options['loss']!r} is not written here: docs/link.md has the formula")


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as opened:
        print(*calibrate(json.load(opened), [float(value) for value in sys.argv[2:]]))
