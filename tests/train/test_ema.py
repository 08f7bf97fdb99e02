from __future__ import annotations

import torch
from torch import nn

from calgrad.train.ema import Ema


def test_the_average_is_the_recursion_by_hand():
    net = nn.BatchNorm1d(3)
    ema = Ema(net, decay=0.8)
    expected = net.running_mean.clone()
    for _ in range(5):
        net.running_mean.normal_()
        ema.update()
        expected = 0.8 * expected + 0.2 * net.running_mean
    with ema.swapped_in():
        torch.testing.assert_close(net.running_mean, expected)


def test_swapping_gives_everything_back_bit_for_bit_in_the_same_storage():
    net = nn.Linear(4, 4)
    ema = Ema(net, decay=0.5)
    with torch.no_grad():
        net.weight.normal_()
    ema.update()
    before, place = net.weight.detach().clone(), net.weight.data_ptr()
    average = ema.state_tensors()["0"].clone()
    with ema.swapped_in():
        assert torch.equal(net.weight, average)
        assert net.weight.data_ptr() == place
    assert torch.equal(net.weight, before)
    assert torch.equal(ema.state_tensors()["0"], average)


def test_counters_are_not_averaged():
    net = nn.BatchNorm1d(2)
    net.num_batches_tracked.fill_(7)
    ema = Ema(net, decay=0.5)
    ema.update()
    with ema.swapped_in():
        assert int(net.num_batches_tracked) == 7
