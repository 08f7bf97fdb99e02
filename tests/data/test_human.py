from __future__ import annotations

import numpy as np
import pytest
import torch

from calgrad.checks import FileError, InputError
from calgrad.data import attach_human_labels, load_data
from tests.data.official import shrink, write_cifar10


@pytest.fixture
def data(tmp_path, monkeypatch):
    shrink(monkeypatch, "cifar10", 250, 50)
    write_cifar10(tmp_path, per_batch=50)
    return load_data("cifar10", tmp_path)


@pytest.fixture
def counts(data):
    votes = np.random.default_rng(0).integers(0, 4, (50, 10))
    votes[np.arange(50), data.test.labels.numpy()] += 40
    return votes


@pytest.mark.parametrize("kind", ["counts.npz", "probs.npz", "probs.npy", "counts.npy"])
def test_human_answers_become_soft_labels(data, counts, tmp_path, kind):
    values = counts if kind.startswith("counts") else counts / counts.sum(1, keepdims=True)
    path = tmp_path / kind
    if kind.endswith("npy"):
        np.save(path, values)
    else:
        np.savez(path, **{kind.removesuffix(".npz"): values})
    attached = attach_human_labels(data, path)
    expected = torch.from_numpy(counts / counts.sum(1, keepdims=True)).float()
    assert torch.allclose(attached.test.soft_labels, expected)
    assert data.test.soft_labels is None
    assert torch.equal(attached.test.labels, data.test.labels)


def test_wrong_files_are_refused(data, counts, tmp_path):
    np.save(tmp_path / "short.npy", counts[:-1])
    with pytest.raises(FileError, match=r"shape \(50, 10\), got \(49, 10\)"):
        attach_human_labels(data, tmp_path / "short.npy")
    np.save(tmp_path / "shuffled.npy", np.roll(counts, 1, axis=0))
    with pytest.raises(FileError, match="another order"):
        attach_human_labels(data, tmp_path / "shuffled.npy")
    np.save(tmp_path / "negative.npy", counts - 5.0)
    with pytest.raises(FileError, match="not negative"):
        attach_human_labels(data, tmp_path / "negative.npy")
    np.save(tmp_path / "pickled.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(FileError, match=r"pickled\.npy"):
        attach_human_labels(data, tmp_path / "pickled.npy")
    np.savez(tmp_path / "other.npz", votes=counts)
    with pytest.raises(FileError, match="`probs` or `counts`"):
        attach_human_labels(data, tmp_path / "other.npz")
    with pytest.raises(FileError, match=r"absent\.npy"):
        attach_human_labels(data, tmp_path / "absent.npy")
    with pytest.raises(InputError, match="cifar10 test set"):
        attach_human_labels(load_data("digits"), tmp_path / "short.npy")
