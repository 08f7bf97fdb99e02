"""Many files evaluated as one: the same numbers as the whole, with any number of processes."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest
import torch

from calgrad import Predictions, evaluate
from calgrad.checks import FileError, InputError
from calgrad.cli.app import run
from calgrad.metrics import StreamSums, evaluate_shards, evaluation_of_sums
from calgrad.metrics.shards import rows_of_piece

SIZES = (700, 1, 299, 1000)


@pytest.fixture(scope="module")
def whole() -> Predictions:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(sum(SIZES), 5, generator=generator, dtype=torch.float64)
    labels = torch.multinomial((logits / 2).softmax(1), 1, generator=generator).squeeze(1)
    return Predictions(logits, labels)


@pytest.fixture(scope="module")
def folder(whole, tmp_path_factory) -> Path:
    """One shard of each format."""
    import pyarrow as pa
    from pyarrow import parquet

    folder = tmp_path_factory.mktemp("shards")
    parts = [whole.select(torch.arange(sum(SIZES[:i]), sum(SIZES[: i + 1]))) for i in range(len(SIZES))]
    parts[0].save(folder / "shard-0.npz")
    parts[1].save(folder / "shard-1.safetensors")
    columns = {f"logit_{k}": parts[2].logits[:, k].numpy() for k in range(5)}
    parquet.write_table(pa.table({"label": parts[2].labels.numpy(), **columns}), folder / "shard-2.parquet")
    rows = [[int(y), *map(repr, z)] for y, z in zip(parts[3].labels, parts[3].logits.tolist())]
    lines = ["label," + ",".join(columns), *(",".join(map(str, row)) for row in rows)]
    (folder / "shard-3.csv").write_text("\n".join(lines) + "\n")
    return folder


def flat(value, path=""):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from flat(item, f"{path}.{key}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from flat(item, f"{path}.{i}")
    else:
        yield path, value


def test_shards_of_every_format_give_the_numbers_of_the_whole(whole, folder):
    found = evaluate_shards(sorted(folder.iterdir()))
    expected = evaluate(whole)
    bounds = found.approximate
    assert set(bounds) == {"adaptive_ece", "aurc"}
    ours, theirs = dict(flat(found.to_dict())), dict(flat(expected.to_dict()))
    for name, value in theirs.items():
        if isinstance(value, float):
            assert ours[name] == pytest.approx(value, rel=1e-9, abs=1e-12 + bounds.get(name[1:], 0)), name
        else:
            assert ours[name] == value, name


@pytest.mark.slow
def test_several_processes_give_the_same_bits(folder):
    paths = sorted(folder.iterdir())
    assert evaluate_shards(paths, jobs=2).to_json() == evaluate_shards(paths).to_json()


def test_intervals_come_from_the_sums_alone(whole, folder):
    found = evaluate_shards(sorted(folder.iterdir()), bootstrap=500)
    expected = evaluate(whole, bootstrap=500)
    for name in ("accuracy", "nll", "brier", "ece"):
        ours, theirs = found.intervals[name], expected.intervals[name]
        assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), rel=1e-9)


def test_sums_add_up_in_any_order(whole):
    parts = [StreamSums.of(whole.select(slice(a, a + 500))) for a in range(0, 2000, 500)]
    one, other = parts[0] + parts[1] + parts[2] + parts[3], (parts[3] + parts[1]) + (parts[2] + parts[0])
    assert torch.equal(one.count, other.count)
    assert torch.equal(one.ranks, other.ranks)
    assert evaluation_of_sums(one).ece == pytest.approx(evaluation_of_sums(other).ece, rel=1e-12)


def test_the_command(folder, capsys):
    assert run(["evaluate", str(folder), "--as-one", "--json", "--bootstrap", "100"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["n"], len(found["files"])) == (2000, 4)
    assert run(["evaluate", *map(str, sorted(folder.iterdir())), "--as-one", "--bootstrap", "100"]) == 0
    assert "4 files: 2,000 samples, 5 classes" in capsys.readouterr().out.replace("2000", "2,000")


def test_what_does_not_belong_together_is_refused_before_anything_is_read(whole, tmp_path):
    whole.save(tmp_path / "a.npz")
    Predictions(whole.logits[:, :4], torch.zeros(len(whole), dtype=torch.int64)).save(tmp_path / "b.npz")
    with pytest.raises(FileError, match=r"b\.npz has 4 classes, but .*a\.npz has 5"):
        evaluate_shards(sorted(tmp_path.iterdir()))
    names = [{"class_names": list(order)} for order in ("abcde", "abced")]
    for name, meta in zip("ab", names):
        Predictions(whole.logits, whole.labels, meta=meta).save(tmp_path / f"{name}.npz")
    with pytest.raises(FileError, match=r"b\.npz names its classes otherwise"):
        evaluate_shards(sorted(tmp_path.iterdir()))
    with pytest.raises(InputError, match="no file was given"):
        evaluate_shards([])


def test_an_empty_folder_is_an_error(tmp_path, capsys):
    assert run(["evaluate", str(tmp_path), "--as-one"]) == 2
    assert "holds no file of predictions" in capsys.readouterr().err


def test_a_damaged_shard_among_many_is_named(folder, tmp_path, capsys):
    good = (folder / "shard-0.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(good)
    (tmp_path / "b.npz").write_bytes(good[:2000] + bytes([good[2000] ^ 1]) + good[2001:])
    assert run(["evaluate", str(tmp_path), "--as-one"]) == 2
    assert "b.npz is not a whole .npz file" in capsys.readouterr().err


def test_memory_does_not_grow_with_the_files(tmp_path):
    """The bound of docs/reliability.md on fewer rows; benchmarks/bench_scale.py measures it on many."""
    logits = torch.randn(200_000, 10)
    Predictions(logits, logits.argmax(1)).save(tmp_path / "shard.npz")
    evaluate_shards([tmp_path / "shard.npz"], bootstrap=0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    evaluate_shards([tmp_path / "shard.npz"] * 8, bootstrap=0)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000  # KiB; the data are 70 MiB


@pytest.mark.parametrize(("classes", "rows"), [(2, 65_536), (10, 65_536), (1000, 4194), (10**7, 1)])
def test_a_piece_is_small_whatever_the_classes(classes, rows):
    assert rows_of_piece(classes) == rows
