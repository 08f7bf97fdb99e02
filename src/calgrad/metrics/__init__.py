"""Measures of a classifier's probabilities, with what chance alone would show beside them.

Every function is f(probs, labels) or f(logits=..., labels=...), takes torch tensors on any device, NumPy arrays or
lists, and returns a fraction. `evaluate` returns all of them at once. The torchmetrics modules live in
`calgrad.metrics.streaming`.
"""

from calgrad.metrics.binning import BINNINGS, BinSums, bin_sums, error_of_sums
from calgrad.metrics.calibration import adaptive_ece, classwise_ece, debiased_ece, ece, sweep_ece
from calgrad.metrics.comparison import Comparison, Difference, compare_models
from calgrad.metrics.curve import ReliabilityCurve, reliability
from calgrad.metrics.decomposition import BrierParts, ScoreSplit, brier_parts, calibration_refinement
from calgrad.metrics.evaluation import Evaluation
from calgrad.metrics.inference import CalibrationTest, NoiseFloor, calibration_test, noise_floor
from calgrad.metrics.intervals import Interval, bootstrap
from calgrad.metrics.onepass import Tally, tally
from calgrad.metrics.proper import accuracy, brier, generalised_brier, nll
from calgrad.metrics.selective import aurc
from calgrad.metrics.shards import evaluate_shards
from calgrad.metrics.smooth import smooth_ece
from calgrad.metrics.stream import StreamSums
from calgrad.metrics.summary import evaluate, evaluate_stream, evaluation_of_sums

__all__ = [
    "BINNINGS",
    "BinSums",
    "BrierParts",
    "CalibrationTest",
    "Comparison",
    "Difference",
    "Evaluation",
    "Interval",
    "NoiseFloor",
    "ReliabilityCurve",
    "ScoreSplit",
    "StreamSums",
    "Tally",
    "accuracy",
    "adaptive_ece",
    "aurc",
    "bin_sums",
    "bootstrap",
    "brier",
    "brier_parts",
    "calibration_refinement",
    "calibration_test",
    "classwise_ece",
    "compare_models",
    "debiased_ece",
    "ece",
    "error_of_sums",
    "evaluate",
    "evaluate_shards",
    "evaluate_stream",
    "evaluation_of_sums",
    "generalised_brier",
    "nll",
    "noise_floor",
    "reliability",
    "smooth_ece",
    "sweep_ece",
    "tally",
]
