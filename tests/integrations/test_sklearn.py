"""scikit-learn: the estimators obey its protocol, agree with its own calibration, and score with its tools."""

from __future__ import annotations

import pickle
import warnings
from unittest import SkipTest

import numpy as np
import pytest
import torch
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score, cross_validate
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.estimator_checks import estimator_checks_generator
from sklearn.utils.validation import validate_data

import calgrad
from calgrad.checks import InputError
from calgrad.integrations.sklearn import SCORERS, CalgradCalibrator, CalibratedClassifier, Scorer
from calgrad.posthoc import CALIBRATORS, CalibrationWarning


class OnFeatures(CalgradCalibrator):
    """`CalgradCalibrator` behind the simplest scores: scikit-learn's checks pass data whose columns are no classes."""

    def fit(self, X, y):
        checked, target = validate_data(self, X, y, dtype=[np.float64, np.float32])
        self.centres_ = np.stack([checked[target == name].mean(axis=0) for name in np.unique(target)])
        return super().fit(X, y)

    def _logits(self, X):
        return -0.5 * ((X[:, None] - self.centres_) ** 2).sum(axis=2)


ESTIMATORS = [
    OnFeatures(),
    CalibratedClassifier(cv=3),
    CalibratedClassifier(RandomForestClassifier(5, random_state=0), "isotonic", cv=3),
    CalibratedClassifier(LinearSVC(), "sms", cv=3),
]


def protocol_checks():
    for estimator in ESTIMATORS:
        for instance, check in estimator_checks_generator(estimator):
            name = getattr(check, "func", check).__name__
            yield pytest.param(instance, check, id=f"{type(getattr(instance, 'estimator', instance)).__name__}-{name}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("estimator", "check"), list(protocol_checks()))
def test_scikit_learns_own_checks(estimator, check):
    try:
        check(estimator)
    except SkipTest as skipped:
        pytest.skip(str(skipped))


# -------------------------------------------------------------------------------------------------- on existing scores


def digits_scores():
    """Out-of-fold logits of a real data set, with labels that are text."""
    X, y = load_digits(return_X_y=True)
    names = np.array([f"digit {k}" for k in range(10)])[y]
    logits = cross_val_predict(LogisticRegression(max_iter=300), X / 16, names, cv=3, method="decision_function")
    return 8 * logits, names  # far too sure


@pytest.mark.parametrize("method", ["temperature", "sms", "isotonic"])
def test_scores_with_text_labels_give_the_calibrators_answer(method):
    scores, names = digits_scores()
    fitted = CalgradCalibrator(method).fit(scores, names)
    labels = np.unique(names, return_inverse=True)[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        expected = calgrad.make_calibrator(method).fit(scores, labels)(scores).numpy()
    assert np.array_equal(fitted.predict_proba(scores), expected)
    assert fitted.classes_.tolist() == sorted(set(names))
    assert fitted.score(scores, names) == pytest.approx((expected.argmax(1) == labels).mean())
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).predict(scores), fitted.predict(scores))


def test_every_calibrator_by_name():
    rng = np.random.default_rng(0)
    scores, y = 4 * rng.normal(size=(300, 4)), rng.integers(10, 14, 300)
    for method in CALIBRATORS:
        options = {"loss": "bsce-gra"} if method.startswith("link") else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            probs = CalgradCalibrator(method, options=options).fit(scores, y).predict_proba(scores)
        assert np.allclose(probs.sum(axis=1), 1), method


def test_probs_log_probs_and_logits_are_the_same_scores():
    rng = np.random.default_rng(0)
    logits, y = 3 * rng.normal(size=(500, 4)), rng.integers(0, 4, 500)
    log_probs = torch.tensor(logits).log_softmax(dim=1).numpy()
    answer = CalgradCalibrator().fit(logits, y).predict_proba(logits)
    assert np.allclose(CalgradCalibrator().fit(log_probs, y).predict_proba(log_probs), answer, atol=1e-9)
    probs = np.exp(log_probs)
    assert np.allclose(CalgradCalibrator(space="probs").fit(probs, y).predict_proba(probs), answer, atol=1e-9)
    assert np.allclose(CalgradCalibrator().fit(logits, y).predict_log_proba(logits), np.log(answer))


def test_one_column_is_the_score_of_the_second_class():
    X, y = load_breast_cancer(return_X_y=True)
    model = make_pipeline(StandardScaler(), LinearSVC())
    scores = cross_val_predict(model, X, y, method="decision_function")[:, None]
    one = CalgradCalibrator("platt").fit(scores, y).predict_proba(scores)
    two = np.hstack([np.zeros_like(scores), scores])
    assert np.allclose(one, CalgradCalibrator("platt").fit(two, y).predict_proba(two))
    assert one.shape == (len(y), 2)


def test_in_cross_val_predict_and_in_a_pipeline():
    scores, names = digits_scores()
    probs = cross_val_predict(CalgradCalibrator(), scores, names, cv=5, method="predict_proba")
    labels = np.unique(names, return_inverse=True)[1]
    assert calgrad.nll(probs, labels) < 0.7 * calgrad.nll(logits=scores, labels=labels)
    search = GridSearchCV(
        make_pipeline(CalgradCalibrator()),
        {"calgradcalibrator__method": ["identity", "temperature"]},
        scoring=SCORERS["neg_nll"],
        cv=3,
    ).fit(scores, names)
    assert search.best_params_ == {"calgradcalibrator__method": "temperature"}


def test_what_scores_must_be():
    rng = np.random.default_rng(0)
    scores, y = rng.normal(size=(60, 4)), rng.integers(0, 3, 60)
    with pytest.raises(InputError, match=r"4 columns and 3 classes.*`classes=`"):
        CalgradCalibrator().fit(scores, y)
    scores[np.arange(60), y] += 1
    fitted = CalgradCalibrator(classes=["a", "b", "c", "unseen"]).fit(scores, np.array(list("abc"))[y])
    assert fitted.predict_proba(scores).shape == (60, 4)
    with pytest.raises(InputError, match="'z' is not among the classes"):
        CalgradCalibrator(classes=["a", "b", "c", "d"]).fit(scores, np.full(60, "z"))
    with pytest.raises(InputError, match=r"probs must lie in \[0, 1\]"):
        CalgradCalibrator(space="probs", classes=[0, 1, 2, 3]).fit(scores, y)
    with pytest.raises(InputError, match="Did you mean 'temperature'"):
        CalgradCalibrator("temprature", classes=[0, 1, 2, 3]).fit(scores, y)


# ------------------------------------------------------------------------------------------------- around a classifier


@pytest.mark.parametrize("data", [load_digits, load_breast_cancer])
def test_agrees_with_scikit_learns_temperature_scaling(data):
    X, y = data(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    ours = CalibratedClassifier(LogisticRegression(C=100, max_iter=2000), cv=3).fit(X[::2], y[::2])
    peer = CalibratedClassifierCV(LogisticRegression(C=100, max_iter=2000), method="temperature", cv=3, ensemble=False)
    peer.fit(X[::2], y[::2])
    held_out, truth = X[1::2], y[1::2]
    assert np.allclose(ours.predict_proba(held_out), peer.predict_proba(held_out), atol=2e-3)
    nll = log_loss(truth, ours.predict_proba(held_out))
    assert nll == pytest.approx(log_loss(truth, peer.predict_proba(held_out)), rel=1e-2)


@pytest.mark.parametrize(
    ("estimator", "response"),
    [
        (GaussianNB(), "predict_log_proba"),
        (RandomForestClassifier(20, random_state=0), "predict_log_proba"),
        (LinearSVC(), "decision_function"),
        (SVC(decision_function_shape="ovr"), "decision_function"),
    ],
)
def test_any_classifier_becomes_calibrated(estimator, response):
    X, y = make_classification(3000, 20, n_informative=5, n_classes=4, flip_y=0.2, random_state=0)
    names = np.array(["ash", "birch", "oak", "yew"])[y]
    model = CalibratedClassifier(estimator, "temperature", cv=3).fit(X[:1000], names[:1000])
    assert model.response_ == response
    result = calgrad.evaluate(probs=model.predict_proba(X[1000:]), labels=y[1000:])
    assert result.ece < 0.08
    assert result.accuracy == pytest.approx(model.score(X[1000:], names[1000:]))
    if hasattr(estimator, "predict_proba"):
        plain = estimator.fit(X[:1000], names[:1000])
        assert result.nll < log_loss(names[1000:], plain.predict_proba(X[1000:]))


def test_a_fitted_classifier_is_calibrated_on_held_out_samples():
    X, y = load_digits(return_X_y=True)
    net = GaussianNB().fit(X[:800], y[:800])
    held_out = y[800:1300] != 3  # a class that the held-out samples lack
    model = CalibratedClassifier(FrozenEstimator(net)).fit(X[800:1300][held_out], y[800:1300][held_out])
    assert model.classes_.tolist() == list(range(10))
    assert SCORERS["neg_nll"](model, X[1300:], y[1300:]) > SCORERS["neg_nll"](net, X[1300:], y[1300:])


def test_what_a_classifier_must_be():
    X, y = make_classification(60, random_state=0)
    with pytest.raises(InputError, match=r"3-fold .* got 2 of"):
        CalibratedClassifier(cv=3).fit(X, np.r_[[0, 0], np.ones(58)])
    with pytest.raises(InputError, match="`response` must be one of"):
        CalibratedClassifier(response="margin").fit(X, y)
    with pytest.raises(InputError, match="must be a classifier"):
        CalibratedClassifier(StandardScaler()).fit(X, y)


# ------------------------------------------------------------------------------------------------------------- scorers


def test_scorers_are_minus_the_metrics():
    X, y = load_digits(return_X_y=True)
    names = np.array(list("abcdefghij"))[y]
    model = GaussianNB().fit(X[:900], names[:900])
    probs, labels = model.predict_proba(X[900:]), y[900:]
    for name, scorer in SCORERS.items():
        metric = getattr(calgrad, name.removeprefix("neg_"))
        assert scorer(model, X[900:], names[900:]) == -metric(probs, labels), name
    some = y[900:] > 4  # not all classes among the labels: columns must not shift
    assert SCORERS["neg_ece"](model, X[900:][some], names[900:][some]) == -calgrad.ece(probs[some], labels[some])
    assert repr(Scorer(calgrad.ece, bins=10)) == "Scorer(ece, bins=10)"


def test_scorers_in_scikit_learns_tools():
    X, y = load_breast_cancer(return_X_y=True)
    found = cross_validate(GaussianNB(), X, y, cv=3, scoring=SCORERS)
    assert all((found[f"test_{name}"] < 0).all() for name in SCORERS)
    repaired = cross_val_score(CalibratedClassifier(GaussianNB()), X, y, cv=3, scoring=SCORERS["neg_smooth_ece"])
    assert repaired.mean() > found["test_neg_smooth_ece"].mean()
