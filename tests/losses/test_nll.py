"""The fused form of -log p_y and p: same numbers and derivatives as the plain one, in every mode of autograd."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from calgrad.losses import make_loss, nll


def fused(logits, labels):
    return nll._NLL.apply(logits, labels)


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
def test_values_and_gradient_are_those_of_cross_entropy(scale):
    logits, labels = scale * torch.randn(40, 7), torch.randint(0, 7, (40,))
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    value, p_true, others = fused(ours, labels)
    expected = F.cross_entropy(theirs, labels, reduction="none")
    assert not p_true.requires_grad
    assert not others.requires_grad
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=2e-6 * scale)
    probs = others.scatter(1, labels[:, None], p_true[:, None])
    torch.testing.assert_close(probs, logits.softmax(1))
    assert others.gather(1, labels[:, None]).abs().max() == 0
    upstream = torch.randn(40)
    (upstream * value).sum().backward()
    (upstream * expected).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_it_can_be_differentiated_again_and_forward():
    logits, labels = torch.randn(3, 4, dtype=torch.float64, requires_grad=True), torch.tensor([0, 3, 1])
    assert torch.autograd.gradcheck(lambda z: fused(z, labels)[0], logits, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda z: fused(z, labels)[0], logits)
    expected = torch.func.hessian(lambda z: F.cross_entropy(z, labels))(logits.detach())
    torch.testing.assert_close(torch.func.hessian(lambda z: fused(z, labels)[0].mean())(logits.detach()), expected)


def test_it_works_under_vmap():
    logits, labels = torch.randn(5, 3, 4), torch.randint(0, 4, (5, 3))
    gradient = torch.func.vmap(torch.func.grad(lambda z, y: fused(z, y)[0].sum()))(logits, labels)
    expected = torch.func.vmap(torch.func.grad(lambda z, y: F.cross_entropy(z, y, reduction="sum")))(logits, labels)
    torch.testing.assert_close(gradient, expected)
    of_labels = torch.func.vmap(lambda y: fused(logits[0], y)[0])(labels)
    torch.testing.assert_close(of_labels[2], F.cross_entropy(logits[0], labels[2], reduction="none"))


def test_large_batches_take_the_fused_form_and_agree(monkeypatch):
    logits, labels = torch.randn(1000, 100, dtype=torch.float64), torch.randint(0, 100, (1000,))
    assert logits.numel() >= nll.FUSED_FROM
    loss = make_loss("bsce-gra")
    fast = torch.func.grad_and_value(loss)(logits, labels)
    monkeypatch.setattr(nll, "FUSED_FROM", float("inf"))
    torch.testing.assert_close(fast, torch.func.grad_and_value(loss)(logits, labels))
