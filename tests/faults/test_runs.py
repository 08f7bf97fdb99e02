"""What happens to a run when the machine misbehaves: each fault in a process of its own, nothing lost, the exit code tells."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from calgrad.checks import FileError, InputError
from calgrad.train import Interrupted, Recipe, Record, load_model, train
from calgrad.train.checkpoint import list_checkpoints
from calgrad.train.lock import LOCK, LockedError, run_lock
from calgrad.train.memory import DeviceMemoryError
from calgrad.train.run import load_splits

TINY = {
    "data": "digits", "model": "mlp", "model_options": {"hidden": 16}, "epochs": 3, "batch": 300, "lr": 0.1,
    "name": "tiny", "loss": "bsce-gra",
}  # fmt: skip
MANY = {**TINY, "epochs": 100_000, "checkpoint_every": 20}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return train(Recipe(**TINY), 1, folder=tmp_path_factory.mktemp("whole") / "run", device="cpu", quiet=True)


def same_bits(one: Path, other: Path) -> None:
    first, second = (load_model(folder).model.state_dict() for folder in (one, other))
    assert all(torch.equal(first[name], second[name]) for name in first)
    for split in ("val", "test"):
        name = f"predictions-{split}.npz"
        assert (one / name).read_bytes() == (other / name).read_bytes()


def command(tmp_path: Path, recipe: dict, **options) -> subprocess.Popen:
    """`calgrad train` in a process of its own."""
    path = tmp_path / "tiny.yaml"
    path.write_text(json.dumps(recipe))
    arguments = ["train", str(path), "--seed", "1", "--out", str(tmp_path / "run"), "--device", "cpu", "-q"]
    return subprocess.Popen(
        [sys.executable, "-m", "calgrad", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, **options,
    )  # fmt: skip


def until(process: subprocess.Popen, done, seconds: float = 60.0) -> None:
    limit = time.monotonic() + seconds
    while not done():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit
        time.sleep(0.005)


# -------------------------------------------------------------------------------------------------------------- the disk


def test_a_disk_that_fills_while_a_checkpoint_is_written(tmp_path, whole):
    # No file may grow beyond a part of a checkpoint: what the system says is what it says of a full disk, near enough.
    size = list_checkpoints(whole / "checkpoints")[0].stat().st_size

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2))

    def die(entry):
        if entry["epoch"] == 2:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(Recipe(**TINY), 1, folder=tmp_path / "run", on_epoch=die, device="cpu", quiet=True)
    before = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    process = command(tmp_path, TINY, preexec_fn=limit)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert errors.count("\n") == 1
    assert "error: " in errors
    assert "step-000000012.pt cannot be written: File too large" in errors
    assert "what was there before is untouched" in errors
    for path, content in before.items():
        assert path.name == "record.json" or path.read_bytes() == content
    assert Record.load(tmp_path / "run").status == "running"
    assert not list((tmp_path / "run").rglob("*.tmp"))
    same_bits(whole, train(Recipe(**TINY), 1, folder=tmp_path / "run", device="cpu", quiet=True))


@pytest.mark.skipif(os.getuid() != 0, reason="takes another user's rights, which needs one's own to be root's")
def test_a_folder_that_may_not_be_written_is_refused_before_any_work(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    folder.chmod(0o555)
    code = (
        "import os, sys; from calgrad.train import Recipe, train; import calgrad.cli.app, torch;"
        "os.chdir('/'); os.setuid(65534);"
        f"train(Recipe(data='digits', model='mlp'), 1, folder={str(folder)!r}, device='cpu', quiet=True)"
    )
    for parent in [tmp_path, *tmp_path.parents]:  # pytest keeps its folders to root, how deep depends on its workers
        if parent.name.startswith(("pytest-", "popen-", "test_")):
            parent.chmod(0o755)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"FileError: {folder} cannot be written to: Permission denied" in done.stderr
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(FileError, match=r"taken.run cannot be written to: Not a directory"):
        train(Recipe(**TINY), 1, folder=tmp_path / "taken" / "run", device="cpu", quiet=True)


# ----------------------------------------------------------------------------------------------------------- the lock


def test_two_processes_in_one_folder(tmp_path):
    first = command(tmp_path, MANY)
    try:
        until(first, lambda: list((tmp_path / "run").glob("checkpoints/*.sha256")))
        second = command(tmp_path, MANY)
        _, errors = second.communicate(timeout=60)
        assert second.returncode == 1
        assert f"is in use by process {first.pid} on " in errors
        assert first.poll() is None
    finally:
        first.kill()
        first.communicate()
    # The lock went with its process: nothing stale stands in the way, though the file is still there.
    assert (tmp_path / "run" / LOCK).exists()
    with run_lock(tmp_path / "run"):
        pass


def test_one_process_does_not_enter_a_folder_twice(tmp_path):
    with run_lock(tmp_path):
        with pytest.raises(LockedError, match=r"\(this one\)"), run_lock(tmp_path):
            pass
        assert (tmp_path / LOCK).exists()
    assert not (tmp_path / LOCK).exists()


def test_a_finished_run_needs_no_lock(whole):
    with run_lock(whole):
        assert train(Recipe(**TINY), 1, folder=whole, quiet=True) == whole


# ---------------------------------------------------------------------------------------------------------- damaged files


@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_serves(tmp_path, whole, damage):
    folder = _stopped_after(tmp_path, 2)
    latest = list_checkpoints(folder / "checkpoints")[0]
    data = bytearray(latest.read_bytes())
    if damage == "truncated":
        del data[len(data) // 2 :]
    else:
        data[len(data) // 2] ^= 1
    latest.write_bytes(data)
    same_bits(whole, train(Recipe(**TINY), 1, folder=folder, device="cpu", quiet=True))
    assert Record.load(folder).notes == [
        f"checkpoint {latest.name} is passed over: its checksum does not match, so it is truncated or damaged"
    ]


@pytest.mark.parametrize("content", [b"", b'{"recipe": ', b"\xff\xfe", b"[]"])
def test_a_damaged_record_is_named_and_the_copy_in_the_checkpoint_serves(tmp_path, whole, content):
    folder = _stopped_after(tmp_path, 2)
    (folder / "record.json").write_bytes(content)
    with pytest.warns(UserWarning, match=r"record\.json cannot be read .* copy in the last checkpoint is used"):
        train(Recipe(**TINY), 1, folder=folder, device="cpu", quiet=True)
    assert [e["epoch"] for e in Record.load(folder).epochs] == [1, 2, 3]
    same_bits(whole, folder)


def test_without_a_record_a_checkpoint_still_knows_whose_it_is(tmp_path):
    folder = _stopped_after(tmp_path, 2)
    (folder / "record.json").unlink()
    with pytest.raises(InputError, match=r"lr: 0\.1 there, 0\.2 here"):
        train(Recipe(**{**TINY, "lr": 0.2}), 1, folder=folder, device="cpu", quiet=True)


def test_a_checkpoint_of_another_format_is_not_written_over(tmp_path, monkeypatch):
    folder = _stopped_after(tmp_path, 2)
    monkeypatch.setattr("calgrad.train.run.CHECKPOINT_FORMAT", 2)
    with pytest.raises(
        FileError, match=r"checkpoints of format 1, and this calgrad reads 2; start anew with .*--restart"
    ):
        train(Recipe(**TINY), 1, folder=folder, device="cpu", quiet=True)


def _stopped_after(tmp_path: Path, epochs: int) -> Path:
    def die(entry):
        if entry["epoch"] == epochs:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(Recipe(**TINY), 1, folder=tmp_path / "run", on_epoch=die, device="cpu", quiet=True)
    return tmp_path / "run"


def test_a_corrupt_image_in_the_middle_of_an_epoch(tmp_path):
    from PIL import Image

    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for i in range(20):
            Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(
                tmp_path / "data" / name / f"{i:02d}.png"
            )
    recipe = Recipe(
        data=f"folder:{tmp_path / 'data'}", model="mlp", image_size=8, epochs=2, batch=4, workers=0, val_size=8, lr=0.01
    )
    whole = train(recipe, 1, folder=tmp_path / "whole", device="cpu", quiet=True)

    path = load_splits(recipe).train.paths[10]
    image = path.read_bytes()

    def spoil(entry):
        path.write_bytes(image[:60])

    with pytest.raises(FileError, match=rf"{path} cannot be decoded as an image"):
        train(recipe, 1, folder=tmp_path / "run", on_epoch=spoil, device="cpu", quiet=True)
    record = Record.load(tmp_path / "run")
    assert (record.status, len(record.epochs)) == ("running", 1)
    path.write_bytes(image)
    same_bits(whole, train(recipe, 1, folder=tmp_path / "run", device="cpu", quiet=True))


# ------------------------------------------------------------------------------------------------------------- the clock


def test_a_clock_that_jumps_changes_nothing(tmp_path, whole, monkeypatch):
    jumps = iter([1e9, -1e9, 5e8] * 1000)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + next(jumps))

    def turn_back(entry):
        # Checkpoints from the future and from the past: their order is their step's, not their time's.
        for i, path in enumerate(list_checkpoints(tmp_path / "run" / "checkpoints")):
            os.utime(path, (i * 1e9 + 1, i * 1e9 + 1))
        if entry["epoch"] == 2:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(Recipe(**TINY), 1, folder=tmp_path / "run", on_epoch=turn_back, device="cpu", quiet=True)
    seen: list[int] = []
    train(
        Recipe(**TINY), 1, folder=tmp_path / "run", on_epoch=lambda e: seen.append(e["epoch"]), device="cpu", quiet=True
    )
    assert seen == [3]
    record = Record.load(tmp_path / "run")
    assert all(0 <= value < 1e6 for value in record.timings.values())
    same_bits(whole, tmp_path / "run")


# -------------------------------------------------------------------------------------------------------------- signals


def test_sigterm_while_a_run_is_validated_finishes_the_validation_and_checkpoints(tmp_path, whole):
    def measured(predictions):
        if not (tmp_path / "asked").exists():
            (tmp_path / "asked").touch()
            os.kill(os.getpid(), signal.SIGTERM)
        return {"n": predictions.n}

    with pytest.raises(Interrupted) as caught:
        train(Recipe(**TINY), 1, folder=tmp_path / "run", evaluate=measured, device="cpu", quiet=True)
    assert caught.value.exit_code == 143
    record = Record.load(tmp_path / "run")
    assert (record.status, len(record.epochs), record.epochs[0]["val_n"]) == ("interrupted", 1, 257)
    same_bits(whole, train(Recipe(**TINY), 1, folder=tmp_path / "run", device="cpu", quiet=True))


def test_sigterm_ends_a_training_command_with_143_and_a_checkpoint(tmp_path):
    process = command(tmp_path, MANY)
    until(process, lambda: list((tmp_path / "run").glob("checkpoints/*.sha256")))
    process.terminate()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "is written, and the same command goes on from there" in errors
    assert Record.load(tmp_path / "run").status == "interrupted"


def test_sigterm_during_an_evaluation_leaves_no_litter_and_tells(tmp_path):
    # It surely is in the middle of its work, with half a file written, when the signal comes.
    (tmp_path / "out").mkdir()
    code = """
import sys, time
from calgrad.cli import app
from calgrad.files import whole_file
from pathlib import Path
import calgrad.cli.evaluate as command
def measure(*_, **__):
    with whole_file(Path("half.npz")) as beside:
        beside.write_bytes(b"half")
        print("reading", flush=True)
        time.sleep(60)
command.measure = measure
sys.exit(app.run(["evaluate", "example"]))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path / "out", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "reading\n"
    process.terminate()
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (143, "terminated\n")
    assert list((tmp_path / "out").iterdir()) == []


# --------------------------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize(
    ("most", "advice"), [(100, "batch 75 fits"), (1, "batch 1 fits"), (0, "not even a batch of 1")]
)
def test_out_of_memory_says_which_batch_would_fit(tmp_path, monkeypatch, most, advice):
    from calgrad.train.step import TrainStep

    forward = TrainStep.forward

    def scarce(self, size):
        if size > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total of ...")
        return forward(self, size)

    monkeypatch.setattr(TrainStep, "forward", scarce)
    expected = rf"cpu is out of memory at batch 300 \(CUDA out of memory\); {advice}"
    with pytest.raises(DeviceMemoryError, match=expected):
        train(Recipe(**TINY), 1, folder=tmp_path / "run", device="cpu", quiet=True)
    monkeypatch.undo()
    assert Record.load(train(Recipe(**TINY), 1, folder=tmp_path / "run", device="cpu", quiet=True)).status == "finished"


@pytest.mark.gpu
def test_out_of_memory_on_a_real_device(tmp_path):
    torch.cuda.set_per_process_memory_fraction(0.01)
    try:
        recipe = Recipe(data="digits", model="cnn", model_options={"width": 4096}, batch=1000, compile="none")
        with pytest.raises(DeviceMemoryError, match=r"cuda:0 is out of memory at batch 1000 .*(fits|not even)"):
            train(recipe, 1, folder=tmp_path / "run", device="cuda", quiet=True)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


# ---------------------------------------------------------------------------------------------------------- determinism


def test_same_seed_same_machine_same_bits_in_another_process(tmp_path, whole):
    process = command(tmp_path, TINY)
    assert process.wait(timeout=60) == 0, process.communicate()
    same_bits(whole, tmp_path / "run")


@pytest.mark.gpu
def test_the_deterministic_mode_repeats_itself_on_a_gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("CALGRAD_DETERMINISTIC", "1")
    recipe = Recipe(data="digits", model="cnn", epochs=3, batch=64, precision="bf16")
    same_bits(*(train(recipe, 1, folder=tmp_path / name, device="cuda", quiet=True) for name in ("one", "other")))
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_deterministic_mode_is_put_back_and_changes_nothing_on_a_cpu(tmp_path, whole, monkeypatch):
    monkeypatch.setenv("CALGRAD_DETERMINISTIC", "1")
    seen: list[bool] = []
    train(
        Recipe(**TINY), 1, folder=tmp_path / "run", device="cpu", quiet=True,
        on_epoch=lambda entry: seen.append(torch.are_deterministic_algorithms_enabled()),
    )  # fmt: skip
    assert seen == [True] * 3
    assert not torch.are_deterministic_algorithms_enabled()
    same_bits(whole, tmp_path / "run")
