"""The scores against the slow reference, and what is known about them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss

from calgrad import InputError
from calgrad.losses import FLSD53, BrierNorm, Custom, Dual, Ease, TrueClass
from tests.reference import losses as reference

CASES = {
    "focal": [(TrueClass() ** g, {"gamma": g}) for g in (0.5, 1, 3)],
    "inverse-focal": [(Ease() ** g, {"gamma": g}) for g in (0.5, 2)],
    "flsd53": [(FLSD53(), {})],
    "dual": [(Dual() ** g, {"gamma": g}) for g in (0.5, 1, 5)],
    "bsce": [(BrierNorm(beta=b) ** g, {"gamma": g, "beta": b}) for g in (0.5, 2, 4) for b in (1, 1.5, 2, 4)],
}
FLAT = [(kind, u, options) for kind, cases in CASES.items() for u, options in cases]


def random_probs(rows, classes, scale=3.0, dtype=torch.float64):
    return (scale * torch.randn(rows, classes, dtype=dtype)).softmax(1)


@pytest.mark.parametrize(("kind", "u", "options"), FLAT, ids=lambda x: repr(x) if not isinstance(x, dict) else "")
def test_agrees_with_the_formula_for_every_label(kind, u, options):
    probs = random_probs(20, 6)
    probs[0] = torch.tensor([0.25, 0.25, 0.25, 0.25, 0, 0])  # ties and zeros
    probs[1] = torch.tensor([1.0, 0, 0, 0, 0, 0])
    expected = np.array([[reference.score(kind, p, k, **options) for k in range(6)] for p in probs.numpy()])
    np.testing.assert_allclose(u.per_label(probs), expected, rtol=1e-12, atol=1e-30)
    for k in range(6):
        ours = u(probs, torch.full((20,), k))
        np.testing.assert_allclose(ours, expected[:, k], rtol=1e-9, atol=1e-12)
    inside = expected > 1e-200
    np.testing.assert_allclose(u.log_per_label(probs)[inside], np.log(expected[inside]), rtol=1e-9, atol=1e-12)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(2, 9), st.floats(0.01, 30), st.sampled_from([torch.float32, torch.float64]))
def test_weight_of_the_label_is_the_entry_of_all_labels(seed, classes, scale, dtype):
    torch.manual_seed(seed)
    probs, labels = random_probs(16, classes, scale, dtype), torch.randint(0, classes, (16,))
    for _, u, _ in FLAT:
        own, every = u(probs, labels), u.per_label(probs)
        assert own.isfinite().all()
        assert every.isfinite().all()
        # 1 - p_y rounds to a multiple of eps, and the root of that (gamma = 1/2) is all that can be asked near p_y = 1.
        eps = torch.finfo(dtype).eps
        torch.testing.assert_close(own, every.gather(1, labels[:, None])[:, 0], rtol=100 * eps, atol=2 * eps**0.5)


@pytest.mark.parametrize("u", [u for _, u, _ in FLAT if u.log_slope(torch.rand(1, 3)) is not None], ids=repr)
def test_slope_is_the_derivative_of_the_logarithm(u):
    p = torch.linspace(0.01, 0.97, 25, dtype=torch.float64)
    step = 1e-6
    two = lambda x: torch.stack([x, 1 - x], dim=1)  # noqa: E731
    numeric = (u.log_per_label(two(p + step)) - u.log_per_label(two(p - step)))[:, 0] / (2 * step)
    torch.testing.assert_close(u.log_slope(two(p))[:, 0].double(), numeric, rtol=1e-7, atol=1e-7)


def test_known_identities():
    probs, labels = random_probs(50, 4), torch.randint(0, 4, (50,))
    p_true = probs.gather(1, labels[:, None])[:, 0]
    torch.testing.assert_close((BrierNorm(beta=1) ** 3)(probs, labels), (2 * (1 - p_true)) ** 3)
    brier = (probs - torch.nn.functional.one_hot(labels, 4)).square().sum(1)
    torch.testing.assert_close((BrierNorm(beta=2) ** 2)(probs, labels), brier)
    torch.testing.assert_close((BrierNorm() ** 4)(probs, labels), brier**2)
    two, two_labels = random_probs(50, 2), torch.randint(0, 2, (50,))
    u = (BrierNorm() ** 2)(two, two_labels)
    assert float(u.mean()) == pytest.approx(2 * brier_score_loss(two_labels, two[:, 1]), rel=1e-12)


def test_the_rival_is_strictly_below():
    probs = torch.tensor([[0.4, 0.4, 0.2], [0.2, 0.2, 0.6], [1 / 3, 1 / 3, 1 / 3]])
    torch.testing.assert_close(Dual()(probs, torch.tensor([0, 0, 0])), torch.tensor([0.8, 0.8, 2 / 3]))
    torch.testing.assert_close(Dual()(probs, torch.tensor([2, 2, 2])), torch.tensor([0.8, 0.6, 2 / 3]))


def test_flsd53_steps_at_exactly_a_fifth():
    below = torch.nextafter(torch.tensor(0.2), torch.tensor(0.0))
    p = torch.stack([torch.tensor(0.2), below])
    torch.testing.assert_close(
        FLSD53()(torch.stack([p, 1 - p], 1), torch.tensor([0, 0])), (1 - p) ** torch.tensor([3, 5])
    )


def test_exponents_multiply_and_the_representation_is_code():
    assert (BrierNorm(beta=3) ** 2) ** 2 == BrierNorm(beta=3) ** 4
    assert Dual() != Dual() ** 2
    assert repr(BrierNorm(beta=3) ** 2) == "BrierNorm(beta=3) ** 2"
    assert repr(TrueClass()) == "TrueClass()"
    assert repr(TrueClass() ** 0.5) == "TrueClass() ** 0.5"
    assert repr(Custom(random_probs)) == "random_probs"


def test_a_custom_weight_knows_the_other_labels_too():
    u = Custom(lambda probs, labels: probs.gather(1, labels[:, None])[:, 0] ** 2)
    probs = random_probs(5, 3)
    torch.testing.assert_close(u(probs, torch.ones(5, dtype=torch.int64)), probs[:, 1] ** 2)
    torch.testing.assert_close(u.per_label(probs), probs**2)


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf"), "3", True])
def test_bad_exponents_are_refused(bad):
    with pytest.raises(InputError, match="gamma"):
        TrueClass() ** bad


def test_bad_norms_and_bad_functions_are_refused():
    with pytest.raises(InputError, match="beta"):
        BrierNorm(beta=0.5)
    with pytest.raises(InputError, match=r"TrueClass\(\)"):
        BrierNorm(beta=float("inf"))
    with pytest.raises(InputError, match=r"one weight a sample, shape \(4,\), got \(4, 3\)"):
        Custom(lambda probs, labels: probs)(random_probs(4, 3), torch.zeros(4, dtype=torch.int64))
