"""On a CUDA device: the captured step against the eager one."""

from __future__ import annotations

import pytest
import torch

from calgrad.train import Recipe, Record, load_model, train
from calgrad.train.graph import prepare
from tests.train.conftest import weights_of

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("mode", ["graph-eager", "graph"])
@pytest.mark.parametrize("loss", ["ce", "bsce-gra", "consistency-gra"])
def test_the_graph_gives_the_eager_numbers(tiny, build, mode, loss):
    recipe = tiny.replace(
        model="cnn", model_options={"width": 16}, loss=loss, reduction="sum", clip=2.0, ema=0.9, lr=0.01
    )
    eager, graphed = build(recipe, device="cuda"), build(recipe, device="cuda")
    prepared = prepare(graphed.step, mode, device=torch.device("cuda"))
    assert (prepared.mode, prepared.note) == (mode, None)
    assert set(graphed.step.replays) == {300, 100}
    before = weights_of(eager)
    assert all(torch.equal(t, before[name]) for name, t in weights_of(graphed).items())  # warming up changed nothing
    for run in (eager, graphed):
        for epoch in range(2):
            run.epoch = epoch
            run.begin_epoch()
            for size in run.feed.sizes:
                run.step(size)
    for name, tensor in weights_of(eager).items():
        torch.testing.assert_close(weights_of(graphed)[name], tensor, rtol=2e-3, atol=2e-4, msg=name)
    torch.testing.assert_close(graphed.step.total, eager.step.total, rtol=1e-3, atol=1e-3)


def test_a_whole_run_on_the_gpu(tiny, tmp_path):
    recipe: Recipe = tiny.replace(model="cnn", model_options={}, precision="bf16", epochs=6, batch=100, lr=0.05)
    folder = train(recipe, 1, folder=tmp_path / "run", device="cuda", quiet=True)
    record = Record.load(folder)
    assert record.device["step"] == "graph"
    assert record.notes == []
    assert record.epochs[-1]["val_accuracy"] > 0.8
    assert load_model(folder, device="cuda").model.head.weight.is_cuda
