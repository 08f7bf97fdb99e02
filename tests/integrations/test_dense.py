"""Pixels, tokens and boxes: losses, metrics and calibrators on dense outputs are those on their rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics import MetricCollection

import calgrad
from calgrad.checks import InputError
from calgrad.integrations.validation import RowSample, numbers, repair
from calgrad.losses import LOSSES, make_loss
from calgrad.metrics import tally
from calgrad.metrics.streaming import (
    Accuracy,
    AdaptiveCalibrationError,
    BrierScore,
    CalibrationError,
    ClasswiseCalibrationError,
    NegativeLogLikelihood,
)
from calgrad.posthoc import make_calibrator
from calgrad.predictions import Predictions, flatten_classes, map_rows

VOID = 255


def scene(n: int = 6, classes: int = 4, size: int = 16, *, sharpness: float = 3.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Over-confident logits (N, K, H, W) with labels drawn from softer ones; a tenth of the pixels is void."""
    base = torch.randn(n, classes, size, size)
    drawn = torch.distributions.Categorical(logits=base.movedim(1, -1)).sample()
    drawn[torch.rand(drawn.shape) < 0.1] = VOID
    return sharpness * base, drawn


def by_hand(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rows, kept = [], []
    for image, truth in zip(logits.numpy(), labels.numpy()):
        for i, j in np.ndindex(*truth.shape):
            if truth[i, j] != VOID:
                rows.append(image[:, i, j])
                kept.append(truth[i, j])
    return torch.from_numpy(np.stack(rows)), torch.tensor(kept)


# ----------------------------------------------------------------------------------------------------------------- rows


def test_rows_are_the_pixels_that_count():
    logits, labels = scene(n=2, size=5)
    rows, kept = flatten_classes(logits, labels, ignore_index=VOID)
    expected_rows, expected_labels = by_hand(logits, labels)
    assert torch.equal(rows, expected_rows)
    assert torch.equal(kept, expected_labels)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(2, 5), st.integers(0, 9), st.data())
def test_any_shape_and_class_dimension(sizes, classes, seed, data):
    torch.manual_seed(seed)
    labels = torch.randint(classes, sizes)
    last = torch.randn(*sizes, classes)
    dim = data.draw(st.integers(1, len(sizes)))
    rows, kept = flatten_classes(last.movedim(-1, dim), labels, class_dim=dim)
    assert torch.equal(rows, last.reshape(-1, classes))
    assert torch.equal(kept, labels.reshape(-1))
    back = map_rows(lambda z: z.softmax(dim=1), last.movedim(-1, dim), class_dim=dim)
    assert torch.equal(back, last.softmax(dim=-1).movedim(-1, dim))


def test_a_sample_of_pixels_is_uniform_and_repeatable():
    logits, labels = scene(n=4, size=32)
    everything = flatten_classes(logits, labels, ignore_index=VOID)
    rows, kept = flatten_classes(logits, labels, ignore_index=VOID, sample=1000, seed=3)
    again, _ = flatten_classes(logits, labels, ignore_index=VOID, sample=1000, seed=3)
    assert torch.equal(rows, again)
    assert rows.shape == (1000, 4)
    assert VOID not in kept
    assert len(torch.unique(torch.cat([everything[0], rows]), dim=0)) == len(everything[0])  # all of them real pixels
    whole, part = (calgrad.accuracy(logits=r, labels=k) for r, k in (everything, (rows, kept)))
    assert abs(whole - part) < 4 * (whole * (1 - whole) / 1000) ** 0.5
    assert len(flatten_classes(logits, labels, ignore_index=VOID, sample=10**9)[1]) == len(everything[1])


@pytest.mark.parametrize(
    ("logits", "labels", "options", "message"),
    [
        (torch.zeros(2, 3, 4, 4), torch.zeros(2, 4, 5, dtype=torch.int64), {}, r"labels` must have shape \(2, 4, 4\)"),
        (torch.zeros(2, 3, 4), torch.zeros(2, 4, dtype=torch.int64), {"class_dim": -1}, r"shape \(2, 3\)"),
        (torch.zeros(2, 3, 4), torch.zeros(2, 4, dtype=torch.int64), {"class_dim": 0}, "after the first"),
        (torch.zeros(2, 3, 4), torch.zeros(2, 4, dtype=torch.int64), {"class_dim": 3}, "after the first"),
        (torch.zeros(2, 3, 4), torch.zeros(2, 3, 4), {}, "integer class indices"),
        (torch.zeros(2, 3, 4), torch.zeros(2, 4, dtype=torch.int64), {"sample": 0}, "at least 1"),
    ],
)
def test_what_does_not_fit_is_refused(logits, labels, options, message):
    with pytest.raises(InputError, match=message):
        flatten_classes(logits, labels, **options)


# ------------------------------------------------------------------------------------------------------ losses, metrics


@pytest.mark.parametrize("name", sorted(LOSSES.keys() - {"consistency-gra"}))
def test_a_loss_of_pixels_is_the_loss_of_their_rows(name):
    logits, labels = scene(n=2, size=6)
    dense, flat = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    loss = make_loss(name, ignore_index=VOID)
    value = loss(dense, labels)
    expected = loss(*flatten_classes_with_grad(flat, labels))
    assert value.item() == pytest.approx(expected.item(), rel=1e-5)
    (2 * value).backward()
    (2 * expected).backward()
    assert torch.allclose(dense.grad, flat.grad, atol=1e-7)
    assert dense.grad.movedim(1, -1)[labels == VOID].abs().max() == 0


def flatten_classes_with_grad(logits, labels):
    """`flatten_classes` measures, and so detaches; this is the same with the graph kept."""
    counts = labels != VOID
    return logits.movedim(1, -1)[counts], labels[counts]


def test_a_collection_of_streaming_metrics_on_pixels_is_the_functions_on_rows():
    logits, labels = scene(n=8)
    options = {"inputs": "logits", "ignore_index": VOID}
    metrics = MetricCollection(
        {
            "accuracy": Accuracy(**options),
            "nll": NegativeLogLikelihood(**options),
            "brier": BrierScore(**options),
            "ece": CalibrationError(**options),
            "adaptive": AdaptiveCalibrationError(**options),
            "classwise": ClasswiseCalibrationError(4, **options),
        },
        prefix="val_",
    )
    for part in range(0, 8, 3):
        metrics.update(logits[part : part + 3], labels[part : part + 3])
    found = metrics.compute()
    rows, kept = flatten_classes(logits, labels, ignore_index=VOID)
    expected = calgrad.evaluate(Predictions(rows, kept))
    assert float(found["val_accuracy"]) == expected.accuracy
    for name, value in [("nll", expected.nll), ("brier", expected.brier), ("ece", expected.ece)]:
        assert float(found[f"val_{name}"]) == pytest.approx(value, abs=1e-6)
    assert float(found["val_classwise"]) == pytest.approx(expected.classwise_ece, abs=1e-6)
    assert abs(float(found["val_adaptive"]) - expected.adaptive_ece) <= metrics["adaptive"].error_bound() + 1e-6
    metrics.reset()
    metrics.update(logits[:1], labels[:1])
    first, first_labels = flatten_classes(logits[:1], labels[:1], ignore_index=VOID)
    assert float(metrics.compute()["val_ece"]) == pytest.approx(
        calgrad.ece(logits=first, labels=first_labels), abs=1e-6
    )


# ---------------------------------------------------------------------------------------------------------- calibrators


@pytest.mark.parametrize("method", ["temperature", "vector", "dirichlet", "isotonic"])
def test_a_calibrator_of_pixels(method):
    logits, labels = scene(n=12)
    calibrator = make_calibrator(method).fit(*flatten_classes(logits[:6], labels[:6], ignore_index=VOID))
    probs = map_rows(calibrator, logits[6:])
    assert probs.shape == logits[6:].shape
    assert torch.equal(probs[2, :, 3, 5], calibrator(logits[6:][2, :, 3, 5][None])[0])
    rows, kept = flatten_classes(logits[6:], labels[6:], ignore_index=VOID)
    repaired, _ = flatten_classes(probs, labels[6:], ignore_index=VOID)
    assert calgrad.ece(repaired, kept) < 0.3 * calgrad.ece(logits=rows, labels=kept)
    assert calgrad.nll(repaired, kept) < calgrad.nll(logits=rows, labels=kept)
    if method == "temperature":
        assert calibrator.parameters["temperature"].item() == pytest.approx(3, rel=0.1)  # what `scene` sharpened by
        model = calgrad.CalibratedModel(torch.nn.Identity(), calibrator)
        assert torch.allclose(model(logits[6:]), probs, atol=1e-6)  # one temperature needs no rows


def test_a_detection_head_with_a_class_for_no_object():
    """Boxes (N, Q, K + 1), the last class "no object", as DETR's; labels of padded queries are ignored."""
    base = torch.randn(16, 40, 6)
    base[..., -1] += 2
    labels = torch.distributions.Categorical(logits=base).sample()
    labels[:, 30:] = -1
    logits = 2.5 * base
    loss = make_loss("bsce-gra", ignore_index=-1)(logits.movedim(-1, 1), labels)
    rows, kept = flatten_classes(logits, labels, ignore_index=-1, class_dim=-1)
    assert len(kept) == 16 * 30
    assert loss.item() == pytest.approx(make_loss("bsce-gra")(rows, kept).item(), rel=1e-5)
    calibrator = make_calibrator("temperature").fit(rows, kept)
    assert calibrator.parameters["temperature"].item() == pytest.approx(2.5, rel=0.2)
    assert map_rows(calibrator, logits, class_dim=-1).sum(dim=-1).allclose(torch.ones(16, 40))


# -------------------------------------------------------------------------------------------- what callbacks build upon


def test_a_row_sample_keeps_everything_that_fits_in_order():
    kept = RowSample(elements=1000)
    logits, labels = torch.randn(90, 10), torch.randint(10, (90,))
    for part in range(0, 90, 40):
        kept.add(logits[part : part + 40].half(), labels[part : part + 40])
    assert torch.equal(kept.rows()[0], logits.half().float())
    assert torch.equal(kept.rows()[1], labels)
    kept.clear()
    with pytest.raises(InputError, match="no validation rows"):
        kept.rows()


def test_a_row_sample_of_a_long_stream_is_uniform():
    total = torch.zeros(100)
    for seed in range(40):
        kept = RowSample(elements=2 * 20, seed=seed)
        for row in range(0, 100, 10):
            kept.add(torch.full((10, 2), 0.0), torch.arange(row, row + 10))
            assert len(kept) <= 40
        rows, labels = kept.rows()
        assert rows.shape == (20, 2)
        assert labels.tolist() == sorted(labels.tolist())
        total[labels] += 1
    assert total.sum() == 800
    early, late = total[:50].sum().item(), total[50:].sum().item()
    assert abs(early - late) < 4 * (800 * 0.8) ** 0.5  # four standard deviations of a hypergeometric difference


def test_a_repair_is_judged_on_rows_it_was_not_fitted_on():
    """Where the map can learn its rows by heart, its own rows flatter it and the other half does not."""
    logits, labels = torch.randn(200, 5), torch.randint(5, (200,))
    found = repair(lambda: make_calibrator("isotonic"), logits, labels)
    own = calgrad.nll(found.calibrator(logits), labels)
    judged = found.numbers()["nll_calibrated"]
    assert judged > own + 0.02
    assert judged < found.numbers()["nll"]
    assert found.numbers()["ece"] == pytest.approx(calgrad.ece(logits=logits, labels=labels))
    assert len(found.figure().axes) == 4


def test_numbers_are_those_of_evaluate():
    logits, labels = 3 * torch.randn(2000, 5), torch.randint(5, (2000,))
    found = numbers(tally(logits=logits, labels=labels)[0])
    expected = calgrad.evaluate(logits=logits, labels=labels)
    for name in ("accuracy", "nll", "brier", "overconfidence", "ece", "classwise_ece"):
        assert found[name] == pytest.approx(getattr(expected, name)), name
    assert found["ece_floor"] == expected.floor.mean
    assert found["ece_p_value"] == expected.p_value
