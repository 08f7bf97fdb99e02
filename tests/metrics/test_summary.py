"""`evaluate` is every function at once; a tally is the same however the data are cut; a stream stays within its bounds."""

from __future__ import annotations

import dataclasses
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import calgrad.metrics as m
from calgrad.checks import InputError
from tests.metrics.samples import make

SCALARS = ("accuracy", "nll", "brier", "ece", "adaptive_ece", "classwise_ece", "smooth_ece", "aurc")


@settings(deadline=None, max_examples=25)
@given(
    st.integers(1, 80),
    st.integers(2, 70),
    st.integers(0, 1000),
    st.sampled_from(["float16", "bfloat16", "float32", "float64"]),
    st.sampled_from([0.0, 0.3, 3.0, 50.0]),
    st.integers(1, 20),
)
def test_it_agrees_with_every_function(n, classes, seed, dtype, scale, bins):
    logits, labels = make(n, classes, seed=seed, dtype=getattr(torch, dtype), scale=scale)
    result = m.evaluate(logits=logits, labels=labels, bins=bins, bootstrap=0)
    for name in SCALARS:
        options = {} if name not in ("ece", "adaptive_ece", "classwise_ece") else {"bins": bins}
        # A rounding of the confidence may move a sample over an edge; that is all that may differ.
        if name in ("ece", "adaptive_ece") and dtype != "float64":
            continue
        expected = getattr(m, name)(logits=logits, labels=labels, **options)
        assert getattr(result, name) == pytest.approx(expected, rel=1e-5, abs=2e-7), name
    assert (result.n, result.classes, result.bins) == (n, classes, bins)


def test_it_agrees_with_every_function_on_real_logits(golden):
    for temperature in (1.0, 2.5):
        logits, labels = torch.from_numpy(golden["test_logits"]) / temperature, golden["test_labels"]
        result = m.evaluate(logits=logits, labels=labels)
        for name in SCALARS:
            expected = getattr(m, name)(logits=logits, labels=labels)
            assert getattr(result, name) == pytest.approx(expected, rel=1e-6), name
        assert result.ece_l2 == pytest.approx(m.ece(logits=logits, labels=labels, norm="l2"), rel=1e-6)
        assert result.ece_max == pytest.approx(m.ece(logits=logits, labels=labels, norm="max"), rel=1e-6)
        assert result.ece_debiased == pytest.approx(m.debiased_ece(logits=logits, labels=labels), rel=1e-6)
        assert result.parts.reliability == pytest.approx(result.ece_l2**2)
        intervals = m.bootstrap(logits=logits, labels=labels)
        for name, interval in intervals.items():
            assert result.intervals[name].low == pytest.approx(interval.low, rel=1e-5), name
            assert result.intervals[name].high == pytest.approx(interval.high, rel=1e-5), name
        test = m.calibration_test(logits=logits, labels=labels)
        assert result.p_value == test.p_value
        assert result.floor.mean == pytest.approx(test.floor.mean, rel=1e-5)
    assert round(100 * result.ece, 3) == 1.354


def test_probs_and_predictions_are_the_same_thing():
    logits, labels = make(300, 4, dtype=torch.float64)
    by_logits = m.evaluate(logits=logits, labels=labels)
    assert m.evaluate(SimpleNamespace(logits=logits, labels=labels)).to_json() == by_logits.to_json()
    by_probs = m.evaluate(probs=logits.softmax(1), labels=labels)
    for name in SCALARS:
        assert getattr(by_probs, name) == pytest.approx(getattr(by_logits, name), rel=1e-9), name


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.sampled_from([0.5, 5.0, 60.0]))
def test_a_tally_does_not_depend_on_the_cut(sizes, scale):
    logits, labels = make(sum(sizes), 5, scale=scale, dtype=torch.float64)
    whole, doubt, is_correct = m.tally(logits=logits, labels=labels)
    parts = [m.tally(logits=z, labels=y)[0] for z, y in zip(logits.split(sizes), labels.split(sizes))]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    assert (total.n, total.correct) == (whole.n, whole.correct)
    assert total.nll.mean == pytest.approx(whole.nll.mean, rel=1e-12)
    assert total.brier.variance == pytest.approx(whole.brier.variance, rel=1e-9, abs=1e-15)
    assert np.array_equal(total.cells.count, whole.cells.count)
    assert torch.allclose(total.given, whole.given, rtol=1e-12)
    assert torch.equal(total.hit, whole.hit)
    assert total.classwise_ece() == pytest.approx(whole.classwise_ece(), abs=1e-14)
    assert len(doubt) == len(is_correct) == sum(sizes)


def test_a_tally_is_constant_in_n():
    small, large = (m.tally(logits=make(n, 6)[0], labels=make(n, 6)[1])[0] for n in (10, 5000))
    assert small.given.shape == large.given.shape == (6, 15)
    assert small.cells.count.shape == large.cells.count.shape


def test_blocks_do_not_change_the_result(monkeypatch):
    logits, labels = make(500, 8)
    whole = m.evaluate(logits=logits, labels=labels, bootstrap=0)
    monkeypatch.setattr("calgrad.metrics.onepass.rows_at_once", lambda tensor: 37)
    blocks = m.evaluate(logits=logits, labels=labels, bootstrap=0)
    for name in SCALARS:
        assert getattr(blocks, name) == pytest.approx(getattr(whole, name), rel=1e-6), name


@pytest.mark.parametrize("scale", [1.0, 3.0, 20.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_stream_stays_within_its_bounds(scale, dtype):
    logits, labels = make(4000, 6, scale=scale, dtype=dtype)
    exact = m.evaluate(logits=logits, labels=labels)
    streamed = m.evaluate_stream(zip(logits.split(333), labels.split(333)))
    objects = m.evaluate_stream(
        SimpleNamespace(logits=z, labels=y) for z, y in zip(logits.split(1000), labels.split(1000))
    )
    assert set(streamed.approximate) == {"adaptive_ece", "aurc"}
    for name in SCALARS:
        slack = streamed.approximate.get(name, 0.0) + 1e-7
        assert abs(getattr(streamed, name) - getattr(exact, name)) <= slack, name
        assert abs(getattr(objects, name) - getattr(streamed, name)) <= slack, name
    assert streamed.approximate["aurc"] < 1e-3
    assert streamed.approximate["adaptive_ece"] < 1e-2
    assert streamed.intervals["ece"].low == pytest.approx(exact.intervals["ece"].low, abs=1e-6)
    assert streamed.p_value == exact.p_value


def test_extreme_logits_give_finite_numbers():
    logits = torch.tensor([[1e4, -1e4, 0.0], [-1e4, 1e4, 0.0], [0.0, 0.0, 0.0]])
    result = m.evaluate(logits=logits, labels=[0, 0, 1])
    assert result.nll == pytest.approx((0 + 2e4 + math.log(3)) / 3, rel=1e-6)
    assert result.accuracy == pytest.approx(1 / 3)
    assert all(math.isfinite(getattr(result, name)) for name in SCALARS)


def test_a_perfect_certain_model():
    result = m.evaluate(probs=np.eye(3)[[0, 1, 2, 0]], labels=[0, 1, 2, 0])
    assert (result.accuracy, result.ece, result.nll, result.brier, result.aurc) == (1, 0, 0, 0, 0)
    assert result.p_value == 1.0
    assert "No miscalibration seen" in result.verdict


def test_an_infinite_nll_is_told_and_written():
    result = m.evaluate(probs=[[1.0, 0.0], [0.5, 0.5]], labels=[1, 0])
    assert result.nll == math.inf
    assert json.loads(result.to_json())["nll"] is None
    assert "inf" in str(result)


def test_it_prints_in_percent_and_goes_to_json():
    logits, labels = make(3000, 4, scale=3)
    result = m.evaluate(logits=logits, labels=labels)
    text = str(result)
    assert text.startswith("3,000 samples, 4 classes\nAccuracy")
    assert f"{100 * result.ece:.2f} %" in text
    assert f"{100 * result.floor.mean:.2f} %" in text
    assert text.splitlines()[-1] == result.verdict
    assert result.verdict.startswith("Over-confident by")
    assert "95 % interval" in next(line for line in text.splitlines() if line.startswith("ECE, 15 bins"))
    plain = json.loads(result.to_json())
    assert {field.name for field in dataclasses.fields(result)} <= set(plain)
    assert plain["ece"] == result.ece
    assert plain["intervals"]["ece"] == [result.ece_interval.low, result.ece_interval.high]
    assert sum(plain["curve"]["count"]) == 3000
    assert plain["floor"]["draws"] == 1000
    html = result._repr_html_()
    assert html.count("<tr>") == 13
    assert "&lt;=" in html  # the p-value's sign is escaped


def test_verdicts():
    logits, labels = make(4000, 4)
    assert m.evaluate(logits=logits, labels=labels).verdict.startswith("No miscalibration seen")
    assert m.evaluate(logits=logits / 3, labels=labels).verdict.startswith("Under-confident by")
    probs = torch.tensor([[0.6, 0.4], [0.9, 0.1]]).repeat(500, 1)
    crossed = torch.tensor([0, 0] * 350 + [0, 1] * 150)  # 0.6 is always right, 0.9 is right at 70 %
    assert m.evaluate(probs=probs, labels=crossed).verdict.startswith("Miscalibrated in both directions")


def test_without_bootstrap_there_is_no_interval_of_the_ece():
    logits, labels = make(200, 3)
    result = m.evaluate(logits=logits, labels=labels, bootstrap=0)
    assert result.ece_interval is None
    assert set(result.intervals) == {"accuracy", "nll", "brier"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: m.evaluate(torch.zeros(3, 2)), "arrays are passed by name"),
        (lambda: m.evaluate(SimpleNamespace(logits=[[0.0, 1.0]], labels=[0]), labels=[0]), "not both"),
        (lambda: m.evaluate(labels=[0]), "exactly one of"),
        (lambda: m.evaluate(logits=[[0.0, math.inf]], labels=[0]), "finite"),
        (lambda: m.evaluate(logits=[[0.0, 1.0]], labels=[2]), r"\[0, 2\)"),
        (lambda: m.evaluate(logits=[[0.0, 1.0]], labels=[[1, 0]]), "one-hot"),
        (lambda: m.evaluate(logits=[[0.0], [1.0]], labels=[0, 0]), "at least two classes"),
        (lambda: m.evaluate(probs=[[0.0, 5.0]], labels=[0]), "pass them as logits"),
        (lambda: m.evaluate(logits=[[0.0, 1.0]], labels=[0], bins=0), "`bins`"),
        (lambda: m.evaluate(logits=[[0.0, 1.0]], labels=[0], bootstrap=-1), "`bootstrap`"),
        (lambda: m.evaluate_stream([]), "nothing to evaluate"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_tallies_of_different_classes_do_not_add():
    a, b = (m.tally(logits=torch.zeros(2, k), labels=[0, 1])[0] for k in (2, 3))
    with pytest.raises(InputError, match="same classes and bins"):
        _ = a + b


@pytest.mark.gpu
def test_a_gpu_gives_the_same():
    logits, labels = make(20_000, 10, scale=3)
    on_cpu = m.evaluate(logits=logits, labels=labels)
    on_gpu = m.evaluate(logits=logits.cuda(), labels=labels.cuda())
    for name in SCALARS:
        assert getattr(on_gpu, name) == pytest.approx(getattr(on_cpu, name), rel=1e-4, abs=1e-6), name
        single = getattr(m, name)(logits=logits.cuda(), labels=labels)
        assert single == pytest.approx(getattr(on_cpu, name), rel=1e-4, abs=1e-6), name
    assert m.sweep_ece(logits=logits.cuda(), labels=labels.cuda()) > 0
    assert m.compare_models(logits=(logits.cuda(), 2 * logits.cuda()), labels=labels).nll.p_value < 0.01
    assert m.calibration_refinement(logits=logits.cuda(), labels=labels).temperature == pytest.approx(3, rel=0.1)
    assert m.reliability(logits=logits.cuda(), labels=labels, binning="adaptive").count.sum() == 20_000
