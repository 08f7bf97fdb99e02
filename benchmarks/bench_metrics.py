"""The whole `evaluate` against one peer metric, and classwise ECE against a loop and the fastest peers.

    python benchmarks/bench_metrics.py --record

Promises: `evaluate` without bootstrap costs at most 3x torchmetrics' ECE alone on the same logits; classwise ECE is at
least 10x faster than a loop over classes and 3x faster than the best peer installed.
"""

from __future__ import annotations

import itertools

import numpy as np
import torch
from common import Report, arguments, interleaved, logits_and_labels

import calgrad
from calgrad import metrics

SHAPES = [(1_000_000, 10), (50_000, 1000)]


def classwise_loop(probs: torch.Tensor, labels: torch.Tensor, bins: int = 15) -> float:
    """The published way: for each class, for each bin, a mask."""
    edges = torch.linspace(0, 1, bins + 1)
    total = 0.0
    for k in range(probs.shape[1]):
        confidence, hit = probs[:, k], labels == k
        for low, high in itertools.pairwise(edges):
            inside = (confidence > low) & (confidence <= high)
            share = inside.double().mean()
            if share > 0:
                total += float((confidence[inside].double().mean() - hit[inside].double().mean()).abs() * share)
    return total / probs.shape[1]


def main() -> None:
    options = arguments(__doc__).parse_args()
    torch.set_num_threads(options.threads)
    from torchmetrics.functional.classification import multiclass_calibration_error as torchmetrics_ece

    report = Report("metrics")
    for rows, classes in SHAPES:
        case = f"{rows}x{classes}"
        logits, labels = logits_and_labels(rows, classes)
        probs = logits.softmax(1)

        ours, theirs = metrics.ece(logits=logits, labels=labels), float(torchmetrics_ece(logits, labels, classes))
        assert abs(ours - theirs) < 5e-3, (ours, theirs)  # torchmetrics' float32 sums drift
        full = calgrad.evaluate(logits=logits, labels=labels, bootstrap=0)
        assert abs(full.ece - ours) < 1e-6  # float32: a rounding at a bin's edge may move a sample
        seconds = interleaved(
            {
                "torchmetrics ECE alone": lambda logits=logits, labels=labels, classes=classes: torchmetrics_ece(
                    logits, labels, classes
                ),
                "calgrad evaluate": lambda logits=logits, labels=labels: calgrad.evaluate(
                    logits=logits, labels=labels, bootstrap=0
                ),
                "calgrad ece": lambda logits=logits, labels=labels: metrics.ece(logits=logits, labels=labels),
            },
            repeats=options.repeats,
        )
        for name, value in seconds.items():
            report.add(case, name, value)
        ratio = seconds["calgrad evaluate"] / seconds["torchmetrics ECE alone"]
        report.add(case, "evaluate / torchmetrics ECE", ratio, "ratio")
        report.promise(f"evaluate at most 3x torchmetrics' ECE alone at {case}", ratio <= 3)

        expected = metrics.classwise_ece(probs, labels)
        assert abs(classwise_loop(probs, labels) - expected) < 1e-6
        contenders = {
            "calgrad classwise_ece": lambda probs=probs, labels=labels: metrics.classwise_ece(probs, labels),
            "loop over classes": lambda probs=probs, labels=labels: classwise_loop(probs, labels),
        }
        try:
            from pycalib.metrics import classwise_ECE as pycalib_classwise
        except ImportError:
            print("pycalib is not installed: pip install -c constraints.txt 'calgrad[bench]'")
        else:
            array, targets = probs.numpy().astype(np.float64), labels.numpy()
            contenders["pycalib classwise_ECE"] = lambda array=array, targets=targets: pycalib_classwise(
                targets, array, bins=15
            )
        seconds = interleaved(contenders, repeats=max(1, options.repeats // 3))
        for name, value in seconds.items():
            report.add(case, name, value)
        mine = seconds["calgrad classwise_ece"]
        report.promise(f"classwise 10x faster than a loop at {case}", seconds["loop over classes"] >= 10 * mine)
        if "pycalib classwise_ECE" in seconds:
            report.promise(f"classwise 3x faster than pycalib at {case}", seconds["pycalib classwise_ECE"] >= 3 * mine)
    report.finish(options.record)


if __name__ == "__main__":
    main()
