from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from calgrad.checks import FileError
from calgrad.cli.data import register
from calgrad.data import SPECS, data_root, verify
from calgrad.data.download import file_md5
from tests.data.official import WNIDS, jpeg_bytes, pack, shrink, write_cifar10, write_tiny_imagenet


@pytest.fixture
def cifar(tmp_path, monkeypatch):
    shrink(monkeypatch, "cifar10", 50, 10)
    write_cifar10(tmp_path)
    return tmp_path


def failed(result):
    return [check.subject for check in result.checks if not check.passed]


def test_a_whole_cifar10_passes(cifar, monkeypatch):
    assert failed(verify("cifar10", cifar)) == []
    archive = pack(cifar / "cifar-10-batches-py", cifar / "cifar-10-python.tar.gz")
    assert failed(verify("cifar10", cifar)) == ["MD5 of cifar-10-python.tar.gz"]
    monkeypatch.setitem(SPECS, "cifar10", replace(SPECS["cifar10"], md5=file_md5(archive)))
    result = verify("cifar10", cifar)
    assert result.passed
    assert len(result.checks) == 8


def test_damage_is_found(cifar):
    folder = cifar / "cifar-10-batches-py"
    names = [*SPECS["cifar10"].classes[:9], "lorry"]
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": [n.encode() for n in names]}, protocol=2))
    assert failed(verify("cifar10", cifar)) == ["class names"]
    (folder / "test_batch").write_bytes(b"x")
    assert failed(verify("cifar10", cifar)) == ["files"]


def test_missing_data_is_an_error(tmp_path):
    with pytest.raises(FileError, match="calgrad data fetch cifar100"):
        verify("cifar100", tmp_path)


def test_embedded_data_pass():
    for name in ("digits", "gaussians"):
        assert failed(verify(name)) == []


def test_tiny_imagenet_is_decoded_if_asked(tmp_path, monkeypatch):
    shrink(monkeypatch, "tiny-imagenet", 24, 8, classes=4)
    folder = write_tiny_imagenet(tmp_path)
    assert verify("tiny-imagenet", tmp_path, decode=True, workers=0).passed
    (folder / "train" / WNIDS[0] / "images" / f"{WNIDS[0]}_1.JPEG").write_bytes(jpeg_bytes()[:700])
    assert verify("tiny-imagenet", tmp_path).passed  # the files are all there
    result = verify("tiny-imagenet", tmp_path, decode=True, workers=0)
    assert failed(result) == ["training images decode"]
    assert f"{WNIDS[0]}_1.JPEG" in next(c.found for c in result.checks if not c.passed)


def test_where_data_are_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("CALGRAD_DATA", str(tmp_path / "a"))
    assert data_root() == tmp_path / "a"
    assert data_root(tmp_path / "b") == tmp_path / "b"
    monkeypatch.delenv("CALGRAD_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("sys.platform", "linux")
    assert data_root() == tmp_path / "cache" / "calgrad" / "data"
    monkeypatch.setattr("sys.platform", "darwin")
    assert data_root() == Path.home() / "Library" / "Caches" / "calgrad" / "data"


@pytest.fixture
def run():
    app = typer.Typer()
    register(app)
    app.command("other")(lambda: None)
    return lambda *arguments: CliRunner().invoke(app, ["data", *map(str, arguments)])


def test_command_list(run, cifar):
    result = run("list", "--data", cifar, "--json")
    assert result.exit_code == 0
    rows = {row["name"]: row for row in json.loads(result.stdout)["data"]}
    assert set(rows) == {*SPECS, "folder:PATH"} - {"folder"}
    assert rows["digits"]["here"] == "embedded"
    assert rows["cifar10"]["here"].endswith("cifar-10-batches-py")
    assert rows["cifar100"]["here"] is None
    table = run("list", "--data", cifar).stdout
    assert all(name in table for name in rows)


def test_command_verify(run, cifar):
    good = run("verify", "cifar10", "--data", cifar)
    assert good.exit_code == 0
    assert "training samples: 50" in good.stdout
    (cifar / "cifar-10-batches-py" / "data_batch_1").write_bytes(b"x")
    bad = run("verify", "cifar10", "--data", cifar, "--json")
    assert bad.exit_code == 1
    report = json.loads(bad.stdout)
    assert not report["passed"]
    assert "data_batch_1" in report["checks"][0]["found"]


def test_command_fetch_leaves_alone_what_is_there(run, cifar):
    result = run("fetch", "cifar10", "--data", cifar)
    assert result.exit_code == 0
    assert result.stdout.strip() == str(cifar / "cifar-10-batches-py")
