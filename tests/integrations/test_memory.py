"""Many classes: what is held beside the input, measured on the process itself, in units of the input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import calgrad

# A fresh process, so that nothing but the call under test moves its high-water mark (which `clear_refs` resets).
SCRIPT = """
import gc, json, sys, warnings
import torch, calgrad
from torch.nn import functional as F
torch.set_num_threads(1)
warnings.simplefilter("ignore")
rows, classes = map(int, sys.argv[1:])
torch.manual_seed(0)
logits, labels = torch.randn(rows, classes), torch.randint(classes, (rows,))

def megabytes(field):
    line = next(line for line in open("/proc/self/status") if line.startswith(field))
    return int(line.split()[1]) / 1024

def peak(call):
    call(logits[:64].clone(), labels[:64])       # what is set up once does not count
    gc.collect()
    open("/proc/self/clear_refs", "w").write("5")
    before = megabytes("VmRSS")
    call(logits, labels)
    return (megabytes("VmHWM") - before) / (logits.numel() * 4 / 2**20)

def step(loss):
    def call(z, y):
        loss(z.detach().requires_grad_(), y).backward()
    return call

calls = {
    "evaluate": lambda z, y: calgrad.evaluate(logits=z, labels=y, bootstrap=0),
    "ece": lambda z, y: calgrad.ece(logits=z, labels=y),
    "nll": lambda z, y: calgrad.nll(logits=z, labels=y),
    "brier": lambda z, y: calgrad.brier(logits=z, labels=y),
    "smooth_ece": lambda z, y: calgrad.smooth_ece(logits=z, labels=y),
    "classwise_ece": lambda z, y: calgrad.classwise_ece(logits=z, labels=y),
    "temperature": lambda z, y: calgrad.make_calibrator("temperature").fit(z, y),
    "link": lambda z, y: calgrad.make_calibrator("link", loss="bsce-gra").fit(z, y),
    "cross-entropy": step(F.cross_entropy),
    **{name: step(calgrad.make_loss(name)) for name in ("ce", "bsce-gra")},
}
print(json.dumps({name: peak(call) for name, call in calls.items()}))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads Linux's /proc")
@pytest.mark.parametrize(("rows", "classes"), [(20_000, 1000), (1000, 21_000)])
def test_nothing_of_the_inputs_size_is_copied(rows, classes):
    out = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(rows), str(classes)], capture_output=True, text=True, check=True
    )
    peaks = json.loads(out.stdout)
    for name in ("evaluate", "ece", "nll", "brier", "smooth_ece", "classwise_ece", "temperature"):
        assert peaks[name] < 0.6, (name, peaks)
    assert peaks["link"] < 0.7, peaks  # float64 blocks of rows
    # A loss must hold its gradient, and what its backward pass needs: no more than PyTorch's own cross-entropy.
    for loss in ("ce", "bsce-gra"):
        assert peaks[loss] < peaks["cross-entropy"] + 0.2, (loss, peaks)


def test_classwise_error_weighted_by_prevalence():
    """A class that is missing half of the time matters by how often it occurs, or as much as any other."""
    rng = np.random.default_rng(0)
    labels = torch.from_numpy(rng.choice(3, 6000, p=[0.90, 0.09, 0.01]))
    probs = torch.tensor([[0.85, 0.10, 0.05]]).expand(6000, 3).contiguous()
    shares = torch.bincount(labels) / 6000
    gaps = (probs[0] - shares).abs()
    assert calgrad.classwise_ece(probs, labels) == pytest.approx(float(gaps.mean()), abs=1e-6)
    weighted = calgrad.classwise_ece(probs, labels, average="prevalence")
    assert weighted == pytest.approx(float((shares * gaps).sum()), abs=1e-6)


def test_imbalance_is_undone_by_the_link():
    """Training under class weights shifts the posterior; the link shifts it back, at a thousand classes too."""
    torch.manual_seed(0)
    weight = torch.rand(1000, dtype=torch.float64) + 0.1
    eta = torch.randn(20, 1000, dtype=torch.float64).mul(3).softmax(1)
    trained = eta * weight / (eta * weight).sum(1, keepdim=True)  # the minimiser of weighted cross-entropy
    assert torch.allclose(calgrad.posterior(calgrad.make_loss("ce", weight=weight), trained), eta, atol=1e-12)
