from __future__ import annotations

import numpy as np
import pytest
import torch

from calgrad.losses import make_loss
from calgrad.train import train
from calgrad.train.gradients import last_layer_gradients


@pytest.mark.parametrize("loss", ["ce", "focal", "bsce-gra", "brier"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_closed_form_is_the_norm_of_a_backward_pass_by_sample(tiny, build, loss, reduction):
    run = build(tiny.replace(loss=loss, reduction=reduction))
    found = last_layer_gradients(
        run.net, run.loss, run.data.train, run.recipe, device=torch.device("cpu"), group=run.group
    )
    model, each = run.net.model.eval(), make_loss(loss, reduction="sum")
    x = (run.data.train.images.float() / 255 - run.feed.mean) / run.feed.std
    for row in (0, 17, 999):
        model.zero_grad()
        label = run.data.train.labels[row : row + 1]
        each(model(x[row : row + 1]), label).backward()
        expected = torch.cat([model.head.weight.grad.flatten(), model.head.bias.grad]).norm()
        assert found["gradient_norm"][row] == pytest.approx(float(expected), rel=1e-4)


def test_the_columns_beside_it(tiny, build):
    run = build(tiny)
    found = last_layer_gradients(
        run.net, run.loss, run.data.train, run.recipe, device=torch.device("cpu"), group=run.group
    )
    logits, labels, ids = run.logits("train")
    probs = logits.softmax(dim=1)
    one_hot = torch.nn.functional.one_hot(labels, 10)
    np.testing.assert_allclose(found["brier"], (probs - one_hot).square().sum(dim=1), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found["p_true"], probs[range(1000), labels], rtol=1e-5)
    assert found["ids"].tolist() == ids.tolist()
    assert run.net.training


def test_chosen_epochs_are_saved(tiny, tmp_path):
    recipe = tiny.replace(gradient_epochs=[30], epochs=30, batch=100)
    folder = train(recipe, 1, folder=tmp_path / "run", quiet=True)
    with np.load(folder / "gradients-epoch-030.npz") as saved:
        assert sorted(saved.files) == ["brier", "gradient_norm", "ids", "labels", "p_true"]
        # For cross-entropy the gradient grows with the error: |p - e_y| is the root of the Brier score.
        assert np.corrcoef(saved["gradient_norm"], np.sqrt(saved["brier"]))[0, 1] > 0.9
    assert [p.name for p in folder.glob("gradients*")] == ["gradients-epoch-030.npz"]
