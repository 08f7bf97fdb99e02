from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calgrad.checks import FileError, InputError
from calgrad.data import SplitIndices, load_data, paper_split, seeded_split


def test_paper_split_is_the_published_one():
    split = paper_split()
    # As the published loader does it: a list, the global legacy generator, seed 1.
    indices = list(range(50_000))
    np.random.seed(1)  # noqa: NPY002
    np.random.shuffle(indices)  # noqa: NPY002
    assert split.val.tolist() == indices[:5_000]
    assert split.train.tolist() == indices[5_000:]
    assert split.val[:5].tolist() == [26247, 35067, 34590, 16668, 12196]


@given(st.integers(0, 10_000), st.data())
@settings(deadline=None, max_examples=50)
def test_stratified_split_gives_each_class_its_share(seed, data):
    labels = data.draw(st.lists(st.integers(0, 4), min_size=4, max_size=200))
    val_size = data.draw(st.integers(1, len(labels) - 1))
    split = seeded_split(labels, val_size, seed=seed)
    assert sorted([*split.train, *split.val]) == list(range(len(labels)))
    assert len(split.val) == val_size
    counts = np.bincount(labels)
    held_out = np.bincount(np.array(labels)[split.val], minlength=len(counts))
    assert np.abs(held_out - counts * val_size / len(labels)).max() <= 1 + 1e-9


def test_seed_decides_the_split():
    labels = np.arange(1000) % 10
    first, again, other = (seeded_split(labels, 100, seed=s) for s in (3, 3, 4))
    assert (first.val == again.val).all()
    assert len(np.intersect1d(first.val, other.val)) < 40
    plain = seeded_split(labels, 100, seed=3, stratified=False)
    assert len(set(np.bincount(labels[plain.val], minlength=10))) > 1


@pytest.mark.parametrize("suffix", [".npz", ".json"])
def test_a_split_is_saved_and_used_again(tmp_path, suffix):
    split = paper_split(100, 10)
    split.save(tmp_path / f"split{suffix}")
    loaded = SplitIndices.load(tmp_path / f"split{suffix}")
    assert loaded.train.tolist() == split.train.tolist()
    assert loaded.val.tolist() == split.val.tolist()
    assert loaded.name == "paper"
    data = load_data("digits", split=tmp_path / f"split{suffix}")
    assert len(data.train) == 90
    assert len(data.val) == 10


def test_wrong_splits_are_refused(tmp_path):
    with pytest.raises(InputError, match="disjoint"):
        SplitIndices(np.arange(5), np.arange(4, 8))
    with pytest.raises(InputError, match="negative"):
        SplitIndices(np.arange(-1, 5), np.arange(5, 8))
    with pytest.raises(InputError, match="list of indices"):
        SplitIndices(np.arange(5.0), np.arange(5, 8))
    with pytest.raises(InputError, match="holds index 5000, but the training set has 1257"):
        load_data("digits", split=SplitIndices(np.arange(10), np.array([5000])))
    (tmp_path / "bad.npz").write_bytes(random.Random(0).randbytes(50))
    with pytest.raises(FileError, match=r"bad\.npz"):
        SplitIndices.load(tmp_path / "bad.npz")
    (tmp_path / "bad.json").write_text('{"train": [1]}')
    with pytest.raises(FileError, match=r"bad\.json"):
        SplitIndices.load(tmp_path / "bad.json")
    for size in (0, 10, 11):
        with pytest.raises(InputError, match="val_size"):
            seeded_split(np.zeros(10, int), size)
    with pytest.raises(InputError, match="published CIFAR split"):
        load_data("digits", split="paper")
    with pytest.raises(InputError, match="val_size"):
        load_data("digits", val_size=0)
    with pytest.raises(InputError, match="not both"):
        load_data("digits", val_size=10, val_fraction=0.1)
