"""The switch: a weight on the gradient multiplies cross-entropy's gradient, a weight on the loss is differentiated."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from calgrad import InputError
from calgrad.losses import LOSSES, BrierNorm, ConsistencyCE, Dual, TrueClass, WeightedCE, feature_consistency, make_loss

GRA = ["focal-gra", "flsd53-gra", "dual-gra", "bsce-gra"]
ON_LOSS = ["focal", "flsd53", "dual", "bsce", "inverse-focal", "adafocal"]


def cross_entropy_gradient(logits, labels):
    logits = logits.detach().requires_grad_()
    F.cross_entropy(logits, labels, reduction="sum").backward()
    return logits.grad


@pytest.mark.parametrize("name", GRA)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(64, 5), (300, 300)], ids=["plain", "fused"])
def test_gradient_is_the_weight_times_that_of_cross_entropy_row_by_row(name, dtype, shape):
    logits = (3 * torch.randn(shape)).to(dtype).requires_grad_()
    labels, upstream = torch.randint(0, shape[1], shape[:1]), torch.rand(shape[0]) + 0.5
    loss = make_loss(name, reduction="none")
    value = loss(logits, labels)
    assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    (value * upstream.to(value)).sum().backward()
    wide = logits.detach().to(value.dtype)
    u = loss.uncertainty(wide.softmax(1), labels)
    expected = (u * upstream.to(value))[:, None] * cross_entropy_gradient(wide, labels)
    assert logits.grad.dtype == dtype
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}[dtype]
    torch.testing.assert_close(logits.grad.to(value.dtype), expected, rtol=tolerance, atol=tolerance * 1e-2)
    torch.testing.assert_close(
        value.detach(), u * F.cross_entropy(wide, labels, reduction="none"), rtol=1e-4, atol=1e-6
    )


def test_the_published_dual_gradient_is_another_one():
    """Detaching p_rival alone, as the published code does, is far from u x gradient of CE; ours is not."""
    logits = torch.randn(256, 10, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, 10, (256,))
    probs = logits.softmax(1)
    p_true = probs.gather(1, labels[:, None])[:, 0]
    p_rival = (Dual()(probs, labels) - 1 + p_true).detach()
    published = ((1 - p_true + p_rival) ** 5 * -p_true.log()).sum()
    wrong = torch.autograd.grad(published, logits)[0]
    right = (Dual() ** 5)(probs, labels).detach()[:, None] * cross_entropy_gradient(logits, labels)
    assert float((wrong - right).norm() / right.norm()) > 0.3
    make_loss("dual-gra", reduction="sum")(logits, labels).backward()
    torch.testing.assert_close(logits.grad, right)


@pytest.mark.parametrize("name", ON_LOSS)
@pytest.mark.parametrize("gamma", [None, 0.5])
def test_gradient_on_the_loss_is_that_of_the_value(name, gamma):
    options = {} if gamma is None or "gamma" not in LOSSES[name].defaults else {"gamma": gamma}
    loss = make_loss(name, reduction="none", **options)
    logits = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: loss(z, torch.tensor([0, 1, 2, 4])), logits)
    soft = torch.rand(4, 5, dtype=torch.float64).softmax(1)
    assert torch.autograd.gradcheck(lambda z: loss(z, soft), logits)


@pytest.mark.parametrize("beta", [1, 1.5, 2, 4])
def test_brier_norm_on_the_loss_has_the_gradient_of_its_value(beta):
    loss = WeightedCE(BrierNorm(beta=beta) ** 3, on="loss", reduction="none")
    logits = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: loss(z, torch.tensor([0, 1, 2, 4])), logits)


WITH_GAMMA = [name for name in LOSSES if "gamma" in LOSSES[name].defaults and name != "adafocal"]


@pytest.mark.parametrize(
    ("name", "gamma"), [*((n, None) for n in LOSSES), *((n, g) for n in WITH_GAMMA for g in (0.01, 0.5))]
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_saturated_logits_have_finite_values_and_gradients(name, gamma, dtype, loss_arguments):
    loss = make_loss(name, reduction="none", **({} if gamma is None else {"gamma": gamma}))
    rows = [[1e4, -1e4, 0], [1e4, 1e4, -1e4], [0, 0, 0], [30, 0, 0], [12, 0, -3], [17, 0, 0], [-1e4, -1e4, -1e4]]
    for label in range(3):
        logits = torch.tensor(rows, dtype=dtype, requires_grad=True)
        extra = loss_arguments(name, logits)
        value = loss(logits, torch.full((len(rows),), label), *extra)
        value.sum().backward()
        assert value.isfinite().all()
        assert logits.grad.isfinite().all()
        soft = F.one_hot(torch.full((len(rows),), label), 3).to(dtype)
        logits.grad = None
        make_loss(name, label_smoothing=0.1)(logits, soft, *extra).backward()
        assert logits.grad.isfinite().all()


@pytest.mark.parametrize("beta", [1, 1.5, 2, 4, 20])
@pytest.mark.parametrize("on", ["loss", "gradient"])
def test_every_norm_is_finite_at_the_corners(beta, on):
    for gamma in (0.1, 1, 3):
        logits = torch.tensor([[1e4, -1e4, 0], [0.0, 0, 0], [40, 0, -40]], requires_grad=True)
        loss = WeightedCE(BrierNorm(beta=beta) ** gamma, on=on, reduction="none")
        for label in range(3):
            value = loss(logits, torch.full((3,), label))
            assert value.isfinite().all()
            assert torch.autograd.grad(value.sum(), logits)[0].isfinite().all()


@pytest.mark.parametrize("name", [*GRA, *ON_LOSS])
def test_a_certain_right_prediction_is_left_alone(name):
    """The decision for gamma < 1: as p_y -> 1 both the loss and its gradient go to 0, and at p_y = 1 they are 0."""
    options = {"gamma": 0.5} if name in WITH_GAMMA else {}
    for margin, bound in ((8, 1e-2), (16, 1e-6), (200, 0.0)):
        logits = torch.tensor([[float(margin), 0.0, 0.0]], requires_grad=True)
        value = make_loss(name, **options)(logits, torch.tensor([0]))
        value.backward()
        assert abs(value.item()) <= bound
        assert float(logits.grad.abs().max()) <= bound


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.sampled_from([*GRA, *ON_LOSS]), st.floats(0, 1))
def test_soft_labels_average_over_the_label(seed, name, smoothing):
    torch.manual_seed(seed)
    logits = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    labels, weight = torch.randn(6, 4, dtype=torch.float64).softmax(1), torch.rand(4, dtype=torch.float64)
    ours = make_loss(name, weight=weight, label_smoothing=smoothing, reduction="none")(logits, labels)
    mixed = (1 - smoothing) * labels + smoothing / 4
    hard = make_loss(name, reduction="none")
    expected = sum(mixed[:, k] * weight[k] * hard(logits, torch.full((6,), k)) for k in range(4))
    torch.testing.assert_close(ours, expected)
    grads = [torch.autograd.grad(x.sum(), logits, retain_graph=True)[0] for x in (ours, expected)]
    torch.testing.assert_close(*grads)


def test_any_callable_weighs_differentiable_or_not():
    def by_rank(probs, labels):  # not differentiable, not even torch
        order = np.argsort(-probs.numpy(), axis=1)
        return torch.from_numpy(1.0 + (order == labels.numpy()[:, None]).argmax(1)).to(probs.dtype)

    logits = torch.randn(8, 5, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, 5, (8,))
    WeightedCE(by_rank, reduction="sum")(logits, labels).backward()
    expected = by_rank(logits.detach().softmax(1), labels)[:, None] * cross_entropy_gradient(logits, labels)
    torch.testing.assert_close(logits.grad, expected)
    smooth = lambda probs, labels: 1 - (probs**2).sum(1)  # noqa: E731
    assert torch.autograd.gradcheck(lambda z: WeightedCE(smooth, on="loss")(z, labels), logits)
    with pytest.raises(InputError, match="`uncertainty`"):
        WeightedCE(3.0)
    with pytest.raises(InputError, match="`on`"):
        WeightedCE(smooth, on="both")


def test_a_module_may_be_the_weight_and_is_not_trained_through_the_gradient_switch():
    class Learned(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))

        def forward(self, probs, labels):
            return self.scale * probs.amax(1)

    learned = Learned()
    logits, labels = torch.randn(8, 5, requires_grad=True), torch.randint(0, 5, (8,))
    loss = WeightedCE(learned, on="gradient")
    assert list(loss.state_dict()) == ["uncertainty_module.scale"]
    loss(logits, labels).backward()
    assert learned.scale.grad is None
    WeightedCE(learned, on="loss")(logits, labels).backward()
    assert learned.scale.grad is not None


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_compiles_without_a_graph_break(name, loss_arguments):
    torch._dynamo.reset()
    loss, labels = make_loss(name), torch.randint(0, 6, (32,))
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    plain, traced = (torch.randn(32, 6, generator=torch.Generator().manual_seed(0)).requires_grad_() for _ in range(2))
    extra = loss_arguments(name, plain)
    expected, value = loss(plain, labels, *extra), compiled(traced, labels, *extra)
    expected.backward()
    value.backward()
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(traced.grad, plain.grad)


@pytest.mark.parametrize("name", ["dual", "bsce-gra", "adafocal"])
def test_compiles_and_vectorises_under_soft_labels_and_smoothing(name):
    torch._dynamo.reset()
    loss = make_loss(name, label_smoothing=0.1, weight=torch.tensor([0.5, 1.0, 2.0, 1.5]))
    labels, plain = torch.rand(8, 4).softmax(1), torch.randn(8, 4, requires_grad=True)
    expected = torch.autograd.grad(loss(plain, labels), plain)[0]
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(torch.autograd.grad(compiled(plain, labels), plain)[0], expected)
    per_sample = torch.func.vmap(torch.func.grad(loss))(plain.detach(), labels)
    torch.testing.assert_close(per_sample / 8, expected)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_works_under_function_transforms(name, loss_arguments):
    loss = make_loss(name)
    logits, labels = torch.randn(6, 5, dtype=torch.float64), torch.randint(0, 5, (6,))
    extra = loss_arguments(name, logits)
    per_sample = torch.func.vmap(torch.func.grad(loss))(logits, labels, *extra)
    for i in range(6):
        one = logits[i].clone().requires_grad_()
        loss(one, labels[i], *[e[i] for e in extra]).backward()
        torch.testing.assert_close(per_sample[i], one.grad)
    hessian = torch.func.hessian(loss)(logits[0], labels[0], *[e[0] for e in extra])
    torch.testing.assert_close(hessian, hessian.T)
    assert hessian.isfinite().all()


def test_consistency_weighs_by_what_the_model_says_under_noise():
    logits, labels = torch.randn(6, 4, dtype=torch.float64, requires_grad=True), torch.randint(0, 4, (6,))
    consistency = torch.randn(6, 4, dtype=torch.float64).softmax(1)
    loss = make_loss("consistency-gra", gamma=2, reduction="sum")
    loss(logits, labels, consistency).backward()
    u = (1 - consistency.gather(1, labels[:, None])) ** 2
    torch.testing.assert_close(logits.grad, u * cross_entropy_gradient(logits, labels))
    of_label = consistency.gather(1, labels[:, None])[:, 0]
    torch.testing.assert_close(loss(logits, labels, of_label), loss(logits, labels, consistency))
    with pytest.raises(InputError, match="consistency"):
        loss(logits, F.one_hot(labels, 4).double(), of_label)
    with pytest.raises(InputError, match="consistency"):
        ConsistencyCE(label_smoothing=0.1)(logits, labels, of_label)


def test_feature_consistency_is_the_mean_probability_under_noise():
    head, features = nn.Linear(3, 4), torch.randn(5, 3)
    torch.testing.assert_close(feature_consistency(head, features, sigma=0), head(features).detach().softmax(1))
    one = feature_consistency(head, features, sigma=0.5, samples=2000, generator=torch.Generator().manual_seed(0))
    two = feature_consistency(head, features, sigma=0.5, samples=2000, generator=torch.Generator().manual_seed(1))
    assert not one.requires_grad
    torch.testing.assert_close(one.sum(1), torch.ones(5))
    torch.testing.assert_close(one, two, atol=0.03, rtol=0)
    assert (one - head(features).softmax(1)).abs().max().item() > 1e-3
    with pytest.raises(InputError, match="samples"):
        feature_consistency(head, features, samples=0)


def test_focal_gradient_factor_is_the_papers_g():
    """[Lin25] Section 4.1: on the loss, focal loss scales CE's gradient by (1-p)^g - g p (1-p)^(g-1) log p."""
    logits = torch.randn(50, 6, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, 6, (50,))
    WeightedCE(TrueClass() ** 3, on="loss", reduction="sum")(logits, labels).backward()
    p = logits.detach().softmax(1).gather(1, labels[:, None])
    g = (1 - p) ** 3 - 3 * p * (1 - p) ** 2 * p.log()
    torch.testing.assert_close(logits.grad, g * cross_entropy_gradient(logits, labels))


@pytest.mark.gpu
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_no_device_sync_and_capturable_in_a_cuda_graph(name):
    loss = make_loss(name, label_smoothing=0.0).cuda()
    logits = torch.randn(128, 10, device="cuda", requires_grad=True)
    labels = torch.randint(0, 10, (128,), device="cuda")
    extra = [torch.rand(128, 10, device="cuda").softmax(1)] if name == "consistency-gra" else []
    expected = torch.autograd.grad(loss(logits, labels, *extra), logits)[0]
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.autograd.grad(loss(logits, labels, *extra), logits)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            torch.autograd.grad(loss(logits, labels, *extra), logits)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = torch.autograd.grad(loss(logits, labels, *extra), logits)[0]
    graph.replay()
    torch.testing.assert_close(captured, expected)
