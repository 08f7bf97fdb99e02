"""Every option of nn.CrossEntropyLoss: with weight u = 1 the family is cross-entropy, value and gradient."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from calgrad import InputError
from calgrad.losses import LOSSES, BrierNorm, CrossEntropy, TrueClass, WeightedCE, make_loss

ONE = [
    CrossEntropy,
    lambda **o: WeightedCE(lambda probs, labels: torch.ones_like(probs[..., 0]), on="gradient", **o),
    lambda **o: WeightedCE(TrueClass() ** 0, on="loss", **o),
    lambda **o: WeightedCE(BrierNorm(beta=3) ** 0, on="gradient", **o),
]


@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_weight_one_is_cross_entropy_under_every_option(data):
    torch.manual_seed(data.draw(st.integers(0, 10**6)))
    classes = data.draw(st.integers(2, 7))
    spatial = data.draw(st.sampled_from([(), (3,), (2, 3)]))
    rows = data.draw(st.integers(1, 6))
    single = not spatial and data.draw(st.booleans())
    shape = (classes,) if single else (rows, classes, *spatial)
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
    logits = 5 * torch.randn(shape, dtype=dtype)
    soft = data.draw(st.booleans())
    options = {
        "reduction": data.draw(st.sampled_from(["mean", "sum", "none"])),
        "label_smoothing": data.draw(st.sampled_from([0.0, 0.1, 1.0])),
        "weight": torch.rand(classes, dtype=dtype) + 0.1 if data.draw(st.booleans()) else None,
    }
    if soft:
        labels = torch.randn(shape, dtype=dtype).softmax(0 if single else 1)
    else:
        sample_shape = shape[1:] if single else (rows, *spatial)
        options["ignore_index"] = data.draw(st.sampled_from([-100, 0]))
        labels = torch.randint(0, classes, sample_shape)
        labels = torch.where(torch.rand(sample_shape) < 0.2, options["ignore_index"], labels)
    loss = data.draw(st.sampled_from(ONE))(**options)
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    value, expected = loss(ours, labels), F.cross_entropy(theirs, labels, **options)
    assert value.shape == expected.shape
    assert value.dtype == expected.dtype
    torch.testing.assert_close(value, expected, equal_nan=True)  # all ignored: nan, as in PyTorch
    upstream = torch.randn_like(expected)
    (value * upstream).sum().backward()
    (expected * upstream).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, equal_nan=True)


@pytest.mark.parametrize("name", LOSSES)
def test_ignored_samples_change_nothing(name, loss_arguments):
    loss = make_loss(name, ignore_index=3)
    logits, labels = torch.randn(12, 5, dtype=torch.float64), torch.randint(0, 3, (12,))
    extra = loss_arguments(name, logits)
    alone = loss(logits, labels, *extra)
    padded = torch.cat([logits, 100 * torch.randn(4, 5, dtype=torch.float64)])
    extra = [torch.cat([e, torch.rand(4, 5).softmax(1).to(e)]) for e in extra]
    torch.testing.assert_close(loss(padded, torch.cat([labels, torch.full((4,), 3)]), *extra), alone)


@pytest.mark.parametrize("name", LOSSES)
def test_pixels_are_samples(name, loss_arguments):
    logits, labels = torch.randn(2, 4, 3, 5), torch.randint(0, 4, (2, 3, 5))
    rows, row_labels = logits.movedim(1, -1).reshape(-1, 4), labels.reshape(-1)
    extra = loss_arguments(name, logits)
    flat = [e.movedim(1, -1).reshape(-1, 4) for e in extra]
    for reduction in ("mean", "sum", "none"):
        loss = make_loss(name, reduction=reduction)
        torch.testing.assert_close(
            loss(logits, labels, *extra).reshape(-1), loss(rows, row_labels, *flat).reshape(-1), rtol=1e-5, atol=1e-6
        )
    assert make_loss(name, reduction="none")(logits, labels, *extra).shape == labels.shape


@pytest.mark.parametrize("name", LOSSES)
def test_mean_and_sum_are_those_of_none(name, loss_arguments):
    weight = torch.tensor([0.5, 1.0, 2.0, 3.0])
    logits, labels = torch.randn(20, 4), torch.randint(0, 4, (20,))
    extra = loss_arguments(name, logits)
    none, total, mean = (
        make_loss(name, reduction=r, weight=weight)(logits, labels, *extra) for r in ("none", "sum", "mean")
    )
    torch.testing.assert_close(total, none.sum())
    torch.testing.assert_close(mean, none.sum() / weight[labels].sum())


@pytest.mark.parametrize("name", LOSSES)
def test_one_hot_floats_are_class_indices(name, loss_arguments):
    logits, labels = torch.randn(16, 5, dtype=torch.float64), torch.randint(0, 5, (16,))
    loss, extra = make_loss(name), loss_arguments(name, logits)
    one_hot = F.one_hot(labels, 5).double()
    torch.testing.assert_close(loss(logits, one_hot, *extra), loss(logits, labels, *extra))


def test_class_weights_travel_and_are_checked():
    loss = make_loss("bsce-gra", weight=[1, 2, 3])
    assert loss.weight.dtype == torch.float32
    assert loss.state_dict()["weight"].tolist() == [1, 2, 3]
    with pytest.raises(InputError, match="one entry a class, got 3 for 4"):
        loss(torch.randn(2, 4), torch.tensor([0, 1]))
    with pytest.raises(InputError, match="non-negative"):
        make_loss("ce", weight=[1.0, -1.0])


def test_bad_options_and_inputs_are_refused():
    with pytest.raises(InputError, match="`reduction`"):
        make_loss("ce", reduction="average")
    with pytest.raises(InputError, match="`label_smoothing`"):
        make_loss("ce", label_smoothing=1.5)
    with pytest.raises(InputError, match="ignore_index"):
        make_loss("ce", ignore_index=0)(torch.randn(2, 3), torch.rand(2, 3))
    with pytest.raises(InputError, match=r"labels\.long\(\)"):
        make_loss("ce")(torch.randn(2, 3), torch.tensor([0.0, 1.0]))
    with pytest.raises(InputError, match="at least two classes"):
        make_loss("focal")(torch.randn(2, 1), torch.tensor([0, 0]))
