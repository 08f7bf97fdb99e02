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
    from calgrad.data import load_data
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
    from calgrad.models import MODELS, make_model
    from calgrad.posthoc import CALIBRATORS, CalibratedModel, Calibrator, load_calibrator, make_calibrator
    from calgrad.predictions import Predictions
    from calgrad.recipes import load_recipe
    from calgrad.train import Recipe

_HOME = {
    "calgrad.checks": ["CalgradError", "FileError", "InputError"],
    "calgrad.losses": ["LOSSES", "WeightedCE", "make_loss", "posterior"],
    "calgrad.metrics": [
        "Evaluation", "accuracy", "adaptive_ece", "brier", "classwise_ece", "compare_models", "ece", "evaluate", "nll",
        "noise_floor", "smooth_ece",
    ],
    "calgrad.posthoc": ["CALIBRATORS", "CalibratedModel", "Calibrator", "load_calibrator", "make_calibrator"],
    "calgrad.predictions": ["Predictions"],
    "calgrad.data": ["load_data"],
    "calgrad.models": ["MODELS", "make_model"],
    "calgrad.recipes": ["load_recipe"],
    "calgrad.train": ["Recipe"],
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}
_SUBMODULES = (
    "checks",
    "data",
    "integrations",
    "losses",
    "metrics",
    "models",
    "plot",
    "posthoc",
    "predictions",
    "recipes",
    "train",
)

__all__ = [
    "CALIBRATORS",
    "LOSSES",
    "MODELS",
    "CalgradError",
    "CalibratedModel",
    "Calibrator",
    "Evaluation",
    "FileError",
    "InputError",
    "Predictions",
    "Recipe",
    "WeightedCE",
    "__version__",
    "accuracy",
    "adaptive_ece",
    "brier",
    "classwise_ece",
    "compare_models",
    "ece",
    "evaluate",
    "load_calibrator",
    "load_data",
    "load_recipe",
    "make_calibrator",
    "make_loss",
    "make_model",
    "nll",
    "noise_floor",
    "posterior",
    "smooth_ece",
]


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
