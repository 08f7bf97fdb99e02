"""Runs on the page, followed while they grow; the server that shows them; and the command."""

from __future__ import annotations

import http.client
import json
import threading
import time

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from calgrad.checks import FileError
from calgrad.cli.report import register
from calgrad.report.document import make_report
from calgrad.report.sources import read_sources
from calgrad.report.watch import Watch, make_server, signature
from calgrad.train import Recipe, Record
from tests.report.test_page_document import predictions


def make_run(folder, *, seed=1, loss="focal", epochs=3, finished=True):
    folder.mkdir(parents=True, exist_ok=True)
    recipe = Recipe(data="digits", model="mlp", loss=loss, epochs=5)
    record = Record(recipe.to_dict(), seed, recipe.fingerprint(), status="finished" if finished else "running")
    record.epochs = [
        {"epoch": e, "train_loss": 1 / e, "val_ece": 0.1 / e, "val_nll": 0.9 / e, "val_accuracy": 1 - 0.3 / e}
        for e in range(1, epochs + 1)
    ]
    if finished:
        for split, n in (("val", 300), ("test", 400)):
            record.files[split] = f"predictions-{split}.npz"
            predictions(n, factor=0.6, seed=seed).save(folder / record.files[split])
        brier = np.linspace(0, 2, 200)
        np.savez(folder / "gradients-epoch-001.npz", brier=brier, gradient_norm=brier**0.5)
    record.save(folder)
    return folder


def build_from(path, cache):
    return lambda: make_report(read_sources([path], lenient=True), methods=("temperature", "link"), cache=cache)


# ------------------------------------------------------------------------------------------------------------------ runs


def test_a_folder_of_runs_becomes_models_and_curves(tmp_path):
    make_run(tmp_path / "a" / "seed-1")
    make_run(tmp_path / "a" / "seed-2", seed=2)
    make_run(tmp_path / "b", seed=3, loss="ce", finished=False)
    found = read_sources([tmp_path])
    assert [m.name for m in found.models] == ["focal, seed 1", "focal, seed 2"]
    assert found.models[0].loss == ("focal", {})
    assert found.models[0].val.n == 300
    document = make_report(found, methods=("link", "temperature")).document
    assert [(r["status"], r["done"]) for r in document["runs"]] == [("finished", 3), ("finished", 3), ("running", 3)]
    assert document["runs"][2]["history"]["ece"] == pytest.approx([0.1, 0.05, 0.1 / 3])
    assert [r["name"] for r in document["models"][0]["repairs"]["rows"]] == ["nothing", "link", "temperature"]
    assert "300 validation samples" in document["models"][0]["repairs"]["how"]
    assert document["models"][0]["gradients"]["series"][0]["name"].startswith("epoch 1")


def test_a_folder_without_runs_is_said(tmp_path):
    with pytest.raises(FileError, match="holds no run"):
        read_sources([tmp_path])
    assert read_sources([tmp_path], lenient=True).models == []


def test_a_half_written_run_does_not_stop_the_others(tmp_path):
    make_run(tmp_path / "good")
    broken = make_run(tmp_path / "broken", seed=2)
    (broken / "predictions-test.npz").write_bytes(b"PK\x03\x04 cut")
    (tmp_path / "newborn").mkdir()
    (tmp_path / "newborn" / "record.json").write_text('{"recipe": {"lo')
    found = read_sources([tmp_path], lenient=True)
    assert [m.name for m in found.models] == ["focal, seed 1"]
    assert len(found.problems) == 2
    with pytest.raises(FileError):
        read_sources([tmp_path])


# ----------------------------------------------------------------------------------------------------------------- watch


def test_watch_starts_before_the_first_run_and_follows_it(tmp_path):
    cache = {}
    watch = Watch([tmp_path], build_from(tmp_path, cache), out=tmp_path / "page.html")
    assert watch.look()
    assert json.loads(watch.data(0))["models"] == []
    assert not watch.look()  # nothing changed
    make_run(tmp_path / "one", finished=False)
    assert watch.look()
    assert json.loads(watch.data(0))["runs"][0]["status"] == "running"
    make_run(tmp_path / "one")
    assert watch.look()
    assert json.loads(watch.data(0))["models"][0]["name"] == "focal, seed 1"
    assert watch.data(watch.version) is None
    assert len(cache) == 1
    make_run(tmp_path / "two", seed=2)
    watch.look()
    assert len(cache) == 2  # the first model was not described again
    written = (tmp_path / "page.html").read_text()
    assert "focal, seed 2" in written
    assert "connect-src 'none'" in written


def test_watch_keeps_the_last_good_page(tmp_path):
    make_run(tmp_path / "one")
    failing = []

    def build():
        if failing:
            raise ValueError(failing[0])
        return make_report(read_sources([tmp_path], lenient=True), repairs=False, cache={})

    watch = Watch([tmp_path], build)
    watch.look()
    failing.append("torn file")
    make_run(tmp_path / "two", seed=2)
    assert watch.look()
    document = json.loads(watch.data(0))
    assert [m["name"] for m in document["models"]] == ["focal, seed 1"]
    assert document["problems"] == ["ValueError: torn file"]
    assert not watch.look()  # the same problem is not news
    failing.clear()
    assert watch.look()  # and the next look tries again
    document = json.loads(watch.data(0))
    assert len(document["models"]) == 2
    assert document["problems"] == []


def test_follow_survives_whatever_happens(tmp_path):
    said, stop = [], threading.Event()

    def build():
        raise RuntimeError("odd")

    watch = Watch([tmp_path], build, seconds=0.01)
    thread = threading.Thread(target=watch.follow, args=(stop,), kwargs={"say": said.append})
    thread.start()
    deadline = time.monotonic() + 10
    while len(said) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    stop.set()
    thread.join(5)
    assert said[:3] == ["RuntimeError: odd"] * 3
    assert not thread.is_alive()


def test_signature_changes_with_a_file_and_survives_its_loss(tmp_path):
    run = make_run(tmp_path / "one")
    before = signature([tmp_path])
    assert signature([tmp_path]) == before
    (run / "record.json").write_text("{}")
    assert signature([tmp_path]) != before
    assert signature([tmp_path / "gone"]) == ()


# ---------------------------------------------------------------------------------------------------------------- server


@pytest.fixture
def server(tmp_path):
    make_run(tmp_path / "one")
    (tmp_path / "secret.txt").write_text("secret")
    watch = Watch([tmp_path], lambda: make_report(read_sources([tmp_path]), repairs=False), seconds=0.2)
    watch.look()
    server = make_server(watch)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address[1], watch
    server.shutdown()
    server.server_close()


def ask(port, path, host=None, method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{port}"})
    answer = connection.getresponse()
    return answer.status, answer.read(), answer.headers


def test_server_gives_the_page_and_its_data(server):
    port, watch = server
    status, body, headers = ask(port, "/")
    assert status == 200
    assert b"focal, seed 1" in body
    assert b"connect-src 'self'" in body
    assert headers["Cache-Control"] == "no-store"
    status, body, _ = ask(port, "/data.json?after=0")
    assert status == 200
    assert json.loads(body)["live"] == {"version": 1, "seconds": 0.2}
    assert ask(port, f"/data.json?after={watch.version}")[0] == 204
    assert ask(port, "/data.json?after=x")[0] == 200
    assert ask(port, "/", host="localhost")[0] == 200


def test_server_gives_nothing_else(server):
    port, _ = server
    for path in ("/secret.txt", "/../secret.txt", "/%2e%2e/secret.txt", "/one/record.json", "//etc/passwd"):
        status, body, _ = ask(port, path)
        assert status == 404
        assert b"secret" not in body
    assert ask(port, "/", host="evil.example")[0] == 403
    assert ask(port, "/data.json", host=f"evil.example:{port}")[0] == 403
    assert ask(port, "/", method="POST")[0] == 501


def test_server_listens_on_this_machine_only(server):
    port, watch = server
    other = make_server(watch)
    assert other.server_address[0] == "127.0.0.1"
    other.server_close()
    with pytest.raises(FileError, match=f"port {port} cannot be used"):
        make_server(watch, port=port)


# --------------------------------------------------------------------------------------------------------------- command


@pytest.fixture
def command():
    app = typer.Typer()
    register(app)
    return lambda *arguments: CliRunner().invoke(app, [str(a) for a in arguments])


def test_command_writes_the_page(command, tmp_path):
    test, val = (
        predictions(500, factor=2.0).save(tmp_path / "test.npz"),
        predictions(300, factor=2.0, seed=1).save(tmp_path / "val.npz"),
    )
    (tmp_path / "names.txt").write_text("cat\ndog\nemu\nfox\n")
    out = tmp_path / "page.html"
    options = ("--class-names", tmp_path / "names.txt", "--methods", "temperature", "--title", "My model")
    result = command(test, "--val", val, "-o", out, *options)
    assert result.exit_code == 0, result.output
    assert "test: No: it is over-confident by" in result.output
    html = out.read_text()
    assert "<title>My model</title>" in html
    assert '"predicted: emu"' in html
    assert "300 validation samples" in html


def test_command_speaks_json(command, tmp_path):
    test = predictions(300).save(tmp_path / "test.npz")
    result = command(test, "--no-repairs", "--json", "-o", tmp_path / "page.html", "--class-names", "a,b,c,d")
    found = json.loads(result.stdout)
    assert found["models"][0]["n"] == 300
    assert found["file"].endswith("page.html")


def test_command_refuses_with_words(command, tmp_path):
    test = predictions(50).save(tmp_path / "test.npz")
    for arguments, words in [
        ((tmp_path / "absent.npz",), "does not exist"),
        ((test, "--methods", "temprature"), "Did you mean 'temperature'"),
        ((test, "--images", tmp_path / "absent.npy"), "holds no images"),
    ]:
        result = command(*arguments, "-o", tmp_path / "x.html")
        assert result.exit_code != 0
        assert words in str(result.exception)
    assert not (tmp_path / "x.html").exists()
