"""calgrad: classifiers whose probabilities can be believed.

Swap the loss, measure, repair::

    import calgrad

    loss = calgrad.make_loss("bsce-gra", gamma=4, beta=2)   # instead of nn.CrossEntropyLoss()
    print(calgrad.evaluate(logits=logits, labels=labels))   # ECE with noise floor, interval and test, NLL, Brier, ...
    probs = calgrad.make_calibrator("temperature").fit(val_logits, val_labels)(test_logits)

Nothing is computed and nothing heavy is imported until a name is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from calgrad._version import __version__

if TYPE_CHECKING:
    from calgrad.checks import CalgradError, FileError, InputError
    from calgrad.losses import LOSSES, WeightedCE, make_loss, posterior
    from calgrad.metrics import (
        Evaluation,
        accuracy,
        adaptive_ece,
        brier,
        classwise_ece,
        compare_models,
        ece,
        evaluate,
        nll,
        noise_floor,
        smooth_ece,
    )
    from calgrad.posthoc import CALIBRATORS, CalibratedModel, Calibrator, load_calibrator, make_calibrator
    from calgrad.predictions import Predictions

_HOME = {
    "calgrad.checks": ["CalgradError", "FileError", "InputError"],
    "calgrad.losses": ["LOSSES", "WeightedCE", "make_loss", "posterior"],
    "calgrad.metrics": [
        "Evaluation", "accuracy", "adaptive_ece", "brier", "classwise_ece", "compare_models", "ece", "evaluate", "nll",
        "noise_floor", "smooth_ece",
    ],
    "calgrad.posthoc": ["CALIBRATORS", "CalibratedModel", "Calibrator", "load_calibrator", "make_calibrator"],
    "calgrad.predictions": ["Predictions"],
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}
_SUBMODULES = ("losses", "metrics", "posthoc", "predictions", "checks")

__all__ = ["__version__", *sorted(_MODULE_OF)]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    elif name in _SUBMODULES:
        value = importlib.import_module(f"calgrad.{name}")
    else:
        raise AttributeError(f"module 'calgrad' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_SUBMODULES])
