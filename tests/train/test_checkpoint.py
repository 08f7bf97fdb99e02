from __future__ import annotations

import hashlib

import pytest
import torch

from calgrad.checks import FileError
from calgrad.train.checkpoint import clear_checkpoints, list_checkpoints, load_latest, save_checkpoint


def state(value: float) -> dict:
    return {"tensors": {"w": torch.full((3,), value)}, "epoch": int(value), "rng": None, "record": "{}"}


def test_there_and_back_and_the_last_two_are_kept(tmp_path):
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step, state(step))
    assert [p.name for p in list_checkpoints(tmp_path)] == ["step-000000003.pt", "step-000000002.pt"]
    assert len(list(tmp_path.iterdir())) == 4  # two checkpoints, two checksums, nothing temporary
    said: list[str] = []
    found = load_latest(tmp_path, say=said.append)
    assert torch.equal(found["tensors"]["w"], torch.full((3,), 3.0))
    assert said == []


def test_the_checksum_is_one_that_sha256sum_checks(tmp_path):
    path = save_checkpoint(tmp_path, 1, state(1))
    digest, name = (tmp_path / "step-000000001.pt.sha256").read_text().split()
    assert (digest, name) == (hashlib.sha256(path.read_bytes()).hexdigest(), path.name)


@pytest.mark.parametrize("keep", [0, 1, 100, -1])
def test_a_truncated_latest_falls_back_to_the_one_before_and_says_so(tmp_path, keep):
    save_checkpoint(tmp_path, 1, state(1))
    latest = save_checkpoint(tmp_path, 2, state(2))
    latest.write_bytes(latest.read_bytes()[:keep])
    said: list[str] = []
    assert load_latest(tmp_path, say=said.append)["epoch"] == 1
    assert said == [
        "checkpoint step-000000002.pt is passed over: its checksum does not match, so it is truncated or damaged"
    ]


def test_a_checkpoint_without_its_checksum_was_not_finished(tmp_path):
    save_checkpoint(tmp_path, 1, state(1))
    save_checkpoint(tmp_path, 2, state(2))
    (tmp_path / "step-000000002.pt.sha256").unlink()
    said: list[str] = []
    assert load_latest(tmp_path, say=said.append)["epoch"] == 1
    assert "was not finished" in said[0]


def test_nothing_to_load(tmp_path):
    assert load_latest(tmp_path / "nowhere", say=print) is None


def test_a_checkpoint_cannot_run_code(tmp_path):
    class Hostile:
        def __reduce__(self):
            return (eval, ("open('/tmp/never', 'w')",))

    path = tmp_path / "step-000000001.pt"
    torch.save({"tensors": Hostile()}, path)
    path.with_name(path.name + ".sha256").write_text(hashlib.sha256(path.read_bytes()).hexdigest() + "  x\n")
    with pytest.raises(FileError, match=r"step-000000001\.pt is whole but no checkpoint .*[Ww]eights"):
        load_latest(tmp_path, say=print)


def test_clearing(tmp_path):
    save_checkpoint(tmp_path, 1, state(1))
    clear_checkpoints(tmp_path)
    assert list(tmp_path.iterdir()) == []
