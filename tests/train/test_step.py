"""The step on static tensors against a training loop written by hand, and against its compiled self."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from calgrad.data import load_data, plan_epoch
from calgrad.models import make_model
from calgrad.train.graph import prepare, warm_up
from calgrad.train.optim import learning_rate
from calgrad.train.step import drop_batch_counters, restore_batch_counters
from tests.train.conftest import weights_of


def by_hand(recipe, seed: int, epochs: int) -> nn.Module:
    """The same run with nothing of calgrad.train: plain tensors, plain SGD, a plain loop."""
    data = load_data(recipe.data).train
    mean, std = data.spec.channel_stats()
    torch.manual_seed(seed)
    net = make_model(recipe.model, classes=10, image_size=8, channels=1, **recipe.model_options).train()
    optimiser = torch.optim.SGD(net.parameters(), lr=1.0, momentum=recipe.momentum, weight_decay=recipe.weight_decay)
    batches = -(-len(data) // recipe.batch)
    for epoch in range(epochs):
        order = plan_epoch(len(data), seed=seed, epoch=epoch, batch_size=recipe.batch).order
        for number, rows in enumerate(order.split(recipe.batch)):
            optimiser.param_groups[0]["lr"] = learning_rate(recipe, epoch * batches + number, batches)
            optimiser.zero_grad()
            x = (data.images[rows].float() / 255 - mean) / std
            F.cross_entropy(net(x), data.labels[rows], reduction=recipe.reduction).backward()
            if recipe.clip is not None:
                nn.utils.clip_grad_norm_(net.parameters(), recipe.clip)
            optimiser.step()
    return net


@pytest.mark.parametrize("model", [("mlp", {"hidden": 16}), ("cnn", {"width": 4})])
@pytest.mark.parametrize(("reduction", "clip"), [("mean", None), ("sum", 2.0)])
def test_two_epochs_are_those_of_a_plain_loop(tiny, build, model, reduction, clip):
    recipe = tiny.replace(
        model=model[0],
        model_options=model[1],
        reduction=reduction,
        clip=clip,
        compile="none",
        epochs=2,
        weight_decay=0.01,
    )
    run = build(recipe)
    for epoch in range(2):
        run.epoch = epoch
        run.begin_epoch()
        for size in run.feed.sizes:
            run.step(size)
    expected = by_hand(recipe, seed=1, epochs=2).state_dict()
    for name, tensor in run.net.model.state_dict().items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_epochs_loss_is_the_mean_over_its_samples(tiny, build, reduction):
    run = build(tiny.replace(reduction=reduction, lr=0.0, batch=300))
    for size in run.feed.sizes:
        run.step(size)
    logits, labels, _ = run.logits("train")
    assert run.feed.sizes == [300, 300, 300, 100]
    expected = F.cross_entropy(logits, labels)
    torch.testing.assert_close(run.step.total.float() / 1000, expected)


@pytest.mark.parametrize("loss", ["ce", "bsce-gra", "dual", "mmce", "consistency-gra"])
def test_the_compiled_objective_gives_the_same_numbers(tiny, build, loss):
    torch._dynamo.reset()
    eager, traced = build(tiny.replace(loss=loss)), build(tiny.replace(loss=loss))
    prepared = prepare(traced.step, "compile", device=torch.device("cpu"), backend="aot_eager")
    assert (prepared.mode, prepared.note, list(traced.step.compiled)) == ("compile", None, [300])
    for run in (eager, traced):
        torch.manual_seed(0)  # for the feature noise
        for size in run.feed.sizes:
            run.step(size)
    for name, tensor in weights_of(eager).items():
        torch.testing.assert_close(weights_of(traced)[name], tensor, rtol=1e-5, atol=1e-6)


def test_another_loss_and_seed_find_the_network_compiled(tiny, build):
    torch._dynamo.reset()
    graphs: list[int] = []

    def count(module, _inputs):
        graphs.append(len(module.graph.nodes))
        return module.forward

    for number, loss in enumerate(("ce", "bsce-gra", "ce")):
        run = build(tiny.replace(loss=loss, model="cnn", model_options={"width": 4}), seed=number)
        prepare(run.step, "compile", device=torch.device("cpu"), backend=count)
        run.step(300)
    assert len(graphs) == 3  # the network once, and the two losses


def test_warming_up_changes_nothing(tiny, build):
    run = build(tiny.replace(model="cnn", model_options={"width": 4}, ema=0.9, optimiser="adamw", loss="adafocal"))
    run.step(300)
    before = {name: t.clone() for name, t in run.step.state_tensors().items()}
    random = torch.get_rng_state()
    warm_up(run.step, 300, steps=3)
    assert {"optimiser.0.step", "feed.cursor", "step.total", "ema.0", "model.body.1.running_mean"} <= before.keys()
    for name, tensor in run.step.state_tensors().items():
        assert torch.equal(tensor, before[name]), name
    assert torch.equal(torch.get_rng_state(), random)


def test_a_step_moves_every_kind_of_state_and_no_storage(tiny, build):
    run = build(tiny.replace(ema=0.9))
    places = {name: t.data_ptr() for name, t in run.step.state_tensors().items()}
    before = {name: t.clone() for name, t in run.step.state_tensors().items()}
    run.step(300)
    after = run.step.state_tensors()
    assert {name: t.data_ptr() for name, t in after.items()} == places
    assert all(not torch.equal(after[name], before[name]) for name in before)


def test_on_the_cpu_a_graph_is_declined_and_auto_is_eager(tiny, build):
    run = build(tiny)
    assert prepare(run.step, "auto", device=torch.device("cpu")).mode == "none"
    declined = prepare(run.step, "graph", device=torch.device("cpu"))
    assert declined.mode == "none"
    assert "needs CUDA" in declined.note


def test_a_compiler_that_fails_leaves_the_eager_step(tiny, build, monkeypatch):
    def broken(*_args, **_options):
        def fail(_size):
            raise RuntimeError("no compiler here")

        return fail

    run = build(tiny)
    before = weights_of(run)
    monkeypatch.setattr(torch, "compile", broken)
    prepared = prepare(run.step, "compile", device=torch.device("cpu"))
    assert prepared.mode == "none"
    assert "no compiler here" in prepared.note
    assert all(torch.equal(t, before[name]) for name, t in weights_of(run).items())
    run.step(300)  # and it works
    assert run.step.compiled == {}
    assert float(run.step.total) > 0


def test_batch_counters_go_and_come_back():
    net = nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(2, momentum=None))
    drop_batch_counters(net)
    assert net[0].num_batches_tracked is None
    assert int(net[1].num_batches_tracked) == 0  # a cumulative average needs its count
    net(torch.randn(4, 2))
    restore_batch_counters(net, 5, torch.device("cpu"))
    assert int(net[0].num_batches_tracked) == 5
    assert int(net[1].num_batches_tracked) == 1


def test_bf16_keeps_weights_head_and_logits_in_float32(tiny, build):
    run = build(tiny.replace(precision="bf16"))
    x, _ = run.feed.take(300)
    logits, features = run.net(x)
    assert x.dtype == torch.bfloat16
    assert logits.dtype == features.dtype == torch.float32
    assert {p.dtype for p in run.net.parameters()} == {torch.float32}
    run.step(300)
    assert torch.isfinite(run.step.total)
