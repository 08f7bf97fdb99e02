"""Calibrators as scikit-learn estimators, and calibration metrics as scorers.

Two estimators, for the two places a calibrator can stand. `CalgradCalibrator` works on scores that exist already: its
columns are the classes. `CalibratedClassifier` stands around a classifier that is still to be fitted, and calibrates it
on out-of-fold scores, so that no sample is judged by a classifier that learned from it.

Both take any labels (strings, integers with gaps) and keep scikit-learn's order of them: column k is `classes_[k]`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import check_cv, cross_val_predict
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from calgrad import metrics
from calgrad.checks import InputError, one_of
from calgrad.integrations.sklearn_inputs import as_logits, encoded, log_floor, raised, refuse_small_classes
from calgrad.posthoc import Calibrator, make_calibrator

SPACES = ("logits", "probs")
RESPONSES = ("decision_function", "predict_log_proba", "predict_proba")


class CalgradCalibrator(ClassifierMixin, BaseEstimator):
    """A post-hoc calibrator on scores: fit(X, y) with X (N, K), a column a class; or (N, 1), the score of class 1 of two.

    Args:
        method: a name in `calgrad.CALIBRATORS`.
        options: of that method.
        space: what X holds: "logits" (log-probabilities and decision scores too), or "probs".
        classes: the classes in the order of X's columns; by default those of `y`, sorted. Needed where `y` may lack one.

    Attributes:
        classes_: the classes, in the order of the columns.
        calibrator_: the fitted `calgrad.Calibrator`; `calibrator_.report` says what it did.
        log_floor_: the logit that stands for a probability of 0.

    Example:
        >>> import numpy as np
        >>> from calgrad.integrations.sklearn import CalgradCalibrator
        >>> rng = np.random.default_rng(0)
        >>> scores = rng.normal(size=(5000, 3))
        >>> y = np.array(["cat", "dog", "owl"])[(scores + rng.gumbel(size=scores.shape)).argmax(axis=1)]
        >>> model = CalgradCalibrator("temperature").fit(4 * scores, y)      # four times too sure
        >>> round(model.calibrator_.temperature, 1), model.predict(4 * scores[:2]).tolist()
        (4.0, ['owl', 'owl'])
    """

    def __init__(
        self,
        method: str = "temperature",
        *,
        options: dict[str, Any] | None = None,
        space: str = "logits",
        classes: Sequence[Any] | None = None,
    ) -> None:
        self.method = method
        self.options = options
        self.space = space
        self.classes = classes

    def fit(self, X: Any, y: Any) -> Self:
        """Fit on held-out scores and their labels."""
        one_of("space", self.space, SPACES)
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
        self.classes_, labels = encoded(y, self.classes)
        self.calibrator_: Calibrator = make_calibrator(self.method, **(self.options or {}))
        logits = self._logits(X)
        self.log_floor_ = log_floor(logits)
        self.calibrator_.fit(raised(logits, self.log_floor_), labels)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """(N, K) calibrated probabilities."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return self.calibrator_(raised(self._logits(X), self.log_floor_)).numpy()

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """(N, K) logarithms of them, exact where probabilities round to 0."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return self.calibrator_.log_probs(raised(self._logits(X), self.log_floor_)).numpy()

    def predict(self, X: Any) -> np.ndarray:
        """(N,) the most probable class."""
        best = self.predict_log_proba(X).argmax(axis=1)
        return self.classes_[best]

    def _logits(self, X: np.ndarray) -> np.ndarray:
        return as_logits(X, len(self.classes_), space=self.space)


class CalibratedClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Any classifier, calibrated on its own out-of-fold scores.

    `fit` predicts each sample with a clone that did not see it, fits one calibrator on all of these, and then the
    classifier on all samples: as `CalibratedClassifierCV(ensemble=False)`, with every method of calgrad. A classifier
    that is fitted already is wrapped in `sklearn.frozen.FrozenEstimator`, and `fit` is given held-out samples.

    Args:
        estimator: a classifier with `decision_function` or `predict_proba`; logistic regression by default.
        method: a name in `calgrad.CALIBRATORS`.
        options: of that method.
        cv: folds, as everywhere in scikit-learn.
        response: which scores to calibrate; "auto" takes the first that exists of decision_function (where it has a
            column a class), predict_log_proba and predict_proba.
        n_jobs: processes for the folds.

    Attributes:
        classes_: the classes.
        estimator_: the classifier, fitted on all samples.
        calibrator_: the fitted `calgrad.Calibrator`.
        log_floor_: the logit that stands for a probability of 0.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> from sklearn.ensemble import RandomForestClassifier
        >>> from calgrad.integrations.sklearn import SCORERS, CalibratedClassifier
        >>> X, y = load_digits(return_X_y=True)
        >>> forest = RandomForestClassifier(random_state=0)
        >>> plain, repaired = forest.fit(X[::2], y[::2]), CalibratedClassifier(forest).fit(X[::2], y[::2])
        >>> [round(-SCORERS["neg_ece"](model, X[1::2], y[1::2]), 2) for model in (plain, repaired)]
        [0.22, 0.02]
    """

    def __init__(
        self,
        estimator: Any = None,
        method: str = "temperature",
        *,
        options: dict[str, Any] | None = None,
        cv: Any = None,
        response: str = "auto",
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.options = options
        self.cv = cv
        self.response = response
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, **fit_params: Any) -> Self:
        """Fit the classifier and the calibrator.

        `fit_params` go to the classifier. With `sample_weight`, a sample of weight 0 is left out; the calibrator counts
        every other one once.
        """
        one_of("response", self.response, ("auto", *RESPONSES))
        estimator = self._estimator
        if not is_classifier(estimator):
            raise InputError(f"`estimator` must be a classifier, got {estimator!r}")
        check_classification_targets(y)
        y = column_or_1d(y, warn=True)
        if fit_params.get("sample_weight") is not None:
            kept = np.flatnonzero(np.asarray(fit_params["sample_weight"]))
            X, y = _safe_indexing(X, kept), y[kept]
            fit_params["sample_weight"] = np.asarray(fit_params["sample_weight"])[kept]
            if len(np.unique(y)) < 2:
                raise InputError(
                    "a positive `sample_weight` is needed on at least two classes, got it on 1 class or none"
                )
        is_frozen = isinstance(estimator, FrozenEstimator)
        self.classes_, labels = encoded(y, estimator.classes_ if is_frozen else None)
        self.response_ = self._choose(estimator, len(self.classes_))
        if is_frozen:
            self.estimator_ = estimator
            scores = getattr(estimator, self.response_)(X)
        else:
            folds = check_cv(self.cv, y, classifier=True)
            refuse_small_classes(labels, self.classes_, folds.get_n_splits(X, y))
            with np.errstate(divide="ignore"):  # forests take the logarithm of 0
                scores = cross_val_predict(
                    estimator, X, y, cv=folds, method=self.response_, n_jobs=self.n_jobs, params=fit_params or None
                )
            self.estimator_ = clone(estimator).fit(X, y, **fit_params)
        if hasattr(self.estimator_, "n_features_in_"):
            self.n_features_in_ = self.estimator_.n_features_in_
        if hasattr(self.estimator_, "feature_names_in_"):
            self.feature_names_in_ = self.estimator_.feature_names_in_
        self.calibrator_: Calibrator = make_calibrator(self.method, **(self.options or {}))
        logits = self._logits(scores)
        self.log_floor_ = log_floor(logits)
        self.calibrator_.fit(raised(logits, self.log_floor_), labels)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """(N, K) calibrated probabilities."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """(N, K) logarithms of them."""
        check_is_fitted(self)
        with np.errstate(divide="ignore"):
            logits = self._logits(getattr(self.estimator_, self.response_)(X))
        return self.calibrator_.log_probs(raised(logits, self.log_floor_)).numpy()

    def predict(self, X: Any) -> np.ndarray:
        """(N,) the most probable class, after calibration."""
        best = self.predict_log_proba(X).argmax(axis=1)
        return self.classes_[best]

    @property
    def _estimator(self) -> Any:
        return LogisticRegression() if self.estimator is None else self.estimator

    def _choose(self, estimator: Any, classes: int) -> str:
        if self.response != "auto":
            return self.response
        pairs = classes > 2 and getattr(estimator, "decision_function_shape", "") == "ovo"  # a column a pair of classes
        for name in RESPONSES[1:] if pairs else RESPONSES:
            if hasattr(estimator, name):
                return name
        raise InputError(f"`estimator` must have one of {', '.join(RESPONSES)}; {estimator!r} has none")

    def _logits(self, scores: np.ndarray) -> np.ndarray:
        space = "probs" if self.response_ == "predict_proba" else "logits"
        return as_logits(scores.reshape(len(scores), -1), len(self.classes_), space=space)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self._estimator).input_tags
        return tags


# ------------------------------------------------------------------------------------------------------------- scorers


class Scorer:
    """`scorer(estimator, X, y)`: minus a calibration metric of `estimator.predict_proba(X)`, so that larger is better.

    It pairs columns and labels by `estimator.classes_`: `make_scorer` hands its function no classes, and a fold that
    lacks one would shift the columns.
    """

    def __init__(self, metric: Callable[..., float], **options: Any) -> None:
        self.metric = metric
        self.options = options

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """Minus the metric."""
        _, labels = encoded(np.asarray(y), estimator.classes_)
        return -self.metric(estimator.predict_proba(X), labels, **self.options)

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"Scorer({self.metric.__name__}{options})"


SCORERS: dict[str, Scorer] = {
    "neg_ece": Scorer(metrics.ece),
    "neg_adaptive_ece": Scorer(metrics.adaptive_ece),
    "neg_classwise_ece": Scorer(metrics.classwise_ece),
    "neg_smooth_ece": Scorer(metrics.smooth_ece),
    "neg_nll": Scorer(metrics.nll),
    "neg_brier": Scorer(metrics.brier),
}
"""Ready for `scoring=`: `cross_val_score(model, X, y, scoring=SCORERS["neg_smooth_ece"])`, or all of it at once."""
