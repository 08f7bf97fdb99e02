"""timm's training script: `loss_fn(output, target)`, with class indices or mixup's distributions."""

from __future__ import annotations

import pytest
import torch

from calgrad.losses import LOSSES, make_loss


@pytest.fixture
def timm():
    try:
        import timm
        import timm.data
        import timm.loss
    except (ImportError, RuntimeError) as error:  # a torchvision of another torch fails with a RuntimeError
        pytest.skip(f"timm does not import here: {error}")
    return timm


def soft_labels(n: int, classes: int) -> torch.Tensor:
    """What mixup gives: two labels shared, then smoothed."""
    share = torch.rand(n, 1)
    first, second = (torch.nn.functional.one_hot(torch.randint(classes, (n,)), classes) for _ in range(2))
    return 0.9 * (share * first + (1 - share) * second) + 0.1 / classes


@pytest.mark.parametrize("name", sorted(LOSSES.keys() - {"consistency-gra"}))
def test_every_loss_fits_the_script(name):
    """`train_loss_fn.to(device=device)`, called on the model's output with indices or with mixup's distributions."""
    loss = make_loss(name).to(device=torch.device("cpu"))
    net = torch.nn.Linear(6, 5)
    for labels in (torch.randint(5, (16,)), soft_labels(16, 5)):
        net.zero_grad()
        loss(net(torch.randn(16, 6)), labels).backward()
        assert net.weight.grad.isfinite().all()
        assert net.weight.grad.abs().max() > 0


def test_losses_agree_with_timms(timm):
    logits = torch.randn(32, 10)
    mixup = timm.data.Mixup(mixup_alpha=0.8, num_classes=10, label_smoothing=0.1)
    _, soft = mixup(torch.randn(32, 3, 8, 8), torch.randint(10, (32,)))
    assert make_loss("ce")(logits, soft) == pytest.approx(timm.loss.SoftTargetCrossEntropy()(logits, soft), rel=1e-5)
    labels = torch.randint(10, (32,))
    smooth = timm.loss.LabelSmoothingCrossEntropy(smoothing=0.1)(logits, labels)
    assert make_loss("label-smoothing", label_smoothing=0.1)(logits, labels) == pytest.approx(smooth, rel=1e-5)


def test_a_timm_model_trains_with_mixup(timm):
    net = timm.create_model("resnet10t", num_classes=4)
    mixup = timm.data.Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=4)
    images, soft = mixup(torch.randn(8, 3, 64, 64), torch.randint(4, (8,)))
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01)
    loss = make_loss("bsce-gra", gamma=2)
    values = []
    for _ in range(8):
        optimiser.zero_grad()
        value = loss(net(images), soft)
        value.backward()
        optimiser.step()
        values.append(value.item())
    assert values[-1] < values[0]
