from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import nn

from calgrad.train import Recipe
from calgrad.train.optim import epoch_table, learning_rate, make_optimiser, state_tensors

BASE = {"data": "digits", "model": "mlp"}
STEPS = 7


def rates(recipe: Recipe) -> list[float]:
    return [learning_rate(recipe, step, STEPS) for step in range(recipe.epochs * STEPS)]


def torch_rates(scheduler_of, count: int, *, lr: float, per_epoch: bool) -> list[float]:
    optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=lr)
    scheduler, found = scheduler_of(optimiser), []
    for step in range(count):
        found.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        if not per_epoch or (step + 1) % STEPS == 0:
            scheduler.step()
    return found


def test_steps_agree_with_torch():
    recipe = Recipe(**BASE, lr=0.1, epochs=6, schedule="steps", milestones=(2, 4), lr_drop=0.1)
    theirs = torch_rates(
        lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [2, 4], 0.1), 6 * STEPS, lr=0.1, per_epoch=True
    )
    assert rates(recipe) == pytest.approx(theirs)


def test_cosine_agrees_with_torch():
    recipe = Recipe(**BASE, lr=0.3, epochs=3, schedule="cosine")
    count = 3 * STEPS
    theirs = torch_rates(lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, count), count, lr=0.3, per_epoch=False)
    assert rates(recipe) == pytest.approx(theirs)


def test_linear_falls_evenly_to_zero_after_the_last_step():
    recipe = Recipe(**BASE, lr=1.0, epochs=2, schedule="linear")
    found = rates(recipe)
    assert found[0] == 1.0
    assert found[-1] == pytest.approx(1 / (2 * STEPS))
    drops = [a - b for a, b in itertools.pairwise(found)]
    assert drops == pytest.approx([drops[0]] * len(drops))


@pytest.mark.parametrize("schedule", ["constant", "cosine", "linear", "one-cycle"])
def test_warm_up_rises_evenly_and_never_starts_at_zero(schedule):
    recipe = Recipe(**BASE, lr=0.5, epochs=5, warmup=2, schedule=schedule)
    found = rates(recipe)
    rise = found[: 2 * STEPS]
    steps = [b - a for a, b in itertools.pairwise(rise)]
    assert found[0] > 0
    assert steps == pytest.approx([steps[0]] * len(steps))
    assert max(found) == pytest.approx(0.5, rel=0.08)
    assert all(math.isfinite(rate) and 0 < rate <= 0.5 for rate in found)


def test_the_table_is_the_schedule(tiny):
    table = epoch_table(tiny, 1, STEPS)
    assert table.tolist() == pytest.approx([learning_rate(tiny, STEPS + s, STEPS) for s in range(STEPS)])


PLAIN = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01, foreach=False),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=True, foreach=False),
    "adam": lambda p: torch.optim.Adam(p, lr=0.05, weight_decay=0.01, foreach=False),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.01, foreach=False),
}


@pytest.mark.parametrize("name", PLAIN)
def test_the_primed_fused_optimiser_is_torchs_plain_one(name):
    mine, plain = nn.Linear(5, 3).double(), nn.Linear(5, 3).double()
    plain.load_state_dict(mine.state_dict())
    lr = torch.tensor(0.05)
    recipe = Recipe(**BASE, optimiser=name, momentum=0.9, weight_decay=0.01)
    ours, theirs = make_optimiser(recipe, mine.parameters(), lr), PLAIN[name](plain.parameters())
    assert all(bool((t == 0).all()) for t in state_tensors(ours).values())
    assert float(lr) == pytest.approx(0.05)
    for step in range(4):
        x = torch.randn(8, 5, dtype=torch.float64)
        for net, optimiser in ((mine, ours), (plain, theirs)):
            optimiser.zero_grad()
            net(x).square().sum().backward()
            optimiser.step()
        if step == 1:  # the schedule moves the rate in place
            lr.fill_(0.02)
            theirs.param_groups[0]["lr"] = 0.02
    for a, b in zip(mine.parameters(), plain.parameters()):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)  # the rate itself is float32


def test_state_tensors_are_named_and_ordered():
    net = nn.Linear(2, 2)
    optimiser = make_optimiser(Recipe(**BASE, optimiser="adam"), net.parameters(), torch.tensor(0.1))
    assert list(state_tensors(optimiser)) == [
        "0.exp_avg", "0.exp_avg_sq", "0.step", "1.exp_avg", "1.exp_avg_sq", "1.step",
    ]  # fmt: skip
