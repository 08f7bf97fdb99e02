"""The link: minimise the expected loss under a known posterior, and get that posterior back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize
from torch import nn

from calgrad import InputError, posterior
from calgrad.losses import LOSSES, AdaFocal, BrierNorm, CrossEntropy, Dual, Ease, TrueClass, WeightedCE, make_loss

ETAS = {
    2: [[0.8, 0.2], [0.35, 0.65]],
    3: [[0.6, 0.3, 0.1], [0.05, 0.25, 0.7]],
    5: [[0.45, 0.25, 0.15, 0.1, 0.05], [0.02, 0.62, 0.2, 0.04, 0.12]],
}
COUPLED = ("mmce", "mmce-weighted", "soft-ece", "avuc")
WEIGHTS = [0.8, 1.0, 1.3, 0.9, 1.2]


def adafocal():
    loss = AdaFocal(bins=3)
    loss.uncertainty.gammas.copy_(torch.tensor([2.0, 1.0, -0.5]))
    return loss


FAMILY = {
    **{name: make_loss(name) for name in LOSSES if name not in (*COUPLED, "consistency-gra", "ece-ce")},
    "adafocal": adafocal(),
    "focal, gamma 1/2": make_loss("focal", gamma=0.5),
    "focal-gra, gamma 1/2": make_loss("focal-gra", gamma=0.5),
    "bsce-gra, beta 3": make_loss("bsce-gra", gamma=2, beta=3),
    "bsce, beta 3/2": make_loss("bsce", gamma=2, beta=1.5),
    "dual, gamma 1": make_loss("dual", gamma=1),
    "adafocal-gra": AdaFocal(gamma=1.5, on="gradient"),
    "inverse-focal-gra": WeightedCE(Ease() ** 2, on="gradient"),
    "entropy": WeightedCE(lambda p, y: 1 + torch.special.entr(p).sum(1) - p.gather(1, y[:, None])[:, 0], on="loss"),
    "entropy-gra": WeightedCE(lambda p, y: 1.5 - p.gather(1, y[:, None])[:, 0] * p.amax(1), on="gradient"),
    "ce, class weights": "ce",
    "bsce-gra, class weights, smoothing": "bsce-gra",
    "focal, class weights, smoothing": "focal",
    "dual, class weights, smoothing": "dual",
    "brier, class weights, smoothing": "brier",
}
PROPER = ("ce", "brier", "mse")


def member(name, classes):
    loss = FAMILY[name]
    if not isinstance(loss, str):
        return loss
    weight = torch.tensor(WEIGHTS[:classes], dtype=torch.float64)
    return make_loss(loss, weight=weight, label_smoothing=0.06 if "smoothing" in name else 0.0)


def expected_gradient(loss, eta, z):
    """sum_k eta_k dL(z, k)/dz at one point, from the public forward alone."""
    logits = torch.as_tensor(z, dtype=torch.float64).expand(len(eta), -1).clone().requires_grad_()
    loss.reduction = "none"
    risk = (torch.as_tensor(eta) * loss(logits, torch.arange(len(eta)))).sum()
    return torch.autograd.grad(risk, logits)[0].sum(0).numpy()


def minimise(loss, eta):
    """The probabilities inside the simplex at which the expected gradient vanishes, to the last digits."""

    def logits(free):
        return np.append(free, -free.sum())

    def gradient(free):
        full = expected_gradient(loss, eta, logits(free))
        return full[:-1] - full[-1]

    weight = np.ones(len(eta)) if loss.weight is None else loss.weight.numpy()
    start = np.log(eta * weight) - np.mean(np.log(eta * weight))
    for scale in (0.9, 0.6, 0.35, 1.5, 0.2):  # steps in a weight (FLSD-53, dual) can stop a solver: start elsewhere
        root = optimize.root(gradient, scale * start[:-1], method="hybr", options={"xtol": 1e-15})
        p = torch.tensor(logits(root.x)).softmax(0)
        if np.abs(root.fun).max() < 1e-11 and p.min() > 1e-3:
            return p
    raise AssertionError(f"no stationary point found for {loss} at {eta}")


@pytest.mark.parametrize("classes", ETAS)
@pytest.mark.parametrize("name", FAMILY)
def test_the_posterior_comes_back_from_the_minimiser(name, classes):
    loss = member(name, classes)
    off = 0.0
    for eta in ETAS[classes]:
        p = minimise(loss, np.array(eta))
        recovered = posterior(loss, p[None])[0]
        np.testing.assert_allclose(recovered, eta, atol=1e-8, rtol=0)
        off = max(off, float((p - torch.tensor(eta, dtype=p.dtype)).abs().max()))
    if name in PROPER:
        assert off < 1e-8
    else:
        assert off > 1e-3  # the probabilities themselves are not the posterior


def risk_of(loss, eta, z):
    loss.reduction = "none"
    return (torch.tensor(eta, dtype=torch.float64) * loss(z.expand(3, -1), torch.arange(3))).sum().item()


@pytest.mark.parametrize("name", ["focal", "bsce", "inverse-focal", "label-smoothing", "brier"])
def test_the_stationary_point_is_the_minimum(name):
    loss = make_loss(name)
    for eta in ETAS[3]:
        p = minimise(loss, np.array(eta))
        best = optimize.minimize(
            lambda z, eta=eta: risk_of(loss, eta, torch.tensor(z)), np.zeros(3), method="Nelder-Mead", tol=1e-12
        )
        assert risk_of(loss, eta, p.log()) <= best.fun + 1e-10
        np.testing.assert_allclose(torch.tensor(best.x).softmax(0), p, atol=1e-4)


def test_the_dual_losses_minimum_is_local():
    """Where p_y ties with its rivals the rival drops out and the loss jumps down: uniform p beats the smooth minimum."""
    loss, eta = make_loss("dual"), ETAS[3][0]
    p = minimise(loss, np.array(eta))
    here = risk_of(loss, eta, p.log())
    for direction in torch.randn(50, 3, dtype=torch.float64):
        assert here < risk_of(loss, eta, p.log() + 1e-3 * (direction - direction.mean()))
    assert risk_of(loss, eta, torch.zeros(3, dtype=torch.float64)) < here


def test_consistency_is_undone_with_what_its_weight_was_taken_from():
    loss, eta = make_loss("consistency-gra", gamma=2), torch.tensor([[0.6, 0.3, 0.1]], dtype=torch.float64)
    consistency = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64)
    p = eta * (1 - consistency) ** 2
    torch.testing.assert_close(posterior(loss, p / p.sum(), consistency=consistency), eta)
    with pytest.raises(InputError, match="`consistency` is needed"):
        posterior(loss, eta)
    with pytest.raises(InputError, match="consistency-gra alone"):
        posterior(make_loss("focal"), eta, consistency=consistency)


def test_a_weight_that_does_not_depend_on_the_label_changes_nothing():
    probs = torch.randn(20, 4, dtype=torch.float64).softmax(1)
    torch.testing.assert_close(posterior(make_loss("ece-ce"), probs), probs)
    by_confidence = WeightedCE(lambda p, y: 2 - p.amax(1), on="gradient")
    torch.testing.assert_close(posterior(by_confidence, probs), probs)


@settings(deadline=None, max_examples=40)
@given(st.floats(-30, 30), st.floats(0, 10))
def test_two_class_focal_weight_multiplies_the_logits_by_gamma_plus_one(z, gamma):
    logits = torch.tensor([[z, 0.0]], dtype=torch.float64)
    ours = posterior(make_loss("focal-gra", gamma=gamma), logits.softmax(1))
    torch.testing.assert_close(ours, ((gamma + 1) * logits).softmax(1), rtol=1e-9, atol=1e-12)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(2, 8), st.floats(0.1, 8), st.floats(0, 6))
def test_argmax_is_preserved_where_theory_says_so(seed, classes, scale, gamma):
    """Order is kept by every weight on the gradient that falls with p_k, and by focal loss on the loss.

    TrueClass and BrierNorm: u_j < u_k whenever p_j > p_k, so p / u is increasing. Focal loss: p / v(p) is increasing.
    """
    torch.manual_seed(seed)
    probs = (scale * torch.randn(30, classes, dtype=torch.float64)).softmax(1)
    order = probs.argsort(1)
    for loss in (
        WeightedCE(TrueClass() ** gamma, on="gradient"),
        WeightedCE(BrierNorm(beta=2) ** gamma, on="gradient"),
        WeightedCE(BrierNorm(beta=3) ** gamma, on="gradient"),
        WeightedCE(TrueClass() ** gamma, on="loss"),
    ):
        eta = posterior(loss, probs)
        torch.testing.assert_close(eta.sum(1), torch.ones(30, dtype=torch.float64))
        assert (eta.gather(1, order).diff(dim=1) >= -1e-12).all()


def test_argmax_is_not_preserved_where_theory_says_nothing():
    """Dual: p_y just above a strong rival gets a larger weight than the rival itself, which has none as strong."""
    probs = torch.tensor([[0.40, 0.39, 0.11, 0.10]], dtype=torch.float64)
    eta = posterior(WeightedCE(Dual() ** 5, on="gradient"), probs)
    assert int(probs.argmax()) == 0
    assert int(eta.argmax()) == 1


def test_the_general_way_agrees_with_the_closed_forms():
    """The null space of the K gradients knows nothing of u, and finds what the formulas say."""
    probs = torch.randn(30, 6, dtype=torch.float64).softmax(1)
    for name in ("ce", "focal", "focal-gra", "flsd53-gra", "dual-gra", "bsce-gra", "inverse-focal", "brier", "mse"):
        loss = make_loss(name, reduction="none")
        general = posterior(lambda logits, labels, loss=loss: loss(logits, labels), probs)
        torch.testing.assert_close(general, posterior(loss, probs), rtol=1e-9, atol=1e-12)


def test_any_loss_of_one_value_a_sample_has_a_posterior():
    probs = torch.randn(10, 4, dtype=torch.float64).softmax(1)
    torch.testing.assert_close(posterior(nn.CrossEntropyLoss(reduction="none"), probs), probs)
    smooth = posterior(nn.CrossEntropyLoss(reduction="none", label_smoothing=0.02), 0.9 * probs + 0.025)
    torch.testing.assert_close(smooth, (0.9 * probs + 0.025 - 0.005) / 0.98)
    with pytest.raises(InputError, match="reduction='none'"):
        posterior(nn.CrossEntropyLoss(), probs)
    with pytest.raises(InputError, match="constant is added"):
        posterior(lambda z, y: z.square().sum(1) - z.gather(1, y[:, None])[:, 0], probs)
    with pytest.raises(InputError, match="more than one mixture"):
        posterior(lambda z, y: 0 * z.sum(1), probs)


def test_label_smoothing_is_undone_and_what_it_cannot_reach_is_clipped():
    loss = make_loss("label-smoothing", label_smoothing=0.1)
    assert isinstance(loss, CrossEntropy)
    eta = posterior(loss, [[0.95 - 0.05, 0.05 + 0.05], [0.99, 0.01]])
    torch.testing.assert_close(eta[1], torch.tensor([1.0, 0.0], dtype=torch.float64))
    torch.testing.assert_close(eta[0], torch.tensor([0.85 / 0.9, 0.05 / 0.9], dtype=torch.float64))
    with pytest.raises(InputError, match="say nothing"):
        posterior(make_loss("ce", label_smoothing=1.0), [[0.5, 0.5]])


@pytest.mark.parametrize("name", COUPLED)
def test_losses_that_couple_samples_are_refused_with_the_reason(name):
    with pytest.raises(InputError, match="couples the samples"):
        posterior(make_loss(name), [[0.5, 0.5]])


def test_a_loss_whose_pull_changes_sign_is_refused():
    posterior(make_loss("inverse-focal", gamma=3.5), [[0.3, 0.7]])
    with pytest.raises(InputError, match="changes sign"):
        posterior(make_loss("inverse-focal", gamma=4), [[0.3, 0.7]])


def test_class_weights_must_say_something_of_every_class():
    with pytest.raises(InputError, match="positive class weights"):
        posterior(make_loss("ce", weight=[1.0, 0.0]), [[0.5, 0.5]])
    with pytest.raises(InputError, match="3 positive class weights"):
        posterior(make_loss("ce", weight=[1.0, 1.0]), [[0.5, 0.3, 0.2]])


@pytest.mark.parametrize("name", [n for n in LOSSES if n not in (*COUPLED, "consistency-gra")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_corners_of_the_simplex_are_fixed_points(name, dtype):
    """What is certain stays certain: no 0/0 where u vanishes or underflows."""
    tiny = torch.finfo(dtype).tiny
    probs = torch.tensor([[1, 0, 0], [1, tiny, 0], [1 - 1e-6, 1e-6, 0], [1 / 3, 1 / 3, 1 / 3]], dtype=dtype)
    eta = posterior(make_loss(name), probs)
    assert eta.dtype == dtype
    assert eta.isfinite().all()
    torch.testing.assert_close(eta[:2], torch.tensor([[1.0, 0, 0], [1, 0, 0]], dtype=dtype), atol=1e-6, rtol=0)
    assert eta[2, 0] > 0.99
    torch.testing.assert_close(eta[3], probs[3])


def test_many_classes_in_chunks(monkeypatch):
    from calgrad.losses import link

    probs = torch.randn(12, 200, dtype=torch.float64).softmax(1)
    loss = make_loss("bsce")
    whole = posterior(loss, probs)
    monkeypatch.setattr(link, "CHUNK", 5 * 200**2)
    torch.testing.assert_close(posterior(loss, probs), whole)
    torch.testing.assert_close(whole.sum(1), torch.ones(12, dtype=torch.float64))
    # It is a solution: the expected gradient under it vanishes at these probabilities.
    loss.reduction = "none"
    for row in (0, 7):
        logits = probs[row].log().expand(200, -1).clone().requires_grad_()
        value = (whole[row] * loss(logits, torch.arange(200))).sum()
        assert torch.autograd.grad(value, logits)[0].sum(0).abs().max().item() < 1e-12


def test_input_is_checked_and_converted():
    with pytest.raises(InputError, match="sum to 1"):
        posterior(make_loss("focal"), [[0.5, 0.6]])
    with pytest.raises(InputError, match=r"lie in \[0, 1\]"):
        posterior(make_loss("focal"), [[2.0, -1.0]])
    assert posterior(make_loss("focal"), np.array([[0.5, 0.5]], dtype=np.float32)).dtype == torch.float32
