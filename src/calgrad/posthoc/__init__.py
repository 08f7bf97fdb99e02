"""Post-hoc calibration: repair the probabilities of a trained model with held-out samples."""

from calgrad.posthoc.base import CalibrationWarning, Calibrator, FitReport, NotFittedError
from calgrad.posthoc.module import CalibratedModel
from calgrad.posthoc.named import CALIBRATORS, CalibratorEntry, make_calibrator
from calgrad.posthoc.storage import from_dict, load_calibrator
from calgrad.posthoc.temperature import solve_temperature

__all__ = [
    "CALIBRATORS",
    "CalibratedModel",
    "CalibrationWarning",
    "Calibrator",
    "CalibratorEntry",
    "FitReport",
    "NotFittedError",
    "from_dict",
    "load_calibrator",
    "make_calibrator",
    "solve_temperature",
]
